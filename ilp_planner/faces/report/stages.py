"""Tables of plans: a row per stage, and a row per plan of a ranking.

The layers of an operator range, for people who think in layers.
"""

from __future__ import annotations

from itertools import accumulate, groupby, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.analysis.fullest import fullest_device
from ilp_planner.base.units import format_percent, number_ranges
from ilp_planner.faces.report.aim import front_table
from ilp_planner.faces.report.devices import (
    describe_degrees,
    describe_devices,
    describe_stage,
    describe_types,
)
from ilp_planner.faces.report.tables import GIB, Table, span
from ilp_planner.optimize.coverage import proved_gap
from ilp_planner.plan import is_of_groups, is_of_operators
from ilp_planner.settings.labels import Told
from ilp_planner.settings.table import SETTINGS
from ilp_planner.specs.chain_layers import find_layers

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from ilp_planner.costs.base import StageCost
    from ilp_planner.evaluate import Evaluation
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.optimize.result import Ranked, Result
    from ilp_planner.plan import AnyPlan, GroupPlan, GroupStage, OperatorPlan, OperatorStage, Stage
    from ilp_planner.specs.chain_layers import Layer


# ---- layers --------------------------------------------------------------------------------------


def describe_layers(layers: Sequence[Layer], start: int, stop: int) -> str:
    """Return the layers of operators [start, stop): `1-6, part of 7`; `-` for none."""
    several = len({layer.side for layer in layers}) > 1
    words: list[str] = []
    whole: list[Layer] = []

    def flush() -> None:
        if whole:
            first, last = whole[0].number, whole[-1].number
            side = f"{whole[0].side} " if several else ""
            words.append(f"{side}{first}-{last}" if first < last else f"{side}{first}")
            whole.clear()

    for layer in layers:
        if layer.stop <= start or layer.start >= stop:
            continue
        if whole and whole[-1].side != layer.side:
            flush()
        if start <= layer.start and layer.stop <= stop:
            whole.append(layer)
        else:
            flush()
            side = f"{layer.side} " if several else ""
            words.append(f"part of {side}{layer.number}")
    flush()
    return ", ".join(words) or "-"


# ---- stages --------------------------------------------------------------------------------------


MOST_ROWS = 20  # of a table of stages
MOST_TEXTS = 3  # that a row for stages which differ lists
MOST_SHARES = 8  # replicas whose samples are listed one by one
LABELS = sorted(row.label for row in SETTINGS if row.label)
MOST_RANGES = 5  # ranges of layers that are listed


def result_tables(problem: Problem[Any], result: Result, *, every: bool = True) -> list[Table]:
    """Return the stages of a result's plan, and its ranking or its front, if it has them.

    every: the stages also of a plan that degrees and a layout say whole.
    """
    tables = []
    if (
        result.plan is not None
        and result.evaluation is not None
        and (every or not is_said_whole(problem, result.plan))
    ):
        tables.append(stage_table(problem, result.plan, result.evaluation))
    if result.ranking:
        tables.append(ranking_table(problem, result.ranking))
    if result.aim is not None and len(result.aim.best) > 1:
        tables.append(front_table(problem, result.aim))
    return tables


def is_said_whole(problem: Problem[Any], plan: AnyPlan) -> bool:
    """Tell whether degrees, flags and a layout say all that a plan decides: that of a training
    system on devices of one type."""
    types = {problem.cluster.type_of[device] for device in plan.used}
    return plan.settings is not None and len(types) == 1


def stage_table(problem: Problem[Any], plan: AnyPlan, evaluation: Evaluation) -> Table:
    """Return a row per stage; times and memory as the evaluator finds them."""
    if is_of_groups(plan):
        return _group_table(problem, plan, evaluation)
    assert is_of_operators(plan)
    return _operator_table(problem, plan, evaluation)


def joined(keys: Sequence[Hashable], most: int = MOST_ROWS) -> list[range]:
    """Return neighbouring stages that share a row: stages of equal keys, and all of the middle if
    more than `most` rows remain. Every stage is in one row."""
    runs = []
    for _, run in groupby(range(len(keys)), key=keys.__getitem__):
        numbers = list(run)
        runs.append(range(numbers[0], numbers[-1] + 1))
    if len(runs) <= most:
        return runs
    before, after = runs[: most // 2], runs[len(runs) - (most - most // 2 - 1) :]
    return [*before, range(before[-1].stop, after[0].start), *after]


def _numbers(run: range) -> str:
    return str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}"


def _alike(texts: Iterable[str]) -> str:
    """Return the common text of a row's stages; of stages that differ, each one's, if that is
    short."""
    distinct = list(dict.fromkeys(texts))
    more = ["..."] * (len(distinct) > MOST_TEXTS)
    return " or ".join([*distinct[:MOST_TEXTS], *more])


def _between(values: Iterable[float], digits: int) -> str:
    """Return `1.500`, or `1.500 to 2.250`."""
    texts = [f"{value:.{digits}f}" for value in sorted(values)]
    return texts[0] if texts[0] == texts[-1] else f"{texts[0]} to {texts[-1]}"


def _operator_table(problem: Problem[Any], plan: OperatorPlan, evaluation: Evaluation) -> Table:
    """Return a row per stage of operators, or for several that are alike."""
    layers = find_layers(problem.costs.chain)
    mixed_split = any(x.split for stage in plan.stages for x in stage.strategies)
    columns = ["stage", "operators", "layers", "devices", "tp", "dp"]
    columns += ["split"] if mixed_split else []
    columns += ["operators\nrecomputed", "time per\nmicro-batch (ms)", "memory per\ndevice (GiB)"]
    table = Table(*columns, left=("operators", "layers", "devices"))
    costs = evaluation.stages
    keys = [
        (
            stage.strategies,
            problem.cluster.type_of[stage.first_device],
            stage.device_count,
            f"{costs[s].time:.6g}" if s < len(costs) else "",
        )
        for s, stage in enumerate(plan.stages)
    ]
    for run in joined(keys):
        own = [plan.stages[s] for s in run]
        every = [x for stage in own for x in stage.strategies]
        start, stop = own[0].start, own[-1].stop
        each = f", {span(s.stop - s.start for s in own)} each" * (len(own) > 1)
        cells = [
            _numbers(run),
            f"{start}-{stop - 1}{each}",
            describe_layers(layers, start, stop),
            _devices_in_a_row(problem, own[0], own[-1]),
            span(x.tp for x in every),
            span(x.dp for x in every),
        ]
        cells += [span(x.split for x in every)] if mixed_split else []
        cells += [
            _alike(f"{sum(x.recompute for x in s.strategies)} of {len(s.strategies)}" for s in own),
            *_cost_cells(problem, [(plan.stages[s], costs[s : s + 1]) for s in run]),
        ]
        table.add(*cells)
    return table


def _cost_cells(
    problem: Problem[Any], each: Sequence[tuple[Stage, Sequence[StageCost]]]
) -> tuple[str, str]:
    """Return the milliseconds of a micro-batch and the memory of the fullest device of pipeline
    ranks, each with the costs of its stages; the first one's has the memory of all."""
    if not all(costs for _, costs in each):
        return "-", "-"
    time = _between((1e3 * sum(cost.time for cost in costs) for _, costs in each), 3)
    if not any(cost[0].memory_terms or any(cost[0].memory) for _, cost in each):
        return time, "not modelled"
    used = [fullest_device(problem, stage, costs[0]) for stage, costs in each]
    sizes, limits = ((size / GIB for size in column) for column in zip(*used, strict=True))
    return time, f"{_between(sizes, 2)} of {_between(limits, 2)}"


def _devices_in_a_row(
    problem: Problem[Any], stage: OperatorStage, until: OperatorStage | None = None
) -> str:
    """Return `0-3`, with the node or the nodes if the cluster has several; up to the devices of
    another stage."""
    end_stage = until or stage
    last = end_stage.first_device + end_stage.device_count - 1
    text = f"{stage.first_device}-{last}" if last > stage.first_device else str(last)
    if problem.cluster.node_count == 1:
        return text
    first, end = (d // problem.cluster.devices_per_node for d in (stage.first_device, last))
    return f"{text} (node {first})" if first == end else f"{text} (nodes {first}-{end})"


def _group_table(problem: Problem[Any], plan: GroupPlan, evaluation: Evaluation) -> Table:
    """Return a row per pipeline rank with all its virtual stages, or for several that are alike and
    on devices in their order."""
    again = any(stage.recompute.granularity != "none" for stage in plan.stages)
    table = Table(
        "stage" if plan.virtual == 1 else "rank",
        "layers",
        "devices",
        "tp",
        *["cp"] * (plan.cp > 1),
        "dp",
        *["recomputed"] * again,
        "samples per\nreplica",
        "time per\nmicro-batch (ms)",
        "memory per\ndevice (GiB)",
        left=("layers", "devices", "recomputed", "samples per\nreplica"),
    )
    cluster, costs = problem.cluster, evaluation.stages
    every = [_Rank.of(problem, plan, rank, costs) for rank in range(plan.ranks)]
    begins = [min(rank.stage.devices) for rank in every]
    turns = accumulate((after < before for before, after in pairwise(begins)), initial=0)
    for run in joined([(rank.key, turn) for rank, turn in zip(every, turns, strict=True)]):
        own = [every[rank] for rank in run]
        devices = [device for rank in own for device in rank.stage.devices]
        cells = (
            _numbers(run),
            layers_of(problem, plan, run[0], run[-1]),
            describe_devices(cluster, devices),
            _alike(rank.tp for rank in own),
            *[str(plan.cp)] * (plan.cp > 1),
            span(rank.stage.dp for rank in own),
            *[_alike(str(rank.stage.recompute) for rank in own)] * again,
            _alike(rank.samples for rank in own),
            *_cost_cells(problem, [(rank.stage, rank.costs) for rank in own]),
        )
        table.add(*cells)
    return table


class _Rank(NamedTuple):
    """A pipeline rank. key: equal for ranks that share a row; these differ only in layers, devices
    and memory."""

    stage: GroupStage
    costs: Sequence[StageCost]
    tp: str
    samples: str
    key: Hashable

    @classmethod
    def of(
        cls, problem: Problem[Any], plan: GroupPlan, rank: int, costs: Sequence[StageCost]
    ) -> _Rank:
        stage, numbers = plan.stages[rank], plan.schedule.stages_of(rank, plan.ranks)
        own = [costs[k] for k in numbers] if costs else []
        tp = describe_degrees(problem.cluster, stage, plan.cp)
        samples = describe_samples([replica.samples for replica in stage.replicas])
        sizes = tuple(plan.stages[k].stop - plan.stages[k].start for k in numbers)
        types = describe_types(problem.cluster, stage.devices)
        time = f"{sum(cost.time for cost in own):.6g}"
        key = (sizes, types, tp, samples, stage.recompute, time)
        return cls(stage, own, tp, samples, key)


def layers_of(problem: Problem[Any], plan: GroupPlan, rank: int, last: int | None = None) -> str:
    """Return the layers of a pipeline rank, or of all up to another one; of several virtual stages,
    their ranges."""
    layers = problem.costs.chain
    each = [
        [plan.stages[k] for k in plan.schedule.stages_of(one, plan.ranks)]
        for one in range(rank, (rank if last is None else last) + 1)
    ]
    own, counts = each[0], [sum(s.stop - s.start for s in stages) for stages in each]
    if len(own) == 1:
        text = describe_range(layers, own[0].start, each[-1][0].stop)
        return text if len(each) == 1 else f"{text}, {span(counts)} each"
    if len(each) > 1:
        return f"{span(counts)} each, in {len(own)} virtual stages"
    ranges = [number_ranges(range(stage.start, stage.stop)) for stage in own]
    if len(ranges) > MOST_RANGES:
        ranges = [*ranges[: MOST_RANGES - 1], "...", ranges[-1]]
    return f"{counts[0]} in {len(own)} virtual stages: {', '.join(ranges)}"


def describe_range(layers: Sequence[str], start: int, stop: int) -> str:
    """Return `0-3: embedding to layer 3`."""
    if stop - start == 1:
        return f"{start}: {layers[start]}"
    return f"{start}-{stop - 1}: {layers[start]} to {layers[stop - 1]}"


def describe_samples(samples: Sequence[int]) -> str:
    """Return `4,4,4,1`; `8 x 4, 8 x 1` for many replicas."""
    if len(samples) <= MOST_SHARES:
        return ",".join(map(str, samples))
    runs = [(value, len(list(run))) for value, run in groupby(samples)]
    return ", ".join(f"{count} x {value}" for value, count in runs)


def ranking_table(problem: Problem[Any], ranking: Sequence[Ranked]) -> Table:
    """Return a row per plan, best first; the gap of each is to its own bound."""
    trained = any(entry.plan.settings is not None for entry in ranking)
    more = ("training",) if trained else ()
    table = Table(
        "rank",
        "iteration (s)",
        "gap",
        "micro-batches",
        "stages",
        *more,
        "layers",
        left=("stages", *more, "layers"),
    )
    for rank, entry in enumerate(ranking, 1):
        time = entry.evaluation.iteration_time
        gap = proved_gap(time, entry.bound)
        cells = (
            str(rank),
            f"{time:.6f}",
            "0 % (proved)" if gap == 0 else format_percent(gap),
            str(entry.plan.micro_batches),
            describe_stages(problem, entry.plan),
            *([describe_training(entry.plan)] if trained else []),
            " ".join(str(stage.stop - stage.start) for stage in entry.plan.stages),
        )
        table.add(*cells)
    return table


def describe_training(plan: AnyPlan) -> str:
    """Return `sequence parallel, recompute full block 2, 4 virtual stages per rank`."""
    return ", ".join(training_words(plan))


def training_words(plan: AnyPlan, *, brief: bool = False) -> list[str]:
    """Return the same one by one. brief: without the degrees, which stand beside them, and without
    the types of gradients and moments if they are of fp32."""
    if plan.settings is None:
        return []
    told = Told(plan.settings, plan.virtual, brief)
    return [text for label in LABELS if (text := label.text(told))]


def describe_stages(problem: Problem[Any], plan: GroupPlan) -> str:
    """Return `4 x T4 tp1 dp4 | 2 of (8 x A100 tp4 dp2)`: equal stages in a row are told once."""
    own = plan.stages[: plan.ranks]
    each = [describe_stage(problem.cluster, stage, cp=plan.cp) for stage in own]
    runs = [(text, len(list(run))) for text, run in groupby(each)]
    return " | ".join(text if count == 1 else f"{count} of ({text})" for text, count in runs)

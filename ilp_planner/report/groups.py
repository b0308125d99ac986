"""Tables and summary lines of layer-level plans."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from rich.text import Text

from ilp_planner.coverage import proved_gap
from ilp_planner.report.devices import (
    describe_cluster,
    describe_devices,
    describe_stage,
    describe_types,
    number_ranges,
)
from ilp_planner.report.shares import share_lines
from ilp_planner.report.tables import (
    exact_seconds,
    memory_used,
    new_table,
    note_lines,
    proof_lines,
)
from ilp_planner.result import Status
from ilp_planner.specs.training import ORDERS
from ilp_planner.units import format_bytes, format_percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from ilp_planner.costs.base import StageCost
    from ilp_planner.evaluate import Evaluation
    from ilp_planner.plan import GroupPlan, GroupStage
    from ilp_planner.problem import Problem
    from ilp_planner.result import Ranked, Result

MOST_SHARES = 8  # replicas whose samples are listed one by one
MOST_RANGES = 5  # ranges of layers that are listed
HOUR = 3600  # seconds
NANOSECOND = 1e-9  # a term below it is nothing that anybody would read


def group_table(problem: Problem[Any], plan: GroupPlan, evaluation: Evaluation) -> Table:
    """Return a row per pipeline rank with all its virtual stages; times and memory as the evaluator
    finds them."""
    table = new_table(
        "stage" if plan.virtual == 1 else "rank",
        "layers",
        "devices",
        "tp",
        "dp",
        "samples per\nreplica",
        "time per\nmicro-batch (ms)",
        "memory per\ndevice (GiB)",
        left=("layers", "devices", "samples per\nreplica"),
    )
    costs = () if evaluation.cost is None else evaluation.cost.stages
    for rank, stage in enumerate(plan.stages[: plan.ranks]):
        own = costs[rank :: plan.ranks]
        cells = (
            str(rank),
            _layers_of(problem, plan, rank),
            describe_devices(problem.cluster, stage.devices),
            str(stage.tp),
            str(stage.dp),
            describe_samples([replica.samples for replica in stage.replicas]),
            f"{1e3 * sum(cost.time for cost in own):.3f}" if own else "-",
            _tightest(problem, stage, own[0]) if own else "-",
        )
        table.add_row(*map(Text, cells))
    return table


def _layers_of(problem: Problem[Any], plan: GroupPlan, rank: int) -> str:
    """Return the layers of a pipeline rank; of several virtual stages, their ranges."""
    layers, own = problem.costs.chain, plan.stages[rank :: plan.ranks]
    if len(own) == 1:
        return describe_range(layers, own[0].start, own[0].stop)
    ranges = [number_ranges(range(stage.start, stage.stop)) for stage in own]
    if len(ranges) > MOST_RANGES:
        ranges = [*ranges[: MOST_RANGES - 1], "...", ranges[-1]]
    count = sum(stage.stop - stage.start for stage in own)
    return f"{count} in {len(own)} virtual stages: {', '.join(ranges)}"


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


def fullest_device(
    problem: Problem[Any], stage: GroupStage, cost: StageCost
) -> tuple[float, float]:
    """Return (bytes used, bytes allowed) of the stage's device with the largest share in use."""
    return max(
        (
            (used, min(problem.memory_limits[problem.cluster.type_of[d]] for d in replica.devices))
            for replica, used in zip(stage.replicas, cost.memory, strict=True)
        ),
        key=lambda pair: pair[0] / pair[1],
    )


def _tightest(problem: Problem[Any], stage: GroupStage, cost: StageCost) -> str:
    if not cost.memory_terms and not any(cost.memory):
        return "not modelled"
    return memory_used(*fullest_device(problem, stage, cost))


def ranking_table(problem: Problem[Any], ranking: Sequence[Ranked]) -> Table:
    """Return a row per plan, best first; the gap of each is to its own bound."""
    trained = any(entry.plan.settings is not None for entry in ranking)
    more = ("training",) if trained else ()
    table = new_table(
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
        table.add_row(*map(Text, cells))
    return table


def describe_training(plan: GroupPlan) -> str:
    """Return `sequence parallel, recompute full block 2, 4 virtual stages per rank`."""
    settings = plan.settings
    if settings is None:
        return ""
    again, found = settings.recompute, []
    if settings.cp > 1:
        found.append(f"cp {settings.cp}")
    if settings.ep > 1 or settings.etp:
        found.append(f"ep {settings.ep}")
    if settings.etp:
        found.append(f"etp {settings.etp}")
    if settings.sequence_parallel:
        found.append("sequence parallel")
    if again.granularity == "none":
        found.append("no recomputation")
    elif again.granularity == "selective":
        found.append(f"recompute {', '.join(again.modules)}")
    else:
        found.append(f"recompute full {again.method} {again.layers}")
    if plan.virtual > 1:
        found.append(f"{plan.virtual} virtual stages per rank")
    if settings.order != ORDERS[0]:
        found.append(f"rank order {settings.order}")
    if settings.optimizer.sharding != "none":
        found.append(f"{settings.optimizer.sharding} sharded")
    return ", ".join(found)


def describe_stages(problem: Problem[Any], plan: GroupPlan) -> str:
    """Return `4 x T4 tp1 dp4 | 2 of (8 x A100 tp4 dp2)`: equal stages in a row are told once."""
    each = [describe_stage(problem.cluster, stage) for stage in plan.stages[: plan.ranks]]
    runs = [(text, len(list(run))) for text, run in groupby(each)]
    return " | ".join(text if count == 1 else f"{count} of ({text})" for text, count in runs)


def group_problem_lines(problem: Problem[Any]) -> list[tuple[str, str]]:
    """Say what was planned."""
    limits = problem.memory_limits
    memory = ", ".join(f"{name} {format_bytes(limits[name])}" for name in limits)
    rule = "" if problem.memory_rule == "device" else f", memory by {problem.memory_rule}'s rule"
    placed = "" if problem.placement == "default" else f", placement {problem.placement}"
    return [
        ("model", f"{problem.model}, {len(problem.costs.chain)} layers"),
        ("cluster", f"{problem.cluster.name}, {describe_cluster(problem.cluster)} ({memory})"),
        ("costs", f"{problem.costs.name}, profile {describe_source(problem.profile_source)}"),
        ("plans", f"space {problem.space}{rule}{placed}"),
    ]


def describe_source(source: str) -> str:
    """Name a profile; an analytic one is said to be no measurement."""
    return f"{source} (estimated, not measured)" if source.startswith("analytic") else source


def group_plan_lines(
    problem: Problem[Any], plan: GroupPlan, evaluation: Evaluation, *, proved: bool = False
) -> list[tuple[str, str]]:
    """Say what the plan takes, where the time goes, what it costs and what it leaves idle.

    Parameters
    ----------
    proved: no plan is faster.
    """
    count = f"{plan.micro_batches} micro-batch{'es' if plan.micro_batches > 1 else ''}"
    batch = f"{plan.global_batch} sample{'s' if plan.global_batch > 1 else ''} in {count}"
    time = exact_seconds(evaluation.iteration_time)
    lines = [("iteration time", f"{time} for {batch} of {plan.micro_batch_size}")]
    if plan.settings is not None:
        lines.insert(0, ("training", describe_training(plan)))
    if evaluation.cost is not None and evaluation.cost.terms:
        terms = evaluation.cost.terms.items()
        each = [f"{name} {exact_seconds(value)}" for name, value in terms if value >= NANOSECOND]
        lines.append(("of which", " + ".join(each)))
    if evaluation.idle:
        lines.append(("idle", describe_idle(problem, evaluation.idle, proved=proved)))
    lines += _price_lines(problem, plan, evaluation)
    lines += [("BROKEN RULE", str(violation)) for violation in evaluation.violations]
    return lines


def _price_lines(
    problem: Problem[Any], plan: GroupPlan, evaluation: Evaluation
) -> list[tuple[str, str]]:
    """Say what the figures rest on, and the price; nothing of a plan that cannot be priced."""
    if evaluation.cost is None:
        return []
    from ilp_planner.evaluate import time_shares  # needs numpy, `--help` does not

    lines = share_lines(time_shares(problem, plan, evaluation))
    price = hourly_price(problem, plan)
    if price is not None:
        once = price * evaluation.iteration_time / HOUR
        lines.append(
            ("price", f"{price:.2f} per hour for {plan.devices} devices, {once:.4g} per iteration")
        )
    return lines


def describe_idle(problem: Problem[Any], idle: Sequence[int], *, proved: bool) -> str:
    """Return `2 x T4 (devices 12-13): using them is not faster`."""
    text = f"{describe_types(problem.cluster, idle)} (device{'s' if len(idle) > 1 else ''} "
    text += f"{number_ranges(idle)})"
    return f"{text}: using them is not faster" if proved else text


def hourly_price(problem: Problem[Any], plan: GroupPlan) -> float | None:
    """Return what the devices in use cost per hour; None where a price is not known."""
    total = 0.0
    for number, stage in enumerate(plan.stages):
        for device in stage.devices if number < plan.ranks else ():
            price = problem.cluster.device_types[problem.cluster.type_of[device]].price
            if price is None:
                return None
            total += price
    return total


def group_result_lines(problem: Problem[Any], result: Result) -> list[tuple[str, str]]:
    """Return all that there is to say below the table of a result."""
    lines = []
    if result.plan is not None and result.evaluation is not None:
        proved = result.status is Status.OPTIMAL
        lines += group_plan_lines(problem, result.plan, result.evaluation, proved=proved)
    elif result.status is Status.INFEASIBLE:
        lines.append(("no plan", f"proved infeasible: {result.reason or 'no plan fits'}"))
    else:
        lines.append(("no plan", "none found"))
    lines += proof_lines(result)
    notes = (*problem.notes, *result.notes)
    return [*group_problem_lines(problem), *lines, *note_lines(notes)]


def group_evaluation_lines(
    problem: Problem[Any], plan: GroupPlan, evaluation: Evaluation
) -> list[tuple[str, str]]:
    """Say what the evaluator found."""
    verdict = "legal" if evaluation.legal else f"breaks {len(evaluation.violations)} rules"
    return [
        *group_problem_lines(problem),
        ("plan", verdict),
        *group_plan_lines(problem, plan, evaluation),
        *note_lines(problem.notes),
    ]

"""Tables and summary lines for people. Every number has its unit, in the header or beside it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from ilp_planner.evaluate import time_shares
from ilp_planner.report.layers import describe_layers
from ilp_planner.report.shares import share_lines
from ilp_planner.result import Status, Stop
from ilp_planner.specs.chain_layers import find_layers
from ilp_planner.units import format_bytes, format_percent, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ilp_planner.evaluate import Evaluation
    from ilp_planner.formats.saved_plan import Claim
    from ilp_planner.plan import OperatorPlan, OperatorStage
    from ilp_planner.problem import Problem
    from ilp_planner.result import Outcome, Result

GIB = 2**30
STOPS = {
    Stop.PROOF: "proof",
    Stop.GAP: "gap reached that was asked for",
    Stop.TIME: "time limit",
    Stop.EFFORT: "more placements than can be tried one by one",
    Stop.HEURISTIC: "end of the heuristic",
    Stop.USER: "interrupted by the user",
    Stop.ERROR: "a solver failed",
}


def new_table(*columns: str, left: Sequence[str] = ()) -> Table:
    """Return an empty table; columns are right-aligned but for those in `left`."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in columns:
        table.add_column(
            Text(name), justify="left" if name in left else "right", overflow="fold", no_wrap=False
        )
    return table


def stage_table(problem: Problem, plan: OperatorPlan, evaluation: Evaluation) -> Table:
    """Return a row per stage; times and memory as the evaluator finds them."""
    layers = find_layers(problem.costs.chain)
    mixed_split = any(x.split for stage in plan.stages for x in stage.strategies)
    columns = ["stage", "operators", "layers", "devices", "tp", "dp"]
    columns += ["split"] if mixed_split else []
    columns += ["operators\nrecomputed", "time per\nmicro-batch (ms)", "memory per\ndevice (GiB)"]
    table = new_table(*columns, left=("operators", "layers", "devices"))
    for s, stage in enumerate(plan.stages):
        cost = evaluation.stages[s] if s < len(evaluation.stages) else None
        cells = [
            str(s),
            f"{stage.start}-{stage.stop - 1}",
            describe_layers(layers, stage.start, stage.stop),
            describe_devices(problem, stage),
            span(x.tp for x in stage.strategies),
            span(x.dp for x in stage.strategies),
        ]
        cells += [span(x.split for x in stage.strategies)] if mixed_split else []
        cells += [
            f"{sum(x.recompute for x in stage.strategies)} of {len(stage.strategies)}",
            "-" if cost is None else f"{1e3 * cost.time:.3f}",
            "-" if cost is None else memory_used(cost.memory, problem.memory_limit),
        ]
        table.add_row(*map(Text, cells))
    return table


def span(values: Iterable[int]) -> str:
    """Return `2` when all are equal, `1-4` from the least to the largest otherwise."""
    distinct = sorted(set(values))
    return f"{distinct[0]}-{distinct[-1]}" if len(distinct) > 1 else str(distinct[0])


def memory_used(used: float, limit: float) -> str:
    """Return `26.41 of 27.34`, GiB."""
    return f"{used / GIB:.2f} of {limit / GIB:.2f}"


def describe_devices(problem: Problem, stage: OperatorStage) -> str:
    """Return `0-3`, with the node where there are several."""
    last = stage.first_device + stage.device_count - 1
    text = f"{stage.first_device}-{last}" if stage.device_count > 1 else str(last)
    if problem.cluster.node_count == 1:
        return text
    return f"{text} (node {stage.first_device // problem.cluster.devices_per_node})"


def summary(lines: Sequence[tuple[str, str]]) -> Text:
    """Return lines of a name and what there is to say."""
    width = max(len(name) for name, _ in lines) + 2
    return Text("\n".join(f"{name:<{width}}{text}" for name, text in lines))


def problem_lines(problem: Problem) -> list[tuple[str, str]]:
    """Say what was planned."""
    cluster = problem.cluster
    nodes = f"{cluster.node_count} x {cluster.devices_per_node}"
    return [
        ("model", f"{problem.model.name}, {len(problem.costs.chain)} operators"),
        ("cluster", f"{cluster.name}, {nodes} devices, {format_bytes(problem.memory_limit)} each"),
        ("costs", f"{problem.costs.name}, profile {describe_profile(problem)}"),
    ]


def describe_profile(problem: Problem) -> str:
    """Name the profile; an analytic one is said to be no measurement."""
    source = problem.profile.source
    return f"{source} (estimated, not measured)" if source.startswith("analytic") else source


def plan_lines(
    problem: Problem, plan: OperatorPlan, evaluation: Evaluation
) -> list[tuple[str, str]]:
    """Say what the plan takes, what that rests on, and every rule that it breaks."""
    time = exact_seconds(evaluation.iteration_time)
    batch = f"{plan.global_batch} samples in {plan.micro_batches} micro-batches"
    return [
        ("iteration time", f"{time} for {batch} of {plan.micro_batch_size}"),
        *share_lines(time_shares(problem, plan, evaluation)),
        *(("BROKEN RULE", str(violation)) for violation in evaluation.violations),
    ]


def proof_lines(result: Outcome) -> list[tuple[str, str]]:
    """Say what is proved, and why the search stopped."""
    return [
        ("bound", describe_bound(result.bound, proved_by(result))),
        *([("among", result.among)] if result.among else []),
        ("gap", describe_gap(result.gap)),
        ("stopped by", f"{STOPS[result.stopped_by]}, after {format_seconds(result.wall)}"),
        ("solver", f"{result.solver}, seed {result.seed}"),
    ]


def proved_by(result: Outcome | Claim) -> str:
    """Return who proved a bound, and who confirmed it."""
    if not result.confirmed_by:
        return result.bound_source
    return f"{result.bound_source}, confirmed by {result.confirmed_by}"


def describe_bound(bound: float, source: str) -> str:
    """Return the least time that any plan can take, and who proved it."""
    if bound <= 0:
        return "none"
    if math.isinf(bound):
        return f"no plan exists, proved by {source}" if source else "no plan exists"
    return f"{exact_seconds(bound)}, proved by {source}" if source else exact_seconds(bound)


def describe_gap(gap: float) -> str:
    """Return the share of the iteration time that a better plan could save at most."""
    return "0 % (proved optimal)" if gap == 0 else format_percent(gap)


def exact_seconds(seconds: float) -> str:
    """Return a time to the millisecond from a second on: gaps far below a percent stay visible."""
    if math.isfinite(seconds) and seconds >= 1:
        return f"{seconds:.3f} s"
    return format_seconds(seconds)


def note_lines(notes: Iterable[str]) -> list[tuple[str, str]]:
    """Return a line per remark, each once."""
    return [("note", note) for note in dict.fromkeys(notes)]


def result_lines(problem: Problem, result: Result) -> list[tuple[str, str]]:
    """Return all that there is to say below the table of a result."""
    lines = []
    if result.plan is not None and result.evaluation is not None:
        lines += plan_lines(problem, result.plan, result.evaluation)
    elif result.status is Status.INFEASIBLE:
        lines.append(("no plan", f"proved infeasible: {result.reason}"))
    else:
        lines.append(("no plan", "none found"))
    lines += proof_lines(result)
    return [*problem_lines(problem), *lines, *note_lines((*problem.notes, *result.notes))]

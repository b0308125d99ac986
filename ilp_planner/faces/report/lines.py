"""Problems, plans and results as lines of a name and a text.

The fastest plan beside a plainer one that was chosen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ilp_planner.base.units import format_bytes, format_percent, number_ranges
from ilp_planner.evaluate import time_shares
from ilp_planner.faces.report.aim import aim_lines
from ilp_planner.faces.report.devices import describe_cluster, describe_idle_nodes, describe_types
from ilp_planner.faces.report.expected import expected_lines, share_lines
from ilp_planner.faces.report.parallelism import parallelism, parallelism_lines
from ilp_planner.faces.report.rates import worth_lines
from ilp_planner.faces.report.stages import describe_training
from ilp_planner.faces.report.tables import describe_gap, exact_seconds, note_lines, proof_lines
from ilp_planner.optimize.coverage import proved_gap
from ilp_planner.optimize.result import Status
from ilp_planner.spaces.throughput import above_data_sheet, physical_bound, precisions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.evaluate import Evaluation
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.optimize.result import Result
    from ilp_planner.plan import AnyPlan


# ---- fastest -------------------------------------------------------------------------------------


def fastest_lines(problem: Problem[Any], result: Result) -> list[tuple[str, str]]:
    """Say the time of the fastest plan, its proof and the settings that make it less plain, on one
    line; nothing if the plan is the fastest."""
    fastest, plan = result.fastest, result.plan
    if fastest is None or plan is None:
        return []
    open_gap = describe_gap(proved_gap(fastest.objective, result.bound))
    known = "proved optimal" if fastest.status is Status.OPTIMAL else f"gap {open_gap}"
    faster = format_percent(1 - fastest.objective / result.objective)
    own, other = (problem.space.plainness(problem, one) for one in (plan, fastest.plan))
    more = ", ".join(name for name, grade in other.items() if grade > own[name])
    ((_, degrees),) = parallelism_lines(parallelism(problem, fastest.plan, fastest.evaluation))
    text = (
        f"{exact_seconds(fastest.objective)}, {known}, {faster} faster, less plain by {more}: "
        f"{degrees}; --prefer-plain 0 takes it"
    )
    return [("fastest", text)]


# ---- lines ---------------------------------------------------------------------------------------


NANOSECOND = 1e-9  # a term below it is nothing that anybody would read
VISIBLE = 1e-4  # relative: a difference that is worth a line


def problem_lines(problem: Problem[Any]) -> list[tuple[str, str]]:
    """Say the planned problem."""
    limits, space = problem.limits_of_types, problem.space
    memory = ", ".join(f"{name} {format_bytes(limits[name])}" for name in limits)
    if len(limits) == 1:
        memory = f"{format_bytes(problem.memory_limit)} each"
    chosen = "".join(f", {name.replace('_', ' ')} {it}" for name, it in space.options().items())
    return [
        ("model", f"{problem.model}, {len(problem.costs.chain)} {space.unit}s"),
        ("cluster", f"{problem.cluster.name}, {describe_cluster(problem.cluster)} ({memory})"),
        *_idle_lines(problem),
        ("costs", f"{problem.costs.name}, profile {describe_source(problem.profile_source)}"),
        ("plans", f"space {space.name}{chosen}"),
    ]


def _idle_lines(problem: Problem[Any]) -> list[tuple[str, str]]:
    """Say the left-out nodes of the named cluster."""
    idle = describe_idle_nodes(problem)
    return [("idle", idle)] if idle else []


def describe_source(source: str) -> str:
    """Name a profile; an analytic one is said to be no measurement."""
    return f"{source} (estimated, not measured)" if source.startswith("analytic") else source


def plan_lines(
    problem: Problem[Any],
    plan: AnyPlan,
    evaluation: Evaluation,
    *,
    proved: bool = False,
    tokens: float | None = None,
) -> list[tuple[str, str]]:
    """Say the time of the plan, its terms, its price and its idle devices.

    Parameters
    ----------
    proved: no plan is faster. tokens: of a training run; None: nothing is said of one.
    """
    count = f"{plan.micro_batches} micro-batch{'es' if plan.micro_batches > 1 else ''}"
    batch = f"{plan.global_batch} sample{'s' if plan.global_batch > 1 else ''} in {count}"
    time = exact_seconds(evaluation.iteration_time)
    size = str(plan.micro_batch_size)
    if plan.batches.short:
        size += f", the last of {plan.batches.last}"
    lines = [("iteration time", f"{time} for {batch} of {size}")]
    lines += expected_lines(problem, plan)
    if plan.settings is not None:
        lines.insert(0, ("training", describe_training(plan)))
    if evaluation.cost is not None and evaluation.cost.terms:
        terms = evaluation.cost.terms.items()
        each = [f"{name} {exact_seconds(value)}" for name, value in terms if value >= NANOSECOND]
        lines.append(("of which", " + ".join(each)))
    lines += _schedule_lines(plan, evaluation)
    lines += worth_lines(problem, plan, evaluation, tokens)
    if evaluation.idle:
        lines.append(("idle", describe_idle(problem, evaluation.idle, proved=proved)))
    lines += share_lines(time_shares(problem, plan, evaluation))
    lines += [("BROKEN RULE", str(violation)) for violation in evaluation.violations]
    return lines


def _schedule_lines(plan: AnyPlan, evaluation: Evaluation) -> list[tuple[str, str]]:
    """Say the time of the schedule if the plan's time is by the formula and visibly larger."""
    from ilp_planner.analysis.simulated import by_schedule

    seconds, formula = by_schedule(plan, evaluation), evaluation.iteration_time
    if seconds is None or abs(seconds - formula) < VISIBLE * formula:
        return []
    rest = f"{format_percent(abs(1 - seconds / formula))} {'less' if seconds < formula else 'more'}"
    name = plan.schedule.name.upper() if plan.virtual == 1 else plan.schedule.name
    return [("by schedule", f"{exact_seconds(seconds)}, {rest}: {name} operation by operation")]


def _physical_lines(problem: Problem[Any]) -> list[tuple[str, str]]:
    """Say the physical bound; nothing if it is unknown."""
    seconds = physical_bound(problem)
    if not seconds:
        return []
    peak = precisions(problem)[-1]
    above = any(above_data_sheet(device) > 1 for device in problem.cluster.device_types.values())
    rate = "rate that was measured, above the data sheet's" if above else "peak"
    of = "" if above else "data sheet's "
    why = f"all products at the {of}{peak} {rate}, and nothing else"
    return [("physical bound", f"{exact_seconds(seconds)} for any run on these devices: {why}")]


def describe_idle(problem: Problem[Any], idle: Sequence[int], *, proved: bool) -> str:
    """Return `2 x T4 (devices 12-13): using them is not faster`."""
    text = f"{describe_types(problem.cluster, idle)} (device{'s' if len(idle) > 1 else ''} "
    text += f"{number_ranges(idle)})"
    return f"{text}: using them is not faster" if proved else text


def result_lines(
    problem: Problem[Any], result: Result, tokens: float | None = None
) -> list[tuple[str, str]]:
    """Return all that there is to say below the table of a result. tokens: as in `plan_lines`."""
    lines = []
    if result.plan is not None and result.evaluation is not None:
        optimal = result.status is Status.OPTIMAL
        lines += plan_lines(problem, result.plan, result.evaluation, proved=optimal, tokens=tokens)
    elif result.status is Status.INFEASIBLE:
        lines.append(("no plan", f"proved infeasible: {result.reason or 'no plan fits'}"))
    else:
        lines.append(("no plan", "none found"))
    lines += fastest_lines(problem, result)
    usual = result.aim is None or result.aim.usual
    proved = proof_lines(result) if usual else aim_lines(problem, result)
    lines += [*proved, *(_physical_lines(problem) if result.plan else ())]
    notes = (*problem.notes, *result.notes)
    return [*problem_lines(problem), *lines, *note_lines(notes)]


def evaluation_lines(
    problem: Problem[Any], plan: AnyPlan, evaluation: Evaluation, tokens: float | None = None
) -> list[tuple[str, str]]:
    """Say the verdict of the evaluator. tokens: as in `plan_lines`."""
    verdict = "legal" if evaluation.legal else f"breaks {len(evaluation.violations)} rules"
    return [
        *problem_lines(problem),
        ("plan", verdict),
        *plan_lines(problem, plan, evaluation, tokens=tokens),
        *_physical_lines(problem),
        *note_lines(problem.notes),
    ]

"""The fastest plan beside a plainer one that was chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ilp_planner.base.units import format_percent
from ilp_planner.faces.report.parallelism import parallelism, parallelism_lines
from ilp_planner.faces.report.tables import describe_gap, exact_seconds
from ilp_planner.optimize.coverage import proved_gap
from ilp_planner.optimize.result import Status

if TYPE_CHECKING:
    from ilp_planner.optimize.result import Result
    from ilp_planner.problem import Problem


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

"""The plans of a proof, and the gap of a plan to a bound that is about it.

The judge calls more plans legal than a search goes through. A bound says nothing of a legal plan
that its space leaves out; of every other plan it is never above the time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.base.errors import SolverError
from ilp_planner.base.numerics import ROUNDING
from ilp_planner.optimize.result import relative_gap

if TYPE_CHECKING:
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.plan import Plan


NOT_LEGAL = "the plan is not legal"


class Coverage(NamedTuple):
    """The plans of a proof (`among`), and why a certain one is outside; None: it is not."""

    among: str
    outside: str | None


def coverage_of(problem: Problem[Any], plan: Plan[Any], *, legal: bool) -> Coverage:
    """Return the coverage of a plan."""
    space = problem.space
    return Coverage(space.describe(problem), space.outside(problem, plan) if legal else NOT_LEGAL)


def check_tried(name: str, value: int, tried: tuple[int, ...]) -> str | None:
    """Return why a plan is outside, if its value of a quantity was not tried; else None."""
    if value in tried:
        return None
    return f"{name}: found {value}, only {', '.join(map(str, tried))} tried"


def proved_gap(iteration_time: float, bound: float) -> float:
    """Return the relative gap of a plan to a bound that is about it: 0 if only rounding is left.

    Parameters
    ----------
    iteration_time, bound: seconds.

    Raises
    ------
    SolverError: the bound is above the time.
    """
    if bound > iteration_time * (1 + ROUNDING):
        raise SolverError(
            f"the bound of {bound!r} s is above the {iteration_time!r} s of a legal plan that it "
            "is about: this is never right, one of the two is wrong"
        )
    gap = relative_gap(iteration_time, bound)
    return gap if gap > ROUNDING else 0.0

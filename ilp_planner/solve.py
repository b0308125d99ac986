"""The one verb: from a problem of operators to a plan with a proof."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ilp_planner.solvers import registry
from ilp_planner.solvers.base import Limits
from ilp_planner.spaces.operators.search import Search

if TYPE_CHECKING:
    from ilp_planner.problem import Problem
    from ilp_planner.result import Result
    from ilp_planner.solvers.base import Progress


def solve(
    problem: Problem,
    *,
    limits: Limits | None = None,
    solver: str = "auto",
    progress: Progress | None = None,
) -> Result:
    """Find the fastest plan, and a lower bound on the time of every plan.

    Parameters
    ----------
    limits: time, gap, workers and seed.
    solver: `auto`, or the name of the backend that solves the stage graphs (`dp`, `cp-sat`,
    `milp`, `pulp`); `gradient` and `anneal` are heuristics, whose plan the bound of `auto` is put
    beside (`heuristic`).
    progress: called with (incumbent seconds, bound seconds) as they improve.

    Raises
    ------
    UsageError: an unknown solver.
    SolverError: the evaluator refutes what the search believes.
    """
    limits = limits or Limits()
    if registry.is_heuristic(solver):
        from ilp_planner.spaces.operators.hunt import solve_by_heuristic

        return solve_by_heuristic(problem, limits, solver, progress)
    return Search(problem, limits, solver, progress).outcome()

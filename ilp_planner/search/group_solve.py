"""From a problem of layers on device groups to a plan with a proof.

A plan space falls into parts, and knows how they are searched (`plan_space`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ilp_planner.deadline import OutOfTimeError
from ilp_planner.errors import interruptible
from ilp_planner.result import Stop
from ilp_planner.search.group_search import GroupSearch
from ilp_planner.solvers import registry
from ilp_planner.solvers.base import Limits

if TYPE_CHECKING:
    from ilp_planner.deadline import Deadline
    from ilp_planner.group_problem import GroupProblem
    from ilp_planner.result import GroupResult, Ranked
    from ilp_planner.solvers.base import Progress


def solve_groups(
    problem: GroupProblem,
    *,
    limits: Limits | None = None,
    solver: str = "auto",
    progress: Progress | None = None,
    top: int = 1,
    deadline: Deadline | None = None,
) -> GroupResult:
    """Find the fastest plan, and a lower bound on the time of every plan.

    Parameters
    ----------
    limits: time, gap, workers and seed.
    solver: `auto` or `dp` (labels; `auto` gives to CP-SAT what they leave open), `cp-sat`, `milp`,
    `pulp`; `gradient` and `anneal` are heuristics, whose plan the bound of `auto` is put beside.
    progress: called with (incumbent seconds, bound seconds) as they improve.
    top: how many of the best plans to list; plans count as one when they differ in cuts only.
    deadline: when to end at the latest; the limits' own, if there is none.

    Raises
    ------
    UsageError: an unknown solver; more than one plan of a heuristic.
    SolverError: the evaluator refutes what the search believes.
    """
    if registry.is_heuristic(solver):
        from ilp_planner.search.graph_hunt import solve_groups_by_heuristic
        from ilp_planner.spaces.operators.hunt import PORTFOLIO

        def prove(limits: Limits, progress: Progress | None, end: Deadline) -> GroupResult:
            return solve_groups(
                problem, limits=limits, solver=PORTFOLIO, progress=progress, deadline=end
            )

        return solve_groups_by_heuristic(problem, limits or Limits(), solver, progress, top, prove)
    search = GroupSearch(problem, limits or Limits(), solver, progress, deadline)
    ranking: tuple[Ranked, ...] = ()
    try:
        with interruptible():
            stop = run(search)
            search.confirm()
            if top > 1 and search.plan is not None:
                ranking = search.space.rank(search, top)
    except KeyboardInterrupt:
        stop = Stop.USER
    return search.result(stop, ranking)


def run(search: GroupSearch) -> Stop:
    """Work until proof, gap or time."""
    try:
        return search.space.search(search)
    except OutOfTimeError:
        return Stop.TIME

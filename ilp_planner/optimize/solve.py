"""The one verb: from a problem to a plan with a proof.

The history of a search: bound and best plan from moment to moment.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ilp_planner.base.deadline import Deadline, OutOfTimeError
from ilp_planner.base.errors import UsageError, interruptible
from ilp_planner.base.resident import uncollected
from ilp_planner.optimize.result import Moment, Stop
from ilp_planner.optimize.search.preference import prefer_plain, time_kept
from ilp_planner.optimize.search.start import start_from
from ilp_planner.optimize.solvers import registry
from ilp_planner.optimize.solvers.base import Limits, Progress, Task

if TYPE_CHECKING:
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.optimize.result import Ranked, Result
    from ilp_planner.optimize.search.start import Start
    from ilp_planner.optimize.search.state import SearchState


# ---- history -------------------------------------------------------------------------------------


MOST = 256  # moments that are kept: more than a picture of them shows


class Recorder:
    """Keeps when the best plan or the bound of a search improved, and tells whoever listens.

    told: called with (objective, bound), both in seconds, as the recorder is; None: nobody listens.
    deadline: times count from its beginning.
    """

    def __init__(self, told: Progress | None, deadline: Deadline) -> None:
        self.told, self.deadline = told, deadline
        self.moments: list[Moment] = []

    def __call__(self, objective: float, bound: float) -> None:
        """Take note of both, in seconds."""
        self.keep(objective, bound)
        if self.told is not None:
            self.told(objective, bound)

    def keep(self, objective: float, bound: float) -> None:
        """Record both, in seconds, if one of them has changed."""
        if self.moments and self.moments[-1][1:] == (objective, bound):
            return
        if len(self.moments) == MOST:  # every other one, and always the first plan's
            del self.moments[1::2]
        self.moments.append(Moment(self.deadline.elapsed, objective, bound))


# ---- solve ---------------------------------------------------------------------------------------


def solve(
    problem: Problem[Any],
    *,
    limits: Limits | None = None,
    solver: str = "auto",
    progress: Progress | None = None,
    top: int = 1,
    deadline: Deadline | None = None,
    start: Start | None = None,
) -> Result:
    """Find the fastest plan, and a lower bound on the time of every plan.

    Parameters
    ----------
    limits: time, gap, workers and seed, and the share for a plainer plan, when one plan is asked
        for.
    solver: `auto`, or the name of the backend that solves the stage graphs (`dp`, `cp-sat`, `milp`,
        `pulp`); `gradient` and `anneal` are heuristics, with the bound of `auto` beside their plan
        (`heuristic`).
    progress: called with (incumbent seconds, bound seconds) as they improve.
    deadline: of a search that this one is a part of, or that began before; None: by the limits,
        from now on.
    start: a saved plan to start from, with its bounds that still hold.
    top: how many of the best plans to list; plans count as one when they differ in cuts only.

    Raises
    ------
    PlanError: the certificate of `start` is malformed, or contradicts its own plan.
    UsageError: an unknown solver; more than one plan of a heuristic, or of a space that cannot
        list them.
    SolverError: the evaluator refutes the result of the search.
    """
    limits = limits or Limits()
    deadline = deadline or limits.deadline()
    unranked = problem.space.why_unranked()
    if top > 1 and unranked:
        raise UsageError(f"top: found {top} {unranked}")
    recorder = Recorder(progress, deadline)
    if registry.is_heuristic(solver):
        from ilp_planner.optimize.heuristic import solve_by_heuristic

        prove = partial(solve, start=start)
        result = solve_by_heuristic(problem, limits, solver, recorder, top, prove, deadline)
        return _with_history(result, recorder)
    prefers = top == 1 and limits.prefer_plain > 0 and problem.space.graded
    until = deadline.but(time_kept(deadline.left)) if prefers else deadline
    search: SearchState = problem.space.begin(problem, Task(limits, solver, recorder, until))
    ranking: tuple[Ranked, ...] = ()
    try:
        with interruptible(), uncollected():
            stop = _searched(search, start)
            search.confirm()
            if prefers:
                search.deadline = deadline
                prefer_plain(search)
            if top > 1 and search.plan is not None:
                ranking = problem.space.rank(search, top)
    except KeyboardInterrupt:
        stop = Stop.USER
    except MemoryError:  # the system gives no more
        stop = Stop.MEMORY
    finally:
        search.end()
    if stop is Stop.TIME and deadline.full:
        stop = Stop.MEMORY
    return _with_history(search.result(stop, ranking), recorder)


def _with_history(result: Result, recorder: Recorder) -> Result:
    """Return a result with the history of the search; its own figures end it."""
    recorder.keep(result.objective, result.bound)
    return replace(result, history=tuple(recorder.moments))


def _searched(search: SearchState, start: Start | None) -> Stop:
    """Search until proof, gap or time; plans found by then are ranked in any case."""
    try:
        if start is not None:
            start_from(search, start)
            if search.answered:
                return Stop.PROOF
        stop: Stop = search.problem.space.search(search)
    except OutOfTimeError:
        return Stop.TIME
    return stop

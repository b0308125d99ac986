"""The last problem of a proof, given to a second solver.

What a proof by dynamic programming leaves open up to its plan is a small stage graph. CP-SAT solves
it once more, as an integer program, and must find the plan's own time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.errors import SolverError
from ilp_planner.result import Status, Stop
from ilp_planner.solvers.base import Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ilp_planner.deadline import Deadline
    from ilp_planner.graph import StageGraph
    from ilp_planner.solvers.cpsat import CpSat

ROOM = 1e-6  # relative: how far above its plan a last problem reaches
MOST_ARCS = 4_000
MOST_WORK = 4.0  # of CP-SAT, in its deterministic time: some three seconds of an idle core

ENDED = {Stop.EFFORT: "too hard for it", Stop.USER: "interrupted"}


def _nothing(path: Sequence[int]) -> bool:
    return False


@dataclass(frozen=True, kw_only=True)
class LastProblem:
    """All that a proof leaves open of the part that holds a plan.

    constant: seconds that every plan of the part takes besides its path.
    relaxed: paths may take less than the plans that they stand for, as where placing them on
    devices costs more than the graph says.
    learn: takes a path, puts exact times on its stages, and tells whether any was not exact.
    """

    graph: StageGraph
    constant: float = 0.0
    relaxed: bool = False
    learn: Callable[[Sequence[int]], bool] = _nothing


class Confirmation(NamedTuple):
    """Who confirmed a proof, empty for nobody, and then why not."""

    by: str
    note: str = ""


def confirm(
    last: LastProblem, objective: float, rounding: float, limits: Limits, deadline: Deadline
) -> Confirmation:
    """Let CP-SAT solve the last problem of a proof.

    The graph is given to it without a hint and without the reduction, which would often solve it
    alone. A graph so small always fits CP-SAT's integers at 1e-9 of the objective or better
    (`cpsat.integer_scale`).

    Parameters
    ----------
    objective: seconds, of the plan that is proved optimal. rounding: relative.
    limits: the seed. deadline: of the search. Where that is far, work is what ends it, so that the
        answer is the same on every machine, however busy.

    Raises
    ------
    SolverError: CP-SAT's optimum is another one.
    """
    if last.graph.arcs > MOST_ARCS:
        return _refused(f"{last.graph.arcs:,} stage candidates are open, {MOST_ARCS:,} at most")
    own, solver = Limits(workers=1, seed=limits.seed), None
    while True:
        if not deadline.goon():
            return _refused("no time was left")
        try:
            solver = solver or _solver()
            solution = solver.solve(last.graph, own, deadline=deadline)
        except (RuntimeError, ValueError, OSError, ImportError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            return _refused(f"it failed ({reason})")
        least, found = solution.bound + last.constant, solution.objective + last.constant
        if least > objective * (1 + rounding):
            raise _disagreement(objective, least)
        if solution.status is not Status.OPTIMAL:
            return _refused(ENDED.get(solution.stopped_by, "no time was left"))
        if found >= objective * (1 - rounding):
            return Confirmation(solution.solver)
        if last.relaxed:
            return _refused(f"the program knows no exact placement, its optimum is {found:.6g} s")
        if not last.learn(solution.path):
            raise _disagreement(objective, found)


def _solver() -> CpSat:
    from ilp_planner.solvers.cpsat import CpSat

    return CpSat(reduce=False, work=MOST_WORK)


def _refused(reason: str) -> Confirmation:
    return Confirmation("", f"not confirmed by cp-sat: {reason}")


def _disagreement(objective: float, other: float) -> SolverError:
    what = "no plan at all" if math.isinf(other) else f"an optimum of {other!r} s"
    return SolverError(
        f"the search proves a plan of {objective!r} s optimal, cp-sat finds {what} in what the "
        "proof leaves open"
    )

"""The last problem of a proof, given to a second solver.

The residual problem of a proof by dynamic programming up to its plan is a small integer program,
mostly of a stage graph. CP-SAT solves it once more, and must find the plan's own time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ilp_planner.base.errors import SolverError
from ilp_planner.optimize.result import Status, Stop
from ilp_planner.optimize.solvers.base import Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from ilp_planner.base.deadline import Deadline
    from ilp_planner.optimize.graph import StageGraph
    from ilp_planner.optimize.solvers.base import GraphSolution

    Solver = Callable[[Limits, Deadline], GraphSolution]

ROOM = 1e-6  # relative: how far above its plan a last problem reaches
MOST_ARCS = 4_000
MOST_WORK = 4.0  # of CP-SAT, in its deterministic time: some three seconds of an idle core
PLACEMENT = "exact placement"  # what graphs lack whose groups are placed on devices afterwards

CONFIRMER = "cp-sat"
ENDED = {Stop.EFFORT: "too hard for it", Stop.USER: "interrupted"}


def _nothing(path: Sequence[int]) -> bool:
    return False


class LastProblem(Protocol):
    """All that a proof leaves open of the part that holds a plan, as an integer program with a
    binary for every stage candidate ("arc")."""

    @property
    def arcs(self) -> int:
        """Number of stage candidates."""

    @property
    def constant(self) -> float:
        """Seconds that every plan of the part takes besides."""

    @property
    def lacks(self) -> str:
        """The parts of the time that it lacks, so that plans may take longer; empty: nothing."""

    @property
    def learn(self) -> Callable[[Sequence[int]], bool]:
        """Takes a path, puts exact times on its stages, and tells whether any was not exact."""

    def solver(self, work: float) -> Solver:
        """Return a function that lets CP-SAT solve its present state, in seconds without the
        constant.

        work: of all that it solves together (`CpSat`).
        """

    def write(self, path: Path, form: str) -> None:
        """Write it as a file, constant included. form: `lp` or `mps`."""


@dataclass(frozen=True, kw_only=True)
class LastGraph:
    """A last problem that is a stage graph.

    CP-SAT gets it without a hint and without the reduction, which would often solve it alone. A
    graph so small always fits CP-SAT's integers at 1e-9 of the objective or better
    (`cpsat.integer_scale`).
    """

    graph: StageGraph
    constant: float = 0.0
    lacks: str = ""
    learn: Callable[[Sequence[int]], bool] = _nothing

    @property
    def arcs(self) -> int:
        """Number of stage candidates."""
        return self.graph.arcs

    def solver(self, work: float) -> Solver:
        """Return a function that lets CP-SAT solve the graph."""
        from ilp_planner.optimize.solvers.cpsat import CpSat

        backend = CpSat(reduce=False, work=work)
        return lambda limits, deadline: backend.solve(self.graph, limits, deadline=deadline)

    def write(self, path: Path, form: str) -> None:
        """Write the arc-flow model."""
        from ilp_planner.optimize.solvers.pulp_backend import write_program

        write_program(self.graph, path, form, constant=self.constant)


class Confirmation(NamedTuple):
    """Who confirmed a proof, empty for nobody, and then why not."""

    by: str
    note: str = ""


def confirm(
    last: LastProblem, objective: float, rounding: float, limits: Limits, deadline: Deadline
) -> Confirmation:
    """Let CP-SAT solve the last problem of a proof.

    Parameters
    ----------
    objective: seconds, of the plan that is proved optimal. rounding: relative.
    limits: the seed. deadline: of the search. Far from the end, an amount of work ends it, so that
        the answer is the same on every machine.

    Raises
    ------
    SolverError: CP-SAT's optimum is another one.
    """
    if last.arcs > MOST_ARCS:
        return _refused(f"{last.arcs:,} stage candidates are open, {MOST_ARCS:,} at most")
    own, solve = Limits(workers=1, seed=limits.seed), last.solver(MOST_WORK)
    while True:
        if not deadline.goon():
            return _refused("no time was left")
        try:
            solution = solve(own, deadline)
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
        if last.lacks:
            return _refused(f"the program knows no {last.lacks}, its optimum is {found:.6g} s")
        if not last.learn(solution.path):
            raise _disagreement(objective, found)


def _refused(reason: str) -> Confirmation:
    return Confirmation("", f"not confirmed by {CONFIRMER}: {reason}")


def _disagreement(objective: float, other: float) -> SolverError:
    what = "no plan at all" if math.isinf(other) else f"an optimum of {other!r} s"
    return SolverError(
        f"the search proves a plan of {objective!r} s optimal, cp-sat finds {what} in what the "
        "proof leaves open"
    )

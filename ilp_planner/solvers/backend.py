"""What backends share: a clock, a search to tell, and an answer however they end."""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from ilp_planner.errors import interruptible
from ilp_planner.numerics import PROVED
from ilp_planner.result import Stop
from ilp_planner.solvers.search import Search

if TYPE_CHECKING:
    from ilp_planner.deadline import Deadline
    from ilp_planner.graph import StageGraph
    from ilp_planner.solvers.arc_reduction import Reduced
    from ilp_planner.solvers.base import GraphSolution, Limits, Progress


class Backend(ABC):
    """What solves a stage graph.

    proves: its answer is the optimum, if there is time; a heuristic's is a good path. needs: the
    package that must be installed, if any. tolerance: relative gap that it can resolve.
    """

    name: str
    proves = True
    needs = ""
    tolerance = PROVED

    def available(self) -> bool:
        """Tell whether what it needs is installed."""
        return not self.needs or importlib.util.find_spec(self.needs) is not None

    def solve(
        self,
        graph: StageGraph,
        limits: Limits,
        *,
        hint: tuple[int, ...] = (),
        progress: Progress | None = None,
        deadline: Deadline | None = None,
    ) -> GraphSolution:
        """Solve the graph within the limits; an interrupt keeps what is known.

        Parameters
        ----------
        hint: a path to start from (arc numbers). deadline: of a search that asks for this graph
            among others; its own, by the limits, without.

        Raises
        ------
        UsageError: it lacks what it needs.
        SolverError: the solver fails, or answers what the graph refutes.
        """
        deadline = deadline or limits.deadline()
        search = Search(graph, hint, progress, self.tolerance)
        try:
            with interruptible():
                stopped = self.run(search, limits, deadline)
        except KeyboardInterrupt:
            stopped = Stop.USER
        return search.answer(self.name, stopped, limits)

    @abstractmethod
    def run(self, search: Search, limits: Limits, deadline: Deadline) -> Stop:
        """Tell the search of paths and bounds; return why it ended."""


class ArcFlow(Backend):
    """A backend that gives the arcs to a solver of integer programs.

    reduce: drop the arcs that cannot matter before solving; off, the solver sees the graph as it is
    (for comparison).
    """

    def __init__(self, *, reduce: bool = True) -> None:
        self.reduce = reduce

    def run(self, search: Search, limits: Limits, deadline: Deadline) -> Stop:
        """Reduce the graph, solve what is left, and try to prove the answer by reduction alone."""
        problem = search.prepared(reduce=self.reduce)
        if not problem.graph.arcs or search.closed(limits.gap):
            return Stop.PROOF
        stopped = self.solve_reduced(problem, search, limits, deadline)
        if self.reduce:
            search.recheck()
        return stopped

    @abstractmethod
    def solve_reduced(
        self, problem: Reduced, search: Search, limits: Limits, deadline: Deadline
    ) -> Stop:
        """Solve a reduced graph that has arcs."""

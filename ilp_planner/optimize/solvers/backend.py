"""Common code of backends: a clock, a search to tell, and an answer for every end."""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from ilp_planner.base.errors import interruptible
from ilp_planner.base.numerics import PROVED
from ilp_planner.optimize.result import Stop
from ilp_planner.optimize.solvers.search import Search

if TYPE_CHECKING:
    from ilp_planner.base.deadline import Deadline
    from ilp_planner.optimize.graph import StageGraph
    from ilp_planner.optimize.solvers.arc_reduction import Reduced
    from ilp_planner.optimize.solvers.base import GraphSolution, Limits, Progress


class Backend(ABC):
    """A solver of stage graphs.

    proves: its answer is the optimum, if there is time; a heuristic's is a good path. needs: the
    package that must be installed, if any. tolerance: relative gap that it can resolve.
    """

    name: str
    proves = True
    needs = ""
    tolerance = PROVED

    def available(self) -> bool:
        """Tell whether its requirements are installed."""
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
        """Solve the graph within the limits; an interrupt keeps the results so far.

        Parameters
        ----------
        hint: a path to start from (arc numbers). deadline: of a search that asks for this graph
            among others; its own, by the limits, without.

        Raises
        ------
        UsageError: a requirement is missing.
        SolverError: the solver fails, or the graph refutes its answer.
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
        """Reduce the graph, solve the rest, and try to prove the answer by reduction alone."""
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

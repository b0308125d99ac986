"""Exact dynamic programming over the stage graph: everything a chain can say, in milliseconds.

Where arcs have nothing but a time, labels are (slowest stage, sum of stages). Where they share
devices, have extras or peaks, labels hold these, too, and prices on devices prune them; more labels
per node are kept each time, until none was dropped.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ilp_planner.deadline import Deadline
from ilp_planner.errors import interruptible
from ilp_planner.result import Status, Stop, relative_gap
from ilp_planner.solvers.base import GraphSolution, Limits, Progress

if TYPE_CHECKING:
    from ilp_planner.bounds.resource_prices import Interval, PricedGraph
    from ilp_planner.graph import StageGraph

WIDTHS = (300, 3_000, 30_000, 2**62)  # labels per node, until nothing is left out
MOST_LABELS = 30_000_000  # of all nodes together, where arcs share devices: about 2 GB
EFFORT = 3e8  # comparisons of labels in a second


class ChainDP:
    """Labels from the end of the chain to its beginning."""

    name = "dp"
    proves = True

    def __init__(self, most_labels: int = 2**62) -> None:
        """Give up beyond so many labels, with the bound that is known by then."""
        self.most_labels = most_labels

    def available(self) -> bool:
        """Always."""
        return True

    def solve(
        self,
        graph: StageGraph,
        limits: Limits,
        *,
        hint: tuple[int, ...] = (),
        progress: Progress | None = None,
        deadline: Deadline | None = None,
    ) -> GraphSolution:
        """Return the cheapest path; its time is the bound."""
        if not graph.plain:
            deadline = deadline or Deadline(limits.seconds)
            most = min(self.most_labels, MOST_LABELS)
            return _ResourceSearch(graph, limits, most, progress, deadline).run(hint)
        from ilp_planner.bounds.paths import search_paths

        path, value, bound = search_paths(graph, most_labels=self.most_labels)
        if not path and math.isfinite(bound):
            return GraphSolution(
                path=(),
                objective=math.inf,
                bound=bound,
                status=Status.UNKNOWN,
                stopped_by=Stop.TIME,
                solver=self.name,
            )
        if progress is not None:
            progress(value, value)
        return GraphSolution(
            path=path,
            objective=value,
            bound=bound,
            status=Status.OPTIMAL if path else Status.INFEASIBLE,
            stopped_by=Stop.PROOF,
            solver=self.name,
        )


class _ResourceSearch:
    """State of one search of a graph with extras, peaks or shared devices."""

    def __init__(
        self,
        graph: StageGraph,
        limits: Limits,
        most_labels: int,
        progress: Progress | None,
        deadline: Deadline,
    ) -> None:
        self.graph = graph
        self.limits = limits
        self.most_labels = most_labels
        self.progress = progress
        self.deadline = deadline
        self.path: tuple[int, ...] = ()
        self.objective = math.inf
        self.bound = 0.0

    def run(self, hint: tuple[int, ...]) -> GraphSolution:
        """Search until proof, gap, time or an interrupt."""
        from ilp_planner.bounds.resource_prices import PricedGraph

        if hint and not self.graph.is_path(hint):
            raise ValueError("hint must be a path of the graph, within its capacities")
        try:
            with interruptible():
                self.learn(hint, 0.0)
                stop = self.close(PricedGraph(self.graph))
        except KeyboardInterrupt:
            stop = Stop.USER
        proved = self.bound >= self.objective  # inf and inf: that there is no path
        status = Status.UNKNOWN if not self.path else Status.FEASIBLE
        if proved:
            status = Status.OPTIMAL if self.path else Status.INFEASIBLE
        return GraphSolution(
            path=self.path,
            objective=self.objective,
            bound=self.bound,
            status=status,
            stopped_by=Stop.PROOF if proved and stop is not Stop.USER else stop,
            solver=ChainDP.name,
        )

    def close(self, priced: PricedGraph) -> Stop:
        """Bound by prices, then search with more and more labels."""
        intervals = priced.sweep(self.objective, goon=self.deadline.goon)
        self.learn(priced.path, intervals[0].bound if intervals else self.objective)
        for width in WIDTHS:
            if self.bound >= self.objective:
                return Stop.PROOF
            if relative_gap(self.objective, self.bound) <= self.limits.gap:
                return Stop.GAP
            # The first search goes on without time, too: it is then content with a few labels.
            if not self.deadline.goon() and width != WIDTHS[0]:
                break
            if self.search(intervals, width):
                return Stop.PROOF
        return Stop.TIME

    def search(self, intervals: list[Interval], width: int) -> bool:
        """Look for a path below the best one; tell whether nothing was left out."""
        from ilp_planner.bounds.resource_paths import search_resource_paths

        found = search_resource_paths(
            self.graph,
            cutoff=self.objective,
            width=width,
            intervals=intervals,
            most_labels=self.most_labels,
            effort=self.deadline.effort(EFFORT),
        )
        # An exact search leaves nothing below the better of what it found and what was known.
        self.learn(found.path, min(found.value, self.objective) if found.exact else found.bound)
        return found.exact

    def learn(self, path: tuple[int, ...], bound: float) -> None:
        """Take a path and a bound, if they are better; tell whoever listens."""
        objective = self.graph.path_time(path) if path else math.inf
        known = (self.objective, self.bound)
        if objective < self.objective:
            self.path, self.objective = path, objective
        self.bound = min(max(self.bound, bound), self.objective)
        if self.path and (self.objective, self.bound) != known and self.progress is not None:
            self.progress(self.objective, self.bound)

"""Exact dynamic programming over the stage graph: everything a chain can say, in milliseconds.

Where arcs have nothing but a time, labels are (slowest stage, sum of stages). If they share
devices, have extras or peaks, labels hold these, too, and Lagrange multipliers on devices prune
them; more labels per node are kept each time, until none was dropped.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ilp_planner.optimize.result import Stop, relative_gap
from ilp_planner.optimize.solvers.backend import Backend

if TYPE_CHECKING:
    from ilp_planner.base.deadline import Deadline
    from ilp_planner.optimize.bounds.resource_prices import Interval
    from ilp_planner.optimize.solvers.backend import Search
    from ilp_planner.optimize.solvers.base import Limits

WIDTHS = (300, 3_000, 30_000, 2**62)  # labels per node, until nothing is left out
MOST_LABELS = 30_000_000  # of all nodes together, where arcs share devices: about 2 GB
EFFORT = 3e8  # comparisons of labels in a second


class ChainDP(Backend):
    """Labels from the end of the chain to its beginning.

    most_labels: beyond so many it gives up, with the bound that is known by then.
    """

    name = "dp"

    def __init__(self, most_labels: int = 2**62) -> None:
        self.most_labels = most_labels

    def run(self, search: Search, limits: Limits, deadline: Deadline) -> Stop:
        """Find the shortest path; its time is the bound."""
        if not search.graph.plain:
            most = min(self.most_labels, MOST_LABELS)
            return _ResourceSearch(search, limits, deadline, most).run()
        from ilp_planner.optimize.bounds.paths import search_paths

        path, _, bound = search_paths(
            search.graph, most_labels=self.most_labels, goon=deadline.goon
        )
        search.path, search.objective = (), math.inf  # of equal paths its own, not the hint
        search.update(path, bound)
        return Stop.PROOF if path or math.isinf(bound) else Stop.TIME


class _ResourceSearch:
    """State of one search of a graph with extras, peaks or shared devices."""

    def __init__(
        self, search: Search, limits: Limits, deadline: Deadline, most_labels: int
    ) -> None:
        self.known, self.graph = search, search.graph
        self.limits, self.deadline, self.most_labels = limits, deadline, most_labels

    def run(self) -> Stop:
        """Bound by multipliers, then search with more and more labels."""
        from ilp_planner.optimize.bounds.resource_prices import PricedGraph

        known, priced = self.known, PricedGraph(self.graph)
        intervals = priced.sweep(known.objective, goon=self.deadline.goon)
        self.learn(priced.path, intervals[0].bound if intervals else known.objective)
        for width in WIDTHS:
            if known.bound >= known.objective:
                return Stop.PROOF
            if relative_gap(known.objective, known.bound) <= self.limits.gap:
                return Stop.GAP
            # The first search goes on without time, too: it is then content with a few labels.
            if not self.deadline.goon() and width != WIDTHS[0]:
                break
            if self.search(intervals, width):
                return Stop.PROOF
        return Stop.TIME

    def search(self, intervals: list[Interval], width: int) -> bool:
        """Look for a path below the best one; tell whether nothing was left out."""
        from ilp_planner.optimize.bounds.resource_paths import search_resource_paths

        found = search_resource_paths(
            self.graph,
            cutoff=self.known.objective,
            width=width,
            intervals=intervals,
            most_labels=self.most_labels,
            effort=self.deadline.effort(EFFORT),
        )
        # An exact search leaves nothing below the better of what it found and what was known.
        self.learn(
            found.path, min(found.value, self.known.objective) if found.exact else found.bound
        )
        return found.exact

    def learn(self, path: tuple[int, ...], bound: float) -> None:
        """Take a path and a bound, not rounded above the best path."""
        least = self.graph.path_time(path) if path else math.inf
        self.known.update(path, min(bound, least, self.known.objective))

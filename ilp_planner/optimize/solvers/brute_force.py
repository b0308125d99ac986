"""Every path, one by one: the judge of the other backends in tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ilp_planner.base.errors import SolverError
from ilp_planner.optimize.result import Stop
from ilp_planner.optimize.solvers.backend import Backend

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ilp_planner.base.deadline import Deadline
    from ilp_planner.optimize.graph import StageGraph
    from ilp_planner.optimize.solvers.backend import Search
    from ilp_planner.optimize.solvers.base import Limits


class BruteForce(Backend):
    """Enumerate all paths; refuse a graph of more than `most` arcs or paths."""

    name = "brute-force"

    def __init__(self, most: int = 200_000) -> None:
        self.most = most

    def run(self, search: Search, limits: Limits, deadline: Deadline) -> Stop:
        """Look at every path.

        Raises
        ------
        SolverError: the graph has too many arcs or paths.
        """
        graph = search.graph
        leaving: list[list[int]] = [[] for _ in range(graph.nodes)]
        if graph.arcs <= self.most:
            for arc, tail in enumerate(graph.tail.tolist()):
                leaving[tail].append(arc)
        if graph.arcs > self.most or self._count(graph, leaving) > self.most:
            raise SolverError(f"brute-force: more than {self.most} paths, choose another solver")
        for path in self._paths(graph, leaving):
            search.offer(path)
            if not deadline.goon():
                return Stop.TIME
        search.prove(search.objective)
        return Stop.PROOF

    def _count(self, graph: StageGraph, leaving: list[list[int]]) -> int:
        """Return the most partial paths that the enumeration could visit."""
        order = graph.start.argsort(kind="stable").tolist()
        ways = [0] * graph.nodes
        for source in set(graph.sources):
            ways[source] = 1
        visits = 0
        for arc in order:
            visits += ways[graph.tail[arc]]
            ways[graph.head[arc]] += ways[graph.tail[arc]]
        return visits

    def _paths(self, graph: StageGraph, leaving: list[list[int]]) -> Iterator[tuple[int, ...]]:
        """Yield the paths, each partial one only while the devices that it uses are there."""
        head, use = graph.head.tolist(), graph.use.tolist()
        stack: list[tuple[tuple[int, ...], int, tuple[int, ...]]] = [
            ((), source, graph.capacity) for source in set(graph.sources)
        ]
        while stack:
            path, node, left = stack.pop()
            if node == graph.sink:
                yield path
                continue
            for arc in leaving[node]:
                rest = tuple(have - used for have, used in zip(left, use[arc], strict=True))
                if min(rest, default=0) >= 0:
                    stack.append(((*path, arc), head[arc], rest))

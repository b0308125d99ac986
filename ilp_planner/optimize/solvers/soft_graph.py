"""A stage graph as the arrays that sweeps along its nodes need."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ilp_planner.base.kernels import kernel

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from ilp_planner.optimize.graph import StageGraph

RAREST = -1e30  # logarithm of 0


class SoftGraph(NamedTuple):
    """A graph for kernels; nodes are renumbered along the chain.

    Node 0 is added before the sources and has an arc to each, without cover or cost.
    Operators between two neighbouring ends of arcs are under the same arcs: they make one segment.

    arcs: int64 [m], numbers in the stage graph; -1 - source for the added ones. Sorted by tail.
    first: int64 [n + 1], the start of each node's arcs. head: int64 [m]. sink: node.
    low, high: int64 [m], an arc covers the segments [low, high). segments: their number.
    cost: float64 [m], time and extra, in units of `scale` seconds.
    values: float64 [K, m], values of each maximum, as a share of its largest. logs: float64 [K, m],
    their logarithms. weights: float64 [K], addition of that largest value to the objective, in
    units of the scale.
    use: int64 [m, D]. share: float64 [D], 1 / capacity. capacity: int64 [D].
    spare: int64 [n, D], capacity less the least use from the node to the sink.
    """

    scale: float
    arcs: NDArray[np.int64]
    first: NDArray[np.int64]
    head: NDArray[np.int64]
    sink: int
    low: NDArray[np.int64]
    high: NDArray[np.int64]
    segments: int
    cost: NDArray[np.float64]
    values: NDArray[np.float64]
    logs: NDArray[np.float64]
    weights: NDArray[np.float64]
    use: NDArray[np.int64]
    share: NDArray[np.float64]
    capacity: NDArray[np.int64]
    spare: NDArray[np.int64]

    @property
    def nodes(self) -> int:
        """Number of nodes, the added one included."""
        return int(self.first.size) - 1

    @property
    def size(self) -> int:
        """Number of arcs, the added ones included."""
        return int(self.head.size)

    def path(self, arcs: Iterable[int]) -> tuple[int, ...]:
        """Return a path from the added node in the arc numbers of the stage graph."""
        return tuple(int(self.arcs[arc]) for arc in arcs if self.arcs[arc] >= 0)


def soft_graph(graph: StageGraph, numbers: NDArray[np.int64], scale: float) -> SoftGraph:
    """Return the arrays of a graph without dead ends; `scale` seconds become 1.

    numbers: int64 [arcs], of each arc in `SoftGraph.arcs`.
    """
    position = graph.positions
    used = np.flatnonzero(position >= 0)
    order = used[np.argsort(position[used], kind="stable")]
    number = np.full(graph.nodes, -1, np.int64)
    number[order] = np.arange(order.size) + 1
    sources = np.array([s for s in dict.fromkeys(graph.sources) if number[s] >= 0], np.int64)
    added = sources.size
    by_tail = np.argsort(number[graph.tail], kind="stable")
    tail = np.concatenate([np.zeros(added, np.int64), number[graph.tail][by_tail]])
    head = np.concatenate([number[sources], number[graph.head[by_tail]]])
    first = np.searchsorted(tail, np.arange(order.size + 2)).astype(np.int64)
    breaks = np.unique(np.concatenate([graph.start, graph.stop]))
    nowhere = np.zeros(added, np.int64)
    capacity = np.array(graph.capacity, np.int64)
    use = np.concatenate([np.zeros((added, capacity.size), np.int64), graph.use[by_tail]])
    values, weights = _maxima(graph, scale)
    values = np.ascontiguousarray(np.hstack([np.zeros((weights.size, added)), values[:, by_tail]]))
    with np.errstate(divide="ignore"):
        logs = np.maximum(np.log(values), RAREST)
    sink = int(number[graph.sink])
    return SoftGraph(
        scale=scale,
        arcs=np.concatenate([-1 - sources, numbers[by_tail]]),
        first=first,
        head=head,
        sink=sink,
        low=np.concatenate([nowhere, np.searchsorted(breaks, graph.start[by_tail])]),
        high=np.concatenate([nowhere, np.searchsorted(breaks, graph.stop[by_tail])]),
        segments=breaks.size - 1,
        cost=np.concatenate([np.zeros(added), (graph.time + graph.extra)[by_tail] / scale]),
        values=values,
        logs=logs,
        weights=weights,
        use=use,
        share=1.0 / np.maximum(capacity, 1),
        capacity=capacity,
        spare=_spare(first, head, use, capacity, sink),
    )


def _maxima(graph: StageGraph, scale: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return values and weights of the bottleneck and the peaks, if they cost anything."""
    values, factors = graph.peaks, np.ones(len(graph.peaks))
    if graph.weight > 0:
        values = np.vstack([graph.time, values])
        factors = np.concatenate([[graph.weight], factors])
    largest = values.max(axis=1, initial=0.0)
    kept = largest > 0
    return values[kept] / largest[kept, None], factors[kept] * largest[kept] / scale


@kernel
def _spare(first, head, use, capacity, sink):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    nodes, kinds = first.size - 1, use.shape[1]
    spare = np.full((nodes, kinds), -(2**40), np.int64)
    for d in range(kinds):
        spare[sink, d] = capacity[d]
    for v in range(nodes - 1, -1, -1):
        for a in range(first[v], first[v + 1]):
            for d in range(kinds):
                spare[v, d] = max(spare[v, d], spare[head[a], d] - use[a, d])
    return spare


@kernel
def path_counts(soft):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return the logarithm of the number of paths from each node to the sink ([n])."""
    first, head = soft.first, soft.head
    nodes = first.size - 1
    count = np.full(nodes, RAREST)
    count[soft.sink] = 0.0
    for v in range(nodes - 1, -1, -1):
        most = RAREST
        for a in range(first[v], first[v + 1]):
            most = max(most, count[head[a]])
        if most > RAREST:
            total = 0.0
            for a in range(first[v], first[v + 1]):
                total += np.exp(count[head[a]] - most)
            count[v] = most + np.log(total)
    return count

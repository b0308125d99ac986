"""Dropping the arcs of a graph that no path worth looking for uses.

Each figure of a path is taken at its least by itself, over the paths to and from every node.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from ilp_planner.base.errors import SolverError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from ilp_planner.optimize.graph import StageGraph


@dataclass(frozen=True, kw_only=True, eq=False)
class Reduced:
    """The arcs that a path costing at most the cutoff can use.

    arcs: int64, number of each arc in the graph that was reduced.
    bottleneck: seconds; the slowest arc of a path takes at least that.
    peaks: seconds, float64 [K]; the largest of each peak of a path is at least that.
    bound: seconds, proved for every path of the graph that was reduced (never above the cutoff; inf
    without both).
    """

    graph: StageGraph
    arcs: NDArray[np.int64]
    bottleneck: float
    peaks: NDArray[np.float64]
    bound: float

    def original(self, path: Iterable[int]) -> tuple[int, ...]:
        """Return a path of the reduced graph in the arc numbers of the graph that was reduced."""
        return tuple(int(self.arcs[arc]) for arc in path)

    def translated(self, path: Sequence[int]) -> tuple[int, ...]:
        """Return a path in the reduced graph's arc numbers, empty when it is no path there."""
        number = {int(arc): at for at, arc in enumerate(self.arcs)}
        if not all(arc in number for arc in path):
            return ()
        return tuple(number[arc] for arc in path)


def check_positions(graph: StageGraph) -> None:
    """Refuse a graph with arcs that do not join if their operator ranges do.

    Everything here relies on it: arcs sorted by `start` are in topological order, and a path has
    exactly one arc over each operator.

    Raises
    ------
    SolverError: two arcs of a node disagree on its position, or a path could miss operators.
    """
    position = graph.positions
    for name, nodes, at in (("tail", graph.tail, graph.start), ("head", graph.head, graph.stop)):
        wrong = np.flatnonzero(position[nodes] != at)
        if wrong.size:
            arc = int(wrong[0])
            expected = position[nodes[arc]]
            raise SolverError(
                f"arc {arc}: {name} {nodes[arc]} is at operator {expected}, found {at[arc]}"
            )
    ends = [(source, 0) for source in graph.sources] + [(graph.sink, graph.operators)]
    for node, end in ends:
        if position[node] not in (-1, end):
            raise SolverError(f"node {node}: must be at operator {end}, found {position[node]}")


def rounding(graph: StageGraph) -> float:
    """Return a relative error that no float sum over a path of the graph exceeds."""
    longest = int(np.unique(graph.start).size)
    return 4.0 * float(np.finfo(np.float64).eps) * (longest + len(graph.peaks) + 4)


@dataclass(frozen=True, eq=False)
class Leasts:
    """Least sum of one figure and least maximum of another over the paths to and from each node."""

    sum_to: NDArray[np.float64]
    sum_from: NDArray[np.float64]
    worst_to: NDArray[np.float64]
    worst_from: NDArray[np.float64]


def path_leasts(graph: StageGraph, summed: NDArray[Any], maximal: NDArray[np.float64]) -> Leasts:
    """Sweep the arcs once in each direction, with the figures of each arc.

    Plain lists: a few milliseconds for 20000 arcs however few arcs share a position, if array
    operations per position would cost ten times that on a chain of thousands of positions.
    """
    order = np.argsort(graph.start, kind="stable")
    columns = (graph.tail, graph.head, summed, maximal)
    tail, head, part, value = (column[order].tolist() for column in columns)
    sums_to, worsts_to = _swept(zip(tail, head, part, value, strict=True), graph, graph.sources)
    back = zip(*map(reversed, (head, tail, part, value)), strict=True)
    sums_from, worsts_from = _swept(back, graph, (graph.sink,))
    return Leasts(*map(np.array, (sums_to, sums_from, worsts_to, worsts_from)))


def _swept(
    arcs: Iterable[tuple[Any, ...]], graph: StageGraph, begins: Iterable[int]
) -> tuple[list[float], list[float]]:
    """Return the least sum and the least maximum of a path from its start to each node."""
    sums, worsts = [math.inf] * graph.nodes, [math.inf] * graph.nodes
    for node in begins:
        sums[node] = worsts[node] = 0.0
    for here, there, part, value in arcs:
        total, worst = sums[here] + part, worsts[here]
        if total < sums[there]:
            sums[there] = total
        if worst < value:
            worst = value
        if worst < worsts[there]:
            worsts[there] = worst
    return sums, worsts


def _least_cost(graph: StageGraph) -> tuple[NDArray[np.float64], float, NDArray[np.float64], float]:
    """Return lower bounds on the costs of paths: through each arc, and of all.

    Each term of the objective and the use of each device type is least on its own here, so that no
    path through an arc can have less of any. Returns seconds per arc (inf without a path within the
    capacities), and over all paths the least slowest arc, the least peaks and the least cost.
    """
    leasts = path_leasts(graph, graph.time + graph.extra, graph.time)
    cost = leasts.sum_to[graph.tail] + (graph.time + graph.extra) + leasts.sum_from[graph.head]
    alive = np.flatnonzero(np.isfinite(cost))  # on a path at all; only there maxima are finite, too
    tail, head = graph.tail[alive], graph.head[alive]
    worst = np.maximum(leasts.worst_to[tail], leasts.worst_from[head])
    cost[alive] += graph.weight * np.maximum(worst, graph.time[alive])
    peaks = np.zeros(len(graph.peaks))
    for number, (use, peak) in enumerate(zip_longest(graph.use.T, graph.peaks)):
        other = path_leasts(
            graph, graph.time if use is None else use, graph.time if peak is None else peak
        )
        if peak is not None:
            worst = np.maximum(other.worst_to[tail], other.worst_from[head])
            cost[alive] += np.maximum(worst, peak[alive])
            peaks[number] = other.worst_to[graph.sink]
        if use is not None:
            least = other.sum_to[tail] + use[alive] + other.sum_from[head]
            cost[alive[least > graph.capacity[number]]] = math.inf
    bottleneck = float(leasts.worst_to[graph.sink])
    total = math.inf
    if alive.size:
        total = graph.weight * bottleneck + float(leasts.sum_to[graph.sink]) + float(peaks.sum())
    return cost, bottleneck, peaks, total


def reduced(graph: StageGraph, cutoff: float = math.inf) -> Reduced:
    """Drop every arc that no path costing at most `cutoff` seconds can use.

    The best path through an arc costs at least weight * (least slowest arc of a path through it) +
    (least total of a path through it) + (least of each peak of a path through it), and uses at
    least the least devices of each type of a path through it. Dropping arcs raises them all, so it
    is repeated until nothing more goes. Paths at the cutoff stay: when one is known, the optimum of
    the graph is a path of the rest.
    """
    check_positions(graph)
    arcs = np.arange(graph.arcs)
    slack = rounding(graph)
    rest = graph
    while True:
        cost, bottleneck, peaks, least = _least_cost(rest)
        keep = np.flatnonzero(np.isfinite(cost) & (cost * (1 - slack) <= cutoff))
        if keep.size == rest.arcs:
            bound = min(cutoff, least * (1 - slack))
            return Reduced(graph=rest, arcs=arcs, bottleneck=bottleneck, peaks=peaks, bound=bound)
        arcs, rest = arcs[keep], rest.only(keep)

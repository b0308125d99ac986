"""What every arc-flow backend shares: reducing the graph, and the rows of the model.

Model: one 0/1 variable per arc, one unit of flow from the sources to the sink, and a bottleneck
variable that is at least the total time of the arcs over each operator. A path has exactly one arc
over each operator, so these rows say "slowest arc" with far fewer and much tighter rows than one
row per arc.

What was tried and left out: 0/1 thresholds on the bottleneck (x_a <= z_k for arcs slower than
threshold k) close a third to a half of the root gap, but cost the solvers more time than they save.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.errors import SolverError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from ilp_planner.graph import StageGraph

INCUMBENT_TRIES = 16
COVER_ENTRIES = 3
"""Entries of the covering rows per arc, beyond which rows are left out.

Measured on 3000 .. 9000 arcs over 44 .. 650 distinct positions: with all rows the relaxations are
barely tighter, and CP-SAT takes two to fifteen times as long, HiGHS and CBC up to ten times.
"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Reduced:
    """The arcs that a path costing at most the cutoff can use.

    arcs: int64, number of each arc in the graph that was reduced.
    bottleneck: seconds; the slowest arc of such a path takes at least that.
    bound: seconds, proved for every path of the graph that was reduced (never above the cutoff; inf
    without both).
    """

    graph: StageGraph
    arcs: NDArray[np.int64]
    bottleneck: float
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


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """Sparse rows low <= sum(value * column) <= high.

    Row r holds the entries pointer[r] .. pointer[r + 1] - 1.
    """

    pointer: NDArray[np.int64]
    column: NDArray[np.int64]
    value: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]

    def __len__(self) -> int:
        return int(self.pointer.size) - 1

    @property
    def row(self) -> NDArray[np.int64]:
        """Return the row number of each entry."""
        return np.repeat(np.arange(len(self)), np.diff(self.pointer))

    def entries(self) -> Iterator[tuple[list[int], list[float]]]:
        """Yield the columns and values of each row."""
        columns, values = self.column.tolist(), self.value.tolist()
        for begin, end in pairwise(self.pointer.tolist()):
            yield columns[begin:end], values[begin:end]


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearModel:
    """Minimise cost over 0/1 columns, one per arc, and a last, continuous one for the bottleneck.

    bottleneck: its least and greatest value. scale: the model's time unit is 1 / scale seconds.
    """

    arcs: int
    cost: NDArray[np.float64]
    bottleneck: tuple[float, float]
    flow: Rows
    cover: Rows
    scale: float


def check_positions(graph: StageGraph) -> None:
    """Refuse a graph whose arcs do not join where their operator ranges do.

    Everything here relies on it: arcs sorted by `start` are in topological order, and a path has
    exactly one arc over each operator.

    Raises
    ------
    SolverError: two arcs of a node disagree on its position, or a path could miss operators.
    """
    position = np.full(graph.nodes, -1, dtype=np.int64)
    position[graph.tail] = graph.start
    position[graph.head] = graph.stop
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
    return 4.0 * float(np.finfo(np.float64).eps) * (longest + 4)


@dataclass(frozen=True, eq=False)
class _Labels:
    """Least total (sum) and least slowest (worst) time of a path to and from each node, seconds."""

    sum_to: NDArray[np.float64]
    sum_from: NDArray[np.float64]
    worst_to: NDArray[np.float64]
    worst_from: NDArray[np.float64]


def _labels(graph: StageGraph) -> _Labels:
    """Sweep the arcs once in each direction.

    Plain lists: a few milliseconds for 20000 arcs however few arcs share a position, where array
    operations per position would cost ten times that on a chain of thousands of positions.
    """
    order = np.argsort(graph.start, kind="stable")
    arcs = list(
        zip(
            graph.tail[order].tolist(),
            graph.head[order].tolist(),
            graph.time[order].tolist(),
            strict=True,
        )
    )
    sums_to, worsts_to = [math.inf] * graph.nodes, [math.inf] * graph.nodes
    for source in graph.sources:
        sums_to[source] = worsts_to[source] = 0.0
    for tail, head, time in arcs:
        total = sums_to[tail] + time
        if total < sums_to[head]:
            sums_to[head] = total
        worst = worsts_to[tail]
        if worst < time:
            worst = time
        if worst < worsts_to[head]:
            worsts_to[head] = worst
    sums_from, worsts_from = [math.inf] * graph.nodes, [math.inf] * graph.nodes
    sums_from[graph.sink] = worsts_from[graph.sink] = 0.0
    for tail, head, time in reversed(arcs):
        total = sums_from[head] + time
        if total < sums_from[tail]:
            sums_from[tail] = total
        worst = worsts_from[head]
        if worst < time:
            worst = time
        if worst < worsts_from[tail]:
            worsts_from[tail] = worst
    return _Labels(*map(np.array, (sums_to, sums_from, worsts_to, worsts_from)))


def shortest_path(graph: StageGraph, ceiling: float = math.inf) -> tuple[int, ...]:
    """Return the path of least total time without arcs slower than `ceiling` seconds."""
    order = np.argsort(graph.start, kind="stable")
    order = order[graph.time[order] <= ceiling]
    total = [math.inf] * graph.nodes
    into = [-1] * graph.nodes
    for source in graph.sources:
        total[source] = 0.0
    for arc, tail, head, time in zip(
        order.tolist(),
        graph.tail[order].tolist(),
        graph.head[order].tolist(),
        graph.time[order].tolist(),
        strict=True,
    ):
        if total[tail] + time < total[head]:
            total[head] = total[tail] + time
            into[head] = arc
    path = []
    node = graph.sink
    while into[node] >= 0:
        path.append(into[node])
        node = int(graph.tail[path[-1]])
    return tuple(reversed(path))


def incumbent(graph: StageGraph, tries: int = INCUMBENT_TRIES) -> tuple[int, ...]:
    """Return the cheapest of a few shortest paths, under different ceilings on their arcs."""
    best = shortest_path(graph)
    if not best or graph.micro_batches == 1:
        return best
    least = float(_labels(graph).worst_to[graph.sink])
    for ceiling in np.linspace(least, float(graph.time[list(best)].max()), tries, endpoint=False):
        path = shortest_path(graph, float(ceiling))
        if path and graph.path_time(path) < graph.path_time(best):
            best = path
    return best


def reduced(graph: StageGraph, cutoff: float = math.inf) -> Reduced:
    """Drop every arc that no path costing at most `cutoff` seconds can use.

    The best path through an arc costs at least (B - 1) * (least slowest arc of a path through it) +
    (least total of a path through it). Dropping arcs raises both, so it is repeated until nothing
    more goes. Paths at the cutoff
    stay: when one is known, the optimum of the graph is a path of what is left.
    """
    check_positions(graph)
    arcs = np.arange(graph.arcs)
    slack = rounding(graph)
    rest = graph
    while True:
        labels = _labels(rest)
        bottleneck = float(labels.worst_to[rest.sink])
        worst = np.maximum(labels.worst_to[rest.tail], labels.worst_from[rest.head])
        total = labels.sum_to[rest.tail] + rest.time + labels.sum_from[rest.head]
        keep = np.isfinite(total)  # on a path at all; only there `worst` is finite, too
        cost = (graph.micro_batches - 1) * np.maximum(worst, rest.time)[keep] + total[keep]
        keep[keep] = cost * (1 - slack) <= cutoff
        if keep.all():
            least = math.inf
            if rest.arcs:
                least = (graph.micro_batches - 1) * bottleneck + float(labels.sum_to[rest.sink])
            bound = min(cutoff, least * (1 - slack))
            return Reduced(graph=rest, arcs=arcs, bottleneck=bottleneck, bound=bound)
        arcs = arcs[keep]
        rest = replace(
            rest,
            tail=rest.tail[keep],
            head=rest.head[keep],
            start=rest.start[keep],
            stop=rest.stop[keep],
            time=rest.time[keep],
        )


def flow_rows(graph: StageGraph) -> Rows:
    """Return flow conservation: one unit leaves the sources, passes the nodes, enters the sink."""
    source, sink = graph.nodes, graph.sink
    tail = np.where(np.isin(graph.tail, graph.sources), source, graph.tail)
    node = np.concatenate([tail, graph.head])
    column = np.tile(np.arange(graph.arcs), 2)
    # + for arcs that leave the sources or enter a node, - for arcs that leave any other node.
    value = np.where(node == source, 1.0, np.repeat([-1.0, 1.0], graph.arcs))
    order = np.lexsort((column, node))
    used, count = np.unique(node, return_counts=True)
    right = np.isin(used, (source, sink)).astype(np.float64)
    return Rows(
        pointer=np.concatenate([[0], np.cumsum(count)]),
        column=column[order],
        value=value[order],
        low=right,
        high=right,
    )


def cover_rows(graph: StageGraph, entries_per_arc: float = COVER_ENTRIES) -> Rows:
    """Return, for each distinct set of arcs over an operator, the row with their times.

    Operators between two neighbouring breakpoints (starts and stops of arcs) are under the same
    arcs: one row serves them all. When the rows would hold more than `entries_per_arc`, only some
    are
    kept, evenly spread and enough to meet every arc: the relaxation is weaker, the model as exact.
    """
    breaks = np.unique(np.concatenate([graph.start, graph.stop]))
    first, last = np.searchsorted(breaks, graph.start), np.searchsorted(breaks, graph.stop)
    total = int((last - first).sum())
    wanted = entries_per_arc * graph.arcs
    if total > wanted:
        spread = np.linspace(0, breaks.size - 2, max(1, int(breaks.size * wanted / total)))
        rows = np.union1d(spread.astype(np.int64), _piercing(first, last))
        first, last = np.searchsorted(rows, first), np.searchsorted(rows, last)
    span = last - first
    column = np.repeat(np.arange(graph.arcs), span)
    offset = np.arange(column.size) - np.repeat(np.cumsum(span) - span, span)
    row = np.repeat(first, span) + offset
    order = np.argsort(row, kind="stable")
    count = np.bincount(row) if row.size else np.zeros(0, dtype=np.int64)
    return Rows(
        pointer=np.concatenate([[0], np.cumsum(count)]),
        column=column[order],
        value=graph.time[column[order]],
        low=np.zeros(count.size),
        high=np.full(count.size, math.inf),
    )


def _piercing(first: NDArray[np.int64], last: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the fewest rows such that each range first .. last - 1 holds one, by earliest end."""
    latest = np.full(int(last.max(initial=0)) + 1, -1, dtype=np.int64)
    np.maximum.at(latest, last, first)
    picks = [-1]
    for end, begin in enumerate(latest.tolist()):
        if begin > picks[-1]:
            picks.append(end - 1)
    return np.array(picks[1:], dtype=np.int64)


def linear_model(problem: Reduced, *, scale: float) -> LinearModel:
    """Return the arc-flow model of a reduced graph, times in units of 1 / scale seconds."""
    graph = problem.graph
    arcs = graph.arcs
    cover = cover_rows(graph)
    if graph.micro_batches == 1:  # the bottleneck costs nothing: a shortest path
        cover = replace(
            cover,
            pointer=cover.pointer[:1],
            column=cover.column[:0],
            value=cover.value[:0],
            low=cover.low[:0],
            high=cover.high[:0],
        )
    # bottleneck - sum of times >= 0: one more entry at the end of each row.
    ends = cover.pointer[1:]
    cover = Rows(
        pointer=cover.pointer + np.arange(cover.pointer.size),
        column=np.insert(cover.column, ends, arcs),
        value=np.insert(-cover.value * scale, ends, 1.0),
        low=cover.low,
        high=cover.high,
    )
    return LinearModel(
        arcs=arcs,
        cost=np.append(graph.time * scale, graph.micro_batches - 1.0),
        bottleneck=(problem.bottleneck * scale, float(graph.time.max()) * scale),
        flow=flow_rows(graph),
        cover=cover,
        scale=scale,
    )


def solver_scale(problem: Reduced) -> float:
    """Return the power of two (so that scaling is exact) that brings the bottleneck to 64 .. 128.

    The solvers' tolerances are absolute, and seconds may be 1e-4 or 1e3.
    """
    return 2.0 ** (7 - math.frexp(problem.bottleneck)[1])


def ordered_path(graph: StageGraph, arcs: Iterable[int]) -> tuple[int, ...]:
    """Return a solver's set of arcs as a path.

    Raises
    ------
    SolverError: they do not form one.
    """
    path = tuple(sorted((int(arc) for arc in arcs), key=lambda arc: int(graph.start[arc])))
    if not graph.is_path(path):
        raise SolverError(f"solver returned {len(path)} arcs that form no path to the sink")
    return path

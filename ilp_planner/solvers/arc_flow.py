"""What every arc-flow backend shares: reducing the graph, and the rows of the model.

Model: one 0/1 variable per arc, one unit of flow from the sources to the sink, and a bottleneck
variable that is at least the total time of the arcs over each operator. A path has exactly one arc
over each operator, so these rows say "slowest arc" with far fewer and much tighter rows than one
row per arc. Each peak has such a variable, too. What a path may use of each device type is one row.

What was tried and left out: 0/1 thresholds on the bottleneck (x_a <= z_k for arcs slower than
threshold k) close a third to a half of the root gap, but cost the solvers more time than they save.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.errors import SolverError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

    from numpy.typing import NDArray

    from ilp_planner.graph import StageGraph

INCUMBENT_TRIES = 16
PRICE_STEPS = 12
"""Times that device prices are adjusted, per choice of ceilings, to make a shortest path fit."""
FIRST_STEPS = 60
"""As often when nothing has fitted yet.

Measured on two instances of 14000 and 16000 arcs over three types of 16 devices: 12 steps find no
path in one of them, 40 find one (2.4 % above the best path known, whose own gap is open).
"""
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
    peaks: seconds, float64 [K]; the largest of each peak of such a path is at least that.
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
    """Minimise cost over 0/1 columns, one per arc, and continuous ones for what is a maximum.

    maxima: name, least and greatest value of each continuous column: the bottleneck, then the
    peaks.
    rows: by name: flow, cover, one group per peak, capacity.
    scale: the model's time unit is 1 / scale seconds.
    """

    arcs: int
    cost: NDArray[np.float64]
    maxima: tuple[tuple[str, float, float], ...]
    rows: dict[str, Rows]
    scale: float

    @property
    def columns(self) -> int:
        """Number of columns."""
        return self.arcs + len(self.maxima)


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
    return 4.0 * float(np.finfo(np.float64).eps) * (longest + len(graph.peaks) + 4)


@dataclass(frozen=True, eq=False)
class _Labels:
    """Least sum of one figure and least maximum of another over the paths to and from each node."""

    sum_to: NDArray[np.float64]
    sum_from: NDArray[np.float64]
    worst_to: NDArray[np.float64]
    worst_from: NDArray[np.float64]


def _labels(graph: StageGraph, summed: NDArray[Any], maximal: NDArray[np.float64]) -> _Labels:
    """Sweep the arcs once in each direction, with the figures of each arc.

    Plain lists: a few milliseconds for 20000 arcs however few arcs share a position, where array
    operations per position would cost ten times that on a chain of thousands of positions.
    """
    order = np.argsort(graph.start, kind="stable")
    arcs = list(
        zip(
            graph.tail[order].tolist(),
            graph.head[order].tolist(),
            summed[order].tolist(),
            maximal[order].tolist(),
            strict=True,
        )
    )
    sums_to, worsts_to = [math.inf] * graph.nodes, [math.inf] * graph.nodes
    for source in graph.sources:
        sums_to[source] = worsts_to[source] = 0.0
    for tail, head, part, value in arcs:
        total = sums_to[tail] + part
        if total < sums_to[head]:
            sums_to[head] = total
        worst = worsts_to[tail]
        if worst < value:
            worst = value
        if worst < worsts_to[head]:
            worsts_to[head] = worst
    sums_from, worsts_from = [math.inf] * graph.nodes, [math.inf] * graph.nodes
    sums_from[graph.sink] = worsts_from[graph.sink] = 0.0
    for tail, head, part, value in reversed(arcs):
        total = sums_from[head] + part
        if total < sums_from[tail]:
            sums_from[tail] = total
        worst = worsts_from[head]
        if worst < value:
            worst = value
        if worst < worsts_from[tail]:
            worsts_from[tail] = worst
    return _Labels(*map(np.array, (sums_to, sums_from, worsts_to, worsts_from)))


def _least_cost(graph: StageGraph) -> tuple[NDArray[np.float64], float, NDArray[np.float64], float]:
    """Return what the paths cost at least: those through each arc, and all of them.

    Each term of the objective and the use of each device type is least on its own here, so that no
    path through an arc can have less of any. Returns seconds per arc (inf where no path within the
    capacities goes), and over all paths the least slowest arc, the least peaks and the least cost.
    """
    more = graph.micro_batches - 1
    labels = _labels(graph, graph.time + graph.extra, graph.time)
    cost = labels.sum_to[graph.tail] + (graph.time + graph.extra) + labels.sum_from[graph.head]
    alive = np.flatnonzero(np.isfinite(cost))  # on a path at all; only there maxima are finite, too
    tail, head = graph.tail[alive], graph.head[alive]
    worst = np.maximum(labels.worst_to[tail], labels.worst_from[head])
    cost[alive] += more * np.maximum(worst, graph.time[alive])
    peaks = np.zeros(len(graph.peaks))
    for number, (use, peak) in enumerate(zip_longest(graph.use.T, graph.peaks)):
        other = _labels(
            graph, graph.time if use is None else use, graph.time if peak is None else peak
        )
        if peak is not None:
            worst = np.maximum(other.worst_to[tail], other.worst_from[head])
            cost[alive] += np.maximum(worst, peak[alive])
            peaks[number] = other.worst_to[graph.sink]
        if use is not None:
            least = other.sum_to[tail] + use[alive] + other.sum_from[head]
            cost[alive[least > graph.capacity[number]]] = math.inf
    bottleneck = float(labels.worst_to[graph.sink])
    total = math.inf
    if alive.size:
        total = more * bottleneck + float(labels.sum_to[graph.sink]) + float(peaks.sum())
    return cost, bottleneck, peaks, total


def shortest_path(graph: StageGraph, ceiling: float = math.inf) -> tuple[int, ...]:
    """Return the path of least total time and extra without arcs slower than `ceiling` seconds.

    The capacities do not matter here.
    """
    return _shortest(graph, graph.time + graph.extra, graph.time <= ceiling)


def _shortest(
    graph: StageGraph, weight: NDArray[np.float64], allowed: NDArray[np.bool_]
) -> tuple[int, ...]:
    """Return the path of least total weight over the allowed arcs."""
    order = np.argsort(graph.start, kind="stable")
    order = order[allowed[order]]
    total = [math.inf] * graph.nodes
    into = [-1] * graph.nodes
    for source in graph.sources:
        total[source] = 0.0
    for arc, tail, head, part in zip(
        order.tolist(),
        graph.tail[order].tolist(),
        graph.head[order].tolist(),
        weight[order].tolist(),
        strict=True,
    ):
        if total[tail] + part < total[head]:
            total[head] = total[tail] + part
            into[head] = arc
    path = []
    node = graph.sink
    while into[node] >= 0:
        path.append(into[node])
        node = int(graph.tail[path[-1]])
    return tuple(reversed(path))


class _Fitting:
    """Shortest paths within the capacities, by a price per device of each type.

    Prices are kept from one set of allowed arcs to the next, as the sets are alike.
    """

    def __init__(self, graph: StageGraph) -> None:
        self.graph = graph
        self.capacity = np.array(graph.capacity, dtype=np.int64)
        self.price = np.zeros(self.capacity.size)
        self.steps = FIRST_STEPS

    def path(self, allowed: NDArray[np.bool_]) -> tuple[int, ...]:
        """Return a path over the allowed arcs within the capacities, empty when none was found."""
        graph = self.graph
        weight = graph.time + graph.extra
        if not self.capacity.size:
            return _shortest(graph, weight, allowed)
        best: tuple[int, ...] = ()
        for step in range(self.steps):
            if best and step >= PRICE_STEPS:
                break
            path = _shortest(graph, weight + graph.use @ self.price, allowed)
            if not path:
                return ()
            arcs = list(path)
            over = graph.use[arcs].sum(axis=0) - self.capacity
            if (over <= 0).all():
                if not best or graph.path_time(path) < graph.path_time(best):
                    best = path
                if not self.price.any():
                    break
            # One path's whole cost, spread over the devices that are too many or left over.
            size = float(weight[arcs].sum()) / (2 + step) / float((over * over).sum() or 1)
            self.price = np.maximum(0.0, self.price + size * over)
        self.steps = PRICE_STEPS
        return best


def incumbent(graph: StageGraph, tries: int = INCUMBENT_TRIES) -> tuple[int, ...]:
    """Return the cheapest of a few shortest paths, under different ceilings on their arcs.

    Ceilings are put on the time, then on each peak under the best ceilings so far. Where devices
    are limited, none of the paths may fit: empty then, as without any path.
    """
    fitting = _Fitting(graph)
    allowed = np.ones(graph.arcs, dtype=np.bool_)
    best = fitting.path(allowed)
    limited = [graph.time] if graph.micro_batches > 1 else []
    for value in (*limited, *graph.peaks):
        if not allowed.any():
            break
        least = float(_labels(graph, graph.time, value).worst_to[graph.sink])
        most = float(value[list(best)].max() if best else value[allowed].max())
        kept = allowed
        for ceiling in np.linspace(least, most, tries, endpoint=False) if least < most else ():
            under = allowed & (value <= ceiling)
            path = fitting.path(under)
            if path and (not best or graph.path_time(path) < graph.path_time(best)):
                best, kept = path, under
        allowed = kept
    return best


def reduced(graph: StageGraph, cutoff: float = math.inf) -> Reduced:
    """Drop every arc that no path costing at most `cutoff` seconds can use.

    The best path through an arc costs at least (B - 1) * (least slowest arc of a path through it) +
    (least total of a path through it) + (least of each peak of a path through it), and uses at
    least
    the least devices of each type of a path through it. Dropping arcs raises them all, so it is
    repeated until nothing
    more goes. Paths at the cutoff
    stay: when one is known, the optimum of the graph is a path of what is left.
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


def capacity_rows(graph: StageGraph) -> Rows:
    """Return, for each device type that arcs use, the row that keeps a path within its capacity.

    Divided by what all uses are multiples of, and rounded down: tighter, and as exact.
    """
    count, columns, values, high = [0], [], [], []
    for use, capacity in zip(graph.use.T, graph.capacity, strict=True):
        column = np.flatnonzero(use)
        if column.size:
            unit = int(np.gcd.reduce(use[column]))
            count.append(column.size)
            columns.append(column)
            values.append((use[column] // unit).astype(np.float64))
            high.append(float(capacity // unit))
    return Rows(
        pointer=np.cumsum(count),
        column=np.concatenate([np.zeros(0, dtype=np.int64), *columns]),
        value=np.concatenate([np.zeros(0), *values]),
        low=np.full(len(high), -math.inf),
        high=np.array(high),
    )


def above(rows: Rows, value: NDArray[Any], least: float) -> Rows:
    """Return covering rows with what the value of each arc exceeds `least` by, where it does.

    As a path has one arc in each row, a maximum that is at least `least` is at least `least` + the
    total of such a row: tighter than the total of the values, and sparser.
    """
    more = value[rows.column] - least
    some = more > 0
    count = np.bincount(rows.row[some], minlength=len(rows))
    held = count > 0
    return Rows(
        pointer=np.concatenate([[0], np.cumsum(count[held])]),
        column=rows.column[some],
        value=more[some].astype(np.float64),
        low=np.full(int(held.sum()), least, dtype=np.float64),
        high=np.full(int(held.sum()), math.inf),
    )


def _under(column: int, rows: Rows, scale: float) -> Rows:
    """Return rows that say: the column, which ends each, less the scaled total is high enough."""
    ends = rows.pointer[1:]
    return Rows(
        pointer=rows.pointer + np.arange(rows.pointer.size),
        column=np.insert(rows.column, ends, column),
        value=np.insert(-rows.value * scale, ends, 1.0),
        low=rows.low * scale,
        high=rows.high,
    )


def linear_model(problem: Reduced, *, scale: float) -> LinearModel:
    """Return the arc-flow model of a reduced graph, times in units of 1 / scale seconds."""
    graph = problem.graph
    arcs = graph.arcs
    cover = cover_rows(graph)
    rows = {"flow": flow_rows(graph)}
    maxima = [("t_max", problem.bottleneck * scale, float(graph.time.max()) * scale)]
    if graph.micro_batches > 1:  # otherwise the bottleneck costs nothing
        rows["cover"] = _under(arcs, cover, scale)
    for number, (peak, least) in enumerate(zip(graph.peaks, problem.peaks.tolist(), strict=True)):
        name = f"peak_{number}"
        rows[name] = _under(arcs + len(maxima), above(cover, peak, least), scale)
        maxima.append((name, least * scale, float(peak.max()) * scale))
    if graph.capacity:
        rows["capacity"] = capacity_rows(graph)
    weights = [graph.micro_batches - 1.0] + [1.0] * len(graph.peaks)
    return LinearModel(
        arcs=arcs,
        cost=np.concatenate([(graph.time + graph.extra) * scale, weights]),
        maxima=tuple(maxima),
        rows=rows,
        scale=scale,
    )


def maxima_of(graph: StageGraph, path: Sequence[int]) -> list[float]:
    """Return the slowest arc's time and each peak of a path, seconds."""
    arcs = list(path)
    return [float(graph.time[arcs].max()), *graph.peaks[:, arcs].max(axis=1).tolist()]


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

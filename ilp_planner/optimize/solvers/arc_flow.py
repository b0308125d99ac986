"""Common code of arc-flow backends: the model of a reduced graph, and paths from its columns.

Model: one 0/1 variable per arc, one unit of flow from the sources to the sink, and a bottleneck
variable that is at least the total time of the arcs over each operator. A path has exactly one arc
over each operator, so these rows say "slowest arc" with far fewer and much tighter rows than one
row per arc. Each peak has a variable like that, too. The limit of each device type is one row.

Tried and left out: 0/1 thresholds on the bottleneck (x_a <= z_k for arcs slower than threshold k)
close a third to a half of the root gap, but cost the solvers more time than they save.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ilp_planner.base.errors import SolverError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from ilp_planner.optimize.graph import StageGraph
    from ilp_planner.optimize.solvers.arc_reduction import Reduced


# ---- the rows of the arc-flow model, sparse ------------------------------------------------------
# Flow, cover, peaks, capacities.


COVER_ENTRIES = 3
"""Entries of the covering rows per arc, beyond which rows are left out.

Measured on 3000 .. 9000 arcs over 44 .. 650 distinct positions: with all rows the relaxations are
barely tighter, and CP-SAT takes two to fifteen times as long, HiGHS and CBC up to ten times.
"""


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
    are kept, evenly spread and enough to meet every arc: the relaxation is weaker, the model as
    exact.
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
    """Return the fewest rows so that each range first .. last - 1 holds one, by earliest end."""
    latest = np.full(int(last.max(initial=0)) + 1, -1, dtype=np.int64)
    np.maximum.at(latest, last, first)
    picks = [-1]
    for end, begin in enumerate(latest.tolist()):
        if begin > picks[-1]:
            picks.append(end - 1)
    return np.array(picks[1:], dtype=np.int64)


def capacity_rows(graph: StageGraph) -> Rows:
    """Return, for each device type that arcs use, the row that keeps a path within its capacity.

    Divided by the common divisor of all uses, and rounded down: tighter, and as exact.
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
    """Return covering rows with the excess of each arc's value over `least`, if positive.

    As a path has one arc in each row, a maximum that is at least `least` is at least `least` + the
    total of the row: tighter than the total of the values, and sparser.
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


def under(column: int, rows: Rows, scale: float) -> Rows:
    """Return rows that say: the column at the end of each, less the scaled total, is high
    enough."""
    ends = rows.pointer[1:]
    return Rows(
        pointer=rows.pointer + np.arange(rows.pointer.size),
        column=np.insert(rows.column, ends, column),
        value=np.insert(-rows.value * scale, ends, 1.0),
        low=rows.low * scale,
        high=rows.high,
    )


# ---- the model, and paths from its columns -------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearModel:
    """Minimise cost over 0/1 columns, one per arc, and continuous ones for maxima.

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

    def value(self, chosen: Sequence[int]) -> float:
        """Return the cost of some arcs, with every maximum as small as its rows allow; each row
        bounds one of them from below."""
        on = np.zeros(self.columns)
        on[list(chosen)] = 1.0
        values = np.array([low for _, low, _ in self.maxima])
        for rows in self.rows.values():
            least = rows.low - np.bincount(rows.row, rows.value * on[rows.column], len(rows))
            held = rows.column >= self.arcs
            np.maximum.at(values, rows.column[held] - self.arcs, least[rows.row[held]])
        return float(self.cost[: self.arcs] @ on[: self.arcs] + self.cost[self.arcs :] @ values)


def linear_model(problem: Reduced, *, scale: float) -> LinearModel:
    """Return the arc-flow model of a reduced graph, times in units of 1 / scale seconds."""
    graph = problem.graph
    arcs = graph.arcs
    cover = cover_rows(graph)
    rows = {"flow": flow_rows(graph)}
    maxima = [("t_max", problem.bottleneck * scale, float(graph.time.max()) * scale)]
    if graph.weight > 0:  # otherwise the bottleneck costs nothing
        rows["cover"] = under(arcs, cover, scale)
    for number, (peak, least) in enumerate(zip(graph.peaks, problem.peaks.tolist(), strict=True)):
        name = f"peak_{number}"
        rows[name] = under(arcs + len(maxima), above(cover, peak, least), scale)
        maxima.append((name, least * scale, float(peak.max()) * scale))
    if graph.capacity:
        rows["capacity"] = capacity_rows(graph)
    weights = [graph.weight] + [1.0] * len(graph.peaks)
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

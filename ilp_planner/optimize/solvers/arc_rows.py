"""The rows of the arc-flow model, sparse: flow, cover, peaks, capacities."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from ilp_planner.optimize.graph import StageGraph


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

"""The error of predictions: rows of a series predicted from its other rows.

Three questions, three ways to leave rows out. Between rows: one row that others surround. At the
edge: one row that they do not surround, but that is no further out than all of them. Beyond: all
rows with the largest (or the least) value of one dimension, predicted from the rest: one step
outside of the measurements.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from ilp_planner.profiler.predict.features import TP
from ilp_planner.profiler.predict.law import Law, fit_law

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from ilp_planner.base.numerics import Floats


# ---- the place of a point among the rows ---------------------------------------------------------
# At one, between them, or how far beyond them.


ON = 1e-9  # of the distance from the convex hull, in octaves


def row_at(points: Floats, point: Floats) -> int | None:
    """Return the row at the point, None if none is."""
    found = np.flatnonzero((points == point).all(axis=1))
    return int(found[0]) if found.size else None


def is_inside(points: Floats, point: Floats) -> bool:
    """Tell whether the point is in the convex hull of the rows, in octaves of every dimension."""
    from scipy.optimize import nnls

    logs, asked = np.log2(points), np.log2(point)
    if (asked < logs.min(axis=0) - ON).any() or (asked > logs.max(axis=0) + ON).any():
        return False
    # A convex combination: weights of at least 0 that add up to 1.
    system = np.vstack([logs.T, np.ones(len(points))])
    return bool(nnls(system, np.append(asked, 1.0))[1] < 1e-7)


def octaves_beyond(points: Floats, point: Floats) -> float:
    """Return how many doublings or halvings the point is outside the box of the rows, in all."""
    logs, asked = np.log2(points), np.log2(point)
    over = np.maximum(asked - logs.max(axis=0), 0.0) + np.maximum(logs.min(axis=0) - asked, 0.0)
    return float(over.sum())


def never_varied(points: Floats, point: Floats) -> NDArray[np.bool_]:
    """Return the dimensions in which the point differs from rows that are all the same there."""
    fixed = (points == points[0]).all(axis=0)
    return np.asarray(fixed & (points[0] != point))


# ---- crossvalidation -----------------------------------------------------------------------------


T = TypeVar("T")
ENOUGH = 3  # rows of a kind whose mean says something by itself
MOST = 64  # rows of a law that are left out one by one, evenly spread over them
FEWEST_VALUES = 3  # of a dimension, to judge a table by: two are left to fit its effect on
PEERS = 12  # other series at most that help to tell the error of one
ENDS = (-1, 1)  # below the least value, above the largest


class Protocol(StrEnum):
    """How a row was predicted from others."""

    BETWEEN = "between rows"
    EDGE = "at the edge of rows"
    BEYOND = "one step beyond rows"


@dataclass(frozen=True, kw_only=True, eq=False)
class LeftOut:
    """Rows, each predicted without itself.

    points: float64 [n, 4]. measured, predicted: float64 [n]. protocol: of all of them. step:
    octaves that they are outside the rows that they were predicted from, at least; 0 inside.
    """

    points: Floats
    measured: Floats
    predicted: Floats
    protocol: Protocol
    step: float = 0.0

    @property
    def errors(self) -> Floats:
        """Absolute relative errors, float64; of the rows if more than 0 was measured."""
        known = self.measured > 0
        return np.asarray(np.abs(self.predicted[known] / self.measured[known] - 1))


class Trials:
    """A law, tested in all ways, each when first asked for."""

    def __init__(self, law: Law) -> None:
        self.law = law
        self._beyond: dict[tuple[int, int, bool], LeftOut | None] = {}

    @property
    def between(self) -> LeftOut:
        """Rows that others surround."""
        return self._one_by_one[0]

    @property
    def edge(self) -> LeftOut:
        """Rows that others do not surround, no further out than all of them."""
        return self._one_by_one[1]

    def beyond(self, dimension: int, end: int, *, alone: bool = False) -> LeftOut | None:
        """Return all rows at the upper end (1) or lower end (-1) of a dimension, from the others.

        None if it has one value.

        alone: instead, errors of the second value from the first, as if no other had been measured.
        """
        key = (dimension, end, alone)
        if key not in self._beyond:
            self._beyond[key] = _further(self.law, *key)
        return self._beyond[key]

    @property
    def parts(self) -> tuple[LeftOut, ...]:
        """All of it that judges a table."""
        points = self.law.points
        varied = [d for d, column in enumerate(points.T) if np.unique(column).size >= FEWEST_VALUES]
        ends = [self.beyond(dimension, end) for dimension in varied for end in ENDS]
        return (self.between, self.edge, *(part for part in ends if part is not None))

    @cached_property
    def _one_by_one(self) -> tuple[LeftOut, LeftOut]:
        law = self.law
        rows = np.arange(law.values.size if law.values.size > 1 else 0)
        if rows.size > MOST:
            rows = np.unique(np.linspace(0, rows.size - 1, MOST).round().astype(np.intp))
        predicted = np.empty(rows.size)
        inside = np.empty(rows.size, dtype=np.bool_)
        edge = np.empty(rows.size, dtype=np.bool_)
        for place, row in enumerate(rows):
            point = law.points[row]
            others = np.delete(law.points, row, axis=0)
            predicted[place] = law.without(int(row)).at(point[None, :])[0]
            inside[place] = is_inside(others, point)
            within = (point >= others.min(axis=0)) & (point <= others.max(axis=0))
            edge[place] = within.all() and not inside[place]
        return (
            _chosen(law, rows[inside], predicted[inside], Protocol.BETWEEN),
            _chosen(law, rows[edge], predicted[edge], Protocol.EDGE),
        )


def _further(law: Law, dimension: int, end: int, alone: bool) -> LeftOut | None:
    """Predict the rows with the outermost value of a dimension; None if it has one."""
    values = np.unique(law.points[:, dimension])[::end]
    if values.size < 2:
        return None
    place = 1 if alone else values.size - 1
    out = law.points[:, dimension] == values[place]
    used = np.isin(law.points[:, dimension], values[:place])
    rest = fit_law(law.points[used], law.values[used], law.quantity, law.work)
    found = _chosen(law, np.flatnonzero(out), rest.at(law.points[out]), Protocol.BEYOND)
    return replace(found, step=abs(float(np.log2(values[place] / values[place - 1]))))


def _chosen(law: Law, rows: NDArray[np.intp], predicted: Floats, protocol: Protocol) -> LeftOut:
    return LeftOut(
        points=law.points[rows], measured=law.values[rows], predicted=predicted, protocol=protocol
    )


def peers_of(own: T, alike: Sequence[T]) -> list[T]:
    """Return the series that help to estimate the error of one: a few, evenly spread over them."""
    places = np.linspace(0, len(alike) - 1, min(len(alike), PEERS + 1)).round().astype(int)
    return [alike[place] for place in places if alike[place] is not own][:PEERS]


def expected_error(own: Trials, others: Iterable[Trials], law: Law, point: Floats) -> float | None:
    """Return the mean absolute relative error of these predictions; None if nothing tells.

    Inside the rows' box: of rows between others, or at the edge of them. Outside: of going further
    in each dimension that the point is outside in, as independent errors add up.

    others: of other series of the same kind.
    """
    logs, asked = np.log2(law.points), np.log2(point)
    over = np.maximum(asked - logs.max(axis=0), 0.0) - np.maximum(logs.min(axis=0) - asked, 0.0)
    if not over.any():
        if is_inside(law.points, point):
            return _mean(own.between, (test.between for test in others))
        return _mean(own.edge, (test.edge for test in others))
    over[TP] -= point[TP] == 1 and over[TP] < 0  # not to be split at all is a step of its own
    peers = list(others)
    parts = [
        _error_beyond(own, peers, int(dimension), float(over[dimension]))
        for dimension in np.flatnonzero(over)
    ]
    known = [part for part in parts if part is not None]
    return float(np.linalg.norm(known)) if len(known) == len(parts) else None


def _error_beyond(own: Trials, peers: list[Trials], dimension: int, octaves: float) -> float | None:
    """Return the error of going some octaves further in a dimension; None if nothing tells.

    The rows left out show it from one value less than there is, so too large; rows at the edge of
    the others from one value more, so too small: the mean of both. Few rows of one series say
    little of its next error, so its peers' rows count as much as its own; of the two their
    quadratic mean, nearer to the larger. If its own rows have one value of the dimension, its
    peers' rows with one value tell.
    """
    end = 1 if octaves > 0 else -1
    mine = own.beyond(dimension, end)
    tests = [(test, test.beyond(dimension, end, alone=mine is None)) for test in peers]
    theirs = [(test, left) for test, left in tests if left is not None and left.errors.size]
    levels, steps = [], []
    for group in ([(own, mine)] if mine is not None and mine.errors.size else [], theirs):
        if group:
            kinds = [left.errors for _, left in group]
            edges = [test.edge.errors for test, _ in group if test.edge.errors.size]
            levels.append(_mean_of_means(kinds))
            if edges and mine is not None:
                levels[-1] = (levels[-1] + _mean_of_means(edges)) / 2
            steps.append(float(np.mean([left.step for _, left in group])))
    if not levels:
        return None
    return float(np.sqrt(np.mean(np.square(levels)))) * max(1.0, abs(octaves) / steps[0])


def _mean_of_means(parts: list[Floats]) -> float:
    return float(np.mean([part.mean() for part in parts]))


def _mean(own: LeftOut, others: Iterable[LeftOut]) -> float | None:
    errors = own.errors
    if errors.size < ENOUGH:
        errors = np.concatenate([errors, *(left.errors for left in others)])
    return float(errors.mean()) if errors.size else None

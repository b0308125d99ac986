"""How far predictions are off: rows of a series predicted from its other rows.

Three questions, three ways to leave rows out. Between rows: one row that others surround. At the
edge: one row that they do not surround, but that is no further out than all of them. Beyond: all
rows with the largest (or the least) value of one dimension, predicted from the rest, which is one
step outside what was measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.profiles.predict.law import fit_law
from ilp_planner.profiles.predict.region import is_inside

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from ilp_planner.profiles.predict.law import Law

ENOUGH = 3  # rows of a kind whose mean says something by itself
MOST = 64  # rows of a law that are left out one by one, evenly spread over them
FEWEST_VALUES = 3  # of a dimension: its effect is fitted on two at least when one is left out
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

    points: NDArray[np.float64]
    measured: NDArray[np.float64]
    predicted: NDArray[np.float64]
    protocol: Protocol
    step: float = 0.0

    @property
    def errors(self) -> NDArray[np.float64]:
        """Absolute relative errors, float64; of the rows where more than 0 was measured."""
        known = self.measured > 0
        return np.asarray(np.abs(self.predicted[known] / self.measured[known] - 1))


class Trials:
    """A law, tested in all ways, each when first asked for."""

    def __init__(self, law: Law) -> None:
        self.law = law
        self._beyond: dict[tuple[int, int], LeftOut | None] = {}

    @property
    def between(self) -> LeftOut:
        """Rows that others surround."""
        return self._one_by_one[0]

    @property
    def edge(self) -> LeftOut:
        """Rows that others do not surround, no further out than all of them."""
        return self._one_by_one[1]

    def beyond(self, dimension: int, end: int) -> LeftOut | None:
        """Return all rows at the upper end (1) or lower end (-1) of a dimension; None where it has
        too few values."""
        key = (dimension, end)
        if key not in self._beyond:
            self._beyond[key] = _outermost(self.law, *key)
        return self._beyond[key]

    @property
    def parts(self) -> tuple[LeftOut, ...]:
        """All of it."""
        ends = [self.beyond(d, end) for d in range(self.law.points.shape[1]) for end in ENDS]
        return (self.between, self.edge, *(part for part in ends if part is not None))

    @cached_property
    def _one_by_one(self) -> tuple[LeftOut, LeftOut]:
        return _one_by_one(self.law)


def _one_by_one(law: Law) -> tuple[LeftOut, LeftOut]:
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


def _outermost(law: Law, dimension: int, end: int) -> LeftOut | None:
    """Predict the rows with the outermost value of a dimension; None where it has too few."""
    values = np.unique(law.points[:, dimension])
    if values.size < FEWEST_VALUES:
        return None
    last, before = (values[-1], values[-2]) if end > 0 else (values[0], values[1])
    out = law.points[:, dimension] == last
    rest = fit_law(law.points[~out], law.values[~out], law.quantity, law.work)
    found = _chosen(law, np.flatnonzero(out), rest.at(law.points[out]), Protocol.BEYOND)
    step = abs(float(np.log2(last / before)))
    return LeftOut(
        points=found.points,
        measured=found.measured,
        predicted=found.predicted,
        protocol=Protocol.BEYOND,
        step=step,
    )


def _chosen(
    law: Law, rows: NDArray[np.intp], predicted: NDArray[np.float64], protocol: Protocol
) -> LeftOut:
    return LeftOut(
        points=law.points[rows],
        measured=law.values[rows],
        predicted=predicted,
        protocol=protocol,
    )


def expected_error(
    own: Trials, others: Iterable[Trials], law: Law, point: NDArray[np.float64]
) -> float | None:
    """Return the mean absolute relative error of such predictions; None if nothing tells.

    Inside the rows' box: of rows between others, or at the edge of them. Outside: of going one step
    further in each dimension that the point is outside in, more in proportion where it is further
    out than a step, all of these added up.

    Parameters
    ----------
    others: of other series, for where this one has too few rows of a kind.
    """
    logs, asked = np.log2(law.points), np.log2(point)
    over = np.maximum(asked - logs.max(axis=0), 0.0) - np.maximum(logs.min(axis=0) - asked, 0.0)
    if not over.any():
        if is_inside(law.points, point):
            return _mean(own.between, (test.between for test in others))
        return _mean(own.edge, (test.edge for test in others))
    total = 0.0
    others = iter(others)
    looked: list[Trials] = []
    for dimension in np.flatnonzero(over):
        key = (int(dimension), 1 if over[dimension] > 0 else -1)
        # Its own rows say it best; others' only where it has none.
        first = own.beyond(*key)
        if first is None:
            looked += others
        parts = [first] if first is not None else [other.beyond(*key) for other in looked]
        used = [part for part in parts if part is not None]
        if not used:
            return None
        errors = np.concatenate([left.errors for left in used])
        if not errors.size:
            return None
        step = float(np.mean([left.step for left in used]))
        total += float(errors.mean()) * max(1.0, abs(float(over[dimension])) / step)
    return total


def _mean(own: LeftOut, others: Iterable[LeftOut]) -> float | None:
    errors = own.errors
    if errors.size < ENOUGH:
        errors = np.concatenate([errors, *(left.errors for left in others)])
    return float(errors.mean()) if errors.size else None

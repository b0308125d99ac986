"""Predicting rows of layers and operators that a table does not have.

Every column of every series (a layer kind or operator on one device type) has a `Law`: a roofline
fitted on the series' rows, times their residuals, interpolated over tensor-parallel degree,
micro-batch, sequence and width.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ilp_planner.base.errors import ProfileError
from ilp_planner.costs.profiles.measurements import Measurements, Record
from ilp_planner.costs.profiles.predictions import Want
from ilp_planner.costs.profiles.table import Prediction, Provenance
from ilp_planner.profiler.predict.crossvalidation import (
    Trials,
    expected_error,
    is_inside,
    never_varied,
    octaves_beyond,
    peers_of,
    row_at,
)
from ilp_planner.profiler.predict.features import DIMENSIONS, QUANTITIES, Quantity
from ilp_planner.profiler.predict.law import Law, fit_law
from ilp_planner.profiler.predict.series import Series, find_series

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ilp_planner.base.numerics import Floats

WORK = ("flop", "traffic_bytes")
NAMED = 8  # series that a message lists
DIMENSION_NAMES = {
    "tp": "tensor-parallel degree",
    "micro_batch": "micro-batch",
    "sequence": "sequence",
    "hidden": "hidden size",
}


class LayerPredictor:
    """Predicts any value column of the layers and operators of a table.

    Laws are fitted, and their errors cross-validated, when first asked for.
    """

    def __init__(self, table: Measurements) -> None:
        self.table = table
        self._laws: dict[tuple[int, str], Law] = {}
        self._tested: dict[tuple[int, str], Trials] = {}

    @cached_property
    def series(self) -> tuple[Series, ...]:
        """The series of the table, in its order."""
        return find_series(self.table)

    def predict(
        self,
        column: str,
        *,
        name: str | None = None,
        layers: str | None = None,
        device: str | None = None,
        tp: int,
        micro_batch: int,
        sequence: int | None = None,
        hidden: int | None = None,
        record: Record = Record.LAYER,
        split: int | None = None,
    ) -> Prediction:
        """Return one value of one layer kind or operator.

        column: a value column of the native table. name, layers: of the series; a part of a range
        will do.
        device: may be left out if the table has one type. sequence, hidden: likewise if its rows
        have one. split: of an operator, the divided dimension.

        Raises
        ------
        ProfileError: unknown rows, or more than one series; a column that is never predicted.
        """
        want = Want(record=record, name=name, layers=layers, device=device, split=split)
        found = self.find(want)
        chosen = [s for s in found if s.has(column)] if column in QUANTITIES else found
        if not chosen:
            raise ProfileError(f"{self.table.source}: no rows with {column!r} of {found[0].key}")
        if len({s.key for s in chosen}) > 1:
            several = ", ".join(dict.fromkeys(f"{s.key} on {s.key.device!r}" for s in chosen[:4]))
            raise ProfileError(
                f"{self.table.source}: more than one kind of rows fits: {several}; expected "
                "device, name, layers and split to say which"
            )
        point = self.point(chosen[0], tp, micro_batch, sequence, hidden)
        return self.at(chosen[0], column, point)

    def find(self, want: Want) -> list[Series]:
        """Return the series of this record, device, name, layers and split; one at least.

        Raises
        ------
        ProfileError: none does; says the table's content.
        """
        record, device = want.record, want.device
        every = [s for s in self.series if record is None or s.key.record is record]
        what = "layers or operators" if record is None else f"record {record.value!r}"
        where = f"{self.table.source}: no rows of {what} to predict from"
        if not every:
            raise ProfileError(f"{where}, expected some that were measured")
        here = [s for s in every if device is None or s.key.device.casefold() == device.casefold()]
        if not here:
            known = ", ".join(dict.fromkeys(repr(s.key.device) for s in every))
            raise ProfileError(f"{where} on device {device!r}, expected {known}")
        found = [s for s in here if s.matches(want)]
        if not found:
            asked = " ".join(
                f"{key}={getattr(want, key)}"
                for key in ("name", "layers", "split")
                if getattr(want, key) is not None
            )
            names = list(dict.fromkeys(str(s.key) for s in here))
            more = f", ... ({len(names)} in all)" if len(names) > NAMED else ""
            raise ProfileError(
                f"{where} for {asked!r}, expected one of {', '.join(names[:NAMED])}{more}"
            )
        return found

    def point(
        self,
        series: Series,
        tp: int,
        micro_batch: int,
        sequence: int | None = None,
        hidden: int | None = None,
    ) -> Floats:
        """Return a point of a series, float64 [4]; missing values are those of all its rows.

        Raises
        ------
        ProfileError: its rows do not say the dimension, or have several values of it.
        """
        point = np.array([tp, micro_batch, sequence or 1, hidden or 1], dtype=np.float64)
        if not (point >= 1).all():
            raise ProfileError(f"tp, micro_batch, ... must be at least 1, found {point.tolist()}")
        for place, (name, value) in enumerate((("sequence", sequence), ("hidden", hidden)), 2):
            known = np.unique(series.points[:, place])
            if name not in series.key.dimensions:
                if value is not None:
                    raise ProfileError(
                        f"{self.table.source}: {series.key}: its rows have no {name!r}, found "
                        f"{value} asked: leave it out"
                    )
            elif value is None and known.size > 1:
                values = ", ".join(f"{x:.0f}" for x in known)
                raise ProfileError(
                    f"{self.table.source}: {series.key}: rows of several {name!r}, expected one "
                    f"to be asked for: {values}"
                )
            elif value is None:
                point[place] = known[0]
        return point

    def at(self, series: Series, column: str, point: Floats) -> Prediction:
        """Return a column of a series at a point, float64 [4]."""
        law = self.law(series, column)
        row = row_at(law.points, point)
        lost = lost_before(series, point)
        if row is not None:
            return Prediction(
                value=float(law.values[row]),
                provenance=series.provenance,
                error=0.0 if series.provenance is Provenance.MEASURED else None,
                basis=f"the row itself{lost}",
            )
        inside = is_inside(law.points, point)
        beyond = octaves_beyond(law.points, point)
        unseen = never_varied(law.points, point)
        own = self.tested(series, column)
        error = expected_error(own, self._others(series, column), law, point)
        kind = Provenance.INTERPOLATED if inside else Provenance.EXTRAPOLATED
        return Prediction(
            value=float(law.at(point[None, :])[0]),
            provenance=kind if series.provenance is Provenance.MEASURED else series.provenance,
            error=error,
            basis=_basis(law, point, inside, beyond, unseen) + lost,
        )

    def law(self, series: Series, column: str) -> Law:
        """Return the law of a column, fitted when first asked for.

        Raises
        ------
        ProfileError: no row of the series says the column.
        """
        key = (id(series), column)
        if key not in self._laws:
            if column not in QUANTITIES or not series.has(column):
                raise ProfileError(f"{self.table.source}: no rows with {column!r} of {series.key}")
            points, values = series.of(column)
            work = None
            if series.quantity(column) is Quantity.TIME and series.worked:
                flop, traffic = (self.law(series, name) for name in WORK)

                def work(asked: Floats) -> Floats:
                    return np.stack([flop.at(asked), traffic.at(asked)], axis=1)

            self._laws[key] = fit_law(points, values, series.quantity(column), work)
        return self._laws[key]

    def tested(self, series: Series, column: str) -> Trials:
        """Return the errors of predicting the rows of a column from each other."""
        key = (id(series), column)
        if key not in self._tested:
            self._tested[key] = Trials(self.law(series, column))
        return self._tested[key]

    def _others(self, series: Series, column: str) -> Iterator[Trials]:
        """Yield the column's errors in other series of the same kind and device."""
        kind = (series.key.record, series.key.device)
        alike = [s for s in self.series if (s.key.record, s.key.device) == kind and s.has(column)]
        for other in peers_of(series, alike):
            yield self.tested(other, column)


def lost_before(series: Series, point: Floats) -> str:
    """Say that a measured row that needs no more than this one ran out of memory; '': none did."""
    found = series.out_of_memory
    # A smaller degree holds more of the layer: it says nothing of a larger one.
    no_more = (found[:, 1:] <= point[1:]).all(axis=1) & (found[:, 0] >= point[0])
    if not no_more.any():
        return ""
    tp, samples, *_ = found[no_more][0]
    return f"; measured, tp {tp:.0f} with {samples:.0f} samples ran out of memory"


def _basis(
    law: Law, point: Floats, inside: bool, beyond: float, unseen: Sequence[bool] | Any
) -> str:
    rows = law.values.size
    count = "1 row" if rows == 1 else f"{rows} rows"
    made = (
        "a law in proportion" if rows == 1 else "roofline" if rows == 2 else "roofline, residuals"
    )
    work = ", FLOP and traffic known" if law.prior.worked else ""
    where = "between" if inside else "beyond"
    text = f"{made} of {count}{work}, {where} them"
    if beyond:
        text += f" by {beyond:.3g} doubling" + ("" if beyond == 1 else "s")
    names = [DIMENSION_NAMES[n] for n, new in zip(DIMENSIONS, unseen, strict=True) if new]
    if names:
        text += f"; no row varies the {' and the '.join(names)}: its effect is assumed"
    return text

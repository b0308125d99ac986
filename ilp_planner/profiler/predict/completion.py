"""A table with the rows that it lacks, predicted from the ones it has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ilp_planner.base.errors import ProfileError
from ilp_planner.costs.profiles.measurements import Measurements, RowStatus, join, measurements_of
from ilp_planner.costs.profiles.table import TRUST, Prediction
from ilp_planner.profiler.predict.features import DIMENSIONS, QUANTITIES, TIMES
from ilp_planner.profiler.predict.layers import LayerPredictor, lost_before
from ilp_planner.profiler.predict.region import row_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ilp_planner.base.numerics import Floats
    from ilp_planner.costs.profiles.predictions import Want
    from ilp_planner.profiler.predict.series import Series

SOURCE = "predicted"
PARTS = ("forward_s", "backward_s")
SUM_AGREES = 0.02  # relative: medians of parts do not quite add up to the median of the whole


def complete(
    table: Measurements, wants: Iterable[Want], *, predictor: LayerPredictor | None = None
) -> Measurements:
    """Return the table with the rows that are missing added, all columns that can be predicted.

    A row says its provenance, `predicted` as its source, and as its error that of its time. A row
    that needs no less than one that ran out of memory when measured says `out_of_memory`, and has
    no times.

    predictor: of the same table, to reuse its fits.

    Raises
    ------
    ProfileError: there are no rows to predict from, or a want has dimensions that they lack.
    """
    chosen = predictor or LayerPredictor(table)
    rows: list[dict[str, Any]] = []
    done: set[tuple[int, bytes]] = set()
    for want in wants:
        for series, point in wanted_points(chosen, want):
            key = (id(series), point.tobytes())
            if key in done or is_in_table(series, point):
                continue
            done.add(key)
            rows.append(predicted_row(chosen, series, point))
    if not rows:
        return table
    added = measurements_of(rows, table.source)
    return join([table, added], table.source)


def wanted_points(predictor: LayerPredictor, want: Want) -> Iterator[tuple[Series, Floats]]:
    """Yield every series and point [4] that a want names.

    Raises
    ------
    ProfileError: none does, or a dimension that the rows lack is asked for.
    """
    for series in predictor.find(want):
        for point in _points(predictor, series, want):
            yield series, point


def predicted_row(predictor: LayerPredictor, series: Series, point: Floats) -> dict[str, Any]:
    """Return a row of the native table, every column of the series predicted."""
    key = series.key
    row: dict[str, Any] = {
        "record": key.record.value,
        "device": key.device,
        "name": key.name,
        "layers": series.layers_at(point),
        "dtype": key.dtype,
        "timing": key.timing,
        "source": SOURCE,
    }
    if key.split >= 0:
        row["split"] = key.split
    row |= {
        name: value for name, value in zip(DIMENSIONS, point, strict=True) if name in key.dimensions
    }
    at = point[None, :]
    columns = [name for name in QUANTITIES if series.has(name)]
    times = [name for name in columns if series.quantity(name) in TIMES]
    for name in columns:
        if name not in times:
            value = float(predictor.law(series, name).at(at)[0])
            row[name] = round(value) if name.endswith("bytes") or name == "parameters" else value
    judged = row_prediction(predictor, series, point)
    row["provenance"] = judged.provenance.value
    if lost_before(series, point):
        return row | {"status": RowStatus.OUT_OF_MEMORY.value}
    found = {name: float(predictor.law(series, name).at(at)[0]) for name in times}
    if series_adds_up(series) and all(name in found for name in ("time_s", *PARTS)):
        share = found["time_s"] / sum(found[name] for name in PARTS)
        found |= {name: found[name] * share for name in PARTS}
    if judged.error is not None:
        row["error"] = judged.error
    return row | found


def row_prediction(predictor: LayerPredictor, series: Series, point: Floats) -> Prediction:
    """Return the time of a row: its forward and backward pass, and how far to trust it.

    Raises
    ------
    ProfileError: the series has no times.
    """
    if series.has("time_s"):
        return predictor.at(series, "time_s", point)
    parts = [predictor.at(series, name, point) for name in PARTS if series.has(name)]
    if not parts:
        raise ProfileError(f"{predictor.table.source}: no times of {series.key} to predict from")
    return joined(parts)


def joined(parts: list[Prediction]) -> Prediction:
    """Return the sum of predictions: the errors weighted by value, the worst provenance."""
    total = sum(part.value for part in parts)
    known = [part.error for part in parts if part.error is not None]
    error = None
    if len(known) == len(parts):
        error = sum(e * p.value for e, p in zip(known, parts, strict=True)) / total
    worst = max(parts, key=lambda part: TRUST.index(part.provenance))
    return Prediction(value=total, provenance=worst.provenance, error=error, basis=worst.basis)


def series_adds_up(series: Series) -> bool:
    """Tell whether forward and backward pass make the time, in all rows that say all three."""
    time, forward, backward = (series.values[name] for name in ("time_s", *PARTS))
    known = np.isfinite(time) & np.isfinite(forward) & np.isfinite(backward)
    if not known.any():
        return False
    off = np.abs(forward[known] + backward[known] - time[known])
    return bool((off <= SUM_AGREES * time[known]).all())


def is_in_table(series: Series, point: Floats) -> bool:
    """Tell whether the table has the row, predicted or out of memory as it may be."""
    known = (series.points, series.out_of_memory, series.predicted)
    return any(row_at(rows, point) is not None for rows in known)


def _points(predictor: LayerPredictor, series: Series, want: Want) -> Iterator[Floats]:
    """Yield the points of one series: each value that is not asked for runs over the rows'."""
    degrees = [want.tp] if want.tp else np.unique(series.points[:, 0]).astype(int)
    sizes = [want.micro_batch] if want.micro_batch else np.unique(series.points[:, 1]).astype(int)
    shapes = np.unique(series.points[:, 2:], axis=0)
    asked: dict[tuple[int | None, int | None], None] = {}
    for sequence, hidden in shapes:
        said = {"sequence": int(sequence), "hidden": int(hidden)}
        mine = [
            given or (said[name] if name in series.key.dimensions else None)
            for name, given in (("sequence", want.sequence), ("hidden", want.hidden))
        ]
        asked[mine[0], mine[1]] = None
    for sequence_, hidden_ in asked:
        for tp in degrees:
            for size in sizes:
                yield predictor.point(series, int(tp), int(size), sequence_, hidden_)

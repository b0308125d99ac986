"""Questions to a table's predictions, and the answers; tables completed by them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ilp_planner.base.errors import ProfileError
from ilp_planner.base.units import format_bytes
from ilp_planner.costs.profiles.measurements import (
    Measurements,
    Record,
    RowStatus,
    join,
    measurements_of,
)
from ilp_planner.costs.profiles.predictions import Want
from ilp_planner.costs.profiles.table import TRUST, Prediction, Provenance
from ilp_planner.profiler.predict.assessment import describe_point
from ilp_planner.profiler.predict.crossvalidation import row_at
from ilp_planner.profiler.predict.features import DIMENSIONS, QUANTITIES, TIMES
from ilp_planner.profiler.predict.layers import LayerPredictor, lost_before

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ilp_planner.base.numerics import Floats
    from ilp_planner.profiler.predict.series import Series


# ---- a table with the rows that it lacks, predicted from the ones it has -------------------------


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


# ---- answers -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveWant:
    """A collective that is asked for. size: bytes of the whole tensor. groups: None means as many
    at once as the hosts have room for."""

    name: str
    size: float
    group_size: int
    hosts: int = 1
    stride: int = 1
    groups: int | None = None
    device: str = ""
    dtype: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductWant:
    """A product of two matrices that is asked for."""

    flop: float
    device: str = ""
    dtype: str = ""


AnyWant = Want | CollectiveWant | ProductWant


@dataclass(frozen=True, kw_only=True, eq=False)
class Answer:
    """A predicted row.

    what: in words. where: its dimensions, in words. time: seconds of it all. row: of the native
    table. known: it was measured. there: the table has it, maybe as a prediction.
    """

    record: Record
    what: str
    where: str
    time: Prediction
    row: Mapping[str, Any]
    known: bool = False
    there: bool = False


def answer_layers(
    predictor: LayerPredictor, wants: Iterable[Want]
) -> tuple[list[Answer], list[Series]]:
    """Return an answer per series and point that is asked for, each once, and the series.

    Raises
    ------
    ProfileError: a want that the table has no rows for.
    """
    answers: list[Answer] = []
    used: dict[int, Series] = {}
    seen = set()
    for want in wants:
        for series, point in wanted_points(predictor, want):
            key = (id(series), point.tobytes())
            if key in seen:
                continue
            seen.add(key)
            used[id(series)] = series
            time = row_prediction(predictor, series, point)
            known = row_at(series.points, point) is not None
            row = predicted_row(predictor, series, point)
            if known:
                row.pop("source")
            answers.append(
                Answer(
                    record=series.key.record,
                    what=str(series.key),
                    where=describe_point(series, point),
                    time=time,
                    row=row,
                    known=known,
                    there=is_in_table(series, point),
                )
            )
    return answers, list(used.values())


def answer_collectives(table: Measurements, wants: Iterable[CollectiveWant]) -> list[Answer]:
    """Return an answer per collective.

    Raises
    ------
    ProfileError: the table has no collectives.
    """
    from ilp_planner.profiler.predict.collectives import CollectivePredictor

    asked = list(wants)
    if not asked:
        return []
    predictor = CollectivePredictor(table)
    answers = []
    for want in asked:
        columns = ("device", "name", "dtype", "group_size", "hosts", "stride")
        said = {name: getattr(want, name) for name in columns} | {"bytes": want.size}
        if want.groups is not None:
            said["groups"] = want.groups
        hosts = "1 host" if want.hosts == 1 else f"{want.hosts} hosts"
        stride = f", stride {want.stride}" if want.stride > 1 else ""
        where = f"{want.group_size} on {hosts}{stride}, {format_bytes(want.size)}"
        time = predictor.predict(**asdict(want))
        answers.append(_answer(Record.COLLECTIVE, want.name, where, said, time))
    return answers


def answer_products(table: Measurements, wants: Iterable[ProductWant]) -> list[Answer]:
    """Return an answer per matrix product.

    Raises
    ------
    ProfileError: the table has no products, or products of several types.
    """
    from ilp_planner.profiler.predict.products import ProductPredictor

    asked = list(wants)
    if not asked:
        return []
    predictor = ProductPredictor(table)
    answers = []
    for want in asked:
        said = {"device": want.device, "dtype": want.dtype, "flop": want.flop}
        where = f"{want.flop:.6g} FLOP" + (f", {want.dtype}" if want.dtype else "")
        time = predictor.predict(**asdict(want))
        answers.append(_answer(Record.MATMUL, "matrix product", where, said, time))
    return answers


def _answer(
    record: Record, what: str, where: str, said: Mapping[str, Any], time: Prediction
) -> Answer:
    """Return an answer with these columns in its row."""
    row = {
        "record": record.value,
        **said,
        "time_s": time.value,
        "provenance": time.provenance.value,
        "source": SOURCE,
    }
    if time.error is not None:
        row["error"] = time.error
    known = time.provenance is Provenance.MEASURED
    return Answer(
        record=record, what=what, where=where, time=time, row=row, known=known, there=known
    )

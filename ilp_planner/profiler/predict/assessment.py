"""The accuracy of a table's predictions of itself: every row against its prediction by the
others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ilp_planner.base.units import format_bytes
from ilp_planner.costs.profiles.measurements import Measurements, Record, RowStatus
from ilp_planner.costs.profiles.table import Provenance
from ilp_planner.profiler.predict.collectives import collective_rows
from ilp_planner.profiler.predict.crossvalidation import Protocol
from ilp_planner.profiler.predict.curve import curve_of
from ilp_planner.profiler.predict.features import DIMENSIONS
from ilp_planner.profiler.predict.products import product_rows, product_seconds
from ilp_planner.profiler.predict.series import RECORDS, Series

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import pandas

    from ilp_planner.base.numerics import Floats
    from ilp_planner.profiler.predict.layers import LayerPredictor

TIME_COLUMNS = ("time_s", "forward_s", "backward_s", "optimizer_s")
MEMORY_COLUMNS = (
    "state_bytes",
    "activation_bytes",
    "forward_workspace_bytes",
    "backward_workspace_bytes",
    "memory_bytes",
)
GROUP = ("device", "name", "group_size", "hosts", "stride", "groups", "dtype")
SHORT = {"tp": "tp", "micro_batch": "micro-batch", "sequence": "sequence", "hidden": "hidden"}


@dataclass(frozen=True, kw_only=True, eq=False)
class Judged:
    """One column of one series, n rows predicted from others in one way.

    kind: a record. label: of the series. column: in seconds or bytes. rows: kind of each. measured,
    predicted: float64 [n]. protocol: how they were predicted from others.
    """

    kind: Record
    device: str
    label: str
    column: str
    protocol: Protocol
    rows: tuple[str, ...]
    measured: Floats
    predicted: Floats

    @property
    def errors(self) -> Floats:
        """Relative errors with their sign, float64 [n]; NaN if 0 was measured."""
        known = self.measured > 0
        off = self.predicted - self.measured
        return np.where(known, off / np.where(known, self.measured, 1.0), np.nan)


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Errors of some rows: how many, mean and median of the absolute relative ones, the 90th
    percentile; NaN for none."""

    rows: int
    mean: float
    median: float
    high: float


def score(errors: Floats) -> Score:
    """Return the score of relative errors; NaN do not count."""
    known = np.abs(errors[np.isfinite(errors)])
    if not known.size:
        return Score(rows=0, mean=np.nan, median=np.nan, high=np.nan)
    return Score(
        rows=int(known.size),
        mean=float(known.mean()),
        median=float(np.median(known)),
        high=float(np.percentile(known, 90)),
    )


def errors_of(
    judged: Iterable[Judged], protocol: Protocol, columns: Iterable[str] | None = None
) -> Floats:
    """Return the relative errors of all rows of a kind, float64."""
    wanted = None if columns is None else set(columns)
    parts = [
        j.errors
        for j in judged
        if j.protocol is protocol and (wanted is None or j.column in wanted)
    ]
    return np.concatenate([*parts, np.empty(0)])


def judge_layers(
    predictor: LayerPredictor,
    series: Iterable[Series] | None = None,
    columns: Iterable[str] = TIME_COLUMNS,
    progress: Callable[[float], None] | None = None,
) -> tuple[Judged, ...]:
    """Judge layers, operators and parts of a step.
    series: which; all of them. progress: told the share that is done."""
    chosen = list(predictor.series if series is None else series)
    names = list(columns)
    found: list[Judged] = []
    for place, one in enumerate(chosen):
        for column in names:
            if one.has(column) and one.of(column)[1].size > 1:
                found += _judge_series(predictor, one, column)
        if progress is not None:
            progress((place + 1) / len(chosen))
    return tuple(found)


def _judge_series(predictor: LayerPredictor, series: Series, column: str) -> Iterator[Judged]:
    for left in predictor.tested(series, column).parts:
        if left.measured.size:
            yield Judged(
                kind=series.key.record,
                device=series.key.device,
                label=str(series.key),
                column=column,
                protocol=left.protocol,
                rows=tuple(describe_point(series, point) for point in left.points),
                measured=left.measured,
                predicted=left.predicted,
            )


def describe_point(series: Series, point: Floats) -> str:
    """Return `tp 4, micro-batch 2`; sequence and width only if the rows have several."""
    said = []
    for place, name in enumerate(DIMENSIONS):
        varied = (series.points[:, place] != point[place]).any()
        if name in series.key.dimensions and (place < 2 or varied):
            said.append(f"{SHORT[name]} {point[place]:.0f}")
    return ", ".join(said)


def judge_collectives(table: Measurements) -> tuple[Judged, ...]:
    """Judge the sizes of every collective: each from the other sizes of the same group."""
    rows = collective_rows(table)
    return tuple(_judge_curves(rows, GROUP, Record.COLLECTIVE, _group_label))


def judge_products(table: Measurements) -> tuple[Judged, ...]:
    """Judge matrix products: each from the others of the same type of numbers."""
    rows = product_rows(table)
    return tuple(_judge_curves(rows, ("device", "dtype"), Record.MATMUL, _product_label))


def _product_label(key: Mapping[str, Any]) -> str:
    return f"products, {key['dtype']}" if key["dtype"] else "products"


def _group_label(key: Mapping[str, Any]) -> str:
    hosts = ""
    if key["hosts"] == key["hosts"]:
        hosts = " on 1 host" if key["hosts"] == 1 else f" on {key['hosts']:.0f} hosts"
    stride = f", stride {key['stride']:.0f}" if key["stride"] == key["stride"] else ""
    groups = f", {key['groups']:.0f} at once" if key["groups"] == key["groups"] else ""
    dtype = f", {key['dtype']}" if key["dtype"] else ""
    return f"{key['name']} of {key['group_size']:.0f}{hosts}{stride}{groups}{dtype}"


def _judge_curves(
    rows: pandas.DataFrame,
    by: tuple[str, ...],
    kind: Record,
    label: Callable[[Mapping[str, Any]], str],
) -> Iterator[Judged]:
    products = kind is Record.MATMUL
    for values, part in rows.groupby(list(by), dropna=False, sort=True):
        merged = part.groupby("flop" if products else "bytes")["time_s"].median()
        sizes, times = merged.index.to_numpy(np.float64), merged.to_numpy(np.float64)
        if sizes.size < 2:
            continue
        predicted = np.empty(sizes.size)
        for i, asked in enumerate(sizes):
            others = np.delete(sizes, i), np.delete(times, i)
            at = np.array([asked])
            predicted[i] = (product_seconds(*others, at) if products else curve_of(*others)(at))[0]
        names = [f"{s:.4g} FLOP" if products else format_bytes(s) for s in sizes]
        key = dict(zip(by, values, strict=True))
        for protocol, chosen in (
            (Protocol.BETWEEN, slice(1, -1)),
            (Protocol.BEYOND, slice(0, None, sizes.size - 1)),
        ):
            if times[chosen].size:
                yield Judged(
                    kind=kind,
                    device=str(key["device"]),
                    label=label(key),
                    column="time_s",
                    protocol=protocol,
                    rows=tuple(names[chosen]),
                    measured=times[chosen],
                    predicted=predicted[chosen],
                )


def dropped_rows(table: Measurements) -> tuple[str, ...]:
    """Say the rows that predictions do not use as they are, and why, a line for each reason."""
    frame = table.frame
    found = []
    for status, why in (
        (RowStatus.OUT_OF_MEMORY, "that ran out of memory when measured"),
        (RowStatus.FAILED, "that failed when measured"),
    ):
        count = int((frame["status"] == status).sum())
        if count:
            found.append(f"{_rows(count)} {why}")
    done = frame[frame["status"] == RowStatus.OK]
    made = done["provenance"].isin((Provenance.INTERPOLATED, Provenance.EXTRAPOLATED))
    # Of other kinds, a row that was not measured itself counts unless it was predicted.
    made &= done["record"].isin(RECORDS) | done["error"].notna()
    if made.any():
        found.append(f"{_rows(int(made.sum()))} predicted, not measured")
    layered = done[done["record"].isin(RECORDS) & ~made]
    keys = ["record", "device", "name", "layers", "split", "dtype", "timing", *DIMENSIONS]
    again = int(layered.duplicated(keys).sum())
    if again:
        found.append(f"{_rows(again)} of a combination that another row has: their mean counts")
    times = layered[[c for c in TIME_COLUMNS if c in layered]]
    empty = int((times == 0).any(axis=1).sum())
    if empty:
        found.append(f"{_rows(empty)} with a time of 0, which does not count")
    return tuple(found)


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"

"""The rows of a table that belong together: rows of one layer kind, operator or part of a step on
one device type."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ilp_planner.costs.profiles.measurements import (
    Measurements,
    Record,
    RowStatus,
    layer_range,
    plain_rows,
)
from ilp_planner.costs.profiles.table import Provenance
from ilp_planner.profiler.predict.features import (
    DIMENSIONS,
    HIDDEN,
    MICRO_BATCH,
    QUANTITIES,
    SEQUENCE,
    TIMES,
    TP,
    Quantity,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas

    from ilp_planner.base.numerics import Floats
    from ilp_planner.costs.profiles.predictions import Want

RECORDS = (Record.LAYER, Record.OPERATOR, Record.STEP)
OPTIMIZER = "optimizer"  # the part of a step that no micro-batch changes


class SeriesKey(NamedTuple):
    """The subject of a series. split: -1 if it does not apply. layers: '' if the rows of several
    models are one series. dimensions: the ones of `features.DIMENSIONS` in its rows."""

    record: Record
    device: str
    name: str
    layers: str
    split: int
    dtype: str
    timing: str
    dimensions: tuple[str, ...]

    def __str__(self) -> str:
        """Return its name."""
        what = self.name or "layer"
        if self.layers:
            what += f" ({self.layers})" if self.name else f" {self.layers}"
        return what if self.split < 0 else f"{what}, split {self.split}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Series:
    """Rows of one key.

    points: float64 [n, 4], in the order of `features.DIMENSIONS`, 1 if the rows do not say; no two
    alike. values: column -> float64 [n], NaN if a row does not say; the mean of rows of the same
    point. layers: of every row. out_of_memory: float64 [k, 4], points that ran out of it.
    provenance: of the rows; measured if there are any.
    """

    key: SeriesKey
    points: Floats
    values: Mapping[str, Floats]
    layers: tuple[str, ...]
    out_of_memory: Floats
    predicted: Floats
    provenance: Provenance

    def of(self, column: str) -> tuple[Floats, Floats]:
        """Return points [m, 4] and values [m] of the rows that say the column."""
        values = self.values[column]
        known = np.isfinite(values)
        if self.quantity(column) in TIMES:
            known &= values > 0
        return self.points[known], values[known]

    def quantity(self, column: str) -> Quantity:
        """Return the kind of number of a column."""
        if self.key.record is Record.STEP and self.key.name == OPTIMIZER:
            return Quantity.STEP
        return QUANTITIES[column]

    def has(self, column: str) -> bool:
        """Tell whether any row says the column."""
        return self.of(column)[1].size > 0

    @property
    def worked(self) -> bool:
        """Tell whether every row says FLOP and traffic, and some are not 0."""
        pair = [self.values[name] for name in ("flop", "traffic_bytes")]
        return all(bool(np.isfinite(v).all()) for v in pair) and any(bool(v.any()) for v in pair)

    def layers_at(self, point: Floats) -> str:
        """Return the layers of the model for a row at this point: the nearest row's."""
        if not self.layers:
            return ""
        apart = np.abs(np.log2(self.points) - np.log2(point))
        # Which model it is, its width and sequence say; degree and samples only break ties.
        order = apart[:, [SEQUENCE, HIDDEN]].sum(axis=1) * 1e3 + apart[:, [TP, MICRO_BATCH]].sum(1)
        return self.layers[int(order.argmin())]

    def matches(self, want: Want) -> bool:
        """Tell whether the series is of the name, the layers (a part will do) and split wanted."""
        if want.name not in (None, self.key.name) or want.split not in (None, self.key.split):
            return False
        if want.layers is None:
            return True
        asked = layer_range(want.layers)
        return any(
            mine.start <= asked.start and asked.stop <= mine.stop
            for mine in {layer_range(text) for text in self.layers if text}
        )


def find_series(table: Measurements) -> tuple[Series, ...]:
    """Return the series of layers, operators and parts of a step, in the order of the table.

    Rows of context and expert parallelism are left out. So are those that a prediction made; if
    nothing was measured, the analytic ones count. Rows of one name are one series whatever their
    layers, as long as no two are of the same point: the same kind of layer in models of other
    sizes. Otherwise every range of layers has its own, cut at the ends of all rows' ranges.
    """
    import pandas as pd

    frame = plain_rows(table.frame[table.frame["record"].isin(RECORDS)])
    if frame.empty:
        return ()
    frame = frame.assign(
        _split=frame["split"].fillna(-1.0),
        _sequence=frame["sequence"].notna(),
        _hidden=frame["hidden"].notna(),
        _range="",
    )
    keys = ["record", "device", "name", "_split", "dtype", "timing", "_sequence", "_hidden"]
    found: list[Series | None] = []
    for _, group in frame.groupby(keys, sort=False):
        if group["record"].iloc[0] != Record.LAYER or _is_one_kind(group):
            found.append(_series(group))
            continue
        parts = pd.concat([_cut_apart(rows) for _, rows in group.groupby("_hidden", sort=False)])
        found += [_series(rows) for _, rows in parts.groupby("_range", sort=False)]
    return tuple(series for series in found if series is not None)


def _is_one_kind(group: pandas.DataFrame) -> bool:
    """Tell whether rows of one name are one kind of layer: no two differ in their layers alone."""
    named = bool(group["name"].iloc[0])
    return named and group.groupby(list(DIMENSIONS), dropna=False)["layers"].nunique().max() == 1


def _cut_apart(group: pandas.DataFrame) -> pandas.DataFrame:
    """Return the rows once for each of the finest ranges of layers that they are of."""
    import pandas as pd

    ranges = {text: layer_range(text) for text in group["layers"].unique()}
    edges = sorted({edge for r in ranges.values() for edge in (r.start, r.stop)})
    pieces: list[list[str]] = [
        [
            (str(a) if b == a + 1 else f"{a}-{b - 1}")
            for a, b in itertools.pairwise(edges)
            if own.start <= a and b <= own.stop
        ]
        for own in (ranges[text] for text in group["layers"])
    ]
    apart = group.assign(_range=pd.Series(pieces, index=group.index)).explode("_range")
    return apart.assign(layers=apart["_range"])


def _series(group: pandas.DataFrame) -> Series | None:
    done = group[group["status"] == RowStatus.OK]
    for provenance in (Provenance.MEASURED, Provenance.ANALYTIC):
        rows = done[done["provenance"] == provenance]
        if not rows.empty:
            break
    else:
        return None
    first = group.iloc[0]
    columns = list(QUANTITIES)
    filled = rows.assign(**{name: rows[name].fillna(1.0) for name in DIMENSIONS})
    points = filled.groupby(list(DIMENSIONS), sort=True)
    values = points[columns].mean()
    made = done[~done.index.isin(rows.index)]
    return Series(
        key=SeriesKey(
            record=Record(first["record"]),
            device=first["device"],
            name=first["name"],
            layers=first["_range"],
            split=int(first["_split"]),
            dtype=first["dtype"],
            timing=first["timing"],
            dimensions=tuple(name for name in DIMENSIONS if first[name] == first[name]),
        ),
        points=np.array(list(values.index), dtype=np.float64).reshape(-1, len(DIMENSIONS)),
        values={name: values[name].to_numpy(dtype=np.float64) for name in columns},
        layers=tuple(str(text) for text in points["layers"].first()),
        out_of_memory=_points_of(group[group["status"] == RowStatus.OUT_OF_MEMORY]),
        predicted=_points_of(made),
        provenance=provenance,
    )


def _points_of(rows: pandas.DataFrame) -> Floats:
    return rows[list(DIMENSIONS)].fillna(1.0).to_numpy(dtype=np.float64)

"""Collectives predicted from others: Alpa's database and vTrain's tables, by leave-out protocols.

Errors are relative, of rows that the prediction did not see. Beside ours, pipeDejavu's predictor on
the same rows: least squares of seconds on elements, one line per collective, groups and dtype.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ilp_planner.costs.profiles.measurements import Measurements, Record, measurements_of
from ilp_planner.costs.profiles.table import Provenance
from ilp_planner.peers.alpa.profile import alpa_series, read_alpa
from ilp_planner.profiler.predict.collectives import CollectivePredictor
from ilp_planner.profiler.predict.curve import curve_of
from tests.benchmarks.cases import ROOT
from tests.benchmarks.mixed_table import line
from tests.benchmarks.table import write_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pandas
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

SHARED = ROOT.parent / "shared" / "data"
ALPA = SHARED / "alpa" / "prof_database.json"
VTRAIN = SHARED / "measured" / "vtrain_allreduce_lut.json"
RESULTS = Path(__file__).parent / "results" / "alpa.json"
KEY = ["device", "name", "group_size", "hosts", "stride", "groups", "dtype"]
MIB = 2**20
LARGE = 16 * MIB


@dataclass(frozen=True, kw_only=True)
class Row:
    """One protocol. Errors in percent; None: cannot be predicted so.

    asked: MAPE, and median where that was asked for too.
    """

    protocol: str
    rows: int
    mape: float
    median: float
    asked: tuple[float, ...]
    regression: tuple[float, float] | None


def series(table: Measurements) -> Iterator[pandas.DataFrame]:
    """Yield the rows of each series, ascending in size."""
    for _, part in table.of(Record.COLLECTIVE).groupby(KEY, sort=True):
        yield part.sort_values("bytes")


def part_of(table: Measurements, kept: Any) -> CollectivePredictor:
    """Return what predicts from these rows only."""
    return CollectivePredictor(Measurements(frame=table.frame[kept], source=table.source))


def predicted(predictor: CollectivePredictor, rows: pandas.DataFrame) -> Numbers:
    """Return seconds of the rows of one series."""
    one = rows.iloc[0]
    return predictor.seconds(
        one["name"],
        rows["bytes"].to_numpy(),
        group_size=int(one["group_size"]),
        hosts=int(one["hosts"]),
        stride=int(one["stride"]),
        groups=int(one["groups"]),
        device=one["device"],
        dtype=one["dtype"],
    )


def line_of(sizes: Numbers, times: Numbers) -> Callable[[Numbers], Numbers]:
    """Return pipeDejavu's regression."""
    matrix = np.column_stack([np.ones(len(sizes)), sizes])
    constant, slope = np.linalg.lstsq(matrix, times, rcond=None)[0]
    return lambda x: constant + slope * x


def left_out(x: Numbers, y: Numbers, fit: Any) -> Numbers:
    """Return the errors of each row but the ends, from the others."""
    found = [
        float(fit(np.delete(x, i), np.delete(y, i))(x[i])) / y[i] - 1 for i in range(1, len(x) - 1)
    ]
    return np.abs(found)


def summed(
    protocol: str, errors: list[Numbers], asked: tuple[float, ...], lines: list[Numbers]
) -> Row:
    """Return the row of a protocol. lines: the regression's errors; none: it has no answer."""
    all_of = np.concatenate(errors) * 100
    beside = np.concatenate(lines) * 100 if lines else None
    return Row(
        protocol=protocol,
        rows=len(all_of),
        mape=round(float(all_of.mean()), 2),
        median=round(float(np.median(all_of)), 2),
        asked=asked,
        regression=None
        if beside is None
        else (round(float(beside.mean()), 1), round(float(np.median(beside)), 1)),
    )


def one_size_out(table: Measurements, label: str, asked: tuple[float, ...]) -> Row:
    """Each size predicted from the others of its series."""
    ours, theirs = [], []
    for rows in series(table):
        x, y = rows["bytes"].to_numpy(), rows["time_s"].to_numpy()
        ours.append(left_out(x, y, curve_of))
        theirs.append(left_out(x, y, line_of))
    return summed(label, ours, asked, theirs)


def one_row_out(table: Measurements, label: str, asked: tuple[float, ...]) -> Row:
    """Each size from the others, and from the rows of the same group with other numbers."""
    ours, theirs = [], []
    for _, group in table.of(Record.COLLECTIVE).groupby(KEY[:-1], sort=True):
        parts = {
            dtype: (part["bytes"].to_numpy(), part["time_s"].to_numpy())
            for dtype, part in group.sort_values("bytes").groupby("dtype", sort=True)
        }
        for dtype, (x, y) in parts.items():
            alike = [curve_of(*other) for name, other in parts.items() if name != dtype]
            ours.append(left_out(x, y, partial(curve_of, alike=alike)))
            theirs.append(left_out(x, y, line_of))
    return summed(label, ours, asked, theirs)


def sizes_out(
    table: Measurements, label: str, keep: Callable[[Numbers], Any], asked: tuple[float, ...]
) -> Row:
    """The sizes that `keep` does not say, from those that it does, in every series at once."""
    kept = np.zeros(len(table.frame), bool)
    chosen = []
    for rows in series(table):
        used = keep(rows["bytes"].to_numpy())
        if used.sum() >= 2 and not used.all():
            chosen.append((rows, used))
            kept[rows.index[used]] = True
    predictor = part_of(table, kept)
    ours, theirs = [], []
    for rows, used in chosen:
        x, y = rows["bytes"].to_numpy(), rows["time_s"].to_numpy()
        ours.append(np.abs(predicted(predictor, rows)[~used] / y[~used] - 1))
        theirs.append(np.abs(line_of(x[used], y[used])(x[~used]) / y[~used] - 1))
    return summed(label, ours, asked, theirs)


def every(step: int) -> Callable[[Numbers], Any]:
    """Keep every so many sizes, and the last."""

    def keep(sizes: Numbers) -> Any:
        used = np.arange(len(sizes)) % step == 0
        used[-1] = True
        return used

    return keep


def groups_out(
    table: Measurements, label: str, trained: Any, tested: Any, asked: tuple[float, float]
) -> Iterator[Row]:
    """Yield the errors of groups that no row is of: of all sizes, and of those from 16 MiB on."""
    predictor = part_of(table, trained)
    yield from _two_rows(label, [(predictor, rows) for rows in _chosen(table, tested)], asked)


def each_group_out(
    table: Measurements, label: str, within: Any, by: str, asked: tuple[float, float]
) -> Iterator[Row]:
    """Yield likewise, each value of a column predicted from the others."""
    tests = []
    for value in sorted(table.frame.loc[within, by].unique()):
        tested = within & (table.frame[by] == value)
        predictor = part_of(table, ~tested)
        tests += [(predictor, rows) for rows in _chosen(table, tested)]
    yield from _two_rows(label, tests, asked)


def _chosen(table: Measurements, rows: Any) -> Iterator[pandas.DataFrame]:
    yield from series(Measurements(frame=table.frame[rows], source=table.source))


def _two_rows(
    label: str,
    tests: list[tuple[CollectivePredictor, pandas.DataFrame]],
    asked: tuple[float, float],
) -> Iterator[Row]:
    errors, large = [], []
    for predictor, rows in tests:
        error = np.abs(predicted(predictor, rows) / rows["time_s"].to_numpy() - 1)
        errors.append(error)
        large.append(error[rows["bytes"].to_numpy() >= LARGE])
    limits = [(a,) if a else () for a in asked]
    yield summed(label, errors, limits[0], [])
    yield summed(f"{label}, from 16 MiB", large, limits[1], [])


def alpa_rows() -> Iterator[Row]:
    """Yield the protocols on Alpa's database, V100 with NVLink and 25 Gb/s between hosts."""
    table = read_alpa(ALPA)
    frame = table.frame
    yield one_size_out(table, "each size from the others", (2.5, 1.2))
    own = replace(table, frame=frame[frame["provenance"] == Provenance.MEASURED])
    carried = "rows with a bandwidth carried over left out as well"
    yield one_size_out(own, f"the same, {carried}", ())
    yield regression_as_published()
    yield one_row_out(table, "each size from the others, fp16 and fp32 together", (2.5, 1.2))
    yield one_row_out(own, f"likewise, {carried}", (2.5, 1.2))
    yield sizes_out(table, "sizes 16 x apart", every(4), (3.5,))
    yield sizes_out(table, "sizes 64 x apart", every(6), (4.5,))
    yield sizes_out(table, "sizes 256 x apart", every(8), ())
    yield sizes_out(table, "above 64 MiB from those below", lambda x: x <= 64 * MIB, (5.0,))
    yield sizes_out(table, "above 16 MiB from those below", lambda x: x <= 16 * MIB, ())
    yield sizes_out(table, "below 1 MiB from those above", lambda x: x >= MIB, ())
    inside = frame["hosts"] == 1
    yield from groups_out(
        table,
        "one host: 8 devices from 2 and 4",
        inside & (frame["group_size"] <= 4),
        inside & (frame["group_size"] == 8),
        (30.0, 0.0),
    )
    fewer = ~frame["source"].str.startswith("alpa 4x8")
    two = frame["hosts"] == 2
    yield from each_group_out(
        table,
        "two hosts: devices per host from other numbers of them",
        two & fewer,
        "group_size",
        (0.0, 0.0),
    )
    whole = two & (frame["group_size"] == 16) & fewer
    yield from groups_out(table, "two hosts of 8 from one host", inside, whole, (0.0, 0.0))
    if (frame["hosts"] == 4).any():
        yield from groups_out(
            table, "four hosts from one and two", fewer, frame["hosts"] == 4, (18.0, 9.0)
        )


def regression_as_published() -> Row:
    """Return pipeDejavu's regression on the rows that it uses itself, fabricated ones included."""
    ours, theirs = [], []
    for one in alpa_series(ALPA):
        x, y = np.array(one.sizes), np.array(one.seconds)
        kept = (x > 0) & np.isfinite(y)
        if one.name != "matmul" and one.group_size > 1:
            ours.append(left_out(x[kept], y[kept], curve_of))
            theirs.append(left_out(x[kept], y[kept], line_of))
    return summed("the same, times of empty loops included", ours, (), theirs)


def vtrain_table() -> Measurements:
    """Return NCCL's all-reduces on one host of 8 x A100 and of 8 x V100."""
    rows = [
        {
            "record": "collective",
            "device": device,
            "name": "all_reduce",
            "group_size": int(count),
            "hosts": 1,
            "stride": 1,
            "groups": 1,
            "bytes": size,
            "time_s": time * 1e-9,
        }
        for key, values in json.loads(VTRAIN.read_text())["tables"].items()
        for device, count in (key.split("_gpus"),)
        for size, time, _ in values
    ]
    return measurements_of(rows, VTRAIN.name)


def vtrain_rows() -> Iterator[Row]:
    """Yield the protocols on other machines; only the slope beyond the rows was chosen on both."""
    table = vtrain_table()
    yield one_size_out(table, "vTrain: each size from the others", ())
    yield sizes_out(table, "vTrain: every 8th size", every(8), ())
    yield sizes_out(table, "vTrain: above 256 MiB from those below", lambda x: x <= 256 * MIB, ())
    for device in ("a100", "v100"):
        of_device = table.frame["device"] == device
        alone = Measurements(frame=table.frame[of_device].reset_index(), source=table.source)
        yield from (
            row
            for row in each_group_out(
                alone,
                f"vTrain, 8 x {device.upper()}: group sizes from other ones",
                alone.frame["group_size"] > 0,
                "group_size",
                (0.0, 0.0),
            )
            if "16 MiB" not in row.protocol  # nearly all of them are
        )


def collectives_table(rows: list[dict[str, Any]]) -> str:
    """Return a row per protocol as Markdown."""
    lines = [
        line(
            ("predicted", "rows", "MAPE", "median", "asked", "pipeDejavu's regression, same rows")
        ),
        "|---|" + "---:|" * 5,
    ]
    for row in rows:
        beside = row["regression"]
        lines.append(
            line(
                [
                    row["protocol"],
                    str(row["rows"]),
                    f"{row['mape']:.1f} %",
                    f"{row['median']:.1f} %",
                    " / ".join(f"{a:g} %" for a in row["asked"]) or "-",
                    f"{beside[0]:.1f} % / {beside[1]:.1f} %" if beside else "no answer",
                ]
            )
        )
    return "\n".join(lines)


def all_rows() -> Iterator[Row]:
    """Yield every protocol whose data is there."""
    if ALPA.exists():
        yield from alpa_rows()
    if VTRAIN.exists():
        yield from vtrain_rows()


def measure() -> None:
    """Compute the rows, keep them, show them in the manual."""
    if not ALPA.exists():
        print("alpa: left out, its database is not in ../shared/data/alpa")
        return
    rows = []
    for row in all_rows():
        rows.append(vars(row))
        print(
            f"{row.protocol:62} n {row.rows:5} MAPE {row.mape:6.2f} % median {row.median:6.2f} %  "
            f"asked {row.asked}  regression {row.regression}",
            flush=True,
        )
    RESULTS.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    write_table("collectives", collectives_table(rows))


if __name__ == "__main__":
    measure()

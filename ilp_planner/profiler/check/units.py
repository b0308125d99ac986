"""The rule about numbers far off their neighbours: a row in another unit than the rest."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.costs.profiles.measurements import Record
from ilp_planner.profiler.check.finding import (
    MODEL,
    SIZED,
    Severity,
    Suspect,
    numbers,
    places,
    rule,
)
from ilp_planner.profiler.check.rows import WIDE
from ilp_planner.profiler.check.scaling import WHAT

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas
    from numpy.typing import NDArray

    from ilp_planner.base.numerics import Floats


OFF = 100.0  # times off what is beside it: more than scaling or noise, less than any two units
TIMES = ("time_s", "forward_s", "backward_s", "optimizer_s")
BYTES = (
    "weight_bytes", "state_bytes", "gradient_bytes", "activation_bytes", "memory_bytes",
    "input_bytes", "output_bytes", "message_bytes",
)  # fmt: skip
# What a number is off by, at least, and what it is then in, where it is too large or too small.
TIME_UNITS = ((1e9, "ns"), (1e6, "us"), (1e3, "ms"))
SIZE_UNITS = ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"))
NEAR = 10.0  # times off a unit that scaling and noise may be
MARK = 1e4  # seconds that no row takes; round powers of ten mark what failed
SERIES = ["record", "device", "name", "dtype", "group_size", "hosts", "stride", "groups"]


@rule("units")
def units(table: pandas.DataFrame) -> Iterator[Suspect]:
    """Yield numbers a hundred times off all others of the same thing."""
    rows = table[table["record"].isin(MODEL)]
    for column in (*TIMES, *BYTES):
        known = rows[rows[column] > 0]
        if known.empty:
            continue
        groups = known.groupby(WHAT, dropna=False, sort=False).ngroup()
        same = np.asarray(groups, dtype=np.int64)
        by_itself = np.log(numbers(known, column))
        work = np.nan_to_num(numbers(known, "micro_batch") / numbers(known, "tp"), nan=1.0)
        by_work = by_itself - np.log(work)
        # Most groups have no number that is off any other: they need no closer look.
        far = _apart(by_itself, same) & _apart(by_work, same)
        for group in np.unique(same[far]):
            inside = same == group
            yield from _odd(known[inside], column, by_itself[inside], by_work[inside])
    for kind, size in ((SIZED, "bytes"), ((Record.MATMUL,), "flop")):
        known = table[table["record"].isin(kind) & (table["time_s"] > 0) & (table[size] > 0)]
        for _, series in known.groupby(SERIES, dropna=False, sort=False):
            yield from _jumps(series.sort_values(size, kind="stable"), size)


def _apart(logs: Floats, groups: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return of each row whether its group reaches further than its numbers may be apart."""
    low = np.full(int(groups.max()) + 1, np.inf)
    high = -low
    np.minimum.at(low, groups, logs)
    np.maximum.at(high, groups, logs)
    far: NDArray[np.bool_] = (high - low > math.log(OFF))[groups]
    return far


def _odd(
    rows: pandas.DataFrame, column: str, by_itself: Floats, by_work: Floats
) -> Iterator[Suspect]:
    """Yield values that are off all others, whether they grow with the work or not."""
    values, spread = numbers(rows, column), numbers(rows, "spread")
    for i, place in enumerate(places(rows)):
        off = min(_off(by_itself, i), _off(by_work, i), key=abs)
        if abs(off) > math.log(OFF):
            shaky = bool(spread[i] > WIDE)
            yield _suspect(int(place), float(values[i]), math.exp(off), column, shaky=shaky)


def _off(logs: Floats, i: int) -> float:
    """Return how far a number is off the middle of the others."""
    return float(logs[i] - np.median(np.delete(logs, i)))


def _jumps(series: pandas.DataFrame, size: str) -> Iterator[Suspect]:
    """Yield rows if the time jumps by far more than the size does, or falls by far."""
    times, sizes, place = numbers(series, "time_s"), numbers(series, size), places(series)
    spread = numbers(series, "spread")
    jumps = {}
    for i in range(len(times) - 1):
        growth, most = times[i + 1] / times[i], sizes[i + 1] / sizes[i]
        if growth > OFF * most or growth < 1 / OFF:
            jumps[i] = float(growth / most if growth > 1 else growth)
    for i, jump in jumps.items():
        # Up and down again is one odd row; of a single step the rarer side is odd.
        if i - 1 in jumps and (jumps[i - 1] > 1) != (jump > 1):
            continue
        second = i + 1 in jumps or i + 1 >= len(times) / 2
        odd = i + 1 if second else i
        off, shaky = jump if second else 1 / jump, bool(spread[odd] > WIDE)
        yield _suspect(int(place[odd]), float(times[odd]), off, "time_s", shaky=shaky)


def _suspect(row: int, value: float, off: float, column: str, *, shaky: bool) -> Suspect:
    """Return the finding about a number, with a guess at the reason.

    off: ratio to the rows beside it. shaky: its repeats disagree.
    """
    seconds = column.endswith("_s")
    factor = max(off, 1 / off)
    guess = ""
    if seconds and shaky:
        guess = ": its repeats disagree, so noise rather than another unit"
    elif seconds and value >= MARK and math.log10(value).is_integer():
        guess = ": the mark of a run that failed?"
    # Milliseconds written as seconds are too large a number, mebibytes as bytes too small a one.
    elif (off > 1) == seconds:
        known = TIME_UNITS if seconds else SIZE_UNITS
        near = min(known, key=lambda unit: abs(math.log(unit[0] / factor)))
        if 1 / NEAR < near[0] / factor < NEAR:
            guess = f": in {near[1]} rather than {'seconds' if seconds else 'bytes'}?"
    return Suspect(
        row=row,
        badness=factor,
        found=f"{column} {value:.4g}, {_round(factor)} times {'above' if off > 1 else 'below'} the "
        f"rows beside it{guess}",
        expected=f"within {OFF:.0f} times of them",
        severity=Severity.ERROR,
    )


def _round(factor: float) -> str:
    """Return a factor with two digits that count."""
    return f"{float(f'{factor:.2g}'):,.0f}"

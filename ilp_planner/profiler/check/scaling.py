"""Rules about layers, operators and steps: how they scale with samples and devices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.base.units import format_bytes, format_seconds
from ilp_planner.profiler.check.finding import (
    MODEL,
    Severity,
    Suspect,
    copies,
    numbers,
    places,
    rule,
    taken,
)
from ilp_planner.profiler.check.rows import DEGREES, RUN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pandas

    from ilp_planner.base.numerics import Floats


WHAT = [
    *("record", "device", "name", "layers", "dtype", "timing", "split", "sequence", "hidden"),
    *DEGREES,
]
NOISE = 0.05  # of a time that says nothing of its spread
SLACK = 0.1  # of bytes: an allocator rounds, and reuses what another layer left
SHARE = 0.01  # of a whole run, below which a row is let be: microseconds of small parts are noise
MUCH = 0.1  # likewise, from which on a plan would be another
FAR = 10.0  # times slower with more devices than any links explain
STALL = (4.0, 1.05)  # so many more samples that take less than so many times as long


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two rows of the same thing, the second with the next larger tp or micro_batch.

    row: the second's place. few, many: values of the first and the second. before, after: their tp
    or micro_batch. share: of one unit in a whole run, the one with fewer samples or more devices.
    noise: the relative difference by chance.
    """

    row: int
    few: float
    many: float
    before: float
    after: float
    share: float
    noise: float

    @property
    def even(self) -> float:
        """The second value if the first were split evenly over the second's devices."""
        return self.few * self.before / self.after


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """The required ratio of two rows of the same thing.

    along: the column that grows between them. wrong: seconds or bytes that are beyond it, and as
    many that are let be. found: the two values in words. severe: whether it cannot be, if it is
    much of a run.
    """

    along: str
    wrong: Callable[[Pair], tuple[float, float]]
    expected: str
    found: str = "{many}, by {along} {before:.0f} {few}"
    severe: Callable[[Pair], bool] = lambda pair: False


# Slow links make it slower with more devices, so that is an error only where no link could.
SLOWER = Growth(
    along="tp",
    wrong=lambda pair: (pair.many - pair.few, pair.noise * pair.few),
    expected="no slower with more devices: slow links, or another unit or machine",
    severe=lambda pair: pair.many > FAR * pair.few,
)
FASTER = Growth(
    along="micro_batch",
    wrong=lambda pair: (pair.few - pair.many, pair.noise * pair.few),
    found="{many}, micro_batch {before:.0f} takes {few}",
    expected="at least as long with more samples",
    severe=lambda pair: 2 * pair.many < pair.few,
)
SHRINKING = Growth(
    along="micro_batch",
    wrong=lambda pair: (pair.few - pair.many, SLACK * pair.few),
    expected="at least as much with more samples",
    severe=lambda pair: pair.few > 2 * pair.many,
)
GROWING = Growth(
    along="tp",
    wrong=lambda pair: (pair.many - pair.few, SLACK * pair.many),
    expected="at most as much with more devices",
    severe=lambda pair: pair.many > 2 * pair.few,
)
CHANGING = Growth(
    along="micro_batch",
    wrong=lambda pair: (abs(pair.many - pair.few), SHARE * pair.few),
    found="{many}, of micro_batch {before:.0f} {few}",
    expected="the same whatever the samples",
)
LOST = Growth(
    along="tp",
    wrong=lambda pair: (pair.even - pair.many, SLACK * pair.even),
    expected="at least {even}, what splitting it evenly leaves",
)


@rule("tensor parallelism")
def tensor_parallelism(table: pandas.DataFrame) -> Iterator[Suspect]:
    """Slower with more tensor parallelism, beyond the spread, and much of the whole."""
    return _suspects(SLOWER, *_timed(table))


@rule("samples")
def samples(table: pandas.DataFrame) -> Iterator[Suspect]:
    """Faster with more samples."""
    return _suspects(FASTER, *_timed(table))


@rule("empty loop")
def stalls(table: pandas.DataFrame) -> Iterator[Suspect]:
    """Whole runs with a time that does not grow with the samples."""
    rows, spent = _timed(table)
    for _, runs in rows.groupby([n for n in RUN if n != "micro_batch"], dropna=False, sort=False):
        inside = np.isin(places(rows), places(runs))
        seconds, batches = (spent * copies(rows))[inside], numbers(runs, "micro_batch")
        if not batches.max() >= STALL[0] * batches.min():
            continue
        least = float(seconds[batches == batches.min()].sum())
        most = float(seconds[batches == batches.max()].sum())
        if 0 < most < STALL[1] * least:
            yield Suspect(
                row=int(places(runs)[batches == batches.max()][0]),
                badness=least / most,
                found=f"micro_batch {batches.max():.0f} takes {format_seconds(most)} "
                f"altogether, {batches.min():.0f} takes {format_seconds(least)}",
                expected="longer with so many more samples: an empty loop, or a model so small "
                "that starting its kernels is all it takes",
            )


@rule("memory")
def memory(table: pandas.DataFrame) -> Iterator[Suspect]:
    """Less memory with more samples, or more of it with more devices."""
    for column in ("activation_bytes", "memory_bytes"):
        yield from _suspects(SHRINKING, *_held(table, column), column)
    for column in ("activation_bytes", "memory_bytes", "state_bytes", "weight_bytes"):
        yield from _suspects(GROWING, *_held(table, column), column)


@rule("states")
def states(table: pandas.DataFrame) -> Iterator[Suspect]:
    """Weights and states that change with the samples, or are less than a device's share."""
    for column in ("weight_bytes", "state_bytes"):
        positive = table[table[column] > 0]
        for growth in (CHANGING, LOST):
            yield from _suspects(growth, *_held(positive, column), column)


def _suspects(
    growth: Growth, rows: pandas.DataFrame, values: Floats, column: str = ""
) -> Iterator[Suspect]:
    """Yield relevant violations of a rule. column: of bytes; empty: values are seconds."""
    for pair in _pairs(rows, values, growth.along):
        beyond, slack = growth.wrong(pair)
        weight = beyond * pair.share
        if beyond <= slack or weight < SHARE:
            continue
        write = format_bytes if column else format_seconds
        words = {name: write(getattr(pair, name)) for name in ("few", "many", "even")}
        said = growth.found.format(along=growth.along, before=pair.before, **words)
        yield Suspect(
            row=pair.row,
            badness=weight,
            found=f"{column} {said}".lstrip(),
            expected=growth.expected.format(**words),
            severity=Severity.ERROR if weight >= MUCH and growth.severe(pair) else Severity.WARNING,
        )


def _held(table: pandas.DataFrame, column: str) -> tuple[pandas.DataFrame, Floats]:
    """Return rows of models that have a number of bytes, and these."""
    rows = table[table["record"].isin(MODEL) & table[column].notna()]
    return rows, numbers(rows, column)


def _timed(table: pandas.DataFrame) -> tuple[pandas.DataFrame, Floats]:
    """Return rows of models that have a time, and their seconds."""
    rows = table[table["record"].isin(MODEL)]
    spent = taken(rows)
    known = ~np.isnan(spent)
    return rows[known], spent[known]


def _pairs(rows: pandas.DataFrame, values: Floats, along: str) -> list[Pair]:
    """Return pairs of rows of the same thing with the next larger value of a column."""
    if rows.empty:
        return []
    other = "tp" if along == "micro_batch" else "micro_batch"
    same = rows.groupby([*WHAT, other], dropna=False, sort=False).ngroup().to_numpy()
    at = numbers(rows, along)
    order = np.lexsort((at, same))
    few, many = order[:-1], order[1:]
    rising = (same[few] == same[many]) & (at[few] < at[many])
    share, place = _shares(rows, values), places(rows)
    spread = np.nan_to_num(numbers(rows, "spread"))
    return [
        Pair(
            row=int(place[j]),
            few=float(values[i]),
            many=float(values[j]),
            before=float(at[i]),
            after=float(at[j]),
            share=float(share[i if along == "micro_batch" else j]),
            noise=max(NOISE, float(spread[i] + spread[j])),
        )
        for i, j in zip(few[rising], many[rising], strict=True)
    ]


def _shares(rows: pandas.DataFrame, values: Floats) -> Floats:
    """Return the part of its run's total that one unit in a row is."""
    counts = copies(rows)
    run = rows.groupby(RUN, dropna=False, sort=False).ngroup().to_numpy()
    totals = np.bincount(run, weights=values * counts)[run]
    return np.divide(counts, totals, out=np.zeros_like(counts), where=totals > 0)

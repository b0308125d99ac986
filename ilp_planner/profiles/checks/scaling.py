"""Rules about layers, operators and steps: how they scale with samples and devices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.profiles.checks.finding import (
    MODEL,
    Finding,
    Severity,
    Suspect,
    copies,
    gather,
    numbers,
    places,
    taken,
)
from ilp_planner.profiles.checks.rows import RUN
from ilp_planner.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas

    from ilp_planner.profiles.checks.finding import Floats

WHAT = ["record", "device", "name", "layers", "dtype", "timing", "split", "sequence", "hidden"]
NOISE = 0.05  # of a time that says nothing of its spread
SLACK = 0.1  # of bytes: an allocator rounds, and reuses what another layer left
SHARE = 0.01  # of a whole run, below which a row is let be: microseconds of small parts are noise
MUCH = 0.1  # likewise, from which on a plan would be another
FAR = 10.0  # times slower with more devices than any links explain
STALL = (4.0, 1.05)  # so many more samples that take less than so many times as long


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two rows of the same thing, the second with the next larger tp or micro_batch.

    row: the second's place. few, many: values of the first and the second. before: the first's tp
    or micro_batch. share_few, share_many: what one unit of each is of its whole run. noise: by what
    part they may differ by chance.
    """

    row: int
    few: float
    many: float
    before: float
    after: float
    share_few: float
    share_many: float
    noise: float


def tensor_parallelism(table: pandas.DataFrame) -> list[Finding]:
    """Slower with more tensor parallelism, beyond the spread, and much of the whole.

    Slow links do that, so it is an error only where no link could.
    """
    suspects = []
    for pair in _pairs(*_timed(table), "tp"):
        slower = pair.many - pair.few
        weight = slower * pair.share_many
        if slower <= pair.noise * pair.few or weight < SHARE:
            continue
        suspects.append(
            Suspect(
                row=pair.row,
                badness=weight,
                found=f"{format_seconds(pair.many)}, by tp {pair.before:.0f} "
                f"{format_seconds(pair.few)}",
                expected="no slower with more devices: slow links, or another unit or machine",
                severity=_severe(pair.many > FAR * pair.few and weight >= MUCH),
            )
        )
    return gather("tensor parallelism", suspects)


def samples(table: pandas.DataFrame) -> list[Finding]:
    """Faster with more samples."""
    suspects = []
    for pair in _pairs(*_timed(table), "micro_batch"):
        faster = pair.few - pair.many
        weight = faster * pair.share_few
        if faster <= pair.noise * pair.few or weight < SHARE:
            continue
        suspects.append(
            Suspect(
                row=pair.row,
                badness=weight,
                found=f"{format_seconds(pair.many)}, micro_batch {pair.before:.0f} takes "
                f"{format_seconds(pair.few)}",
                expected="at least as long with more samples",
                severity=_severe(2 * pair.many < pair.few and weight >= MUCH),
            )
        )
    return gather("samples", suspects)


def stalls(table: pandas.DataFrame) -> list[Finding]:
    """Whole runs whose time does not grow with the samples: was anything computed?"""
    rows, spent = _timed(table)
    suspects = []
    for _, runs in rows.groupby([n for n in RUN if n != "micro_batch"], dropna=False, sort=False):
        inside = np.isin(places(rows), places(runs))
        seconds, batches = (spent * copies(rows))[inside], numbers(runs, "micro_batch")
        if not batches.max() >= STALL[0] * batches.min():
            continue
        least = float(seconds[batches == batches.min()].sum())
        most = float(seconds[batches == batches.max()].sum())
        if 0 < most < STALL[1] * least:
            suspects.append(
                Suspect(
                    row=int(places(runs)[batches == batches.max()][0]),
                    badness=least / most,
                    found=f"micro_batch {batches.max():.0f} takes {format_seconds(most)} "
                    f"altogether, {batches.min():.0f} takes {format_seconds(least)}",
                    expected="longer with so many more samples: an empty loop, or a model so small "
                    "that starting its kernels is all it takes",
                )
            )
    return gather("empty loop", suspects)


def memory(table: pandas.DataFrame) -> list[Finding]:
    """Less memory with more samples, or more of it with more devices."""
    suspects: list[Suspect] = []
    for column in ("activation_bytes", "memory_bytes"):
        suspects += _memory(table, column, "micro_batch")
    for column in ("activation_bytes", "memory_bytes", "state_bytes", "weight_bytes"):
        suspects += _memory(table, column, "tp")
    return gather("memory", suspects)


def _memory(table: pandas.DataFrame, column: str, along: str) -> Iterator[Suspect]:
    rises = along == "micro_batch"
    rows = table[table["record"].isin(MODEL) & table[column].notna()]
    for pair in _pairs(rows, numbers(rows, column), along):
        # More samples hold at least as much; more devices at most as much each.
        least, held = (pair.few, pair.many) if rises else (pair.many, pair.few)
        share = pair.share_few if rises else pair.share_many
        lacking = least - held
        if lacking <= SLACK * least or lacking * share < SHARE:
            continue
        yield Suspect(
            row=pair.row,
            badness=lacking * share,
            found=f"{column} {format_bytes(pair.many)}, by {along} {pair.before:.0f} "
            f"{format_bytes(pair.few)}",
            expected="at least as much with more samples"
            if rises
            else "at most as much with more devices",
            severity=_severe(least > 2 * held and lacking * share >= MUCH),
        )


def states(table: pandas.DataFrame) -> list[Finding]:
    """Weights and states that change with the samples, or are less than a device's share."""
    suspects = []
    for column in ("weight_bytes", "state_bytes"):
        rows = table[table["record"].isin(MODEL) & (table[column] > 0)]
        for pair in _pairs(rows, numbers(rows, column), "micro_batch"):
            apart = abs(pair.many - pair.few)
            if apart > SHARE * pair.few and apart * pair.share_few >= SHARE:
                suspects.append(
                    Suspect(
                        row=pair.row,
                        badness=apart * pair.share_few,
                        found=f"{column} {format_bytes(pair.many)}, of micro_batch "
                        f"{pair.before:.0f} {format_bytes(pair.few)}",
                        expected="the same whatever the samples",
                    )
                )
        for pair in _pairs(rows, numbers(rows, column), "tp"):
            least = pair.few * pair.before / pair.after
            lacking = least - pair.many
            if lacking > SLACK * least and lacking * pair.share_many >= SHARE:
                suspects.append(
                    Suspect(
                        row=pair.row,
                        badness=lacking * pair.share_many,
                        found=f"{column} {format_bytes(pair.many)}, by tp {pair.before:.0f} "
                        f"{format_bytes(pair.few)}",
                        expected=f"at least {format_bytes(least)}, what splitting it evenly leaves",
                    )
                )
    return gather("states", suspects)


def _severe(wrong: bool) -> Severity:
    return Severity.ERROR if wrong else Severity.WARNING


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
            share_few=float(share[i]),
            share_many=float(share[j]),
            noise=max(NOISE, float(spread[i] + spread[j])),
        )
        for i, j in zip(few[rising], many[rising], strict=True)
    ]


def _shares(rows: pandas.DataFrame, values: Floats) -> Floats:
    """Return which part of its run's total one unit in a row is."""
    counts = copies(rows)
    run = rows.groupby(RUN, dropna=False, sort=False).ngroup().to_numpy()
    totals = np.bincount(run, weights=values * counts)[run]
    return np.divide(counts, totals, out=np.zeros_like(counts), where=totals > 0)

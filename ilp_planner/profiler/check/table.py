"""Implausible rows of a native table: every rule, one after the other; findings in words and JSON.

Rules compare rows with each other, since speed and size differ from machine to machine; the few
absolute limits are physical. They look at rows that would change a plan: a part of less than a
hundredth of its run is let be.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ilp_planner.base.units import counted, format_bytes, format_seconds
from ilp_planner.costs.profiles.measurements import Measurements, Record, RowStatus
from ilp_planner.costs.profiles.table import Provenance
from ilp_planner.faces.schemas import headed
from ilp_planner.profiler.check.finding import (
    SIZED,
    Finding,
    Severity,
    Suspect,
    numbers,
    places,
    rule,
)
from ilp_planner.profiler.check.rows import (
    duplicates,
    halves,
    missing,
    overlaps,
    spreads,
    state_holds_weights,
    sums,
    too_fast,
)
from ilp_planner.profiler.check.scaling import memory, samples, stalls, states, tensor_parallelism
from ilp_planner.profiler.check.units import OFF, SERIES, units

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pandas


NOISE = 0.1  # of a time that says nothing of its spread
MOST_NOISE = 0.9  # a spread is no excuse for more
DROP = 5.0  # times faster with a larger size than any noise explains
# Nothing in a machine moves bytes faster than the memory of its devices (NVIDIA's data sheets:
# B200, 8 TB/s); of a group of many the whole tensor moves as fast as that at most for each.
FASTEST = 2e13
LARGE = 16 * 2**20  # bytes that take longer than any latency's noise
SPAN = 1000.0  # times the smallest size
GROWTH = 1.05  # times the smallest size's time, at least, over such a span
SLOWDOWN = 4.0  # times less bytes per second from one size to a larger one: the smaller was no such
SAME_RATE = 1e-9  # relative: two measurements never have one rate to that many digits
CHAIN = 3  # rows of one rate
TINY = 4096  # bytes whose time is latency on any link: no bandwidth can be read off them


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Rows of one kind, each size once, ascending.

    column: of their size, `bytes` or `flop`. place: in the table's frame. size, seconds, spread:
    one each. ranks: of a group.
    """

    column: str
    place: list[int]
    size: list[float]
    seconds: list[float]
    spread: list[float]
    ranks: float

    def at(self, i: int) -> str:
        """Return a size in words."""
        size = self.size[i]
        return format_bytes(size) if self.column == "bytes" else f"{size:.4g} FLOP"


@rule("sizes")
def sizes(table: pandas.DataFrame) -> Iterator[Suspect]:
    """Faster with a larger size."""
    for series in _all_series(table):
        for i in range(len(series.size) - 1):
            before, after = series.seconds[i], series.seconds[i + 1]
            noise = min(max(NOISE, series.spread[i] + series.spread[i + 1]), MOST_NOISE)
            if not before / OFF <= after < before * (1 - noise):
                continue
            odd, other = (i, i + 1) if _off(series, i) > _off(series, i + 1) else (i + 1, i)
            yield Suspect(
                row=series.place[odd],
                badness=before / after,
                found=f"{format_seconds(series.seconds[odd])}, {series.at(other)} takes "
                f"{format_seconds(series.seconds[other])}",
                expected="at least as long with a larger size",
                severity=Severity.ERROR if before > DROP * after else Severity.WARNING,
            )


def _off(series: Series, i: int) -> float:
    """Return how far a time is off the middle of its neighbours', in its logarithm."""
    if not 0 < i < len(series.seconds) - 1:
        return 0.0
    around = math.sqrt(series.seconds[i - 1] * series.seconds[i + 1])
    return abs(math.log(series.seconds[i] / around))


@rule("empty loop")
def empty_loops(table: pandas.DataFrame) -> Iterator[Suspect]:
    """Times that no transfer can have, or that do not grow with the message."""
    for series in _all_series(table):
        if series.column == "bytes":
            yield from (*_impossible(series), *_flat(series), *_steps(series))


@rule("carried")
def carried(table: pandas.DataFrame) -> Iterator[Suspect]:
    """Rows that are said to be measured, and are the time of another multiplied by their size.

    Two rows alone may have one rate by chance if a clock gives few digits.
    """
    for series in _all_series(table[table["provenance"] == Provenance.MEASURED]):
        rates = [size / spent for size, spent in zip(series.size, series.seconds, strict=True)]
        begin = 0
        for i in range(1, len(rates) + 1):
            if i < len(rates) and abs(rates[i] / rates[i - 1] - 1) <= SAME_RATE:
                continue
            if i - begin >= CHAIN:
                yield from _chain(series, begin, i)
            begin = i


def _chain(series: Series, begin: int, end: int) -> Iterator[Suspect]:
    """Yield the rows that have the rate of the first."""
    tiny = series.column == "bytes" and series.size[begin] < TINY
    latency = ", which is latency and no rate" if tiny else ""
    for i in range(begin + 1, end):
        yield Suspect(
            row=series.place[i],
            badness=float(end - begin),
            found=f"exactly the rate of {series.at(begin)}{latency}",
            expected="a time of its own: it was calculated, not measured",
            severity=Severity.ERROR if tiny else Severity.WARNING,
        )


def _impossible(series: Series) -> Iterator[Suspect]:
    for i, place in enumerate(series.place):
        rate = series.size[i] / series.seconds[i]
        if rate > FASTEST * series.ranks:
            yield Suspect(
                row=place,
                badness=rate / FASTEST,
                found=f"{series.at(i)} in {format_seconds(series.seconds[i])}",
                expected=f"less than {format_bytes(FASTEST)}/s for each rank, the fastest memory "
                "there is",
                severity=Severity.ERROR,
            )


def _flat(series: Series) -> Iterator[Suspect]:
    if series.size[-1] < max(SPAN * series.size[0], LARGE):
        return
    if series.seconds[-1] < GROWTH * series.seconds[0]:
        yield Suspect(
            row=series.place[-1],
            badness=series.seconds[0] / series.seconds[-1],
            found=f"{format_seconds(series.seconds[-1])}, {series.at(0)} takes "
            f"{format_seconds(series.seconds[0])}",
            expected=f"a time that grows from {series.at(0)} to {series.at(-1)}",
            severity=Severity.ERROR,
        )


def _steps(series: Series) -> Iterator[Suspect]:
    for i, place in enumerate(series.place[:-1]):
        growth = series.seconds[i + 1] / series.seconds[i]
        slower = growth / (series.size[i + 1] / series.size[i])
        if SLOWDOWN < slower <= OFF:
            yield Suspect(
                row=place,
                badness=slower,
                found=f"{format_seconds(series.seconds[i])}, {series.at(i + 1)} takes "
                f"{format_seconds(series.seconds[i + 1])}",
                expected="a rate that does not fall so with a larger size: was anything sent?",
            )


def _all_series(table: pandas.DataFrame) -> Iterator[Series]:
    """Yield the rows that have a time, and something to send or to compute."""
    for kind, column in ((SIZED, "bytes"), ((Record.MATMUL,), "flop")):
        rows = table[table["record"].isin(kind) & (table["time_s"] > 0) & (table[column] > 0)]
        rows = rows[~(rows["group_size"] == 1)]  # nothing is sent
        for _, group in rows.groupby(SERIES, dropna=False, sort=False):
            ordered = group.sort_values(column, kind="stable")
            ordered = ordered[~ordered[column].duplicated()]
            ranks = numbers(ordered, "group_size")
            yield Series(
                column=column,
                place=places(ordered).tolist(),
                size=numbers(ordered, column).tolist(),
                seconds=numbers(ordered, "time_s").tolist(),
                spread=np.nan_to_num(numbers(ordered, "spread")).tolist(),
                ranks=2.0 if np.isnan(ranks[0]) else float(ranks[0]),
            )


__all__ = ["Finding", "Severity", "check_table"]

# Of rows that have times, and of all rows.
OF_DONE = (
    units,
    too_fast,
    sums,
    halves,
    state_holds_weights,
    spreads,
    tensor_parallelism,
    samples,
    stalls,
    memory,
    states,
    sizes,
    empty_loops,
    carried,
)
OF_ALL = (duplicates, overlaps, missing)


def check_table(table: Measurements) -> tuple[Finding, ...]:
    """Return the findings, errors first."""
    done = table.frame[table.frame["status"] == RowStatus.OK]
    found = [finding for rule in OF_DONE for finding in rule(done)]
    found += [finding for rule in OF_ALL for finding in rule(table.frame)]
    return tuple(sorted(found, key=lambda finding: finding.severity != Severity.ERROR))


# ---- findings for people and as JSON -------------------------------------------------------------


def check_lines(table: Measurements, findings: Sequence[Finding]) -> str:
    """Return three lines per finding: its worst row and the number of similar ones, the found and
    the expected value."""
    width = max((len(f"{f.severity} {f.rule}") for f in findings), default=0) + 2
    lines = []
    for finding in findings:
        more = len(finding.rows) - 1
        others = f", and {counted(more, 'row')} more" if more else ""
        name = f"{finding.severity} {finding.rule}"
        lines += [
            f"{name:<{width}}{place_of(table, finding.rows[0])}{others}",
            f"{'':<{width}}found {finding.found}",
            f"{'':<{width}}expected {finding.expected}",
        ]
    return "\n".join(lines)


def check_verdict(table: Measurements, findings: Sequence[Finding]) -> str:
    """Return in a line whether the table can be planned with."""
    rows = len(table.frame)
    counts = []
    for severity in Severity:
        alike = [finding for finding in findings if finding.severity == severity]
        if alike:
            places = {row for finding in alike for row in finding.rows}
            plural = "" if len(alike) == 1 else "s"
            counts.append(f"{len(alike)} {severity}{plural} in {len(places)} of {rows} rows")
    if not counts:
        return f"nothing implausible in {rows} rows"
    errors = any(finding.severity == Severity.ERROR for finding in findings)
    advice = (
        "measure these rows again before planning with them" if errors else "unusual, yet possible"
    )
    return f"{', '.join(counts)}: {advice}"


def check_object(table: Measurements, findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the same as JSON; a finding has the lines of all its rows, the worst first."""
    return {
        **headed("profile-check"),
        "table": table.source,
        "rows": len(table.frame),
        "errors": sum(finding.severity == Severity.ERROR for finding in findings),
        "warnings": sum(finding.severity == Severity.WARNING for finding in findings),
        "verdict": check_verdict(table, findings),
        "findings": [
            {
                "severity": str(finding.severity),
                "rule": finding.rule,
                "worst": _words(table, finding.rows[0]),
                "found": finding.found,
                "expected": finding.expected,
                "lines": [line_of(table, row) for row in finding.rows],
            }
            for finding in findings
        ],
    }


def line_of(table: Measurements, row: int) -> int:
    """Return the line of the file that a row stands in; from 1, rows only, if there is none."""
    return table.lines[row] if table.lines else row + 1


def place_of(table: Measurements, row: int) -> str:
    """Return a row's line and its subject."""
    return f"line {line_of(table, row)}: {_words(table, row)}"


def _words(table: Measurements, row: int) -> str:
    return describe_row({str(name): table.frame.at[row, name] for name in table.frame.columns})


def describe_row(row: Mapping[str, Any]) -> str:
    """Return the subject of a row, in words."""
    kind = str(row["record"])
    if kind == Record.MATMUL:
        return f"matmul of {row['flop']:.4g} FLOP{_of(row, 'dtype')}"
    if kind in SIZED:
        ranks = "" if _empty(row["group_size"]) else f" among {row['group_size']:.0f}"
        places = [
            f"{what} {row[column]:.0f}"
            for column, what in (("hosts", "hosts"), ("stride", "stride"), ("groups", "groups"))
            if not _empty(row[column]) and row[column] > 1
        ]
        name = row["name"] or "message"
        parts = [f"{name}{ranks}", *places, format_bytes(row["bytes"])]
        return ", ".join(parts) + _of(row, "dtype")
    name = str(row["name"])
    layers = f"layers {row['layers']}" if row["layers"] else ""
    parts = [f"{kind} {name}".strip() if name else kind, layers, str(row["device"])]
    for column in ("tp", "cp", "ep", "etp", "split", "micro_batch"):
        if not _empty(row[column]):
            parts.append(f"{column} {row[column]:.0f}")
    return ", ".join(part for part in parts if part)


def _of(row: Mapping[str, Any], column: str) -> str:
    return f", {row[column]}" if row[column] else ""


def _empty(value: Any) -> bool:
    return bool(value != value)

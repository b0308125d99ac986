"""Implausible rows of a native table: every rule, one after the other; findings in words and JSON.

Rules compare rows with each other, since speed and size differ from machine to machine; the few
absolute limits are physical. They look at rows that would change a plan: a part of less than a
hundredth of its run is let be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ilp_planner.base.units import format_bytes
from ilp_planner.costs.profiles.measurements import Measurements, Record, RowStatus
from ilp_planner.faces.schemas import headed
from ilp_planner.profiler.check.finding import SIZED, Finding, Severity
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
from ilp_planner.profiler.check.series import carried, empty_loops, sizes
from ilp_planner.profiler.check.units import units

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
        others = f", and {more} row{'' if more == 1 else 's'} more" if more else ""
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

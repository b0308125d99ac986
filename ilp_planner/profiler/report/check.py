"""Implausible rows in a table of measurements, for people and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ilp_planner.faces.schemas import headed
from ilp_planner.profiler.check.finding import Finding, Severity, describe_row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.costs.profiles.measurements import Measurements


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

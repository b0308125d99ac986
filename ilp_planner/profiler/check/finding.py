"""Rules and their findings, and columns that rules look at."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.costs.profiles.measurements import Record, layer_range

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pandas
    from numpy.typing import NDArray

    from ilp_planner.base.numerics import Floats

    Suspects = Callable[[pandas.DataFrame], Iterator["Suspect"]]
    Findings = Callable[[pandas.DataFrame], list["Finding"]]

SIZED = (Record.COLLECTIVE, Record.POINT_TO_POINT)
MODEL = (Record.LAYER, Record.OPERATOR, Record.STEP)


class Severity(StrEnum):
    """error: no measurement can be so. warning: unusual, though some machines are."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One implausible thing.

    rule: its name. rows: positions in the table's frame, the worst first; `found` and `expected`
    are about it.
    """

    severity: Severity
    rule: str
    rows: tuple[int, ...]
    found: str
    expected: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """One row that a rule does not like. badness: to find the worst."""

    row: int
    badness: float
    found: str
    expected: str
    severity: Severity = Severity.WARNING


def rule(name: str) -> Callable[[Suspects], Findings]:
    """Make a rule of a generator of a table's suspects: it returns a finding per severity, as one
    cause mostly shows in many rows."""

    def made(suspects: Suspects) -> Findings:
        @functools.wraps(suspects)
        def findings(table: pandas.DataFrame) -> list[Finding]:
            worst_first = sorted(suspects(table), key=lambda s: (-s.badness, s.row))
            alike = ([s for s in worst_first if s.severity == severity] for severity in Severity)
            return [
                Finding(
                    severity=some[0].severity,
                    rule=name,
                    rows=tuple(dict.fromkeys(s.row for s in some)),
                    found=some[0].found,
                    expected=some[0].expected,
                )
                for some in alike
                if some
            ]

        return findings

    return made


def taken(rows: pandas.DataFrame) -> Floats:
    """Return seconds of each row, forward and backward together."""
    whole = numbers(rows, "time_s")
    both = numbers(rows, "forward_s") + numbers(rows, "backward_s")
    return np.where(np.isnan(whole), both, whole)


def copies(rows: pandas.DataFrame) -> Floats:
    """Return how many layers each row stands for."""
    return np.array([float(len(layer_range(t))) if t else 1.0 for t in rows["layers"]])


def numbers(rows: pandas.DataFrame, column: str) -> Floats:
    """Return a column as an array, in the order of the rows."""
    return rows[column].to_numpy(np.float64)


def places(rows: pandas.DataFrame) -> NDArray[np.int64]:
    """Return the positions of the rows in the table's frame."""
    return rows.index.to_numpy(np.int64)

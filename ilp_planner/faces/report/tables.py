"""Words and lines for people. Every number has its unit, in the header or beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.base.units import format_percent, format_seconds
from ilp_planner.optimize.result import Stop

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from ilp_planner.formats.saved_plan import Claim
    from ilp_planner.optimize.result import Result


Lines = Sequence[tuple[str, str]]  # of a head and a text


class Table:
    """Columns with titles, and rows of cells, each of one or several lines.

    left: numbers of the columns that hold text; others align to the right. styles: of rows, by the
    names of `grid.STYLES`, empty for none.
    """

    def __init__(self, *titles: str, left: Container[str] = ()) -> None:
        """Begin without rows. left: titles of the columns that hold text."""
        self.titles = titles
        self.left = frozenset(n for n, title in enumerate(titles) if title in left)
        self.rows: list[tuple[str, ...]] = []
        self.styles: list[str] = []

    def add(self, *cells: str, style: str = "") -> None:
        """Add a row."""
        if len(cells) != len(self.titles):
            raise ValueError(f"a row needs {len(self.titles)} cells, got {len(cells)}")
        self.rows.append(cells)
        self.styles.append(style)


GIB = 2**30
STOPS = {
    Stop.PROOF: "proof",
    Stop.GAP: "gap reached that was asked for",
    Stop.TIME: "time limit",
    Stop.MEMORY: "memory limit",
    Stop.EFFORT: "more plans than are tried one by one",
    Stop.HEURISTIC: "end of the heuristic",
    Stop.USER: "interrupted by the user",
    Stop.ERROR: "a solver failed",
}


def span(values: Iterable[int]) -> str:
    """Return `2` when all are equal, `1-4` from the least to the largest otherwise."""
    distinct = sorted(set(values))
    return f"{distinct[0]}-{distinct[-1]}" if len(distinct) > 1 else str(distinct[0])


class Unit(NamedTuple):
    """A unit of times. size: seconds."""

    name: str
    size: float

    def show(self, seconds: float, sign: str = "") -> str:
        """Return a time to three digits after the point; a dash for none. sign: `+` for one in any
        case."""
        return f"{seconds / self.size:{sign}.3f}" if math.isfinite(seconds) else "-"


UNITS = (Unit("s", 1.0), Unit("ms", 1e-3), Unit("us", 1e-6))


def unit_for(seconds: float) -> Unit:
    """Return the unit of a table with this largest time."""
    return next((unit for unit in UNITS if seconds >= unit.size), UNITS[-1])


def memory_used(used: float, limit: float) -> str:
    """Return `26.41 of 27.34`, GiB."""
    return f"{used / GIB:.2f} of {limit / GIB:.2f}"


def summary(lines: Lines) -> str:
    """Return lines of a name and a text."""
    width = max(len(name) for name, _ in lines) + 2
    return "\n".join(f"{name:<{width}}{text}" for name, text in lines)


def proof_lines(result: Result) -> list[tuple[str, str]]:
    """Say the proof, and why the search stopped."""
    return [
        ("bound", describe_bound(result.bound, proved_by(result))),
        *([("among", result.among)] if result.among else []),
        ("gap", describe_gap(result.gap)),
        ("stopped by", f"{STOPS[result.stopped_by]}, after {format_seconds(result.wall)}"),
        ("solver", f"{result.solver}, seed {result.seed}"),
    ]


def proved_by(result: Result | Claim) -> str:
    """Return who proved a bound, and who confirmed it."""
    if not result.confirmed_by:
        return result.bound_source
    return f"{result.bound_source}, confirmed by {result.confirmed_by}"


def describe_bound(bound: float, source: str) -> str:
    """Return the least time that any plan can take, and who proved it."""
    if bound <= 0:
        return "none"
    if math.isinf(bound):
        return f"no plan exists, proved by {source}" if source else "no plan exists"
    return f"{exact_seconds(bound)}, proved by {source}" if source else exact_seconds(bound)


def describe_gap(gap: float) -> str:
    """Return the share of the iteration time that a better plan could save at most."""
    return "0 % (proved optimal)" if gap == 0 else format_percent(gap)


def exact_seconds(seconds: float) -> str:
    """Return a time to the millisecond from a second on: gaps far below a percent stay visible."""
    if math.isfinite(seconds) and seconds >= 1:
        return f"{seconds:.3f} s"
    return format_seconds(seconds)


def note_lines(notes: Iterable[str]) -> list[tuple[str, str]]:
    """Return a line per remark, each once."""
    return [("note", note) for note in dict.fromkeys(notes)]


def finite(value: float) -> float | None:
    """Return a number for JSON; None for one that is not known, or of nothing."""
    return value if math.isfinite(value) else None

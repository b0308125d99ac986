"""Plans and solvers side by side on one problem."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rich.text import Text

from ilp_planner.analysis.compare.entry import best_bound
from ilp_planner.report.tables import (
    describe_bound,
    describe_gap,
    memory_used,
    new_table,
    note_lines,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rich.table import Table

    from ilp_planner.analysis.compare.entry import Entry

HEURISTIC = "a heuristic, which proves nothing"


def comparison_table(entries: Sequence[Entry]) -> Table:
    """Return a row per plan or solver; gaps are to the best bound of all."""
    table = new_table(
        "plan",
        "iteration (s)",
        "stages",
        "micro-batch",
        "most memory on a device (GiB)",
        "gap to best bound",
        "own bound (s)",
        "solved in (s)",
        "remark",
        left=("plan", "remark"),
    )
    bound = best_bound(entries)
    for entry in entries:
        cells = (
            entry.name,
            _number(entry.time, 3),
            _count(entry.stages),
            _count(entry.micro_batch),
            "-" if math.isnan(entry.memory) else memory_used(entry.memory, entry.limit),
            "-" if (gap := entry.gap(bound)) is None else describe_gap(gap),
            _number(entry.bound or math.nan, 3),
            _number(entry.wall, 1),
            "; ".join(filter(None, (entry.outside and f"outside: {entry.outside}", entry.remark))),
        )
        table.add_row(*map(Text, cells))
    return table


def comparison_lines(
    problem: Sequence[tuple[str, str]], notes: Iterable[str], entries: Sequence[Entry]
) -> list[tuple[str, str]]:
    """Say what was compared on, and the best bound.

    Parameters
    ----------
    problem: what there is to say of it. notes: on it, one line each.
    """
    bound = best_bound(entries)
    source = next((entry.name for entry in entries if bound and entry.bound == bound), "")
    return [*problem, ("best bound", describe_bound(bound, source)), *note_lines(notes)]


def comparison_object(problem: Mapping[str, Any], entries: Sequence[Entry]) -> dict[str, Any]:
    """Return the comparison for `--json`. problem: what was compared on, as objects."""
    bound = best_bound(entries)
    return {
        **problem,
        "bound_s": bound,
        "entries": [
            {
                "name": entry.name,
                "objective_s": entry.time,
                "memory_bytes": entry.memory,
                "bound_s": entry.bound,
                "gap": entry.gap(bound),
                "outside": entry.outside,
                "stages": entry.stages,
                "micro_batch": entry.micro_batch,
                "wall_s": entry.wall,
                "heuristic": entry.heuristic,
                "remark": entry.remark,
            }
            for entry in entries
        ],
    }


def _number(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if math.isfinite(value) else "-"


def _count(value: int | None) -> str:
    return "-" if value is None else str(value)

"""Plans and solvers side by side on one problem."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rich.text import Text

from ilp_planner.analysis.compare.entry import best_bound
from ilp_planner.report.decisions import difference_table, differences, seconds_table
from ilp_planner.report.json_report import problem_object
from ilp_planner.report.tables import (
    describe_bound,
    describe_gap,
    memory_used,
    new_table,
    note_lines,
)
from ilp_planner.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.table import Table

    from ilp_planner.analysis.compare.entry import Entry
    from ilp_planner.problem import Problem

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
            "; ".join(_remarks(entry)),
        )
        table.add_row(*map(Text, cells))
    return table


def _remarks(entry: Entry) -> Iterator[str]:
    """Yield what else to know of a plan."""
    if entry.excess:
        yield f"OVER THE MEMORY LIMIT by {format_bytes(entry.excess)}"
    if entry.outside:
        yield f"outside: {entry.outside}"
    if entry.remark:
        yield entry.remark


def detail_tables(problem: Problem[Any], entries: Sequence[Entry]) -> list[Table]:
    """Return what plans decide differently, and where their seconds go; nothing of one alone."""
    known = [entry for entry in entries if entry.plan is not None and entry.seconds]
    if len(known) < 2:
        return []
    names = [entry.name for entry in known]
    found = differences([(problem, entry.plan) for entry in known if entry.plan is not None])
    tables = [difference_table(found, names)] if found else []
    return [*tables, seconds_table([entry.seconds for entry in known], names)]


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


def comparison_object(problem: Problem[Any], entries: Sequence[Entry]) -> dict[str, Any]:
    """Return the comparison for `--json`. `differs` has a list of values, one of every entry with
    a plan and a time, for each setting and stage that is not the same in all."""
    bound = best_bound(entries)
    known = [entry for entry in entries if entry.plan is not None and entry.seconds]
    found = differences([(problem, entry.plan) for entry in known if entry.plan is not None])
    return {
        **problem_object(problem),
        "compared": [entry.name for entry in known],
        "differs": {row.name: list(row.values) for row in found},
        "bound_s": bound,
        "entries": [
            {
                "name": entry.name,
                "objective_s": entry.time,
                "memory_bytes": entry.memory,
                "memory_excess_bytes": entry.excess,
                "seconds_s": dict(entry.seconds),
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

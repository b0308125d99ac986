"""A sweep for people: a row per point, and what became of all of them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from rich.text import Text

from ilp_planner.anatomy.verdict import Verdict
from ilp_planner.report.rates import three_digits
from ilp_planner.report.tables import GIB, describe_gap, exact_seconds, new_table
from ilp_planner.sweeps.axes import GPUS
from ilp_planner.sweeps.row import NO_PLAN
from ilp_planner.sweeps.table import column_of
from ilp_planner.units import format_percent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from rich.table import Table

    from ilp_planner.sweeps.points import Sweep
    from ilp_planner.sweeps.row import Row
    from ilp_planner.sweeps.table import Wish

MOST_ROWS = 40  # that are shown; the table on disk has all
MOST_REASONS = 3


def sweep_tables(sweep: Sweep, rows: Sequence[Row], wish: Wish) -> list[Table]:
    """Return a table with a row per point that has a plan: of very many, those of the front and the
    first ones; no table where no point has one."""
    found = [row for row in rows if row["step_s"] is not None]
    if not found:
        return []
    if len(found) > MOST_ROWS:
        best = [n for n, row in enumerate(found) if row["pareto"]][:MOST_ROWS]
        rest = [n for n, row in enumerate(found) if not row["pareto"]][: MOST_ROWS - len(best)]
        found = [found[n] for n in sorted(best + rest)]
    cells = _columns(sweep, found, wish)
    left = ("plan", *(column_of(field.name) for field in sweep.fields))
    table = new_table(*cells, left=left)
    for row in found:
        table.add_row(*(Text(cell(row)) for cell in cells.values()))
    return [table]


def _columns(sweep: Sweep, rows: Sequence[Row], wish: Wish) -> dict[str, Callable[[Row], str]]:
    """Return the columns: title -> what a row has there."""
    varied = [
        column_of(field.name)
        for field, axis in zip(sweep.fields, sweep.axes, strict=True)
        if len(axis) > 1 and field.name != GPUS
    ]
    cells: dict[str, Callable[[Row], str]] = {
        "GPUs": lambda row: f"{row['gpus']} x {row['gpu']}",
        **{name: _told(name, str) for name in varied},
        "step": lambda row: exact_seconds(row["step_s"]),
        "gap": lambda row: describe_gap(row["gap"]).removesuffix(" (proved optimal)"),
    }
    if any(row["expected_error"] is not None for row in rows):
        cells["expected error"] = _told("expected_error", format_percent)
    if any(row["tokens_per_s"] for row in rows):
        cells["tokens/s"] = lambda row: _three(row["tokens_per_s"])
        cells["per GPU"] = lambda row: _three(row["tokens_per_s_per_gpu"])
    for column, title in (("mfu", "MFU"), ("hfu", "HFU"), ("bubble", "bubble")):
        if any(row[column] is not None for row in rows):
            cells[title] = _told(column, format_percent)
    cells["memory (GiB)"] = lambda row: f"{row['peak_memory_bytes'] / GIB:.2f}"
    if any(row["verdict"] == Verdict.MAY_NOT_FIT for row in rows):
        cells["verdict"] = _told("verdict", str)
    for column, title in (
        ("price_per_hour", "price per hour"),
        ("price_per_1e9_tokens", "per 10^9 tokens"),
        ("days", "days"),
        ("price", "price"),
    ):
        if any(row[column] is not None for row in rows):
            cells[title] = _told(column, _money)
    cells["plan"] = short_plan
    cells["best" if len(wish.objectives) == 1 else "front"] = lambda r: "*" if r["pareto"] else ""
    return cells


def short_plan(row: Row) -> str:
    """Return the degrees of a plan that are above 1, with its micro-batch size."""
    names = ("tp", "pp", "cp", "ep", "dp")
    words = [f"{name} {row[name]}" for name in names if row[name] is None or row[name] > 1]
    if row["virtual_stages"] > 1:
        words.append(f"vpp {row['virtual_stages']}")
    return ", ".join(words).replace("None", "mixed") or "one GPU"


def sweep_lines(
    sweep: Sweep, rows: Sequence[Row], wish: Wish, output: Path | None
) -> list[tuple[str, str]]:
    """Say what became of the points, which are best, and where the table is."""
    found = [row for row in rows if row["status"] not in NO_PLAN]
    open_ones = f", {sweep.size - len(rows):,} not begun" if len(rows) < sweep.size else ""
    optimal = sum(row["gap"] == 0 for row in found)
    lines = [
        (
            "points",
            f"{sweep.size:,}: {len(found):,} with a plan, {optimal:,} of them proved optimal; "
            f"{len(rows) - len(found):,} without{open_ones}",
        )
    ]
    shown = min(len(found), MOST_ROWS)
    if shown < len(found):
        lines.append(("shown", f"{shown} of {len(found):,} with a plan"))
    reasons = Counter(row["reason"] for row in rows if row["status"] in NO_PLAN)
    lines += [
        ("no plan", f"{reason} ({count:,} point{'s' * (count > 1)})")
        for reason, count in reasons.most_common(MOST_REASONS)
    ]
    if len(reasons) > MOST_REASONS:
        lines.append(("no plan", f"{len(reasons) - MOST_REASONS} more reasons in the table"))
    words = " and ".join(name.replace("_s", " seconds") for name in wish.columns.values())
    if len(wish.objectives) > 1:
        best = sum(row["pareto"] for row in rows)
        lines.append(("front", f"{best:,} points that no other is better than in {words}"))
        if not best:
            lines.append(("price", "not known; `price=2.5` would say what a device costs an hour"))
    if output is not None:
        lines.append(("saved to", str(output)))
    return lines


def _told(column: str, tell: Callable[[Any], str]) -> Callable[[Row], str]:
    """Return what tells the value that a row has in a column."""
    return lambda row: tell(row[column])


def _three(value: float | None) -> str:
    return "-" if value is None else three_digits(value)


def _money(value: float | None) -> str:
    return "-" if value is None else f"{value:,.2f}"

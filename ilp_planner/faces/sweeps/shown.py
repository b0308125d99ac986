"""A sweep for people: a row per point, and the outcome of all of them."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from ilp_planner.base.units import format_percent
from ilp_planner.faces.report.console import BRIEF_WIDTH
from ilp_planner.faces.report.grid import GAP, shortened
from ilp_planner.faces.report.rates import three_digits
from ilp_planner.faces.report.tables import GIB, Table, describe_gap, exact_seconds
from ilp_planner.faces.sweeps.axes import GPUS
from ilp_planner.faces.sweeps.journal import NO_PLAN
from ilp_planner.faces.sweeps.table import column_of
from ilp_planner.job.verdict import Verdict
from ilp_planner.specs.time_errors import percent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from ilp_planner.faces.sweeps.journal import Row
    from ilp_planner.faces.sweeps.points import Sweep
    from ilp_planner.faces.sweeps.table import Wish

MOST_ROWS = 40  # that are shown; the table on disk has all
MOST_REASONS = 3
LEAST_WORDS = 8  # letters that a shortened text keeps
# Column of money or days -> its title.
TITLES = {
    "price_per_hour": "price per hour",
    "price_per_1e9_tokens": "per 10^9 tokens",
    "days": "days",
    "price": "price",
}
# What is left out first where a row has no room, but for what is minimised.
EXPENDABLE = (
    "HFU", "bubble", "per GPU", "price per hour", "memory (GiB)", "tokens/s", "MFU", "price",
    "per 10^9 tokens", "days", "expected error", "gap",
    "step",
)  # fmt: skip


def sweep_tables(sweep: Sweep, rows: Sequence[Row], wish: Wish) -> list[Table]:
    """Return a table with a row for each point that has a plan: of very many, the front and the
    first ones; no table if no point has one.

    Each row is one line of `BRIEF_WIDTH` columns: columns without room are left out (`left_out`).
    """
    found = [row for row in rows if row["step_s"] is not None]
    if not found:
        return []
    if len(found) > MOST_ROWS:
        best = [n for n, row in enumerate(found) if row["pareto"]][:MOST_ROWS]
        rest = [n for n, row in enumerate(found) if not row["pareto"]][: MOST_ROWS - len(best)]
        found = [found[n] for n in sorted(best + rest)]
    texts, _ = _fitting(sweep, found, wish)
    names = [column_of(field.name) for field in sweep.fields]
    left = ("plan", *names, *map(_broken, names))
    table = Table(*texts, left=left)
    for cells in zip(*texts.values(), strict=True):
        table.add(*cells)
    return [table]


def left_out(sweep: Sweep, rows: Sequence[Row], wish: Wish) -> list[str]:
    """Return the columns that the table has no room for, by name."""
    found = [row for row in rows if row["step_s"] is not None]
    return _fitting(sweep, found, wish)[1] if found else []


def _fitting(
    sweep: Sweep, rows: Sequence[Row], wish: Wish
) -> tuple[dict[str, list[str]], list[str]]:
    """Return the texts of the columns that have room beside each other, and the names of the
    others. The longest texts are shortened if no other column can be left out."""
    texts = {
        title: [tell(row) for row in rows] for title, tell in _columns(sweep, rows, wish).items()
    }
    kept = {(TITLES | {"step_s": "step"})[name] for name in wish.columns.values()}
    missing: list[str] = []
    if _over(texts) > 0:
        texts = {_broken(title): cells for title, cells in texts.items()}
    for title in EXPENDABLE:
        if _over(texts) > 0 and _broken(title) in texts and title not in kept:
            del texts[_broken(title)]
            missing.append(title)
    words = [title for title in texts if not any(map(_is_number, texts[title]))]
    while (over := _over(texts)) > 0 and words:
        widest = max(words, key=lambda title: max(map(len, texts[title])))
        most = max(LEAST_WORDS, max(map(len, texts[widest])) - over)
        texts[widest] = [shortened(text, most) for text in texts[widest]]
        words = [title for title in words if title != widest]
    return texts, missing


def _broken(title: str) -> str:
    """Return a title on several lines."""
    return re.sub(r"([_.])", r"\1\n", title).replace(" ", "\n")


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[0-9.,]+( (%|s|ms|us))?", text) is not None


def _over(texts: dict[str, list[str]]) -> int:
    """Return by how much columns are wider than a report."""
    return sum(map(_width, texts.items())) - BRIEF_WIDTH


def _width(column: tuple[str, list[str]]) -> int:
    title, texts = column
    return max(map(len, (*title.split("\n"), *texts))) + GAP


def _interval(row: Row) -> str:
    """Return how far 4 of 5 runs are from the step at most."""
    ends = row["expected_low_s"], row["expected_high_s"]
    if None in ends:
        return "-"
    return " to ".join(percent(end / row["step_s"] - 1) for end in ends)


def _columns(sweep: Sweep, rows: Sequence[Row], wish: Wish) -> dict[str, Callable[[Row], str]]:
    """Return the columns: title -> a row's text."""
    varied = [
        column_of(field.name)
        for field, axis in zip(sweep.fields, sweep.axes, strict=True)
        if len(axis) > 1 and field.name != GPUS
    ]
    cells: dict[str, Callable[[Row], str]] = {
        "GPUs": _gpus,
        **{name: _told(name, str) for name in varied},
        "step": lambda row: exact_seconds(row["step_s"]),
        "gap": _told("gap", lambda gap: describe_gap(gap).removesuffix(" (proved optimal)")),
    }
    if any(row["expected_low_s"] is not None for row in rows):
        cells["expected error"] = _interval
    if any(row["tokens_per_s"] for row in rows):
        cells["tokens/s"] = _told("tokens_per_s", three_digits)
        cells["per GPU"] = _told("tokens_per_s_per_gpu", three_digits)
    for column, title in (("mfu", "MFU"), ("hfu", "HFU"), ("bubble", "bubble")):
        if any(row[column] is not None for row in rows):
            cells[title] = _told(column, format_percent)
    cells["memory (GiB)"] = lambda row: f"{row['peak_memory_bytes'] / GIB:.2f}"
    if any(row["verdict"] == Verdict.MAY_NOT_FIT for row in rows):
        cells["verdict"] = _told("verdict", str)
    for column, title in TITLES.items():
        if any(row[column] is not None for row in rows):
            cells[title] = _told(column, _money)
    cells["plan"] = short_plan
    cells["best" if len(wish.objectives) == 1 else "front"] = lambda r: "*" if r["pareto"] else ""
    return cells


def _gpus(row: Row) -> str:
    """Return `16 x H100-80GB`, or `8 of 16 x H100-80GB` if nodes are left out."""
    used, every = row.get("gpus_used"), row["gpus"]
    return f"{every if used in (None, every) else f'{used} of {every}'} x {row['gpu']}"


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
    """Say the outcome of the points, the best ones, and the path of the table."""
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
    if missing := left_out(sweep, rows, wish):
        where = "in the table" if output is not None else "in `output` or JSON"
        lines.append(("no room for", f"{', '.join(missing)}: {where}"))
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
    """Return a function for a row's value in a column, `-` if it is not known."""
    return lambda row: "-" if row[column] is None else tell(row[column])


def _money(value: float) -> str:
    return f"{value:,.2f}"

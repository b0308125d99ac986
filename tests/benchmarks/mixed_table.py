"""Tables of mixed clusters in the manual, made from the measured results."""

from collections.abc import Sequence
from typing import Any

from tests.benchmarks.amp_accuracy import table as accuracy_table
from tests.benchmarks.mixed_cases import AMP_PUBLISHED, METIS_CASES, SCALE_CASES, SEEDS
from tests.benchmarks.table import percent, write_table

Row = dict[str, Any]


def metis_table(rows: Sequence[Row]) -> str:
    """Return Metis's search against the optimum of its space, and of the wider one."""
    found = {(row["case"], row["space"]): row for row in rows}
    lines = [
        "| case | Metis's search (ms) | `--space metis` (ms) | gap | s "
        "| `--space groups` (ms) | gap | s |",
        "|---|---|" + "---:|" * 6,
    ]
    for case in METIS_CASES:
        cells = [case.name, case.published]
        for space in ("metis", "groups"):
            cells += solved(found.get((case.name, space)), 1e3, 2)
        lines.append(line(cells))
    return "\n".join(lines)


def amp_table(rows: Sequence[Row]) -> str:
    """Return AMP's search against the optimum of its space, and with the placement free."""
    found = {(row["experiment"], row.get("placement")): row for row in rows}
    lines = [
        "| experiment | configurations | AMP's figures reproduced | where AMP's partition is not "
        "optimal | by at most | AMP's best (s) | `ilp-plan` (s) | gap | s "
        "| `--placement free` (s) | gap | s |",
        "|---|" + "---:|" * 11,
    ]
    for name, (published, _) in AMP_PUBLISHED.items():
        jointly = found.get((name, None))
        each = ["-"] * 4
        if jointly is not None:
            each = [
                f"{jointly['configurations']}",
                f"{jointly['predictions_reproduced']}",
                f"{jointly['amp_not_optimal']}",
                percent(jointly["amp_worst_above_optimum"]),
            ]
        cells = [name, *each, f"{published:.4f}"]
        for placement in ("default", "free"):
            cells += solved(found.get((name, placement)), 1, 4)
        lines.append(line(cells))
    return "\n".join(lines)


def scale_table(rows: Sequence[Row]) -> str:
    """Return gaps on generated instances, with the limits asked for and given."""
    keys = ("network", "types", "devices_per_type", "layers", "seed")
    found = {tuple(row[key] for key in keys): row for row in rows}
    lines = [
        "| instance | seed | plan (s) | bound (s) | gap | asked gap | s | stopped by | limit (s) "
        "| asked limit (s) | peak memory (MB) |",
        "|---|" + "---:|" * 6 + "---|" + "---:|" * 3,
    ]
    for case in SCALE_CASES:
        for seed in SEEDS:
            size = (case.types, case.devices_per_type, case.layers)
            row = found.get((case.network, *size, seed))
            cells = ["not measured"] + ["-"] * 4
            given = memory = "-"
            if row is not None:
                plan = "none" if row["objective_s"] is None else f"{row['objective_s']:.4f}"
                gap = "-" if row["gap"] is None else percent(row["gap"])
                cells = [plan, f"{row['bound_s']:.4f}", gap, f"{row['wall_s']:.1f}"]
                cells.append(row["stopped_by"])
                given, memory = f"{row['limit_s']:.0f}", f"{row['peak_mb']:.0f}"
            cells.insert(3, percent(case.target))
            lines.append(line([case.name, f"{seed}", *cells, given, f"{case.limit:.0f}", memory]))
    return "\n".join(lines)


def solved(row: Row | None, scale: float, digits: int) -> list[str]:
    """Return objective, gap and seconds of a solve."""
    if row is None:
        return ["not measured", "-", "-"]
    if row["objective_s"] is None:
        return ["none", "-", f"{row['wall_s']:.1f}"]
    wall = f"{row['wall_s']:.1f}" + ("" if row["stopped_by"] == "proof" else " (limit)")
    return [f"**{row['objective_s'] * scale:.{digits}f}**", percent(row["gap"]), wall]


def line(cells: Sequence[str]) -> str:
    """Return a row of Markdown."""
    return "| " + " | ".join(cells) + " |"


def tables(record: dict[str, Any]) -> dict[str, str]:
    """Return every table by the name of its markers."""
    return {
        "metis": metis_table(record.get("metis", [])),
        "amp": amp_table(record.get("amp", [])),
        "accuracy": accuracy_table(record.get("accuracy", [])),
        "scale": scale_table(record.get("scale", [])),
    }


def write_tables(record: dict[str, Any]) -> None:
    """Put every table between its markers."""
    for name, text in tables(record).items():
        write_table(name, text)

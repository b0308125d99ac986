"""The manual's table of the coverage of expected errors, from the kept results."""

from typing import Any

from tests.benchmarks.mixed_table import line


def errors_table(found: list[dict[str, Any]]) -> str:
    """Return a row per class and kind of left-out runs as Markdown."""
    heads = ("left out", "runs", "groups", "inside", "asked", "usual interval", "mean error")
    lines = [line(heads), "|---|---|" + "---:|" * 5]
    return "\n".join([*lines, *map(_row, found)])


def _row(row: dict[str, Any]) -> str:
    asked = "75-90 %" if row["class"] == "all" else "-"
    return line(
        [
            f"one {row['left out']} at a time" if row["class"] == "all" else "",
            row["class"],
            str(row["groups"]),
            f"**{row['inside']:.0%}**",
            asked,
            f"{row['low']:+.0%} to {row['high']:+.0%}",
            f"{row['mean error']:.1%}",
        ]
    )

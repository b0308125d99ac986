"""The manual's table of predicted rows, from the kept results."""

from typing import Any

from tests.benchmarks.mixed_table import line

METHODS = ("ours", "line", "proportion")


def prediction_table(found: dict[str, dict[str, Any]]) -> str:
    """Return a row per data set and protocol as Markdown: MAPE and median of the errors.

    Kept: the share of errors that are at most twice the expected one.
    """
    heads = (
        "rows", "left out and predicted", "values", "`ilp-plan`", "error it expected (kept)",
        "lines in the micro-batch", "in proportion",
    )  # fmt: skip
    lines = [line(heads), "|---|---|" + "---:|" * 5]
    for name, parts in found.items():
        for protocol, scores in parts.items():
            ours, straight, rule = (_score(scores.get(method)) for method in METHODS)
            claimed = scores.get("claimed")
            expected = "-"
            if claimed is not None:
                expected = f"{claimed['mape']:.1%}"
                if "within_twice" in claimed:
                    expected += f" ({claimed['within_twice']:.0%})"
            values = str(scores["values"])
            lines.append(line([name, protocol, values, f"**{ours}**", expected, straight, rule]))
    return "\n".join(lines)


def _score(score: dict[str, Any] | None) -> str:
    return "-" if score is None else f"{score['mape']:.1%} / {score['median']:.1%}"

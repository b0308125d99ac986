"""The manual's table of plans ranked on many GPUs, from the kept results."""

from typing import Any

from tests.benchmarks.mixed_table import line
from tests.benchmarks.nanotron import FREE, HOLDS, MEDIAN, WORST

WAYS = ("shipped", "fitted")


def nanotron_table(found: dict[str, Any]) -> str:
    """Return a row per panel as Markdown, then regrets and constants over all of them."""
    heads = (
        "model, GPUs", "plans", "slower than the best: shipped", "fitted", "best of three: shipped",
        "fitted", "best of a short list: shipped", "rank correlation: shipped", "fitted",
        "mean error: shipped", "fitted",
    )  # fmt: skip
    lines = [line(heads), "|---|" + "---:|" * 10]
    lines += [_row(row) for row in found["panels"]]
    return "\n".join([*lines, "", *_rest(found)])


def _row(row: dict[str, Any]) -> str:
    cells = [f"{row['model']}, {row['gpus']}", str(row["plans"])]
    for name in ("regret", "top_regret"):
        cells += [format(row[way][name], ".1%") for way in WAYS]
    cells.append(format(row["listed regret"], ".1%"))
    cells += [format(row[way]["spearman"], ".2f") for way in WAYS]
    return line([*cells, *(f"{row[way]['mape']:.0%}" for way in WAYS)])


def _rest(found: dict[str, Any]) -> list[str]:
    shipped, fitted = (found[way] for way in WAYS)
    panels = [row["constants"] for row in found["panels"]]
    ends = {name: (min(of), max(of)) for name in FREE if (of := [row[name] for row in panels])}
    listed = [row["listed regret"] for row in found["panels"]]
    top = [row["shipped"]["top_regret"] for row in found["panels"]]
    spans = ", ".join(f"{name} {low:g}-{high:g}" for name, (low, high) in ends.items())
    return [
        f"Over {len(panels)} panels the plan predicted fastest is {fitted['regret']:.1%} slower "
        f"than the best one in the median (asked {MEDIAN:.0%}; shipped {shipped['regret']:.1%}), "
        f"{fitted['worst regret']:.1%} at worst (asked {WORST:.0%}; shipped "
        f"{shipped['worst regret']:.0%}); the three predicted fastest hold the best in "
        f"{fitted['top holds']:.0%} of the panels (asked {HOLDS:.0%}; shipped "
        f"{shipped['top holds']:.0%}). By the constants that ship, the best plan of a short list "
        f"is {max(listed):.0%} slower at worst, of the three predicted fastest {max(top):.0%}. "
        f"Median error of a plan: {fitted['median']:.1%} (shipped {shipped['median']:.1%}).",
        f"Fitted constants: {spans}.",
    ]

"""The manual's table of predicted iteration times, from the kept results."""

from typing import Any

from tests.benchmarks.mixed_table import line


def steps_table(found: dict[str, Any]) -> str:
    """Return a row per set and protocol as Markdown, then ranking, bound and what was left out."""
    heads = (
        "runs", "fitted on", "groups", "mean error", "asked", "median", "bias", "rank correlation",
        "worst", "noise",
    )  # fmt: skip
    lines = [line(heads), "|---|---|" + "---:|" * 8]
    lines += [_row(row) for row in found["sets"]]
    return "\n".join([*lines, "", *_rest(found)])


def _row(row: dict[str, Any]) -> str:
    rank = row["spearman"]
    return line(
        [
            row["what"],
            row["how"],
            str(row["runs"]),
            f"**{row['mape']:.1%}**",
            f"{row['asked']:.1%}",
            f"{row['median']:.1%}",
            f"{row['bias']:+.1%}",
            "-" if rank is None else f"{rank:.2f}",
            f"{row['worst']:+.0%} ({row['worst run']})",
            row["noise"],
        ]
    )


def _rest(found: dict[str, Any]) -> list[str]:
    ranking, bound = found["ranking"], found["physical bound"]
    one, three = ranking["top 1"], ranking["top 3"]
    out = ", ".join(f"{count} {why}" for why, count in found["left out"].items())
    saw = "; ".join(
        f"{gpu}: " + ", ".join(f"{name} {value:g}" for name, value in of.items())
        for gpu, of in found["defaults"].items()
    )
    return [
        f"Ranking of {sum(ranking['groups'].values())} BigScience plans in "
        f"{len(ranking['groups'])} groups of one model, by constants of its other models: the plan "
        f"predicted best is {one['median']:.1%} slower than the best one (median over groups; "
        f"asked 3 %; worst {one['worst']:.1%}), the best of the three predicted best "
        f"{three['median']:.1%} (of groups of more than three; asked 1 %; worst "
        f"{three['worst']:.1%}).",
        f"Physical bound: above {bound['above']} of {bound['runs']} published times; the nearest "
        f"is at {bound['nearest']:.0%} ({bound['nearest run']}).",
        f"Left out: {out}. Shipped: {saw}.",
    ]

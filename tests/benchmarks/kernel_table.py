"""The manual's table of predicted kernels, from the kept results."""

from typing import Any

from tests.benchmarks.mixed_table import line

ASKED = {"bf16": "7 %", "attention": "12 %", "messages": "5 %"}


def kernel_table(found: dict[str, dict[str, Any]]) -> str:
    """Return a row per GPU and kind of kernel as Markdown, and one per kind that others measured:
    mean errors."""
    heads = (
        "GPU", "kernels", "rows judged", "`ilp-plan`", "against the frameworks' median",
        "one framework's release alone", "frameworks to their median", "one share of the peak",
        "asked",
    )  # fmt: skip
    lines = [line(heads), "|---|---|" + "---:|" * 7]
    for gpu, kinds in found["tables"].items():
        for precision, scores in kinds["products"].items():
            lines.append(_row(gpu, f"products, {precision}", scores, ASKED.get(precision)))
        if "attention" in kinds:
            lines.append(_row(gpu, "attention, forward", kinds["attention"], ASKED["attention"]))
        if "messages" in kinds:
            left = kinds["messages"]["left out"]
            cells = ["collectives in a node, a size left out", str(left["rows"])]
            lines.append(
                line([gpu, *cells, f"**{left['mape']:.1%}**", *["-"] * 4, ASKED["messages"]])
            )
        if "experts" in kinds:
            lines.append(_row(gpu, "layers of experts", kinds["experts"], None))
    heads = ("measured by others", "rows", "`ilp-plan`", "slower by a factor", "that aside")
    lines += ["", line(heads), "|---|" + "---:|" * 4]
    for kind, score in found["elsewhere"].items():
        factor = f"{1 / score['clock']:.2f}"
        shares = (f"**{score['error']:.1%}**", factor, f"{score['shape']:.1%}")
        lines.append(line([kind, str(score["rows"]), *shares]))
    return "\n".join(lines)


def _row(gpu: str, what: str, scores: dict[str, Any], asked: str | None) -> str:
    every = scores["every row"]
    alone = [score["mape"] for score in scores.get("one release", {}).values()]
    several = scores["frameworks to their median"]["mape"] > 0
    return line(
        [
            gpu,
            what,
            str(every["rows"]),
            f"**{every['mape']:.1%}**",
            _share(scores.get("median of frameworks")) if several else "-",
            f"{min(alone):.1%} to {max(alone):.1%}" if alone else "-",
            _share(scores["frameworks to their median"]) if several else "-",
            _share(scores["today"]),
            asked or "-",
        ]
    )


def _share(score: dict[str, float] | None) -> str:
    return "-" if score is None else f"{score['mape']:.1%}"

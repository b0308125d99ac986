"""The tables of docs/benchmarks/recipes.md, from the kept results."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tests.benchmarks.mixed_table import line
from tests.benchmarks.recipe_cases import RECIPES, Recipe
from tests.benchmarks.recipe_terms import GROUPS, REPLICAS, TERMS
from tests.benchmarks.table import percent

Row = dict[str, Any]


def recipes_table(rows: Sequence[Row]) -> dict[str, str]:
    """Return tables as Markdown by the name of their place on the page: judged and published
    seconds of the recipes, the planner's plans with their settings, which choices they are due to,
    where the seconds differ, and the planner's plans with memory left free and as they come."""
    known = {recipe.name: recipe for recipe in RECIPES}
    pairs = [(known[row["recipe"]], row) for row in rows]
    return {
        "judged": _table(_judged(pairs)),
        "planned": _table(_planned(pairs, "same", about=True)),
        "choices": _table(_choices(pairs)),
        "terms": _table(_terms(pairs)),
        "roomy": _table(_planned(pairs, "roomy")),
        "usual": _table(_planned(pairs, "usual")),
    }


def _table(lines: Iterable[str]) -> str:
    return "\n".join(lines)


def _judged(pairs: Sequence[tuple[Recipe, Row]]) -> list[str]:
    heads = (
        "recipe", "GPUs", "samples", "NVIDIA's plan", "judged (s)", "published (s)", "error",
        "fullest GPU (GiB)", "free (GiB)",
    )  # fmt: skip
    lines = [line(heads), "|---|---:|---:|---|" + "---:|" * 5]
    for recipe, row in pairs:
        theirs, measured = row["theirs"], row["published_s"]
        seconds, memory = theirs["seconds"], theirs["memory_gib"]
        cells = [recipe.name, str(recipe.gpus), str(recipe.batch), recipe.degrees]
        cells += [f"{seconds:.2f}"]
        cells += ["-", "-"] if measured is None else _against(seconds, measured)
        cells += [f"{memory:.1f}", f"{theirs['limit_gib'] - memory:.1f}"]
        lines.append(line(cells))
    return lines


def now_table(rows: Sequence[Row], judged: Callable[[Recipe], float]) -> str:
    """Return NVIDIA's plans as kept rows have them, and as they are judged now."""
    known = {recipe.name: recipe for recipe in RECIPES}
    heads = ("recipe", "in the tables (s)", "now (s)", "more", "published (s)", "error now")
    lines = [line(heads), "|---|" + "---:|" * 5]
    for row in rows:
        before, now = row["theirs"]["seconds"], judged(known[row["recipe"]])
        measured = row["published_s"]
        cells = [row["recipe"], f"{before:.2f}", f"{now:.2f}", f"{now / before - 1:+.1%}"]
        lines.append(line(cells + (["-", "-"] if measured is None else _against(now, measured))))
    return _table(lines)


def _against(seconds: float, measured: float) -> list[str]:
    return [f"{measured:.2f}", f"{seconds / measured - 1:+.1%}"]


def _planned(
    pairs: Sequence[tuple[Recipe, Row]], which: str, *, about: bool = False
) -> Iterator[str]:
    """Yield the planner's plans of a kind; about: and whether the bound is about NVIDIA's."""
    heads = ["recipe", "planner's plan", "s", "of NVIDIA's", "bound (s)", "gap", "free (GiB)"]
    heads.append("searched (s)")
    yield line([*heads, *["the bound is about NVIDIA's plan"] * about])
    yield "|---|---|" + "---:|" * 6 + "---|" * about
    for recipe, row in pairs:
        searched = row["with_native_loss"]
        why = ", ".join(searched["violations"]) or searched["outside"]
        said = "yes" if why is None else f"no: {why.partition(':')[0]}"
        yield line([recipe.name, *_plan(row, which), *[said] * about])


def _plan(row: Row, which: str) -> list[str]:
    """Return a plan of the planner's, its seconds, their share of NVIDIA's, bound, gap, what is
    free of the fullest GPU, and the seconds of the search."""
    found, theirs = row[which], row["theirs"]
    if "plan" not in found:
        return ["none", "-", "-", f"{found['bound']:.2f}", "-", "-", f"{found['wall_s']:.0f}"]
    return [
        found["plan"].replace("|", "\\|"),
        f"{found['seconds']:.2f}",
        f"{found['seconds'] / theirs['seconds']:.1%}",
        f"{found['bound']:.2f}",
        percent(found["gap"]),
        f"{found['limit_gib'] - found['memory_gib']:.1f}",
        f"{found['wall_s']:.0f}",
    ]


def _choices(pairs: Sequence[tuple[Recipe, Row]]) -> Iterator[str]:
    """Yield the seconds of NVIDIA's plan, of the planner's with more and more left to choose, and
    of the messages that both hide."""
    heads = ("recipe", "NVIDIA's plan (s)", "its degrees", "any degrees", "and FSDP")
    yield line([*heads, "messages hidden by NVIDIA's plan (s)", "by the planner's"])
    yield "|---|" + "---:|" * 6
    for recipe, row in pairs:
        plans = [row[name] for name in ("theirs", "degrees", "whole", "same")]
        seconds = [f"{plan['seconds']:.2f}" if "seconds" in plan else "-" for plan in plans]
        yield line([recipe.name, *seconds, *(_hidden(row[name]) for name in ("theirs", "same"))])


def _hidden(plan: Row) -> str:
    """Return the seconds of messages that something hides."""
    if "sent" not in plan:
        return "-"
    groups = (*GROUPS, REPLICAS)
    return f"{sum(plan['sent'][name] - plan['terms'][name] for name in groups):.2f}"


def _terms(pairs: Sequence[tuple[Recipe, Row]]) -> Iterator[str]:
    yield line(("recipe, seconds of NVIDIA's - of the planner's", *TERMS, "sum"))
    yield "|---|" + "---:|" * (len(TERMS) + 1)
    for recipe, row in pairs:
        if "plan" not in row["same"]:
            continue
        theirs, ours = (row[plan]["terms"] for plan in ("theirs", "same"))
        saved = row["theirs"]["seconds"] - row["same"]["seconds"]
        cells = [_pair(theirs[name], ours[name]) for name in TERMS]
        yield line([recipe.name, *cells, f"{saved:+.2f}"])


def _pair(theirs: float, ours: float) -> str:
    """Return the seconds of a term in both plans; `-` where neither has any to show."""
    both = f"{max(0.0, theirs):.2f} - {max(0.0, ours):.2f}"
    return "-" if both == "0.00 - 0.00" else both

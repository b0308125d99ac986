"""NVIDIA's recipes for H100 beside the planner's own plans, for docs/benchmarks/recipes.md.

python -m tests.benchmarks --suite recipes [--only TEXT] [--seconds 60]
python -m tests.benchmarks.recipes  # judges NVIDIA's plans alone, by the model of now, in seconds

Both are judged by the model of time, so that their difference can be said by terms. The planner
plans the same model, GPUs, samples and precision twice: with the widths, kernels and overlap that
the recipe has (`same`), and as `solve` does without being told (`usual`).
"""

from typing import Any

from ilp_planner.formats.megatron.plan import plan_of_job
from tests.benchmarks import published
from tests.benchmarks.kept import Kept, measured
from tests.benchmarks.recipe_cases import RECIPES, Recipe, job_of, same_problem
from tests.benchmarks.recipe_one import judged
from tests.benchmarks.recipes_table import now_table, recipes_table
from tests.benchmarks.table import write_table

Row = dict[str, Any]

SECONDS = 60.0


def kept(limit: float = SECONDS) -> Kept:
    """Return what was written down last."""
    names = [recipe.name for recipe in RECIPES]
    machine = f"2 cores, {limit:.0f} s limit"
    return Kept("recipes", names, lambda row: row["recipe"], machine)


def measure(only: str, seconds: float | None) -> None:
    """Judge and plan the recipes whose name contains `only`; write results and tables."""
    limit = seconds or SECONDS
    found = kept(limit)
    before = {row["recipe"]: row for row in found.rows}
    for recipe in RECIPES:
        if only in recipe.name:
            row = measured("tests.benchmarks.recipe_one", recipe.name, str(limit))
            published_s = seconds_of(recipe, before.get(recipe.name, {}))
            found.add(row | {"published_s": published_s})
    for name, table in recipes_table(found.rows).items():
        write_table(name, table)


def seconds_of(recipe: Recipe, before: Row) -> float | None:
    """Return what was measured of a recipe, None for nothing; where the published rows are not at
    hand, what was written down before."""
    if not published.DATA.is_dir():
        return before.get("published_s")
    rows = {row["id"]: row["step_time_s"] for row in published.rows()}
    return rows[recipe.published] if recipe.published else None


def judged_now(recipe: Recipe) -> float:
    """Return the seconds of NVIDIA's plan by the model of now."""
    same = same_problem(recipe)
    job = job_of(recipe, same, "te")
    seconds: float = judged(same, plan_of_job(job, same.cluster, model=same.model))["seconds"]
    return seconds


if __name__ == "__main__":
    write_table("judged-now", now_table(kept().rows, judged_now))

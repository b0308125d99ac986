"""NVIDIA's recipes for H100 beside the planner's own plans, for docs/benchmarks/recipes.md.

python -m tests.benchmarks --suite recipes [--only TEXT] [--seconds 60]

Both are judged by the model of time, so that their difference can be said by terms. The planner
plans the same model, GPUs, samples and precision twice: with the widths, kernels and overlap that
the recipe has (`same`), and as `solve` does without being told (`usual`).
"""

import json
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.benchmarks import published
from tests.benchmarks.cases import ROOT
from tests.benchmarks.recipe_cases import RECIPES, Recipe
from tests.benchmarks.recipes_table import recipes_table
from tests.benchmarks.table import write_table

Row = dict[str, Any]

RESULTS = Path(__file__).parent / "results" / "recipes.json"
SECONDS = 60.0


def measure(only: str, seconds: float | None) -> None:
    """Judge and plan the recipes whose name contains `only`; write results and tables."""
    rows = {row["recipe"]: row for row in known()["rows"]}
    limit = seconds or SECONDS
    for recipe in RECIPES:
        if only not in recipe.name:
            continue
        before = rows.get(recipe.name, {})
        rows[recipe.name] = one(recipe, limit) | {"published_s": seconds_of(recipe, before)}
        print("recipes", json.dumps(rows[recipe.name])[:240], flush=True)
        machine = f"Python {platform.python_version()}, 2 cores, {limit:.0f} s limit"
        keep(machine, [rows[each.name] for each in RECIPES if each.name in rows])
    for name, table in recipes_table(known()["rows"]).items():
        write_table(name, table)


def keep(machine: str, rows: list[Row]) -> None:
    """Write the results down."""
    RESULTS.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")


def known() -> dict[str, Any]:
    """Return what was written down last."""
    if not RESULTS.exists():
        return {"rows": []}
    found: dict[str, Any] = json.loads(RESULTS.read_text())
    return found


def one(recipe: Recipe, limit: float) -> Row:
    """Judge and plan in a process of its own."""
    run = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.recipe_one", recipe.name, str(limit)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    if run.returncode:
        sys.exit(f"{recipe.name}: {run.stderr}")
    found: Row = json.loads(run.stdout.splitlines()[-1])
    return found


def seconds_of(recipe: Recipe, before: Row) -> float | None:
    """Return what was measured of a recipe, None for nothing; where the published rows are not at
    hand, what was written down before."""
    if not published.DATA.is_dir():
        return before.get("published_s")
    rows = {row["id"]: row["step_time_s"] for row in published.rows()}
    return rows[recipe.published] if recipe.published else None

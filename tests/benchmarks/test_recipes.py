"""NVIDIA's recipes become jobs as they are written, and no proof contradicts them."""

import pytest

from ilp_planner.base.numerics import ROUNDING
from ilp_planner.specs.training import QUANTISED
from tests.benchmarks import published, recipes
from tests.benchmarks.recipe_cases import RECIPES, Recipe, job_of, same_problem
from tests.benchmarks.recipes_table import recipes_table
from tests.benchmarks.table import shown_table
from tests.examples import for_each

KNOWN = recipes.kept().rows


@for_each("recipe", RECIPES)
def test_a_recipe_is_a_legal_job_on_all_its_gpus(recipe: Recipe) -> None:
    among = same_problem(recipe)
    job = job_of(recipe, among)
    assert job.world == among.cluster.device_count == recipe.gpus
    assert job.virtual == recipe.virtual
    assert job.global_batch == job.micro_batches * job.dp == recipe.batch
    assert job.settings.optimizer.gradient == 2
    assert job.settings.kernels.quantised == (
        recipe.precision if recipe.precision in QUANTISED else ""
    )


@pytest.mark.skipif(not published.DATA.is_dir(), reason="no runs in ../shared/data/measured")
@pytest.mark.parametrize("recipe", [r for r in RECIPES if r.published], ids=lambda r: r.name)
def test_the_published_row_has_the_degrees_of_the_recipe(recipe: Recipe) -> None:
    run = next(run for run in published.runs() if run.name == recipe.published)
    job = job_of(recipe, same_problem(recipe))
    for name in ("tp", "pp", "dp", "virtual", "micro_batch", "global_batch"):
        assert getattr(job, name) == getattr(run.job, name)
    assert (job.settings.cp, job.settings.ep) == (run.job.settings.cp, run.job.settings.ep)
    assert job.settings.kernels.quantised == run.job.settings.kernels.quantised
    ours, theirs = job.model, run.job.model
    for name in ("layers", "hidden", "heads", "vocab", "sequence", "prediction_layers"):
        assert getattr(ours, name) == getattr(theirs, name)


@for_each("row", KNOWN)
def test_no_bound_is_above_a_recipe_that_it_is_about(row: recipes.Row) -> None:
    searched, same = row["with_native_loss"], row["same"]
    if searched["outside"] is None:
        assert same["bound"] <= searched["seconds"] * (1 + ROUNDING)
    assert same["bound"] <= same.get("seconds", float("inf")) * (1 + ROUNDING)


def test_the_page_has_the_tables_of_the_kept_results() -> None:
    assert [row["recipe"] for row in KNOWN] == [recipe.name for recipe in RECIPES]
    for name, table in recipes_table(KNOWN).items():
        assert shown_table(name) == table

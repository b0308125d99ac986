"""The terms of a plan are all of its seconds, and each is what its name says."""

from dataclasses import replace
from typing import Any

import pytest

from ilp_planner.evaluate import evaluate
from ilp_planner.formats.megatron.plan import plan_of_job
from ilp_planner.inputs.problem import Problem
from ilp_planner.plan import GroupPlan
from ilp_planner.specs.training import TrainingJob
from tests.benchmarks import recipe_terms as terms
from tests.benchmarks.recipe_cases import RECIPES, Recipe, job_of, same_problem
from tests.examples import for_each

MESSAGES = (*terms.GROUPS, terms.REPLICAS)


def plan_of(among: Problem[Any], job: TrainingJob) -> GroupPlan:
    return plan_of_job(job, among.cluster, model=among.model)


def named(name: str) -> tuple[Problem[Any], TrainingJob]:
    recipe = next(recipe for recipe in RECIPES if recipe.name == name)
    among = same_problem(recipe)
    return among, job_of(recipe, among)


@for_each("recipe", RECIPES)
def test_terms_add_up_to_what_the_judge_says(recipe: Recipe) -> None:
    among = same_problem(recipe)
    job = job_of(recipe, among)
    plan = plan_of(among, job)
    found, sent = terms.terms_of(among, plan), terms.sent_of(among, plan)
    assert tuple(found) == terms.TERMS
    assert sum(found.values()) == pytest.approx(evaluate(among, plan).iteration_time)
    assert min(found.values()) > -1e-9
    degrees = {terms.TENSOR: job.tp, terms.CONTEXT: job.settings.cp, terms.EXPERTS: job.settings.ep}
    for name in MESSAGES:
        assert found[name] <= sent[name] + 1e-9
        assert (sent[name] > 0) == (degrees.get(name, job.dp * job.settings.cp) > 1)
    assert (found[terms.RECOMPUTED] > 0) == (recipe.recompute.granularity != "none")
    assert (found[terms.PIPELINE] > 1e-9) == (recipe.pp > 1)


def test_a_layout_moves_seconds_to_and_from_the_fullest_rank_alone() -> None:
    among, job = named("GPT-OSS 120B, bf16")
    layout = replace(job, layout=type(job.pipeline)(_moved(job)))
    before, after = (terms.terms_of(among, plan_of(among, one)) for one in (job, layout))
    assert after[terms.UNEVEN] < before[terms.UNEVEN]
    changed = (terms.UNEVEN, terms.PIPELINE, terms.REPLICAS, terms.ONCE)
    for name in set(terms.TERMS).difference(changed):
        assert after[name] == pytest.approx(before[name])


def _moved(job: TrainingJob) -> tuple[Any, ...]:
    """Return the stages where the first has a layer more and the last one less."""
    first, *middle, last = job.stages
    return (replace(first, layers=first.layers + 1), *middle, replace(last, layers=last.layers - 1))


def test_what_overlaps_is_sent_as_before_and_waited_for_less() -> None:
    among, job = named("Llama-3 70B, bf16")
    exposed = replace(job.settings, overlap_tensor=False, async_tensor=False)
    hidden, open_ = (plan_of(among, one) for one in (job, replace(job, settings=exposed)))
    sent = terms.sent_of(among, open_)
    assert terms.sent_of(among, hidden) == sent
    waited = terms.terms_of(among, open_)[terms.TENSOR]
    assert waited == pytest.approx(sent[terms.TENSOR])
    assert terms.terms_of(among, hidden)[terms.TENSOR] < waited


def test_sharded_parameters_are_gathered_by_every_micro_batch() -> None:
    among, job = named("Llama-3 8B, bf16")
    optimizer = replace(job.settings.optimizer, sharding="parameters")
    sharded = replace(job, settings=replace(job.settings, optimizer=optimizer))
    once, often = (terms.sent_of(among, plan_of(among, one)) for one in (job, sharded))
    # Gathered and reduced once; gathered twice and reduced with every micro-batch.
    more = 3 * job.micro_batches / 2
    assert often[terms.REPLICAS] == pytest.approx(more * once[terms.REPLICAS], rel=0.2)

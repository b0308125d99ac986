"""Turns of more micro-batches than pipeline ranks, where they are asked for."""

from dataclasses import replace
from functools import cache

import pytest

from ilp_planner.base.errors import InfeasibleError
from ilp_planner.evaluate import evaluate
from ilp_planner.formats.megatron.arguments import arguments_of_job, job_of_arguments
from ilp_planner.formats.megatron.plan import job_of_plan
from ilp_planner.formats.megatron.rules import check_arguments
from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.optimize.certificate import check_certificate
from ilp_planner.optimize.result import Status
from ilp_planner.optimize.solve import solve
from ilp_planner.spaces.training.enumerate.variants import in_turns
from ilp_planner.specs.model import ModelSpec
from tests.examples import for_each
from tests.megatron_cases import FEW, every_plan, small_cluster, small_problem
from tests.runtime_cases import runtime_problem

SHORT = {"layers": 6, "hidden": 512, "sequence": 512, "heads": 4, "ffn": 2048, "vocab": 2000}
PIPELINE = {"pp": 2, "dp": 1, "virtual_stages": 2, "recompute": "none", "tp": 1}


def asked_problem(sizes: str | None, *, batch: int = 5, **said: object):
    """Return the problem of a pipeline of two ranks with two virtual stages each."""
    asked = constraints_of({**FEW, **PIPELINE, "micro_batch_group_size": sizes, **said})
    options = {**SHORT, "micro_batch_sizes": (1,)}
    return small_problem(small_cluster(1, 2), batch=batch, constraints=asked, **options)


@for_each(("batch", "sizes"), [(4, {0, 4}), (5, {3, 5}), (7, {4, 5, 7})])
def test_those_that_megatron_runs_are_tried(batch: int, sizes: set[int]) -> None:
    """By Megatron-LM's own rule on what is left over, as the checks of launch lines have it."""
    problem = asked_problem("1..9", batch=batch)
    (part,) = problem.space.parts(problem)
    found = {turned.turn for v in part.variants() for turned in in_turns(part, v)}
    assert found == sizes
    model = ModelSpec(name="small", precision="bf16", architecture=problem.costs.model)
    plan = solve(problem).plan
    for turn in range(1, 10):
        own = replace(plan, settings=replace(plan.settings, turn=turn))
        job = job_of_plan(own, model, problem.cluster)
        accepted = not [*check_arguments(arguments_of_job(job))]
        assert accepted == ((0 if turn == 2 else turn) in sizes)
        assert evaluate(problem, own).legal == accepted
        assert problem.space.contains(problem, own) == accepted


@cache
def least_of_all(batch: int) -> float:
    """Return the seconds of the fastest legal plan, by enumeration."""
    problem = asked_problem("1..9", batch=batch)
    judged = (
        evaluate(problem, p) for p in every_plan(problem) if problem.space.contains(problem, p)
    )
    return min(one.iteration_time for one in judged if one.legal)


@for_each("batch", [4, 5, 7])
@for_each("solver", ["auto", "gradient", "anneal"])
def test_the_best_of_all_is_found(batch: int, solver: str) -> None:
    problem = asked_problem("1..9", batch=batch)
    found = solve(problem, solver=solver)
    assert found.objective == pytest.approx(least_of_all(batch), rel=1e-9)
    if solver == "auto":
        assert found.status is Status.OPTIMAL
        assert check_certificate(problem, found.certificate).holds
    model = ModelSpec(name="small", precision="bf16", architecture=problem.costs.model)
    job = job_of_plan(found.plan, model, problem.cluster)
    assert job_of_arguments(arguments_of_job(job)).settings == job.settings


def test_none_are_tried_without_being_asked_for() -> None:
    with pytest.raises(InfeasibleError, match="`virtual_stages=2`"):
        asked_problem(None)
    found = solve(asked_problem("3,4,6", batch=4))
    assert found.plan.settings.turn == 4
    usual = asked_problem(None, batch=4)
    assert "schedule: virtual 2 in turns of 4" in (usual.space.outside(usual, found.plan) or "")
    assert usual.space.outside(usual, replace(found.plan, settings=replace(
        found.plan.settings, turn=2))) is None  # fmt: skip


def test_other_runtimes_take_turns_of_ranks_alone() -> None:
    for sizes, stages in (("1..8", {1, 2}), ("4", {1})):
        asked = constraints_of({"micro_batch_group_size": sizes, "pp": 2})
        problem = runtime_problem("torchtitan", constraints=asked)
        variants = [v for part in problem.space.parts(problem) for v in part.variants()]
        assert {v.virtual for v in variants if not v.divided} == stages
        assert {v.turn for v in variants} == {0}


def test_sizes_that_decide_nothing_are_noted() -> None:
    problem = asked_problem("4", virtual_stages=1)
    note = "micro batch group size 4: without effect, no plan that is tried has virtual stages"
    assert note in solve(problem).notes

"""torchtitan's space: how FSDP shards with and without a pipeline."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ilp_planner.errors import SpecError
from ilp_planner.evaluate import evaluate
from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.report.stages import describe_training
from ilp_planner.solve import solve
from tests.megatron_cases import GIB, small_cluster
from tests.runtime_cases import every_plan, runtime_problem


def test_a_pipeline_has_whole_gradients() -> None:
    """Plans that keep less than FSDP does there are illegal, with the sharding that it is."""
    problem = runtime_problem("torchtitan", cluster=small_cluster(1, 4))
    shown = set()
    for plan in every_plan(problem):
        assert plan.settings is not None
        pipeline, sharding = plan.ranks > 1, plan.settings.optimizer.sharding
        evaluation = evaluate(problem, plan)
        if evaluation.legal and sharding != "none":
            assert pipeline == (sharding == "optimizer")
        for broken in evaluation.violations:
            if broken.rule == "torchtitan" and "sharding" in broken.have:
                shown.add((pipeline, broken.limit.rpartition(" ")[2]))
    assert shown == {(True, "optimizer"), (False, "gradients")}


@pytest.mark.parametrize(("asked", "ranks"), [("parameters", {1}), ("optimizer", {2})])
def test_sharding_that_was_asked_for(asked: str, ranks: set[int]) -> None:
    problem = runtime_problem(
        "torchtitan",
        constraints=constraints_of({"sharding": asked}),
    )
    plan = solve(problem).plan
    assert plan is not None
    assert plan.ranks in ranks
    assert plan.settings.optimizer.sharding == asked
    assert problem.space.outside(problem, plan) is None


def test_one_device_has_no_fsdp() -> None:
    for asked in ({}, {"sharding": "parameters"}):
        problem = runtime_problem(
            "torchtitan", cluster=small_cluster(1, 1), constraints=constraints_of(asked)
        )
        plan = solve(problem).plan
        assert plan is not None
        assert plan.settings.optimizer.sharding == "none"
        assert problem.space.outside(problem, plan) is None


def test_copies_of_shards_are_named_and_divide_replicas() -> None:
    problem = runtime_problem("torchtitan", cluster=small_cluster(2, 2))
    parts = problem.space.parts(problem)
    names = [part.name for part in parts]
    assert len(set(names)) == len(names)
    copies = {part.settings.optimizer.instances for part in parts}
    assert copies == {1, 2}  # four copies of all would leave no shards
    for part in parts:
        optimizer = part.settings.optimizer
        assert part.degrees.dp % optimizer.instances == 0
        assert (optimizer.instances > 1) == (" copies" in part.name)


def test_models_that_torchtitan_does_not_have() -> None:
    with pytest.raises(SpecError, match=r"model 'small': model\.norm: found layernorm, but"):
        runtime_problem("torchtitan", changes={"norm": "layernorm"})


def test_experts_of_qwen_have_no_pipeline() -> None:
    problem = runtime_problem("torchtitan", "experts")
    assert {part.degrees.pp for part in problem.space.parts(problem)} == {1}
    latent = runtime_problem("torchtitan", "latent")
    assert {part.degrees.pp for part in latent.space.parts(latent)} > {1}


def test_more_memory_is_never_worse() -> None:
    problem = runtime_problem("torchtitan", cluster=small_cluster(2, 1))
    times = []
    for share in (0.017, 0.02, 1.0):
        limits = {name: size * share for name, size in problem.memory_limits.items()}
        times.append(solve(replace(problem, memory_limits=limits)).objective)
    assert times == sorted(times, reverse=True)
    assert times[0] > times[-1]


def test_a_result_says_how_many_copies_there_are() -> None:
    problem = runtime_problem("torchtitan", cluster=small_cluster(1, 4), memory_limit=3 * GIB)
    plan = solve(problem).plan
    assert plan is not None
    for instances, text in ((1, "gradients sharded"), (2, "gradients sharded in 2 copies")):
        optimizer = replace(plan.settings.optimizer, sharding="gradients", instances=instances)
        one = replace(plan, settings=replace(plan.settings, optimizer=optimizer))
        assert text in describe_training(one).split(", ")

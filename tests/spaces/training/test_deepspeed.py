"""DeepSpeed's space: which stage of ZeRO goes with what, and what checkpoints span."""

from dataclasses import replace

from ilp_planner.evaluate import evaluate
from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.optimize.solve import solve
from ilp_planner.specs.training import SHARDINGS, Recompute
from tests.examples import for_each
from tests.megatron_cases import GIB, small_cluster
from tests.runtime_cases import every_plan, runtime_problem


def test_a_pipeline_shards_optimizer_states_at_most() -> None:
    problem = runtime_problem("deepspeed", cluster=small_cluster(1, 4))
    found = {
        (part.degrees.pp > 1, part.settings.optimizer.sharding)
        for part in problem.space.parts(problem)
    }
    assert found == {
        *((True, kind) for kind in ("none", "optimizer")),
        *((False, kind) for kind in ("none", "optimizer", "gradients", "parameters")),
    }


@for_each("asked", SHARDINGS)
def test_what_nothing_shares_may_be_in_a_pipeline_whatever_is_asked(asked: str) -> None:
    """No two ranks have the same parameters there, and gradients are never sharded in pipelines."""
    problem = runtime_problem(
        "deepspeed",
        cluster=small_cluster(2, 1),
        constraints=constraints_of({"sharding": asked, "pp": 2}),
    )
    plan = solve(problem).plan
    assert plan is not None
    assert plan.ranks == 2
    assert evaluate(problem, plan).legal
    assert problem.space.outside(problem, plan) is None


def test_only_layers_of_pipelines_divide_sequences() -> None:
    problem = runtime_problem("deepspeed", cluster=small_cluster(1, 4))
    for part in problem.space.parts(problem):
        d = part.degrees
        assert part.settings.sequence_parallel == (d.tp > 1 and d.pp > 1)
        assert d.cp == 1


def test_tensor_parallelism_is_had_with_and_without_a_pipeline_and_no_ring_is() -> None:
    problem = runtime_problem("deepspeed", cluster=small_cluster(1, 4))
    degrees = {(part.degrees.tp > 1, part.degrees.pp) for part in problem.space.parts(problem)}
    assert degrees == {(False, 1), (False, 2), (False, 4), (True, 1), (True, 2)}
    assert problem.costs.max_cp == 1


def test_gradients_are_reduced_while_others_are_computed_without_a_pipeline_from_zero_1_on() -> (
    None
):
    problem = runtime_problem("deepspeed", cluster=small_cluster(1, 4))
    overlaps = {True: set[object](), False: set[object]()}
    for part in problem.space.parts(problem):
        optimizer = part.settings.optimizer
        overlaps[optimizer.overlap_gradients].add((part.degrees.pp > 1, optimizer.sharding))
    sharded = ("optimizer", "gradients", "parameters")
    assert overlaps[True] == {(False, kind) for kind in sharded}
    assert overlaps[False] == {(False, "none"), (True, "none"), (True, "optimizer")}


def test_what_no_two_ranks_share_is_zero_1() -> None:
    problem = runtime_problem("deepspeed", cluster=small_cluster(1, 2))
    alone = [part for part in problem.space.parts(problem) if not part.degrees.replicated]
    assert {part.settings.optimizer.sharding for part in alone} == {"optimizer"}


def test_experts_are_spread_without_a_pipeline_alone() -> None:
    problem = runtime_problem("deepspeed", "experts", cluster=small_cluster(1, 4))
    degrees = [part.degrees for part in problem.space.parts(problem)]
    assert {d.ep for d in degrees if d.pp == 1} == {1, 2, 4}
    assert {d.ep for d in degrees if d.pp > 1} == {1}


def test_checkpoints_span_divisors_of_the_layers() -> None:
    asked = constraints_of({"recompute": "full", "pp": 1})
    problem = runtime_problem("deepspeed", constraints=asked)
    part = problem.space.parts(problem)[0]
    assert {variant.recompute.layers for variant in part.variants()} == {1, 3}
    # Others are legal, and no proof is about them.
    two = Recompute(granularity="full", method="uniform", layers=2)
    plan = solve(problem).plan
    other = replace(plan, settings=replace(plan.settings, recompute=two))
    assert evaluate(problem, other).legal
    assert "schedule" in str(problem.space.outside(problem, other))


def test_longer_checkpoints_fit_where_shorter_ones_do_not() -> None:
    """They keep the inputs of fewer layers, which decides where there are many."""
    result = solve(
        runtime_problem(
            "deepspeed",
            cluster=small_cluster(1, 1),
            changes={"layers": 48, "hidden": 256, "ffn": 768, "vocab": 501, "sequence": 512},
            global_batch=64,
            micro_batch_sizes=(16,),
            memory_limit=int(1.62 * GIB),
        )
    )
    assert result.plan is not None
    assert result.plan.settings.recompute.layers == 2


def test_the_judge_takes_any_checkpoint() -> None:
    problem = runtime_problem("deepspeed", cluster=small_cluster(2, 1))
    seen = {
        (plan.ranks, plan.settings.recompute.layers)
        for plan in every_plan(problem)
        if plan.settings and evaluate(problem, plan).legal
    }
    assert {(1, 1), (1, 3), (2, 1), (2, 3)} <= seen

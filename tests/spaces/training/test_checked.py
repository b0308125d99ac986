"""Planning for runtimes with a check of jobs: every plan of small cases tried, and random ones."""

import math
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.errors import InfeasibleError, PlanError, SpecError
from ilp_planner.evaluate import evaluate
from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.inputs.problem import Problem
from ilp_planner.optimize.certificate import check_certificate
from ilp_planner.optimize.result import Status
from ilp_planner.optimize.solve import solve
from ilp_planner.plan import GroupPlan
from ilp_planner.spaces.runtimes.deepspeed import check_deepspeed
from ilp_planner.spaces.runtimes.torchtitan import check_torchtitan
from ilp_planner.spaces.training.deepspeed import DEEPSPEED
from ilp_planner.spaces.training.search.possible import possible_choices, possible_degrees
from ilp_planner.spaces.training.torchtitan import NEWEST
from ilp_planner.specs.decoder import Decoder
from ilp_planner.specs.pipeline_layout import split_layout
from ilp_planner.specs.training import (
    CP_COMMUNICATIONS,
    ORDERS,
    SHARDINGS,
    Kernels,
    Offload,
    OptimizerSettings,
    Recompute,
    TrainingJob,
)
from tests.examples import examples, for_each, often
from tests.megatron_cases import GIB, small_cluster
from tests.runtime_cases import SHORT, every_plan, problems, runtime_problem

DENSE = Decoder(**SHORT)
FP8 = Kernels(quantised="fp8-current")
CHECKS = {
    "torchtitan": NEWEST.check_release,
    "torchtitan@0.2.2": check_torchtitan,
    "deepspeed": check_deepspeed,
}
# The earlier torchtitan is searched as the newest one is.
runtimes = pytest.mark.parametrize("space", often(CHECKS, *(n for n in CHECKS if "@" not in n)))


def assert_optimal(problem: Problem) -> None:
    """The optimum is that of all legal plans, which are all inside, or the same with nodes in
    another order."""
    found, best = solve(problem), math.inf
    for number, plan in enumerate(every_plan(problem)):
        evaluation = evaluate(problem, plan)
        if evaluation.legal:
            best = min(best, evaluation.iteration_time)
            outside = number % 7 == 0 and problem.space.outside(problem, plan)
            assert not outside or "order of nodes" in outside
    if math.isinf(best):
        assert found.status is Status.INFEASIBLE
        return
    assert found.status is Status.OPTIMAL
    assert found.objective == pytest.approx(best, rel=1e-9)
    assert found.plan is not None
    assert problem.space.outside(problem, found.plan) is None
    assert check_certificate(problem, found.certificate).holds


USUAL = (("grouped", 1.8), ("experts", 1.35))


@pytest.mark.few(2)
@runtimes
@pytest.mark.parametrize(
    ("model", "room"),
    often(
        [("dense", 1.35), ("grouped", 1.8), ("experts", 1.35), ("latent", 1.35)],
        *USUAL,
        several=True,
    ),
)
def test_the_optimum_is_that_of_all_plans(space: str, model: str, room: float) -> None:
    cluster = small_cluster(2, 1)
    assert_optimal(runtime_problem(space, model, cluster=cluster, memory_limit=int(room * GIB)))


@pytest.mark.slow
@runtimes
def test_the_optimum_on_two_types_and_with_copies_of_shards(space: str) -> None:
    assert_optimal(runtime_problem(space, cluster=small_cluster(1, 1, slow=1)))
    assert_optimal(runtime_problem(space, memory_limit=int(1.35 * GIB)))


@pytest.mark.slow
@runtimes
@examples(8)
@given(data=st.data())
def test_the_optimum_of_random_cases(space: str, data: st.DataObject) -> None:
    assert_optimal(data.draw(problems(space)))


def strange_plans(problem: Problem, count: int, seed: int = 0) -> Iterator[GroupPlan]:
    """Yield plans with settings that nobody asked for."""
    draw = random.Random(seed)
    plans = list(every_plan(problem))
    for plan in draw.sample(plans, count):
        settings = plan.settings
        assert settings is not None
        changes = {
            "optimizer": OptimizerSettings(
                sharding=draw.choice(SHARDINGS),
                instances=draw.choice((1, 1, 2)),
                gradient=draw.choice((4, 4, 2)),
                overlap_gradients=draw.random() < 0.5,
                overlap_parameters=draw.random() < 0.5,
            ),
            "recompute": draw.choice(
                (
                    Recompute(granularity="selective"),
                    Recompute(granularity="full", method="block", layers=1),
                    Recompute(granularity="full", method="uniform", layers=2),
                )
            ),
            "order": draw.choice(ORDERS),
            "cp_comm": draw.choice(CP_COMMUNICATIONS),
            "sequence_parallel": draw.random() < 0.5,
            "turn": draw.choice((0, 2)),
        }
        names = draw.sample(sorted(changes), draw.randint(1, 2))
        yield replace(plan, settings=replace(settings, **{name: changes[name] for name in names}))


@pytest.mark.few(1)
@runtimes
@pytest.mark.parametrize("model", ["grouped", "latent"])
def test_what_the_runtime_refuses_is_illegal_and_nothing_else_beats_the_bound(
    space: str, model: str
) -> None:
    problem = runtime_problem(space, model, cluster=small_cluster(1, 4))
    bound, seen = solve(problem).bound, set()
    for plan in strange_plans(problem, 150):
        evaluation = evaluate(problem, plan)
        try:
            CHECKS[space](problem.costs.job(plan, problem.cluster))  # type: ignore[attr-defined]
            refused = False
        except PlanError:
            refused = True
        inside = evaluation.legal and problem.space.outside(problem, plan) is None
        assert not (refused and evaluation.legal)
        assert not inside or evaluation.iteration_time >= bound * (1 - 1e-12)
        seen.add((refused, evaluation.legal))
    assert {(True, False), (False, True)} <= seen


def test_what_no_degrees_repair_is_refused_at_once() -> None:
    with pytest.raises(SpecError, match=r"model 'small': settings\.precision: found fp16, but"):
        runtime_problem("torchtitan", precision="fp16")
    quantised = replace(DEEPSPEED.settings(DENSE, "bf16", small_cluster(), ""), kernels=FP8)
    with pytest.raises(SpecError, match=r"settings\.kernels\.quantised: found fp8-current, but"):
        DEEPSPEED.check_model(DENSE, quantised)


@runtimes
def test_what_no_degree_allows_is_told(space: str) -> None:
    asked = {"deepspeed": {"cp": 2}}.get(space, {"tp": 4, "ep": 1})
    with pytest.raises(InfeasibleError, match="no plan of small"):
        runtime_problem(
            space, "grouped", cluster=small_cluster(1, 4), constraints=constraints_of(asked)
        )


@runtimes
def test_every_result_says_whose_kernels_are_timed(space: str) -> None:
    assert any("Megatron-LM's kernels" in note for note in runtime_problem(space).notes)


@for_each("space", ["megatron", "torchtitan", "torchtitan@0.2.2", "deepspeed"])
@for_each("model", ["dense", "experts"])
def test_degrees_that_are_alike_have_the_same_choices(space: str, model: str) -> None:
    problem = runtime_problem(space, model, global_batch=8)
    costs, of = problem.costs, dict[object, set[tuple[int, ...]]]()
    for degrees in possible_degrees(problem, costs):
        alike = costs.runtime.alike(degrees)
        of.setdefault(alike, set()).add(tuple(possible_choices(problem, costs, degrees)))
    assert all(len(choices) == 1 for choices in of.values())
    assert len(of) > 3


def test_a_runtime_computes_layers_again_one_by_one_in_one_order_of_ranks() -> None:
    """It pads the vocabulary for no kernels, and has of recomputation what is asked for."""
    assert (NEWEST.blocks, NEWEST.orders, NEWEST.chunks(8)) == (False, ORDERS[:1], (1,))
    assert DEEPSPEED.settings(DENSE, "bf16", small_cluster(), "").vocab_multiple == 1
    asked = constraints_of({"recompute": "none"})
    assert DEEPSPEED.recomputations(DENSE, Kernels(), asked) == (Recompute(),)


def test_a_job_is_judged_with_whole_layers_spread_evenly() -> None:
    """3 layers, the embedding and the output on two stages: 2 elements, and 3."""
    seen = []

    class Listening(type(DEEPSPEED)):  # type: ignore[misc]
        def check_job(self, job: TrainingJob) -> None:
            seen.append(job.pipeline)

    settings = DEEPSPEED.settings(DENSE, "bf16", small_cluster(), "")
    case = TrainingJob(
        model=DENSE, micro_batch=1, global_batch=2, pp=2, layout=split_layout([3, 0]),
        settings=settings,
    )  # fmt: skip
    assert list(Listening().refusals(case)) == []
    assert seen == [split_layout([1, 2])]


def test_what_every_runtime_refuses_and_what_one_does_is_told() -> None:
    """Layers need not divide into stages: a job is judged with some layout."""
    optimizer = OptimizerSettings(sharding="optimizer")
    settings = replace(DEEPSPEED.settings(DENSE, "bf16", small_cluster(), ""), optimizer=optimizer)
    case = TrainingJob(model=DENSE, micro_batch=1, global_batch=2, settings=settings)
    layout = split_layout([1, 2])
    assert list(DEEPSPEED.refusals(replace(case, pp=2, layout=layout))) == []
    offload = replace(settings, offload=Offload(layers=3))
    first, *_ = DEEPSPEED.refusals(replace(case, settings=offload))
    assert first == "offloading: found activations of 3 layers, expected at most 2"
    (broken,) = DEEPSPEED.violations(
        replace(case, settings=replace(settings, cp=2)),
        DEEPSPEED.settings(DENSE, "bf16", small_cluster(), ""),
    )
    assert (broken.rule, broken.where) == ("DeepSpeed", "plan")
    assert broken.have.startswith("settings.cp: found 2")
    assert broken.limit

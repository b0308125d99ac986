"""No legal plan that trains a part of a model beats the bound: random plans on every runtime."""

from dataclasses import replace
from typing import Any

import pytest

from ilp_planner.base.errors import InfeasibleError, PlannerError, SpecError
from ilp_planner.faces.api.problem import problem as named
from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.inputs.problem import Problem
from ilp_planner.optimize.solve import solve
from ilp_planner.plan import GroupPlan
from ilp_planner.settings.values import MOMENTS
from ilp_planner.spaces.throughput import least_flops, model_flops
from ilp_planner.spaces.training.search.possible import possible_parts
from tests.examples import for_each, thinned
from tests.megatron_cases import small_cluster
from tests.random_problems import HYBRIDS
from tests.runtime_cases import runtime_problem
from tests.spaces.training.test_random_plans import assert_plans_keep_the_bound

LAYERS = 4
MEGATRON = {"lora": "8", "lora_targets": "linear_qkv,linear_proj"}
PEFT = {"lora": "8", "lora_targets": "q_proj,v_proj,down_proj"}
EVERYWHERE = {"lora": "8", "lora_targets": "linear_qkv,linear_fc1,linear_fc2"}
OF_EXPERTS = {"lora": "8", "lora_targets": "q_proj,experts.gate_up_proj,experts.down_proj"}
# Runtime, kind of model, what is asked for.
CASES: list[tuple[str, str, dict[str, str]]] = [
    ("megatron", "dense", MEGATRON),
    ("megatron", "dense", {**MEGATRON, "freeze": "layers:0-1"}),
    ("megatron", "dense", {"freeze": "embedding,layers:0-2"}),
    ("megatron", "dense", {"freeze": "layers:1-2"}),
    ("megatron", "dense", {"freeze": "mlp,norms"}),
    ("megatron", "dense", {"freeze": "embedding,layers:0-3"}),
    ("megatron", "experts", {**MEGATRON, "lora_dropout": "0.1"}),
    ("megatron", "experts", {"freeze": "embedding,layers:0-1"}),
    ("torchtitan", "dense", PEFT),
    ("torchtitan", "dense", {**PEFT, "qlora": "on", "lora_dropout": "0.05"}),
    ("torchtitan", "dense", {"freeze": "embedding,layers:0-1,output"}),
    ("deepspeed", "dense", {**PEFT, "freeze": "layers:0-1"}),
    ("deepspeed", "dense", {"freeze": "embedding,layers:0-1"}),
    ("torchtitan", "dense", {"moments": "8bit"}),
    ("torchtitan", "experts", {"lora": "8", "lora_targets": "q_proj", "moments": "paged-8bit"}),
    ("torchtitan", "dense", {"moments": "fp32,paged", "freeze": "embedding"}),
    ("deepspeed", "dense", {"moments": "paged,paged-8bit"}),
    # Hybrids, and adapters of routed experts.
    ("megatron", "Mamba", {"lora": "8", "lora_targets": "in_proj,out_proj"}),
    ("megatron", "Mamba", {"freeze": "mamba,norms,layers:0-2"}),
    ("megatron", "Mamba and experts", {**EVERYWHERE, "freeze": "layers:0-1"}),
    ("megatron", "delta nets and experts", {"lora": "8", "lora_targets": "linear_proj,in_proj"}),
    ("megatron", "delta nets and experts", {"freeze": "embedding,delta,experts,layers:0-1"}),
    ("megatron", "experts", {**EVERYWHERE, "lora_dropout": "0.1"}),
    ("megatron", "experts", {"lora": "8", "lora_targets": "experts.linear_fc1,linear_fc2"}),
    ("torchtitan", "experts", {**OF_EXPERTS, "freeze": "layers:0"}),
    ("deepspeed", "experts", {"lora": "8", "lora_targets": "gate_proj,up_proj,down_proj"}),
    ("deepspeed", "experts", {**OF_EXPERTS, "qlora": "on"}),
]


def problem_of(space: str, kind: str, asked: dict[str, str]) -> Problem[Any]:
    base, changes = HYBRIDS.get(kind, (kind, {}))
    return runtime_problem(
        space,
        base,
        cluster=small_cluster(2, 2, between=2e9),
        global_batch=8,
        constraints=constraints_of(asked),
        changes={**changes, "layers": 2 * LAYERS if changes else LAYERS},
    )


def with_tuning(plan: GroupPlan, best: GroupPlan) -> GroupPlan:
    """Return a plan that trains the same parts of the model as another one, and keeps moments as
    it does."""
    assert plan.settings is not None
    assert best.settings is not None
    own = replace(plan.settings, tuning=best.settings.tuning)
    kept = MOMENTS.write(own, MOMENTS.read(best.settings))
    assert kept is not None
    return replace(plan, settings=kept)


@for_each("case", thinned(CASES, 13))
def test_no_tuned_plan_is_faster_than_the_bound(case: tuple[str, str, dict[str, str]]) -> None:
    assert_plans_keep_the_bound(problem_of(*case), with_tuning)


@pytest.mark.parametrize("asked", [MEGATRON, {"freeze": "embedding,layers:0-2"}])
def test_the_work_of_what_is_trained_is_less_than_that_of_all(asked: dict[str, str]) -> None:
    problem = problem_of("megatron", "dense", asked)
    assert problem.spec is not None
    whole = model_flops(problem.spec.architecture)
    assert whole / 3 < least_flops(problem) < 0.75 * whole


def test_of_several_ranks_the_bound_is_of_any() -> None:
    """Rank 0 trains all, with more work than with adapters."""
    both = problem_of("megatron", "dense", {"lora": "0,8"})
    alone = problem_of("megatron", "dense", {"lora": "8"})
    assert least_flops(both) == least_flops(alone)


@pytest.mark.parametrize("space", ["torchtitan", "deepspeed"])
@pytest.mark.parametrize("asked", [PEFT, {**PEFT, "qlora": "on"}, {"freeze": "layers:0-1"}])
def test_what_is_computed_again_the_system_can_compute_again(
    space: str, asked: dict[str, str]
) -> None:
    """No search ends with a plan that the judge refuses."""
    problem = problem_of(space, "dense", asked)
    found = set()
    for part in possible_parts(problem, problem.costs):
        for again in part.recomputations:
            job = replace(part.job, settings=replace(part.settings, recompute=again))
            assert not [*problem.costs.runtime.refusals(job)], again
            found.add(again)
    assert {again.granularity for again in found} == {"none", "full"}


@for_each("asked", [{"lora": "8"}, {"freeze": "embedding"}])
def test_models_of_transformers_have_no_quantised_products(asked: dict[str, str]) -> None:
    """A demand of both is refused in words; where it is optional, all of the model is trained."""
    size: dict[str, Any] = {"gpus": "2xB200", "global_batch": 4, "space": "torchtitan"}
    with pytest.raises(InfeasibleError, match=": no plan of "):
        named("qwen3-0.6b", **size, **asked, precision="mxfp8")
    plan = solve(named("qwen3-0.6b", **size, lora="0,8", precision="mxfp8")).plan
    assert plan is not None
    assert plan.settings is not None
    assert plan.settings.kernels.quantised == "mxfp8"
    assert not plan.settings.tuning


def test_peft_trains_models_that_torchtitan_has_not() -> None:
    """By FSDP, as it trains any model of transformers; what torchtitan itself trains is refused."""
    size: dict[str, Any] = {"gpus": "2xH100", "global_batch": 4, "space": "torchtitan"}
    name = "qwen3.5-0.8b-text"
    for asked in ({"lora": "8", "lora_targets": "in_proj_qkv,out_proj"}, {"freeze": "embedding"}):
        plan = solve(named(name, **size, **asked)).plan
        assert plan is not None
        assert plan.settings is not None
        assert plan.settings.kernels.implementation == "eager"
    for asked in ({}, {"lora": "0,8"}):
        with pytest.raises(SpecError, match=r"model\.one_plus: found True, but torchtitan"):
            named(name, **size, **asked)


@pytest.mark.slow
@for_each(
    ("name", "asked", "why"),
    [
        ("deepseek-v2-lite", {"fused_loss": "liger"}, "Liger has it for no model with latent att"),
        ("nemotron-h-56b", {"fused_loss": "liger", "lora": "8"}, "no model with Mamba-2"),
        ("nemotron3-nano-30b-a3b", {"lora": "8", "lora_targets": "out_proj"}, "kernels read the"),
        ("nemotron-h-56b", {"lora": "8", "lora_targets": "out_proj"}, "kernels read the weight"),
        ("llama3-8b", {"fused_loss": "liger", "tp": "2"}, "which has replicas alone"),
    ],
)
def test_the_reason_is_that_of_the_plainest_degrees(
    name: str, asked: dict[str, str], why: str
) -> None:
    """Others are refused for their degrees alone."""
    with pytest.raises(PlannerError, match=why):
        named(name, "8xH100", space="torchtitan", global_batch=8, **asked)

"""Every field of settings with every value, on every runtime: a plan is legal just where the
runtime can be told so, or has it so anyway."""

import functools
from collections.abc import Iterator
from dataclasses import replace
from operator import attrgetter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.evaluate import evaluate
from ilp_planner.formats.megatron.plan import job_of_plan
from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.inputs.problem import Problem
from ilp_planner.optimize.solve import solve
from ilp_planner.plan import GroupPlan
from ilp_planner.spaces.training.enumerate.untold import FIELDS, as_it_does, untold, with_fields
from ilp_planner.specs.model import ModelSpec
from ilp_planner.specs.training import (
    CP_COMMUNICATIONS,
    GRAPHS,
    MOMENT_FORMATS,
    MUON_MODES,
    ORDERS,
    PRECISIONS,
    QUANTISED,
    RECOMPUTED,
    SHARDINGS,
    Settings,
)
from tests.examples import examples, for_each
from tests.megatron_cases import small_cluster
from tests.runtime_cases import problems, runtime_problem

BOTH = (False, True)
# Values of every field.
DOMAIN: dict[str, tuple[Any, ...]] = {
    "kernels.deferral_limit": (0, 2),
    "encoder_recompute": ("none", "core", "full"),
    "cp_comm": CP_COMMUNICATIONS,
    "cp_inner": (0, 1, 2),
    "order": ORDERS,
    "precision": tuple(PRECISIONS),
    "vocab_multiple": (1, 64, 128),
    "schedule": ("1f1b", "interleaved-zb", "zb-v", "dualpipe-v"),
    "turn": (0, 1, 3, 8),
    "recompute.modules": (("core_attn",), ("mlp",), ("operators",), RECOMPUTED),
    "offload.layers": (0, 1),
    "offload.modules": ((), ("core_attn",), ("mlp_norm",)),
    "offload.smallest": (2**20, 1),
    "optimizer.name": ("adam", "adamw", "sgd"),
    "optimizer.sharding": SHARDINGS,
    "optimizer.gradient": (4, 2),
    "optimizer.master": (4, 2, 0),
    "optimizer.moments": (8, 4, 2),
    "optimizer.moment_format": MOMENT_FORMATS,
    "optimizer.muon_tp_mode": MUON_MODES,
    "optimizer.muon_steps": (5, 8),
    "optimizer.instances": (1, 2, 4),
    "optimizer.offload": (0.0, 0.5, 1.0),
    "kernels.implementation": ("transformer_engine", "local", "eager"),
    "kernels.attention": ("flash", "unfused"),
    "kernels.loss_kernel": ("te", "native"),
    "kernels.capacity": (0.0, 1.5),
    "kernels.imbalance": (1.0, 1.5),
    "kernels.dispatcher": ("alltoall", "allgather", "flex"),
    "kernels.quantised": ("", *QUANTISED),
    "kernels.number_format": ("", "e4m3", "hybrid", "e2m1"),
    "kernels.exact_first": (0, 1),
    "kernels.exact_last": (0, 1),
    "kernels.graphs": GRAPHS,
    "kernels.graphed": ((), ("attn",), ("moe_router", "moe_preprocess")),
    "tuning.rank": (0, 8),
    "tuning.targets": ((), ("q_proj",), ("linear_qkv",)),
    "tuning.dropout": (0.0, 0.1),
    "tuning.adapters": ("", "fp32"),
    "tuning.base": ("", "nf4"),
    "tuning.frozen": ((), ("embedding",), ("layers:0",)),
}
OTHERS = (
    "cp",
    "ep",
    "etp",
    "recompute.granularity",
    "recompute.method",
    "recompute.layers",
    "carried",
)
"""Degrees and kinds of recomputation, which the checks of a runtime are about, and what is written
back."""
SWITCHES = {
    "sequence_parallel", "overlap_tensor", "overlap_experts", "scatter_sends", "async_tensor",
    "keeps_gathered", "overlap_sends", "recompute.distribute", "optimizer.from_master",
    "optimizer.overlap_offload", "optimizer.keeps_master", "optimizer.overlap_gradients",
    "optimizer.overlap_parameters", "optimizer.packed",
    "kernels.fused_loss", "kernels.fused_dropout", "kernels.fused_activation",
    "kernels.fused_permute", "kernels.grouped_experts", "kernels.pad_to_capacity",
    "kernels.accumulation_fusion", "kernels.fused_softmax", "kernels.deterministic",
    "kernels.loader_mask", "kernels.flash_package", "kernels.quantised_parameters",
    "kernels.fp8_attention",
    "kernels.compiled", "kernels.deferred_output", "kernels.overlap_shared",
}  # fmt: skip

# What each runtime can be told of a plan on two replicas of two tensor-parallel ranks, besides what
# it has: field -> the values that it takes. Of models without experts first.
TITAN: dict[str, tuple[Any, ...]] = {
    "optimizer.name": ("adamw",),
    "optimizer.sharding": ("parameters",),
    "optimizer.offload": (1.0,),
    "kernels.compiled": (True,),
    "kernels.imbalance": (1.5,),
    "recompute.modules": (("core_attn",), ("operators",)),
}
TOLD: dict[str, dict[str, tuple[Any, ...]]] = {
    "torchtitan": {
        **TITAN,
        "overlap_tensor": (True,),
        "optimizer.sharding": ("parameters", "none"),
    },
    "torchtitan@0.2.2": {**TITAN, "overlap_tensor": (True,)},
    "deepspeed": {
        "precision": ("fp16",),
        "recompute.modules": (("core_attn",),),
        "recompute.distribute": (True,),
        "optimizer.name": ("adamw", "sgd"),
        "optimizer.sharding": ("gradients", "parameters"),
        "optimizer.gradient": (2,),
        "optimizer.offload": (1.0,),
        "optimizer.overlap_gradients": (False,),
        "kernels.capacity": (1.5,),
        "kernels.pad_to_capacity": (True,),
        "kernels.imbalance": (1.5,),
    },
}  # fmt: skip
# What decides nothing in such a plan, so that nobody needs to be told.
IDLE = {
    "order", "cp_comm", "kernels.loss_kernel", "tuning.targets", "tuning.dropout",
    "optimizer.muon_tp_mode", "optimizer.muon_steps", "optimizer.packed",
}  # fmt: skip
WITHOUT_EXPERTS = {
    "torchtitan": {"sequence_parallel": (False,), "kernels.graphs": ("full_iteration",)}
}
IDLE_WITHOUT_EXPERTS = {"kernels.fused_permute", "kernels.dispatcher"}
PRECISE = ("precision", "kernels.quantised")  # which a rule of their own is about
REFUSED_BY_CHECKS = {"optimizer.instances"}  # their own tests know when


@functools.cache
def planned(space: str, model: str) -> tuple[Problem[Any], GroupPlan]:
    """Return a problem, and a plan on two replicas of two tensor-parallel ranks."""
    sharding = "gradients" if space.startswith("torchtitan") else "optimizer"
    said = {"dp": 2, "pp": 1, "recompute": "none", "sharding": sharding}
    said |= {"ep": 2} if model == "experts" else {}
    # DeepSpeed has no tensor parallelism with experts
    count = 2 if (space, model) == ("deepspeed", "experts") else 4
    problem = runtime_problem(
        space,
        model,
        cluster=small_cluster(1, count),
        constraints=constraints_of({**said, "tp": count // 2}),
        memory_limit=60 * 2**30,
    )
    plan = solve(problem).plan
    assert plan is not None
    return problem, plan


def values_of(field: str, settings: Settings) -> tuple[Any, ...]:
    """Return the values of a field but the one that settings have."""
    every = BOTH if field in SWITCHES else DOMAIN[field]
    return tuple(value for value in every if value != attrgetter(field)(settings))


def test_every_field_has_a_domain() -> None:
    assert {field.name for field in FIELDS} == SWITCHES | {*DOMAIN} | {*OTHERS}


def legal(problem: Problem[Any], plan: GroupPlan, field: str, value: Any) -> bool | None:
    """Tell whether a plan with another value is legal; None where no settings are so."""
    assert plan.settings is not None
    try:
        settings = with_fields(plan.settings, beside(field) | {field: value})
    except ValueError:
        return None
    found = evaluate(problem, replace(plan, settings=settings))
    if not found.legal:
        said = " ".join(map(str, found.violations)).replace("_", " ")
        names = [*field.replace("_", " ").split("."), *["precision"] * (field in PRECISE)]
        assert any(name in said for name in names), said
    return found.legal


def beside(field: str) -> dict[str, Any]:
    """Return what else settings need so that a field decides something."""
    return {"recompute.granularity": "selective"} if field == "recompute.modules" else {}


@for_each("space", [*TOLD, "megatron"])
def test_a_job_as_its_runtime_does_it_has_nothing_untold(space: str) -> None:
    """What is not as usual stays, where that is asked for, to be refused."""
    problem, plan = planned(space, "dense")
    runtime, base = problem.costs.runtime, problem.costs.settings
    model = ModelSpec(name=problem.model, precision="bf16", architecture=problem.costs.model)
    job = job_of_plan(plan, model, problem.cluster)
    changed = 0
    for field in {*DOMAIN} | SWITCHES:
        for value in values_of(field, job.settings):
            try:
                other = replace(job, settings=with_fields(job.settings, {field: value}))
            except ValueError:
                continue
            own = as_it_does(runtime, other, base)
            assert not any(untold(runtime, own, base)), field
            asked = as_it_does(runtime, other, base, usual=job.settings)
            assert attrgetter(field)(asked.settings) == value
            changed += attrgetter(field)(own.settings) != value
    assert changed


@for_each("model", ["dense", "experts"])
@for_each("space", TOLD)
def test_a_setting_is_legal_where_the_runtime_can_be_told(space: str, model: str) -> None:
    problem, plan = planned(space, model)
    assert plan.settings is not None
    assert evaluate(problem, plan).legal
    idle = IDLE | (IDLE_WITHOUT_EXPERTS if model == "dense" else set())
    idle |= {"sequence_parallel"} if plan.stages[0].tp == 1 else set()
    told = TOLD[space] | (WITHOUT_EXPERTS.get(space, {}) if model == "dense" else {})
    wrong = []
    for field in (one.name for one in FIELDS if one.name not in OTHERS):
        if field in idle | REFUSED_BY_CHECKS:
            continue
        for value in values_of(field, plan.settings):
            found = legal(problem, plan, field, value)
            if found is not None and found != (value in told.get(field, ())):
                wrong.append((field, value, found))
    assert wrong == []


def test_what_no_runtime_but_megatron_is_told() -> None:
    """Megatron-LM has a setting for nearly all."""
    problem, plan = planned("megatron", "dense")
    assert plan.settings is not None
    for field, value in (
        ("keeps_gathered", True),
        ("kernels.compiled", True),
        ("recompute.modules", ("operators",)),
        ("optimizer.master", 0),
        ("precision", "fp32"),
    ):
        assert legal(problem, plan, field, value) is False


def test_a_refusal_names_the_setting_what_was_found_and_what_the_runtime_does() -> None:
    problem, plan = planned("torchtitan", "dense")
    assert plan.settings is not None
    settings = with_fields(plan.settings, {"kernels.fused_softmax": False})
    (broken,) = evaluate(problem, replace(plan, settings=settings)).violations
    assert str(broken) == (
        "plan: fused softmax: found settings.kernels.fused_softmax false, expected true, as "
        "torchtitan 0.3.0 has no setting for it"
    )


# ---- neighbours ---------------------------------------------------------------------------------


def neighbours(plan: GroupPlan) -> Iterator[GroupPlan]:
    """Yield a plan with one setting changed, for every setting and value."""
    assert plan.settings is not None
    for field in (one.name for one in FIELDS if one.name not in OTHERS):
        for value in values_of(field, plan.settings):
            try:
                settings = with_fields(plan.settings, {field: value})
            except ValueError:
                continue
            yield replace(plan, settings=settings)


@pytest.mark.few(1)
@pytest.mark.parametrize("space", ["torchtitan", "torchtitan@0.2.2", "deepspeed"])
@given(data=st.data())
@examples(3, more=8)
def test_no_legal_neighbour_beats_the_bound(space: str, data: st.DataObject) -> None:
    """But for those that the space says its proof is not about."""
    problem = data.draw(problems(space))
    result = solve(problem)
    if result.plan is None:
        return
    for plan in neighbours(result.plan):
        found = evaluate(problem, plan)
        if found.legal and found.iteration_time < result.bound * (1 - 1e-9):
            assert problem.space.outside(problem, plan) is not None

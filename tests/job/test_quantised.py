"""What quantised products hold and keep: Transformer Engine's recipes by hand, and any job."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.job.communication import stage_traffic
from ilp_planner.job.decoder import layer_module
from ilp_planner.job.memory import rank_memory
from ilp_planner.job.modules import Module
from ilp_planner.job.quantised import (
    copies_width,
    most_saved,
    quantised_counts,
    sent_width,
    weight_width,
)
from ilp_planner.specs.gpu_architectures import (
    BLACKWELL,
    CDNA_3,
    CDNA_4,
    HOPPER,
    RTX_BLACKWELL,
    GpuArchitecture,
)
from ilp_planner.specs.training import QUANTISED, Kernels, OptimizerSettings, Recompute, TrainingJob
from tests.examples import for_each
from tests.training_jobs import deepseek, gpt, job, jobs, llama, settings


def with_kernels(case: TrainingJob | None = None, **changes: object) -> TrainingJob:
    case = case or job()
    return replace(case, settings=replace(case.settings, kernels=Kernels(**changes)))


def kept_of(module: Module, name: str) -> dict[str, float]:
    """Return the bytes per number of what a product keeps."""
    if module.name == name:
        return {kept.name: kept.width for kept in module.kept}
    found = (kept_of(child, name) for child in module.children)
    return next((kept for kept in found if kept), {})


@for_each(
    ("recipe", "kept"),
    [("", 2), ("fp8-current", 1), ("fp8-blockwise", 1 + 1 / 32), ("mxfp8", 1 + 1 / 32),
     ("nvfp4", 0.5 + 1 / 16)],
)  # fmt: skip
def test_inputs_are_kept_quantised_but_not_those_that_others_keep(recipe: str, kept: float) -> None:
    layer = layer_module(with_kernels(quantised=recipe), kind=0)
    assert kept_of(layer, "linear_fc2") == {"input": kept}
    assert kept_of(layer, "linear_qkv")["norm's output"] == kept
    assert kept_of(layer, "linear_qkv")["input"] == 2
    assert kept_of(layer, "linear_proj") == {"input": 2}
    assert kept_of(layer, "activation_func") == {"input": 2}


def test_delayed_scaling_keeps_attention_twice() -> None:
    """Save where attention does without its output on the way back."""
    assert kept_of(layer_module(with_kernels(quantised="fp8-delayed"), kind=0), "linear_proj") == {
        "input": 1,
        "output": 2,
    }
    again = with_kernels(job(settings=settings(recompute=Recompute(granularity="selective"))),
                         quantised="fp8-delayed")  # fmt: skip
    assert kept_of(layer_module(again, kind=0), "linear_proj") == {"input": 1}


@for_each(
    ("recipe", "output"), [("fp8-delayed", {"input": 1, "output": 1}), ("mxfp8", {"input": 2})]
)
def test_attention_in_8_bits_keeps_its_inputs_so_and_under_delayed_scaling_its_output(
    recipe: str, output: dict[str, float]
) -> None:
    """Transformer Engine's `FusedAttnFunc` saves q, k, v, and o in 8 bits, or o as the projection
    keeps it; also where the product's output could be read in place."""
    for model in (gpt(), llama()):
        layer = layer_module(with_kernels(job(model), quantised=recipe, fp8_attention=True), kind=0)
        core = kept_of(layer, "core_attention")
        assert core == {"queries": 1, "keys": 1, "values": 1, "log-sum-exp": 4}
        assert kept_of(layer, "linear_proj") == output


@for_each(
    ("recipe", "gpu", "copies"),
    [
        ("fp8-current", HOPPER, 2),
        ("fp8-delayed", BLACKWELL, 1),
        ("fp8-current", RTX_BLACKWELL, 2),
        ("mxfp8", BLACKWELL, 2 + 1 / 16),
        ("nvfp4", BLACKWELL, 1 + 1 / 8),
        ("fp8-blockwise", HOPPER, 2 + 2 * 4 / 128**2),
        ("fp8-current", CDNA_3, 2),
        ("mxfp8", CDNA_4, 2 + 1 / 16),
    ],
)
def test_weights_have_a_copy_for_each_pass(
    recipe: str, gpu: GpuArchitecture, copies: float
) -> None:
    exact = job(gpu_architecture=gpu)
    beside = with_kernels(exact, quantised=recipe)
    alone = with_kernels(exact, quantised=recipe, quantised_parameters=True)
    assert copies_width(beside) == copies
    assert weight_width(beside, 1) == 2 + copies
    assert weight_width(alone, 1) == copies
    assert most_saved(exact) == most_saved(beside) == 0
    assert most_saved(alone) == max(0, 2 - copies)
    rank = 1
    modules = [layer_module(exact, kind=0)] * exact.stages[rank].layers
    numbers, routed = quantised_counts(modules)
    assert routed == 0
    held = {
        name: rank_memory(case, rank).terms["parameters"]
        for name, case in (("exact", exact), ("beside", beside), ("alone", alone))
    }
    assert held["beside"] - held["exact"] == pytest.approx(copies * numbers)
    assert held["alone"] - held["exact"] == pytest.approx((copies - 2) * numbers)


def test_norms_embeddings_routers_and_outputs_stay_exact() -> None:
    case = with_kernels(job(deepseek(), settings=settings(ep=2)), quantised="fp8-current")
    layer = layer_module(case, kind=1)
    numbers, routed = quantised_counts([layer])
    assert routed == layer.expert_parameters
    router = case.model.hidden * case.model.experts.count
    norms = sum(
        weight.count
        for module in _all(layer)
        for weight in module.weights
        if len(weight.shape) == 1
    )
    assert layer.parameters - numbers == router + norms


def _all(module: Module) -> list[Module]:
    return [module, *(inner for child in module.children for inner in _all(child))]


@for_each(("recipe", "sent"), [("fp8-current", 1), ("mxfp8", 2), ("nvfp4", 2)])
def test_parameters_are_gathered_quantised_where_the_recipe_does(recipe: str, sent: int) -> None:
    sharded = job(settings=settings(optimizer=OptimizerSettings(sharding="optimizer")))
    case = with_kernels(sharded, quantised=recipe, quantised_parameters=True)
    assert sent_width(case) == sent
    numbers, _ = quantised_counts([layer_module(case, kind=0)] * case.stages[1].layers)
    gathered = [
        sum(row.size for row in stage_traffic(each, 1) if row.what == "parameters")
        for each in (sharded, case)
    ]
    assert gathered[0] - gathered[1] == (2 - sent) * numbers


def test_sharded_parameters_have_copies_of_the_layers_in_use() -> None:
    sharded = job(settings=settings(optimizer=OptimizerSettings(sharding="parameters")))
    case = with_kernels(sharded, quantised="fp8-current")
    low = with_kernels(sharded, quantised="fp8-current", quantised_parameters=True)
    terms = [rank_memory(each, 1).terms for each in (sharded, case, low)]
    assert terms[0]["parameters"] == terms[1]["parameters"] > terms[2]["parameters"]
    assert terms[1]["gathered"] == 2 * terms[0]["gathered"] == 2 * terms[2]["gathered"]


@given(case=jobs(), recipe=st.sampled_from(sorted(QUANTISED)), low=st.booleans())
def test_any_job_holds_something_else_with_a_recipe(
    case: TrainingJob, recipe: str, low: bool
) -> None:
    """Every rank whose peak is in a layer that is kept; and never less than with 4 bits for 2
    bytes. At other moments, and where layers are computed again whole, what products hold may not
    be part of the peak."""
    exact = with_kernels(case)
    quantised = with_kernels(case, quantised=recipe, quantised_parameters=low)
    for rank in range(case.pp):
        before, after = rank_memory(exact, rank), rank_memory(quantised, rank)
        assert before.parameters == after.parameters
        whole = case.settings.recompute.granularity == "full"
        without = whole or before.moment != "a layer"
        if any(case.stages[number].layers for number in case.stages_of(rank)):
            assert without or before.terms != after.terms
        else:
            assert before.terms == after.terms
        assert after.terms["parameters"] >= before.terms["parameters"] / 4
        assert after.terms["gradients"] == before.terms["gradients"]


@for_each("model", [llama(), gpt(), deepseek()])
def test_activations_shrink_less_than_the_width(model) -> None:  # type: ignore[no-untyped-def]
    exact = with_kernels(job(model))
    for recipe in QUANTISED:
        before, after = (
            rank_memory(case, 1).terms["activations"]
            for case in (exact, with_kernels(exact, quantised=recipe))
        )
        assert before / 2 < after < before

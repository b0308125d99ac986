"""What other decoders than Megatron-LM's have: what each feature adds to parameters, memory and
arithmetic, by hand."""

from dataclasses import replace

import pytest

from ilp_planner.job.decoder import rank_modules
from ilp_planner.job.work import FusedAttention, layer_work
from ilp_planner.specs.decoder import Decoder, Experts, Window
from ilp_planner.specs.parameter_count import tied_parameters
from ilp_planner.specs.training import Recompute
from tests.examples import for_each
from tests.training_jobs import deepseek, gpt, job, llama, settings

HIDDEN, HEADS, KV, HEAD, LAYERS = 256, 16, 8, 16, 8
EXPERTS = Experts(count=4, top_k=2, ffn=64, shared_ffn=64, shared_gate=True)
# Model, and parameters that it has more than the one without the feature.
FEATURES = {
    "norms on both sides": (llama(norm_at="both"), LAYERS * 2 * HIDDEN),
    "norms after only": (llama(norm_at="output"), 0),
    "beside, one norm": (llama(parallel_norms=1), -LAYERS * HIDDEN),
    "beside, two norms": (llama(parallel_norms=2), 0),
    "norms without weights": (llama(norm="bare-layernorm"), -(2 * LAYERS + 1) * HIDDEN),
    "sinks": (llama(sinks=True), LAYERS * HEADS),
    "one scale for all heads": (llama(qk_norm=True, qk_norm_of="heads"),
     LAYERS * (HEADS + KV) * HEAD),
    "queries by their length": (llama(qk_norm=True, qk_norm_of="l2"), 0),
    "bias of the last product": (llama(projection_bias=True), LAYERS * HIDDEN),
    "bias of the logits": (llama(output_bias=True), 1000),
    "gated shared expert": (llama(experts=EXPERTS),
     LAYERS * (5 * 3 * HIDDEN * 64 + 4 * HIDDEN + HIDDEN - 3 * HIDDEN * 704)),
}  # fmt: skip


def whole(model: Decoder) -> int:
    table = model.parameters
    found = sum(table[name].total for name in model.operators)
    return found - tied_parameters(model)


def held(model: Decoder) -> int:
    alone = job(model, tp=1, pp=1, dp=1, layout=None, settings=settings(vocab_multiple=1))
    return sum(module.parameters for module in rank_modules(alone, 0))


def kept(model: Decoder) -> float:
    alone = job(model, tp=1, pp=1, dp=1, layout=None, settings=settings(vocab_multiple=1))
    return sum(module.activations for module in rank_modules(alone, 0))


@for_each(("model", "more"), FEATURES.values())
def test_parameters(model, more):
    assert whole(model) - whole(llama()) == more
    assert held(model) == whole(model)


def test_norms_after_a_layer_keep_their_input():
    """bf16 inputs and a statistic per row in fp32, twice a layer."""
    rows = 512 * 2
    each = rows * (2 * HIDDEN + 4)
    assert kept(llama(norm_at="both")) - kept(llama()) == LAYERS * 2 * each


def test_norms_after_a_layer_are_forgotten_by_none_but_themselves():
    """Recomputed norms forget what they put out; the input of the MLP after them stays."""
    again = Recompute(granularity="selective", modules=("layernorm",))
    model = llama(norm_at="output")
    usual = job(model, tp=1, pp=1, dp=1, layout=None)
    recomputed = replace(usual, settings=replace(usual.settings, recompute=again))
    sizes = [sum(m.activations for m in rank_modules(one, 0)) for one in (usual, recomputed)]
    assert sizes[0] == sizes[1]


def test_attention_and_mlp_that_read_the_same_input_keep_it_once():
    rows = 512 * 2
    one, two = kept(llama(parallel_norms=1)), kept(llama(parallel_norms=2))
    assert kept(llama()) - two == LAYERS * rows * 2 * HIDDEN
    assert two - one == LAYERS * rows * (2 * HIDDEN + 4)


def test_windows_leave_out_pairs_of_tokens():
    """A window of w among s tokens looks at w s - w^2 / 2 pairs of s^2 / 2; chunks at w s / 2."""
    assert Window(size=128).share(512) == pytest.approx((128 * 512 - 128**2 / 2) / (512**2 / 2))
    assert Window(size=128, chunked=True).share(512) == 0.25
    assert Window(size=4096).share(512) == Window(size=512).share(512) == 1.0


def test_windows_cost_by_layers():
    full, model = llama(), llama(window=Window(size=128, full_every=4))
    assert model.window.layers(8) == (True, True, True, False) * 2
    share = 0.25 + 0.75 * Window(size=128).share(512)
    assert model.attention_share == pytest.approx(share)
    needed = full.flops["mlp-layer"] * 8 - full.masked_flops
    fewer = model.flops["mlp-layer"] * 8 - model.masked_flops
    pairs = 8 * 512**2 * 2 * HEADS * HEAD
    assert needed - fewer == pytest.approx(pairs * (1 - share), abs=1)
    assert core_flops(model) == pytest.approx(share * core_flops(full))
    shapes = [kernel.shape for kernel in core(model).forward]
    lengths = [512.0, 512 * Window(size=128).share(512)]
    assert shapes == [FusedAttention(length, HEAD) for length in lengths]


def test_a_window_in_layers_that_are_named():
    window = Window(size=8, windowed_in=(True, False) * 4)
    assert llama(window=window).window.layers(8) == window.windowed_in
    with pytest.raises(ValueError, match="windowed_in must have 8 entries, one per layer, found 1"):
        llama(window=replace(window, windowed_in=(True,)))


def core(model):
    work = layer_work(job(model), kind=0)
    return next(module for module in work if module.core)


def core_flops(model):
    return sum(kernel.flops for way in core(model).ways for kernel in way)


def test_norms_and_additions_that_take_time():
    def names(model):
        return [module.name for module in layer_work(job(model), kind=0)]

    usual = names(llama())
    assert [name for name in names(llama(norm_at="both")) if name not in usual] == [
        "attention_output_norm",
        "mlp_output_norm",
    ]
    assert "input_norm" not in names(llama(norm_at="output"))
    assert set(usual) - set(names(llama(parallel_norms=1))) == {"attention_residual", "mlp_norm"}
    assert set(usual) - set(names(llama(parallel_norms=2))) == {"attention_residual"}


@for_each(
    ("make", "changes", "expected"),
    [
        (llama, {"norm_at": "before"}, "norm_at must be one of input, output, both"),
        (llama, {"activation": "tanh"}, "activation must be one of gelu, silu"),
        (llama, {"parallel_norms": 3}, "parallel_norms must be 0, 1 or 2, found 3"),
        (llama, {"epsilon": 0.0}, "epsilon must be a positive number, found 0"),
        (deepseek, {"norm_at": "output"}, "norm_at and parallel_norms must be input and 0 with"),
        (gpt, {"rotary": llama().rotary}, "rotary must be left out with positions 'learned'"),
    ],
)
def test_nonsense_is_refused(make, changes, expected):
    with pytest.raises(ValueError, match=expected):
        make(**changes)

"""What public models differ in is said in Megatron-LM's arguments and read again, or refused."""

from dataclasses import replace

import pytest

from ilp_planner.base.errors import PlanError, SpecError
from ilp_planner.formats.megatron.arguments import (
    arguments_of_job,
    job_of_arguments,
    read_arguments,
)
from ilp_planner.formats.megatron.launch import export_megatron
from ilp_planner.formats.megatron.notes import unmodelled
from ilp_planner.formats.megatron.rules import check_arguments
from ilp_planner.settings.rules import context_rules
from ilp_planner.spaces.training.enumerate.degrees import default_max_cp
from ilp_planner.spaces.training.enumerate.unfit import misfits
from ilp_planner.specs.decoder import Decoder, Experts, Rotary, Window
from ilp_planner.specs.training import Kernels, Settings
from tests.examples import for_each
from tests.training_jobs import deepseek, gpt, job, llama

ROUTED = {"count": 8, "top_k": 2, "ffn": 96, "shared_ffn": 96}
SAID = {
    "llama 3": (llama(rotary=Rotary(base=500000.0, scaling="llama3", factor=32.0, original=8192)),
     "--rotary-base 500000 --use-rope-scaling --rope-scaling-factor 32.0"),
    "linear": (llama(rotary=Rotary(scaling="linear", factor=4.0)),
     "--rotary-seq-len-interpolation-factor 4"),
    "yarn": (
        llama(
            rotary=Rotary(base=150000.0, scaling="yarn", factor=32.0, original=4096, rounded=False)
        ),
        "--position-embedding-type yarn --rotary-base 150000 "
        "--rotary-scaling-factor 32.0 --yarn-original-max-position-embeddings 4096 "
        "--yarn-beta-fast 32.0 --yarn-beta-slow 1.0 --no-yarn-correction-range-round-to-int",
    ),
    "yarn of latent attention": (
        deepseek(rotary=Rotary(scaling="yarn", factor=40.0, original=4096, magnitude_all=1.0)),
        "--rotary-scaling-factor 40.0 --mscale-all-dim 1.0",
    ),
    "partial": (llama(rotary=Rotary(share=0.5), epsilon=1e-6, one_plus=True),
     "--norm-epsilon 1e-06 --apply-layernorm-1p --rotary-percent 0.5"),
    "some layers without positions": (llama(rotary=Rotary(none_every=4)), "--no-rope-freq 4"),
    "squared": (gpt(activation="relu2", bias=False), "--squared-relu"),
    "windows": (llama(window=Window(size=128, full_every=2), sinks=True),
     "--softmax-type learnable --window-size 127,0 --window-attn-skip-freq 2"),
    "windows in some": (llama(window=Window(size=64, windowed_in=(True, *(False,) * 7))),
     "--window-size 63,0 --window-attn-skip-freq ([1]+[0]*7)"),
    "queries by their length": (llama(qk_norm=True, qk_norm_of="l2"), "--qk-l2-norm"),
    "clamped": (llama(activation="quick_gelu", clamp=7.0, offset=1.0),
     "--quick-geglu --activation-func-clamp-value 7.0 --glu-linear-offset 1.0"),
    "balanced by a bias": (
        llama(experts=Experts(**ROUTED, score="sigmoid", correction=True, scale=2.5)),
        "--moe-router-score-function sigmoid --moe-router-enable-expert-bias "
        "--moe-router-topk-scaling-factor 2.5",
    ),
    "gated shared expert": (llama(experts=Experts(**ROUTED, shared_gate=True, normed=False)),
     "--moe-router-pre-softmax --moe-shared-expert-gate"),
}  # fmt: skip


def alone(model: Decoder):
    return job(model, tp=1, pp=1, dp=1, layout=None, settings=Settings(kernels=Kernels()))


@for_each(("model", "line"), SAID.values())
def test_there_and_back(model, line):
    args = arguments_of_job(alone(model))
    said = " ".join(args.argv)
    assert all(f"--{part.strip()}" in said for part in line.split("--")[1:])
    assert not check_arguments(args)
    again = read_arguments(args.argv, 1)
    assert job_of_arguments(again).model == model
    assert not [note for note in unmodelled(again) if "window" in note or "softmax" in note]


REFUSED = {
    "norm: found bare-layernorm, expected layernorm or rmsnorm": llama(norm="bare-layernorm"),
    "norm_at: found both, expected input": llama(norm_at="both"),
    "parallel_norms: found 2, expected 0": llama(parallel_norms=2),
    "qk_norm_of: found heads, expected head or l2": llama(qk_norm=True, qk_norm_of="heads"),
    "output_softcap: found 30.0, expected none": llama(output_softcap=30.0),
    "activation: found gelu, gated, expected silu or quick_gelu": llama(activation="gelu"),
    "window.chunked: found true, expected false": llama(window=Window(size=64, chunked=True)),
    "rotary.scaling: found longrope, expected linear or llama3 or yarn": llama(
        rotary=Rotary(scaling="longrope", factor=32.0)
    ),
    "rotary.original: found 4096, expected 8192": llama(
        rotary=Rotary(scaling="llama3", factor=8.0, original=4096)
    ),
    "rotary.windowed_base: found 10000.0, expected that of all layers (1e+06)": llama(
        rotary=Rotary(base=1e6, windowed_base=10000.0)
    ),
}


@for_each(("message", "model"), REFUSED.items())
def test_what_megatron_has_no_argument_for(message, model):
    with pytest.raises(PlanError) as error:
        export_megatron(alone(model), "x")
    wanted = f"Megatron has no arguments for {message}: Megatron-LM has no other"
    assert str(error.value) == wanted
    with pytest.raises(SpecError):
        arguments_of_job(alone(model))


def test_betas_of_latent_attention_are_noted():
    rotary = Rotary(scaling="yarn", factor=32.0, original=4096, fast=1.0)
    notes = export_megatron(alone(deepseek(rotary=rotary)), "x").notes
    assert "rotary.slow, rotary.fast: 1, 1; Megatron-LM has 1, 32 with latent attention" in notes[0]
    assert not list(misfits(deepseek(rotary=rotary)))


@pytest.mark.parametrize("changes", [{"window": Window(size=64)}, {"sinks": True}])
def test_windows_and_sinks_are_not_computed_around_a_ring(changes):
    ring = job(llama(**changes), tp=1, pp=1, dp=1, layout=None, settings=Settings(cp=2))
    (finding,) = check_arguments(arguments_of_job(ring))
    assert str(finding).startswith("--cp-comm-type: found p2p with --")
    assert finding.fix == "--cp-comm-type a2a"
    exchanged = replace(ring, settings=Settings(cp=2, cp_comm="a2a"))
    assert not check_arguments(arguments_of_job(exchanged))
    assert list(context_rules(ring))
    assert not list(context_rules(exchanged))
    assert not list(context_rules(replace(ring, tp=2, settings=Settings())))
    assert default_max_cp(ring.settings.kernels) > 1
    assert default_max_cp(Kernels(attention="unfused")) == 1

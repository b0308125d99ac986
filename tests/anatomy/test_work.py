"""Arithmetic of the modules against the closed formulas of the model."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.anatomy.work import (
    embedding_work,
    layer_work,
    output_work,
    prediction_work,
    step_traffic,
)
from ilp_planner.specs.decoder import Decoder, Experts, LatentAttention
from ilp_planner.specs.pipeline_layout import split_layout
from ilp_planner.specs.training import Kernels, OptimizerSettings, Settings, TrainingJob

DENSE = Decoder(
    layers=2, hidden=512, heads=8, kv_heads=4, sequence=1024, vocab=4096, ffn=1536, gated=True,
    bias=False,
)  # fmt: skip
MIXTURE = dataclasses.replace(DENSE, experts=Experts(count=8, top_k=2, ffn=256, shared_ffn=128))
LATENT = dataclasses.replace(
    DENSE, latent=LatentAttention(key_value_rank=64, key=48, rotary=16, value=48, query_rank=96)
)


def job(model, *, tp=1, cp=1, ep=1, batch=2, attention="unfused", **settings):
    return TrainingJob(
        model=model,
        micro_batch=batch,
        global_batch=batch,
        tp=tp,
        dp=ep,
        layout=split_layout([model.layers], prediction_layers=model.prediction_layers),
        settings=Settings(
            cp=cp,
            ep=ep,
            sequence_parallel=tp > 1,
            kernels=Kernels(attention=attention, grouped_experts=True),
            **settings,
        ),
    )


def flops(modules, way="forward"):
    return sum(kernel.flops for module in modules for kernel in getattr(module, way))


@pytest.mark.parametrize("model", [DENSE, MIXTURE, LATENT], ids=["dense", "experts", "latent"])
@pytest.mark.parametrize(("tp", "cp"), [(1, 1), (4, 1), (2, 2)])
def test_forward_arithmetic_is_the_model_s(model, tp, cp):
    found = job(model, tp=tp, cp=cp)
    experts = model.experts is not None
    whole = model.flops["experts-layer" if experts else "mlp-layer"] * found.micro_batch
    ranks = tp * cp
    mine = flops(layer_work(found, experts=experts)) * ranks
    assert mine == pytest.approx(whole)
    assert flops(output_work(found)) * ranks == pytest.approx(
        2 * model.sequence * model.hidden * found.padded_vocab * found.micro_batch
    )
    assert flops(embedding_work(found)) == 0


def test_backward_is_twice_forward_but_for_flash_attention():
    plain = layer_work(job(DENSE), experts=False)
    assert flops(plain, "backward") == pytest.approx(2 * flops(plain))
    flash = layer_work(job(DENSE, attention="flash"), experts=False)
    (core,) = [module for module in flash if module.core]
    (old,) = [module for module in plain if module.core]
    assert flops([core]) == pytest.approx(flops([old]) / 2)  # the causal half
    assert flops([core], "backward") == pytest.approx(2.5 * flops([core]))
    assert sum(k.traffic for k in core.forward) < sum(k.traffic for k in old.forward) / 2


def test_expert_parallelism_shares_weights_not_arithmetic():
    alone, spread = (layer_work(job(MIXTURE, ep=ep), experts=True) for ep in (1, 4))
    assert flops(spread) == pytest.approx(flops(alone))
    traffic = [sum(k.traffic for m in work for k in m.forward) for work in (alone, spread)]
    assert traffic[1] < traffic[0]


def test_experts_one_by_one_are_as_much_work_in_more_kernels():
    grouped = job(MIXTURE)
    kernels = dataclasses.replace(grouped.settings.kernels, grouped_experts=False)
    settings = dataclasses.replace(grouped.settings, kernels=kernels)
    single = dataclasses.replace(grouped, settings=settings)
    both = [layer_work(each, experts=True) for each in (grouped, single)]
    assert flops(both[0]) == pytest.approx(flops(both[1]))
    counts = [sum(len(m.forward) for m in work) for work in both]
    assert counts[1] - counts[0] == 3 * 7  # fc1, activation and fc2 of 8 experts


def test_a_prediction_layer_is_a_layer_and_an_output():
    model = dataclasses.replace(DENSE, prediction_layers=1)
    found = job(model)
    parts = flops(layer_work(found, experts=False)) + flops(output_work(found))
    joined = 2 * 2 * model.sequence * 2 * model.hidden * model.hidden
    assert flops(prediction_work(found)) == pytest.approx(parts + joined)


@given(batch=st.integers(1, 16))
def test_work_grows_with_samples(batch):
    one, more = (layer_work(job(DENSE, batch=n), experts=False) for n in (1, batch))
    assert flops(more) == pytest.approx(batch * flops(one))


@pytest.mark.parametrize(
    ("precision", "optimizer", "expected"),
    [("bf16", OptimizerSettings(), 34), ("fp32", OptimizerSettings(master=0), 28)],
)
def test_the_optimizer_step_reads_and_writes(precision, optimizer, expected):
    assert step_traffic(Settings(precision=precision, optimizer=optimizer)) == expected


def test_weight_gradients_are_added_up_in_a_pass_of_their_own_unless_that_is_fused():
    fused = job(DENSE)
    kernels = dataclasses.replace(fused.settings.kernels, accumulation_fusion=False)
    alone = dataclasses.replace(
        fused, settings=dataclasses.replace(fused.settings, kernels=kernels)
    )
    for before, after in zip(
        layer_work(fused, experts=False), layer_work(alone, experts=False), strict=True
    ):
        assert after.forward == before.forward
        if not before.name.startswith(("linear", "mlp_fc")):
            assert after == before
            continue
        *_, product, added = after.backward
        assert before.backward[-1].shape == product.shape._replace(summed=4.0)
        # The product writes 2 bytes; the pass reads them, and reads and writes 4 bytes.
        weights = (before.backward[-1].traffic - product.traffic) / (2 * 4 - 2)
        assert added == (0.0, weights * (2 + 2 * 4), None)

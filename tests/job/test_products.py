"""Shards, norms and products, and what of them is computed again."""

from dataclasses import replace
from typing import Any

import pytest

from ilp_planner.job.attention import norm_module, normed_product, product, product_input
from ilp_planner.job.modules import Kept, Module, Weight
from ilp_planner.job.recompute import (
    checkpoint,
    forget,
    keep_input,
    loader_mask,
    recomputed_layers,
    recomputed_parts,
    recomputes,
    remembering,
)
from ilp_planner.job.shard import part, sequence_parallel, shard_of
from ilp_planner.specs.training import Kernels, Recompute, TrainingJob
from tests.training_jobs import gpt, job, llama, settings


def of_recompute(**recompute: Any) -> TrainingJob:
    return job(settings=settings(recompute=Recompute(**recompute)))


def test_sizes_of_a_shard() -> None:
    """512 tokens, 16 heads and 8 of keys on two ranks of tensor and two of context parallelism."""
    found = shard_of(job(settings=settings(cp=2)))
    assert (found.tokens, found.region, found.kept, found.batch) == (256, 128, 128, 2)
    assert (found.heads, found.kv_heads, found.tp, found.width) == (8, 4, 2, 2)
    assert (found.wide, found.narrow) == ((256, 2, 256), (128, 2, 256))
    assert (found.column_input(7), found.columns(7)) == ((128, 2, 7), (256, 2, 4))
    kept = shard_of(job(settings=settings(keeps_gathered=True)))
    assert (kept.tokens, kept.region, kept.kept) == (512, 256, 512)
    assert shard_of(job(llama(kv_heads=1))).kv_heads == 1
    assert [part(7, ways) for ways in (1, 2, 3, 7)] == [7, 4, 3, 1]


def test_one_rank_has_no_sequence_parallelism() -> None:
    assert sequence_parallel(job())
    assert not sequence_parallel(job(tp=1))
    assert not sequence_parallel(job(settings=settings(sequence_parallel=False)))
    assert shard_of(job(tp=1)).region == 512


@pytest.mark.parametrize(("model", "names", "rows"), [(llama(), 1, 1), (gpt(), 2, 2)])
def test_a_norm_keeps_its_input_and_statistics_of_each_row(
    model: Any, names: int, rows: int
) -> None:
    case = job(model)
    norm = norm_module("norm", case, (3, 5, 7), why="input", output="read by two")
    assert [(w.name, w.shape) for w in norm.weights] == [("weight", (7,)), ("bias", (7,))][:names]
    assert [(k.name, k.shape, k.width) for k in norm.kept] == [
        ("input", (3, 5, 7), 2),
        ("statistics", (rows, 3, 5), 4),
        ("output", (3, 5, 7), 2),
    ]
    assert len(norm_module("norm", case, (3, 5, 7), why="input").kept) == 2


def test_a_product_has_a_weight_and_perhaps_a_bias() -> None:
    plain = product("fc", rows=3, columns=5, bias=False)
    assert [(w.name, w.shape, w.expert) for w in plain.weights] == [("weight", (3, 5), False)]
    both = product("fc", rows=3, columns=5, bias=True, expert=True)
    assert [(w.name, w.shape, w.expert) for w in both.weights] == [
        ("weight", (3, 5), True),
        ("bias", (3,), True),
    ]
    low = job(settings=settings(kernels=Kernels(quantised="fp8-current")))
    assert product_input(low, (4,)).width == 1
    assert product_input(low, (4,), exact=True).width == 2
    assert product_input(low, (4,)).why == "for the weight's gradient"


def test_a_norm_is_merged_into_the_product_that_alone_reads_it() -> None:
    """Of Transformer Engine; both keep what they would by themselves."""
    fc = product("fc", rows=3, columns=256, bias=False)
    engine = job()
    (merged,) = normed_product(engine, fc, (256, 2, 256), norm="norm", why="input")
    assert [w.name for w in merged.weights] == ["layer_norm_weight", "weight"]
    assert [k.name for k in merged.kept] == ["input", "statistics", "norm's output"]
    local = job(settings=settings(kernels=Kernels(implementation="local", attention="unfused")))
    norm, after = normed_product(local, fc, (256, 2, 256), norm="norm", why="input")
    assert (norm.name, [k.name for k in norm.kept]) == ("norm", ["input", "statistics"])
    assert ([w.name for w in after.weights], [k.name for k in after.kept]) == (
        ["weight"],
        ["input"],
    )
    behind = job(llama(norm_at="output"))
    (alone,) = normed_product(behind, fc, (256, 2, 256), norm="norm", why="the residual")
    assert [(k.name, k.shape, k.why) for k in alone.kept] == [
        ("input", (256, 2, 256), "the residual")
    ]


def test_parts_that_layers_with_and_without_experts_have() -> None:
    assert {*recomputed_parts(kind=1)} == {
        "core_attn", "mla_up_proj", "layernorm", "moe", "moe_act", "shared_experts",
    }  # fmt: skip
    assert {*recomputed_parts(kind=0)} == {"core_attn", "mla_up_proj", "layernorm", "mlp"}


def test_how_many_layers_are_computed_again() -> None:
    """All, or the first ones of every stage; parts of layers are no whole ones."""
    uniform = of_recompute(granularity="full", method="uniform", layers=2)
    block = of_recompute(granularity="full", method="block", layers=2)
    some = of_recompute(granularity="selective", modules=("mlp",))
    assert [recomputed_layers(uniform, n) for n in (0, 1, 5)] == [0, 1, 5]
    assert [recomputed_layers(block, n) for n in (0, 1, 5)] == [0, 1, 2]
    assert [recomputed_layers(some, n) for n in (0, 1, 5)] == [0, 0, 0]
    assert recomputes(some, "mlp")
    assert not recomputes(some, "layernorm")
    assert not recomputes(uniform, "mlp")
    assert remembering(some).settings.recompute == Recompute()


def test_a_layer_is_computed_again_from_its_input() -> None:
    """Of which a rank has its tokens, or a part of them where it is divided besides."""
    full = {"granularity": "full", "method": "uniform", "layers": 1}
    assert checkpoint(of_recompute(**full)).shape == (256, 2, 256)
    divided = Recompute(**full, distribute=True)
    case = job(settings=settings(recompute=divided, sequence_parallel=False))
    assert checkpoint(case).shape == (256, 2, 256)
    assert checkpoint(replace(case, tp=1)).shape == (512, 2, 256)
    assert checkpoint(case).size == 2 * 256 * 2 * 256


def test_the_loader_s_mask_is_of_all_pairs_of_tokens() -> None:
    case = job(settings=settings(cp=2, kernels=Kernels(loader_mask=True)))
    (mask,) = loader_mask(case)
    assert (mask.shape, mask.width) == ((2, 1, 256, 512), 1)
    assert loader_mask(job()) == ()


def test_what_is_forgotten_keeps_its_weights() -> None:
    one, two = (Kept(name=name, shape=(3,), width=2) for name in ("input", "other"))
    inner = Module(name="inner", weights=(Weight(name="w", shape=(4,)),), kept=(two,), repeat=2)
    outer = Module(name="outer", kept=(one, two), children=(inner,))
    assert outer.activations == 12 + 2 * 6
    assert forget(outer).activations == 0
    assert forget(outer, two).activations == 6
    assert keep_input(outer).kept == (one,)
    assert keep_input(outer).activations == 6
    assert forget(outer).parameters == outer.parameters == 8
    assert (outer.expert_parameters, inner.times(3).parameters) == (0, 12)
    expert = Module(name="e", weights=(Weight(name="w", shape=(5,), expert=True),), repeat=3)
    both = Module(name="both", children=(inner, expert), repeat=2)
    assert (both.parameters, both.expert_parameters) == (2 * (8 + 15), 30)

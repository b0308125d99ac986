"""Recomputation by operators: between none and that of whole layers, in bytes and in seconds."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.analysis.recomputation import extra_flops
from ilp_planner.job.decoder import layer_module
from ilp_planner.job.memory import rank_memory
from ilp_planner.job.messages import layer_messages, recomputed_messages
from ilp_planner.job.operators import outputs_kept, outputs_needed, shares_again, shares_kept
from ilp_planner.spaces.training.enumerate.recomputations import BY_OPERATORS, FULL, NOTHING
from ilp_planner.specs.decoder import Decoder, Experts, LatentAttention
from ilp_planner.specs.training import OPERATORS, Recompute, TrainingJob
from tests.examples import examples, for_each
from tests.training_jobs import deepseek, job, llama
from tests.training_jobs import settings as usual

MIXTURE = Experts(count=8, top_k=2, ffn=96)
MODELS = (llama(), llama(qk_norm=True, kv_heads=4), llama(experts=MIXTURE), deepseek())


def again(case: TrainingJob, recompute: Recompute) -> TrainingJob:
    """Return a job that computes this again."""
    return replace(case, settings=replace(case.settings, recompute=recompute))


@examples(40)
@given(
    model=st.sampled_from(MODELS),
    tp=st.sampled_from((1, 2)),
    cp=st.sampled_from((1, 2)),
    ep=st.sampled_from((1, 2)),
    size=st.sampled_from((1, 4)),
)
def test_it_is_between_none_and_all(model, tp, cp, ep, size):
    """A layer keeps more than its input, and with one sample in flight a rank needs more than with
    whole layers computed again; less arithmetic is repeated, and fewer messages."""
    ep = ep if model.experts else 1
    settings = usual(cp=cp, ep=ep, sequence_parallel=tp > 1)
    case = job(model, tp=tp, micro_batch=size, settings=settings)
    none, some, full = (again(case, one) for one in (NOTHING, BY_OPERATORS, FULL))
    experts = model.expert_layers[-1]
    kept = layer_module(some, experts).activations
    assert layer_module(some, experts).parameters == layer_module(none, experts).parameters
    assert kept == sum(one.size for one in outputs_kept(some, experts))
    assert kept > layer_module(full, experts, recomputed=True).activations
    assert 0 < outputs_needed(some, experts) < kept
    assert rank_memory(full, 0).peak < rank_memory(some, 0).peak
    assert 0 == extra_flops(none) < extra_flops(some) < extra_flops(full)
    sent = recomputed_messages(some, experts)
    assert (
        set(sent) <= set(recomputed_messages(full, experts)) == set(layer_messages(some, experts))
    )
    if tp > 1:
        assert "self_attention.linear_proj" not in sent


def test_a_large_layer_keeps_less_than_without():
    """Of Llama-3 8B's layer: input, queries, keys, values, attention, gate and what the MLP gives,
    against three times the MLP's width and five times the model's besides."""
    case = job(llama(hidden=4096, heads=32, kv_heads=8, ffn=14336, sequence=8192), tp=1)
    tokens = case.micro_batch * 8192
    kept = layer_module(again(case, BY_OPERATORS), False).activations
    wide = 4096 + 4096 + 2 * 1024 + 4096 + 14336 + 4096
    assert kept == tokens * (2 * wide + 4 * 32)
    assert kept < 0.7 * layer_module(case, False).activations
    assert rank_memory(again(case, BY_OPERATORS), 0).peak < rank_memory(case, 0).peak


def test_operators_stand_alone():
    with pytest.raises(ValueError, match="modules must be operators alone or without it"):
        Recompute(granularity="selective", modules=("mlp", OPERATORS))


ROWS = 512 * 2  # tokens of two samples
LATENT = LatentAttention(query_rank=48, key_value_rank=32, key=16, rotary=8, value=16)
NARROW_KEYS = ("narrow keys and values", "linear_kv_down_proj", 1.0, 40)
DENSE_MLP = [("gate", "mlp_fc1", 0.5, 352), ("down", "mlp_fc2", 1.0, 256)]
QUERIES = ("queries", "linear_qkv", 0.5, 128)
KEYS, VALUES = (("keys", "linear_qkv", 0.25, 64), ("values", "linear_qkv", 0.25, 64))


@for_each(
    ("model", "experts", "both", "either"),
    [
        # of queries, keys, values, projection, gate, up and down every other one, and where
        # the first three are one
        (llama(), False, [QUERIES, VALUES, *DENSE_MLP], [KEYS]),
        (llama(gated=False), False, [QUERIES, VALUES, ("up", "mlp_fc1", 1.0, 352)], [KEYS]),
        # with biases these count for none
        (
            llama(qkv_bias=True),
            False,
            [QUERIES, KEYS, VALUES, ("projection", "linear_proj", 1.0, 256),
             ("up", "mlp_fc1", 0.5, 352)],
            [],
        ),
        (
            llama(latent=LATENT, kv_heads=16),
            False,
            [("narrow queries", "linear_q_down_proj", 1.0, 48), NARROW_KEYS,
             ("projection", "linear_proj", 1.0, 256), ("up", "mlp_fc1", 0.5, 352)],
            [],
        ),
        (
            llama(latent=replace(LATENT, query_rank=0), kv_heads=16),
            False,
            [
                ("queries", "linear_q_proj", 1.0, 8 * 24),
                ("keys and values", "linear_kv_up_proj", 1.0, 8 * 32),
                *DENSE_MLP,
            ],
            [],
        ),
        # products of routed experts are none
        (llama(experts=MIXTURE), True, [QUERIES, VALUES], [KEYS]),
        (
            llama(experts=replace(MIXTURE, shared_ffn=192)),
            True,
            [QUERIES, VALUES, ("gate", "shared_experts_fc1", 0.5, 96),
             ("down", "shared_experts_fc2", 1.0, 256)],
            [KEYS],
        ),
    ],
)  # fmt: skip
def test_every_other_product_is_kept(
    model: Decoder,
    experts: bool,
    both: list[tuple[str, str, float, int]],
    either: list[tuple[str, str, float, int]],
) -> None:
    """What either release keeps is kept, what either makes again is made again. As (name, module,
    share of it, columns on a rank)."""
    case = again(job(model), BY_OPERATORS)
    found = {one.name: one for one in outputs_kept(case, experts) if one.why == "of a product"}
    assert {name: one.shape for name, one in found.items()} == {
        name: (512, 2, columns) for name, _, _, columns in (*both, *either)
    }
    assert {one.width for one in found.values()} == {2}
    shares: dict[str, float] = {"core_attention": 1.0}
    for _, module, share, _ in both:
        shares[module] = shares.get(module, 0.0) + share
    scattered = ("self_attention.linear_proj", "mlp.linear_fc2", "mlp.shared_experts.linear_fc2")
    assert shares_kept(case, experts) == shares | dict.fromkeys(scattered, 1.0)
    alone = replace(case, tp=1)
    assert {*shares_kept(alone, experts)} == {*shares}
    made = shares_again(case, experts)[OPERATORS]
    assert [made(name) for name in shares] == [1 - share for share in shares.values()]
    assert made("input_layernorm") == 1
    read = 128 + sum(columns for _, module, _, columns in both if module.endswith("_fc1"))
    assert outputs_needed(case, experts) == ROWS * (2 * read + 4 * 8)


@pytest.mark.parametrize("cp", [1, 2])
def test_outputs_of_attention_and_of_messages_are_kept(cp: int) -> None:
    """Each step around a ring is an operator; reduce-scatters are with sequence parallelism."""
    for tp in (1, 2):
        settings = usual(cp=cp, sequence_parallel=tp > 1)
        case = again(job(tp=tp, settings=settings), BY_OPERATORS)
        found = {one.name: one.size for one in outputs_kept(case, False)}
        rows = ROWS // cp
        assert found["attention"] == cp * 2 * rows * 256 / tp
        assert found["log-sum-exp"] == cp * 4 * rows * 16 / tp
        scattered = {name: size for name, size in found.items() if "scattered" in name}
        narrow = 2 * rows * 256 / tp
        names = ("attention, scattered", "MLP, scattered")
        assert scattered == (dict.fromkeys(names, narrow) if tp > 1 else {})


@for_each(("ep", "etp", "kept"), [(1, 1, False), (2, 1, True), (4, 1, True), (4, 2, False)])
def test_exchanged_tokens_are_kept(ep: int, etp: int, kept: bool) -> None:
    """Each to two experts, there and back; gathered ones are made again as a whole."""
    model = llama(experts=MIXTURE)
    case = again(job(model, dp=4, settings=usual(ep=ep, etp=etp)), BY_OPERATORS)
    names = ("mlp.dispatch", "mlp.combine")
    shares = shares_kept(case, True)
    assert [shares.get(name) for name in names] == [1.0 if kept else None] * 2
    sent = {one.name: one.size for one in outputs_kept(case, True) if "tokens" in one.name}
    size = 2 * ROWS / 2 * 2 * 256
    both = ("tokens received", "tokens returned")
    assert sent == (dict.fromkeys(both, size) if ep > 1 else {})
    assert not any("tokens" in one.name for one in outputs_kept(case, False))

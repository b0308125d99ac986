"""Recomputation by operators: between none and that of whole layers, in bytes and in seconds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.analysis.recomputation import extra_flops
from ilp_planner.anatomy.decoder import layer_module
from ilp_planner.anatomy.memory import rank_memory
from ilp_planner.anatomy.messages import layer_messages, recomputed_messages
from ilp_planner.anatomy.operators import outputs_kept, outputs_needed
from ilp_planner.spaces.megatron.recomputations import BY_OPERATORS, FULL, NOTHING
from ilp_planner.specs.decoder import Experts
from ilp_planner.specs.training import OPERATORS, Recompute
from tests.examples import examples
from tests.training_jobs import deepseek, job, llama
from tests.training_jobs import settings as usual

if TYPE_CHECKING:
    from ilp_planner.specs.training import TrainingJob

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

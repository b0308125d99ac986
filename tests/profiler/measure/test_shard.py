"""Shards: which layers are alike, and which models and degrees are measured."""

from dataclasses import replace
from pathlib import Path

import pytest

import ilp_planner
from ilp_planner.base.errors import UsageError
from ilp_planner.costs.profiles.measurements import layer_range
from ilp_planner.profiler.measure.decoder_job import decoder_of, job_of
from ilp_planner.specs.decoder import Experts, LatentAttention
from ilp_planner.specs.model_reader import read_model
from tests.profiler.measure.small_decoders import LLAMA, MIXED, PLAIN, spec

ROOT = Path(ilp_planner.__file__).parent.parent


def test_a_model_of_one_kind_of_layers_has_three_rows():
    runs = job_of(PLAIN, tp=1, micro_batch=1, dtype="fp32").runs
    assert [(run.kind, run.layers) for run in runs] == [
        ("embedding", "0"),
        ("layer", "1-3"),
        ("head", "4"),
    ]


@pytest.mark.parametrize("every", [1, 2, 3])
@pytest.mark.parametrize("first", [0, 1, 2])
def test_runs_cover_every_layer_once(first, every):
    experts = Experts(count=4, top_k=2, ffn=16, dense_first=first, every=every)
    model = replace(LLAMA, layers=7, experts=experts)
    job = job_of(model, tp=1, micro_batch=1, dtype="fp32")
    runs = job.runs
    covered = [layer for run in runs for layer in layer_range(run.layers)]
    assert covered == list(range(model.layers + 2))
    kinds = {layer: run.kind for run in runs for layer in layer_range(run.layers)}
    assert [kinds[i + 1] == "layer with experts" for i in range(7)] == list(model.expert_layers)
    assert set(job.kinds) == set(kinds.values())


def test_other_samples_need_more_positions():
    longer = decoder_of(spec(), 64)
    assert (longer.sequence, longer.max_position_embeddings) == (64, 64)
    shorter = decoder_of(spec(), 8)
    assert (shorter.sequence, shorter.max_position_embeddings) == (8, 16)


def test_a_degree_that_does_not_divide_is_refused_with_those_that_do():
    with pytest.raises(UsageError, match=r"tp: found 4, expected a divisor of 2: 1, 2$"):
        job_of(LLAMA, tp=4, micro_batch=1, dtype="bf16")
    assert job_of(MIXED, tp=2, micro_batch=1, dtype="bf16").tp == 2


def test_what_is_not_measured_is_named():
    with pytest.raises(UsageError, match="found family 't5', expected gpt or decoder"):
        decoder_of(read_model(ROOT / "models" / "t5-770m.toml"))


def test_channels_that_are_turned_are_pairs():
    latent = LatentAttention(key_value_rank=12, key=8, rotary=3, value=8)
    odd = replace(spec(), architecture=replace(LLAMA, latent=latent))
    with pytest.raises(UsageError, match=r"latent.rotary: found 3 channels, expected an even"):
        decoder_of(odd)
    with pytest.raises(UsageError, match="head: found 5 channels, expected an even number"):
        decoder_of(replace(odd, architecture=replace(LLAMA, head=5)))
    learned = replace(PLAIN, head=5)
    assert decoder_of(replace(odd, architecture=learned)) == learned

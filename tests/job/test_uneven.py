"""Shares of whole matrices: by hand, and beside Megatron's own packing."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.job.decoder import layer_module
from ilp_planner.job.parts import memory_parts
from ilp_planner.job.states import stepped_as_matrix, trained_weights
from ilp_planner.job.uneven import fullest, slower, uneven_bytes
from ilp_planner.specs.decoder import Experts
from ilp_planner.specs.pipeline_layout import split_layout
from ilp_planner.specs.training import MUON, OptimizerSettings, Settings, TrainingJob
from tests.examples import examples, for_each
from tests.training_jobs import gpt, llama

QKV, PROJECTION, UP, DOWN = 512 * 256, 256 * 256, 1408 * 256, 256 * 704  # numbers of a layer
LAYER = QKV + PROJECTION + UP + DOWN


def job_of(
    name: str = MUON, sharding: str = "optimizer", *, packed: bool = True, **changes: Any
) -> TrainingJob:
    moments = 4 if name == MUON else 8
    optimizer = OptimizerSettings(name=name, moments=moments, sharding=sharding, packed=packed)
    own = {"model": llama(), "micro_batch": 1, "global_batch": 1024, **changes}
    return TrainingJob(settings=Settings(optimizer=optimizer), **own)


@for_each(("name", "sharding"), [("adam", "optimizer"), ("adam", "none"), (MUON, "none")])
def test_only_muon_with_the_distributed_optimizer_has_whole_matrices(
    name: str, sharding: str
) -> None:
    job = job_of(name, sharding, dp=64)
    assert uneven_bytes(job) == {}
    assert slower(job, expert=False) == 1
    assert "uneven shares" not in memory_parts(job).fixed


@for_each("dp", [1, 2, 16])
def test_shares_are_even_with_many_matrices(dp: int) -> None:
    """8 layers of 4 matrices, the largest half of a layer."""
    assert fullest(job_of(dp=dp), 1, expert=False) == (8 * LAYER / dp, 8 * LAYER / dp)
    assert uneven_bytes(job_of(dp=dp)) == {}


def test_one_matrix_is_the_fullest_share() -> None:
    """Of 64 replicas, most have nothing to step, and each keeps room for it."""
    job = job_of(dp=64)
    assert fullest(job, 1, expert=False) == (UP, 8 * LAYER / 64)
    assert slower(job, expert=False) == UP / (8 * LAYER / 64)
    room, states = (2 + 4) * (64 * UP - 8 * LAYER), (4 + 4) * (UP - 8 * LAYER / 64)
    assert uneven_bytes(job) == {"uneven shares": room + states}
    assert memory_parts(job).fixed["uneven shares"] == room + states


def test_buffers_that_are_not_packed_have_no_room_to_spare() -> None:
    """The states of the fullest share are there all the same, once for all stages of a rank."""
    job = job_of(dp=64, packed=False)
    states = (4 + 4) * (UP - 8 * LAYER / 64)
    assert uneven_bytes(job) == {"uneven shares": states}
    assert slower(job, expert=False) == slower(job_of(dp=64), expert=False)


def test_every_virtual_stage_has_shares_of_its_own() -> None:
    own = {"model": llama(layers=16), "pp": 2, "dp": 16}
    one, several = job_of(**own), job_of(**own, layout=split_layout([2] * 8))
    assert several.virtual == 4
    assert fullest(one, 1, expert=False) == (8 * LAYER / 16, 8 * LAYER / 16)
    assert fullest(several, 4, expert=False) == (4 * UP, 8 * LAYER / 16)


def test_experts_have_replicas_of_their_own() -> None:
    experts = Experts(count=8, top_k=2, ffn=96)
    job = job_of(model=llama(experts=experts), dp=8)
    job = replace(job, settings=replace(job.settings, ep=4))
    each = 3 * 96 * 256
    assert fullest(job, 1, expert=True) == (8 * 2 * each / 2,) * 2
    assert fullest(job, 1, expert=False)[0] > 0


def packed(sizes: list[int], ways: int) -> int:
    """Return the fullest share, the largest first into the emptiest one, as Megatron packs them."""
    shares = [0] * ways
    for size in sorted(sizes, reverse=True):
        shares[shares.index(min(shares))] += size
    return max(shares)


@given(st.integers(1, 12), st.sampled_from([1, 2, 3, 4, 8, 16, 64]))
@examples(20, more=300)
def test_it_is_what_megatron_packs_but_for_a_third(layers: int, dp: int) -> None:
    """Never more than it."""
    job = job_of(model=llama(layers=layers), dp=dp)
    module = layer_module(job, *job.kind(0))
    layer = [w.count for w, n, name in trained_weights(module) if stepped_as_matrix(w, name)]
    real, (most, _) = packed(layers * layer, dp), fullest(job, 1, expert=False)
    assert most <= real <= 4 / 3 * most


# Bytes that PyTorch had allocated in NVIDIA's functional tests of Megatron-LM on 8 H100, the median
# of 100 iterations (`golden_values_dev_dgx_h100.json` of `gpt3_moe_mcore_te_ep8_resume_torch_dist*`
# in `tests/functional_tests/test_cases/moe`, 22 August 2026): 12 layers of 512 with 8 experts.
ALLOCATED = {
    ("adam", "optimizer", True): 788398592,
    (MUON, "none", True): 1096680448,
    (MUON, "optimizer", True): 742118912,
    (MUON, "optimizer", False): 994024448,
}


def test_states_are_those_of_published_runs() -> None:
    """Beyond those of Adam; all else is alike."""
    experts = Experts(count=8, top_k=2, ffn=1024)
    sizes = {"layers": 12, "hidden": 512, "heads": 8, "sequence": 1024, "vocab": 50257}
    model = gpt(**sizes, bias=False, experts=experts)
    found = {}
    for name, sharding, packed in ALLOCATED:
        job = job_of(name, sharding, packed=packed, model=model, dp=8, micro_batch=4)
        job = replace(job, settings=replace(job.settings, ep=8, etp=1))
        memory, counts = memory_parts(job), {"embedding": 1, "expert layer": 12, "output": 1}
        parts = [(n, memory.parts[kind]) for kind, n in counts.items()]
        states = sum(n * (one.weights + one.gradients + one.optimizer) for n, one in parts)
        found[name, sharding, packed] = states + memory.fixed.get("uneven shares", 0)
    adam, plain = min(ALLOCATED), min(found)
    assert adam == plain
    for case, measured in ALLOCATED.items():
        more = found[case] - found[plain]
        assert measured - ALLOCATED[adam] == pytest.approx(more, abs=0.015 * measured)

"""When replicas send: ranks take as long, and hold as much, as their messages say."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.costs.training.network import Network
from ilp_planner.costs.training.ranks import RankCosts
from ilp_planner.job.communication import replicas_traffic
from ilp_planner.job.decoder import layer_module
from ilp_planner.job.memory import rank_memory
from ilp_planner.specs.link import Link
from ilp_planner.specs.machine import Machine
from ilp_planner.specs.pipeline_layout import split_layout
from ilp_planner.specs.training import OptimizerSettings, Settings, TrainingJob
from tests.examples import examples
from tests.megatron_cases import small_cluster
from tests.training_jobs import llama

MODEL = llama(layers=4, hidden=256, heads=4, kv_heads=4, sequence=128, vocab=2048, ffn=512)


def fsdp(
    sharding: str, *, pp: int = 1, tp: int = 1, instances: int = 1, batches: int = 4
) -> TrainingJob:
    """Return a job of four replicas under PyTorch's FSDP."""
    optimizer = OptimizerSettings(sharding=sharding, from_master=True, instances=instances)
    return TrainingJob(
        model=MODEL,
        micro_batch=1,
        global_batch=4 * batches,
        tp=tp,
        pp=pp,
        dp=4,
        layout=split_layout([4 // pp] * pp),
        settings=Settings(optimizer=optimizer, sequence_parallel=tp > 1, vocab_multiple=1),
        devices_per_node=1,
    )


def costs(job: TrainingJob, bandwidth: float, exposed: Sequence[float] = (0.0,)) -> RankCosts:
    """Return what ranks take where every message has only bytes.

    exposed: share of what every micro-batch sends that no pass hides, of one device type or two.
    """
    slow = job.world // 2 if len(exposed) > 1 else 0
    cluster = small_cluster(job.world - slow, 1, slow=slow)
    link = Link(bandwidth=bandwidth, latency=1e-12)
    machines = [Machine(sharded_exposed=share) for share in exposed]
    pairs = zip(cluster.device_types.items(), machines, strict=True)
    types = {name: replace(device, machine=machine) for (name, device), machine in pairs}
    cluster = replace(cluster, intra_node=link, inter_node=link, device_types=types)
    return RankCosts(job, Network(cluster, tuple(range(job.world))))


@examples(20)
@given(
    sharding=st.sampled_from(("gradients", "parameters")),
    pp=st.sampled_from((1, 2)),
    instances=st.sampled_from((1, 2)),
    batches=st.integers(1, 5),
)
def test_messages_that_nothing_hides_take_what_the_traffic_says(
    sharding: str, pp: int, instances: int, batches: int
) -> None:
    """On links so slow that kernels are as nothing, an iteration is all that replicas send."""
    job = fsdp(sharding, pp=pp, instances=instances, batches=batches)
    ranks = costs(job, 1e3)
    expected = sum(
        row.per_iteration
        * row.size
        * ranks.network.route(job, row.group, 0, row.part).line(row.collective)[1]
        for row in replicas_traffic(job, 0)
    )
    mine = slice(1 + MODEL.layers // pp if pp > 1 else None)  # of the chain
    passes = sum(element.total for element in ranks.elements(0)[mine])
    fixed, each = ranks.sync(0)
    once = fixed + float(each[mine].sum() - ranks.step(0)[mine].sum())
    assert batches * passes + once == pytest.approx(expected, rel=1e-3)


def test_passes_wait_for_what_they_use() -> None:
    """Kept parameters come before forward passes, all at once in a pipeline; given up, before
    backward passes as well. What is reduced late is in no pass."""
    forward, backward = {}, {}
    for pp in (1, 2):
        for sharding in ("gradients", "parameters"):
            chain = costs(fsdp(sharding, pp=pp), 1e6).elements(0)
            forward[pp, sharding] = sum(element.forward for element in chain)
            backward[pp, sharding] = sum(element.total - element.forward for element in chain)
    plain = costs(replace(fsdp("gradients", pp=2), dp=1, global_batch=4), 1e6).elements(0)
    alone = sum(e.forward for e in plain), sum(e.total - e.forward for e in plain)
    assert (forward[2, "gradients"], backward[2, "gradients"]) == pytest.approx(alone)
    assert forward[2, "parameters"] == pytest.approx(alone[0])
    assert backward[2, "parameters"] > alone[1]
    assert forward[1, "gradients"] == pytest.approx(forward[1, "parameters"])
    assert forward[1, "gradients"] > alone[0]
    assert backward[1, "parameters"] > backward[1, "gradients"] > alone[1]


@examples(20)
@given(
    sharding=st.sampled_from(("gradients", "parameters")),
    pp=st.sampled_from((1, 2)),
    instances=st.sampled_from((1, 2)),
    digits=st.floats(6.0, 13.0),
    exposed=st.floats(0.0, 1.0),
)
def test_passes_hide_what_is_not_exposed_as_far_as_they_are_long(
    sharding: str, pp: int, instances: int, digits: float, exposed: float
) -> None:
    """A pass takes longer by what it cannot hide, or by the exposed share of all that is sent with
    it, which is the longer one; with all of it exposed, by the whole."""
    job, bandwidth = fsdp(sharding, pp=pp, instances=instances), 10**digits
    hidden, some, whole = (
        costs(job, bandwidth, [share]).elements(0) for share in (0.0, exposed, 1.0)
    )
    plain = costs(replace(fsdp(sharding, pp=pp), dp=1, global_batch=4), bandwidth).elements(0)
    for alone, least, found, most in zip(plain, hidden, some, whole, strict=True):
        assert found.compute == alone.compute
        for way in (lambda e: e.forward, lambda e: e.total - e.forward):
            sent = way(most) - way(alone)
            late = max(exposed * sent, way(least) - way(alone))
            assert way(found) - way(alone) == pytest.approx(late, rel=1e-6, abs=1e-12)
            assert way(least) == pytest.approx(max(way(alone), sent), rel=1e-6)


def test_of_several_device_types_the_one_that_hides_least_counts() -> None:
    both, other, least = (
        sum(e.messages for e in costs(fsdp("parameters"), 1e12, shares).elements(0))
        for shares in ((0.2, 0.6), (0.6, 0.2), (0.2, 0.2))
    )
    assert both == other > least


def test_a_dtensors_sum_waits_in_every_backward_pass() -> None:
    for pp in (1, 2):
        job = fsdp("gradients", tp=2, pp=pp)
        ranks = costs(job, 1e6)
        (one,) = ranks.undivided_rings(0)
        exposed = [late.ring.collective for late in ranks.exposed_rings(0)]
        assert ("all_reduce" in exposed) == (pp == 2)
        assert one.sizes.sum() == 2 * MODEL.layers * MODEL.hidden * 2


@pytest.mark.parametrize(("sequence", "batch"), [(32, 1), (4096, 4)])
def test_parameters_are_whole_again_after_a_backward_pass(sequence: int, batch: int) -> None:
    """Giving parameters up between the passes saves those of no layer in use, but less where the
    micro-batch that goes back has less to give up meanwhile."""
    peaks = {}
    for sharding in ("gradients", "parameters"):
        job = replace(
            fsdp(sharding, pp=2), model=replace(MODEL, sequence=sequence, max_position_embeddings=0)
        )
        job = replace(job, micro_batch=batch, global_batch=16 * batch)
        peaks[sharding] = rank_memory(job, 1)
    saved = peaks["gradients"].peak - peaks["parameters"].peak
    layer = layer_module(job, False).parameters
    rest = 2 * (peaks["gradients"].parameters - 2 * layer)
    assert 0 < saved <= rest
    assert (saved == rest) == (sequence == 4096)


def test_virtual_stages_are_gathered_whole() -> None:
    """Up to three of them stay on a rank, so that nothing is saved."""
    peaks = []
    for sharding in ("gradients", "parameters"):
        job = replace(fsdp(sharding, pp=2), layout=split_layout([1, 1, 1, 1]))
        peaks.append(rank_memory(job, 0).peak)
    assert peaks[0] == peaks[1]

"""Seconds of elements: on devices that differ, and where messages are beside other kernels."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.costs.training.network import Network
from ilp_planner.costs.training.starts import PRODUCT
from ilp_planner.costs.training.times import (
    BACKWARD,
    FORWARD,
    NAMES,
    Lone,
    element_alone,
    element_time,
)
from ilp_planner.specs.cluster import Device
from ilp_planner.specs.decoder import Experts
from ilp_planner.specs.layer_kinds import BY_LETTERS
from ilp_planner.specs.link import Link
from ilp_planner.specs.machine import Machine
from ilp_planner.specs.training import Kernels, Settings, TrainingJob
from tests.analysis.calibration.machines import DEFAULT, h100, job, lab
from tests.examples import examples


@pytest.mark.parametrize("order", [1, -1])
def test_the_slowest_device_decides_compute_and_messages_apart(order: int) -> None:
    """One computes slowly, the other hides less: whichever comes first."""
    slow = h100(machine=replace(DEFAULT, sustained=0.4, tensor_exposed=0.0))
    open_ = h100(machine=replace(DEFAULT, sustained=0.8, tensor_exposed=1.0))
    network, one = Network(lab(), (0, 1)), job(tp=8)
    settings = replace(one.settings, overlap_tensor=True)
    one = replace(one, settings=settings)
    each = [element_time(one, network, [device], 0, "dense") for device in (slow, open_)]
    both = element_time(one, network, [slow, open_][::order], 0, "dense")
    assert (both.compute, both.messages) == (each[0].compute, each[1].messages)
    assert 0 < both.forward < both.total


# Nobody waits for the host.
PLAIN = Machine(expert_exposed=0.15)


def experts_job(dispatcher: str, overlap: bool) -> TrainingJob:
    """Return a job whose ranks exchange tokens."""
    kernels = Kernels(dispatcher=dispatcher, attention="flash", grouped_experts=True)
    settings = Settings(ep=8, kernels=kernels, overlap_experts=overlap)
    return job(tp=1, experts=Experts(count=16, top_k=2, ffn=1024), settings=settings)


def of_layer(dispatcher: str, overlap: bool, bandwidth: float, machine: Machine = PLAIN):
    """Return the seconds of a layer with experts where links within a node are so fast."""
    device = h100(machine=machine, kernels=replace(h100().kernels, curves={}))
    cluster = replace(lab(device), intra_node=Link(bandwidth=bandwidth, latency=1e-9))
    one = experts_job(dispatcher, overlap)
    return element_time(one, Network(cluster, (0, 1)), [device], 0, "expert")


@examples(30)
@given(
    dispatcher=st.sampled_from(("alltoall", "flex")),
    bandwidth=st.floats(1e9, 1e13),
    share=st.floats(0.0, 1.0),
)
def test_an_overlapped_exchange_takes_no_longer_and_costs_its_multiprocessors(
    dispatcher: str, bandwidth: float, share: float
) -> None:
    machine = replace(PLAIN, expert_exposed=share)
    alone, beside = (of_layer(dispatcher, flag, bandwidth, machine) for flag in (False, True))
    assert beside.compute == pytest.approx(alone.compute)
    least = max(share * alone.messages, alone.messages - alone.compute)
    assert least * (1 - 1e-9) <= beside.messages <= alone.messages * (1 + 1e-9)


def test_exchanges_are_hidden_by_what_is_beside_them() -> None:
    """Fast links cost the share of multiprocessors, more of them with NCCL; slow ones hide the
    kernels instead."""
    for dispatcher, share in (("flex", 0.15), ("alltoall", 0.24)):
        alone, beside = (of_layer(dispatcher, flag, 1e13) for flag in (False, True))
        assert beside.messages == pytest.approx(share * alone.messages)
        alone, beside = (of_layer(dispatcher, flag, 1e9) for flag in (False, True))
        assert beside.total == pytest.approx(alone.messages)


def test_the_host_starts_both_passes_beside_each_other() -> None:
    """Kernels of the long backward pass leave it time for those of the forward pass."""
    seconds = 0.045e-3
    slow = replace(PLAIN, host_experts=seconds)
    free, alone, beside = (
        of_layer("flex", flag, 1e13, machine)
        for flag, machine in ((True, PLAIN), (False, slow), (True, slow))
    )
    assert free.compute == beside.compute < alone.compute


@examples(30)
@given(
    experts=st.sampled_from((2, 8, 64)), tokens=st.sampled_from((64, 2048)), padded=st.booleans()
)
def test_the_host_starts_products_of_experts_one_by_one(
    experts: int, tokens: int, padded: bool
) -> None:
    """Each of six groups of a layer, two forward; where the host has to know the tokens first, a
    group takes at least as long as it needs for that."""
    seconds = 1e-4
    kernels = Kernels(attention="flash", grouped_experts=True, capacity=1.0, pad_to_capacity=padded)
    mixture = Experts(count=experts, top_k=2, ffn=64)
    one = job(tp=1, experts=mixture, settings=Settings(kernels=kernels))
    one = replace(one, model=replace(one.model, sequence=tokens))
    titan = replace(one, settings=replace(one.settings, keeps_gathered=True))
    device, idle = (h100(machine=replace(PLAIN, host_experts=each)) for each in (seconds, 0.0))

    def lone(job: TrainingJob, device: Device) -> Lone:
        ((found, _),) = element_alone(job, device, "expert")
        return found

    ours, theirs, free = lone(one, device), lone(titan, device), lone(one, idle)
    for way, groups in ((FORWARD, 2), (BACKWARD, 4)):
        added = ours.host.floors[way] - theirs.host.floors[way]
        assert added == pytest.approx(groups * (experts - 1) * PRODUCT * seconds)
        for name in ("experts_fc1", "experts_fc2"):
            least = 0.0 if padded else groups / 2 * experts * PRODUCT * seconds
            spent, alone = (each.kernels[way][name] for each in (ours, free))
            assert max(alone, least) <= spent * (1 + 1e-9)
            assert spent <= (alone + least) * (1 + 1e-9)


def test_keys_are_passed_on_beside_attention_in_predictions_as_well() -> None:
    """A layer that predicts further tokens has the same attention around the same ring."""
    device = h100(machine=PLAIN)
    settings = Settings(cp=2, cp_comm="p2p", kernels=Kernels(attention="flash"))
    one = job(tp=1, dp=4, settings=settings)
    one = replace(one, model=replace(one.model, prediction_layers=1))
    for bandwidth, hidden in ((1e13, True), (1e9, False)):
        cluster = replace(lab(device), intra_node=Link(bandwidth=bandwidth, latency=1e-9))
        layer, output = (
            element_time(one, Network(cluster, (0, 1)), [device], 0, name)
            for name in ("dense", "output")
        )
        assert output.messages == pytest.approx(layer.messages)
        assert (layer.messages == 0) == hidden


@pytest.mark.parametrize(("letters", "norms"), [("*E", 2), ("E", 1)])
def test_norms_are_computed_again_once_for_each_block(letters: str, norms: int) -> None:
    """The host's time besides the kernels is that of so many modules."""
    own = experts_job("alltoall", overlap=False)
    kind = BY_LETTERS[letters]
    own = replace(own, model=replace(own.model, pattern=" ".join(own.model.layers * (letters,))))
    device = h100(machine=replace(PLAIN, host_experts=1e-3))
    idle = h100(machine=PLAIN)
    ((with_host, _),) = element_alone(own, device, NAMES[kind])
    ((without, _),) = element_alone(own, idle, NAMES[kind])

    def added(name: str) -> float:
        return with_host.again[name][0] - without.again[name][0]

    assert added("layernorm") == pytest.approx(norms * added("moe_act"))
    assert added("moe_act") > 0

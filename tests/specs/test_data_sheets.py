"""Memory bandwidth where a cluster does not tell."""

import pytest

from ilp_planner.specs.cluster import ClusterSpec, Device, NodeGroup
from ilp_planner.specs.data_sheets import (
    architecture_notes,
    flash_notes,
    gpu_architecture,
    memory_rates,
)
from ilp_planner.specs.gpu_architectures import AMPERE, CDNA_3, HOPPER
from ilp_planner.specs.gpu_cluster import gpu_cluster, parse_gpus
from ilp_planner.specs.link import Link
from tests.examples import for_each

LINK = Link(bandwidth=1e9, latency=1e-5)


def cluster(*devices: Device) -> ClusterSpec:
    return ClusterSpec(
        name="test",
        device_types={d.name: d for d in devices},
        nodes=tuple(NodeGroup(device=d.name, devices=1) for d in devices),
        intra_node=LINK,
        inter_node=LINK,
    )


def test_the_cluster_knows_best() -> None:
    device = Device(name="T4", memory=1, memory_bandwidth=200e9, sustained_bandwidth=0.5)
    assert memory_rates(cluster(device)) == {"T4": pytest.approx(100e9)}


@for_each("name", ["V100", "v100-32gb", "V100 p3.8xlarge"])
def test_a_well_known_name_will_do(name: str) -> None:
    device = Device(name=name, memory=1, sustained_bandwidth=0.5)
    assert memory_rates(cluster(device)) == {name: pytest.approx(450e9)}


def test_the_profile_name_will_do() -> None:
    assert memory_rates(cluster(Device(name="old", memory=1, profile="T4"))).keys() == {"old"}


def test_an_unknown_device_has_no_rate() -> None:
    assert memory_rates(cluster(Device(name="TPU", memory=1))) == {}


def test_architecture_is_that_of_the_oldest_gpu() -> None:
    old, new = Device(name="old", memory=1, gpu="V100-16GB"), Device(name="h100", memory=1)
    assert not gpu_architecture(cluster(old, new)).flash_attention
    assert gpu_architecture(cluster(old, new), ["h100"]) == HOPPER
    assert architecture_notes(cluster(old, new)) == ()


def test_an_unknown_gpu_is_said_with_what_is_assumed_of_it() -> None:
    unknown = Device(name="v100z0", memory=1)
    (note,) = architecture_notes(cluster(unknown))
    assert gpu_architecture(cluster(unknown)).flash_attention
    assert note == (
        "device type v100z0: found no GPU of the table by this name; the architecture Hopper, "
        'as of H100, with fused attention is assumed; gpu = "..." in [devices.v100z0] of the '
        'cluster file says what it is, as in gpu = "V100-16GB"'
    )
    offered = note.rpartition('gpu = "')[2].rstrip('"')
    named = cluster(Device(name="v100z0", memory=1, gpu=offered))
    assert architecture_notes(named) == ()
    assert not gpu_architecture(named).flash_attention


def test_an_unknown_gpu_is_taken_for_the_oldest_known_one() -> None:
    mixed = cluster(*(Device(name=name, memory=1) for name in ("tpu", "a100", "h100", "npu")))
    (note,) = architecture_notes(mixed)
    assert gpu_architecture(mixed) == gpu_architecture(mixed, ["tpu"]) == AMPERE
    assert "types tpu, npu: " in note
    assert "architecture Ampere, as of the oldest type that is known here, with fused" in note


def test_the_oldest_of_two_vendors_came_first() -> None:
    amd, old, new = (Device(name=name, memory=1) for name in ("mi300x", "h100", "b200"))
    assert gpu_architecture(cluster(amd, new)) == CDNA_3
    assert gpu_architecture(cluster(amd, old)) == HOPPER
    assert architecture_notes(cluster(amd, old, new)) == ()


@for_each(
    ("gpus", "others"), [("16xH800", "3"), ("8xA100-80GB", ""), ("8xB200", ""), ("8xMI300X", "")]
)
def test_where_a_package_has_several_versions_the_one_taken_is_said(gpus: str, others: str) -> None:
    notes = flash_notes(gpu_cluster(parse_gpus(gpus)))
    assert [f"flash_attention = {others} in" in note for note in notes] == [True] * bool(others)

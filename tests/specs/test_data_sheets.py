"""Memory bandwidth where a cluster does not tell."""

import pytest

from ilp_planner.specs.cluster import ClusterSpec, Device, NodeGroup
from ilp_planner.specs.data_sheets import memory_rates
from ilp_planner.specs.link import Link

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


@pytest.mark.parametrize("name", ["V100", "v100-32gb", "V100 p3.8xlarge"])
def test_a_well_known_name_will_do(name: str) -> None:
    device = Device(name=name, memory=1, sustained_bandwidth=0.5)
    assert memory_rates(cluster(device)) == {name: pytest.approx(450e9)}


def test_the_profile_name_will_do() -> None:
    assert memory_rates(cluster(Device(name="old", memory=1, profile="T4"))).keys() == {"old"}


def test_an_unknown_device_has_no_rate() -> None:
    assert memory_rates(cluster(Device(name="TPU", memory=1))) == {}

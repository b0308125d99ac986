"""Devices are named by node, type and number, in as few words as say it."""

from ilp_planner.faces.report.devices import (
    describe_cluster,
    describe_devices,
    describe_stage,
    describe_types,
)
from ilp_planner.peers.metis.cluster import MetisCluster, MetisNode, metis_cluster_spec
from ilp_planner.plan import GroupStage, Replica
from tests.examples import for_each


def nodes(*sizes: tuple[str, int]) -> MetisCluster:
    return MetisCluster(
        nodes=tuple(MetisNode(f"n{i}", kind, n, 10, 50, 16) for i, (kind, n) in enumerate(sizes))
    )


CLUSTER = metis_cluster_spec(nodes(("A100", 4), ("A100", 4), ("T4", 2), ("A100", 4), ("A100", 2)))


@for_each(
    ("devices", "text"),
    [
        ([0, 1, 2, 3], "node 0: A100 0-3"),
        (range(8), "nodes 0-1: A100 0-7"),
        ([0, 1, 2, 4, 5], "node 0: A100 0-2; node 1: A100 4-5"),
        (range(10), "nodes 0-1: A100 0-7; node 2: T4 8-9"),
        ([8, 9, 10, 11, 12, 13], "node 2: T4 8-9; node 3: A100 10-13"),
        ([4, 5, 6, 7, 10, 11, 12, 13], "node 1: A100 4-7; node 3: A100 10-13"),
        ([13, 14, 15], "node 3: A100 13; node 4: A100 14-15"),
    ],
)
def test_devices_by_node(devices: list[int], text: str) -> None:
    assert describe_devices(CLUSTER, devices) == text


def test_types_are_in_the_order_of_the_cluster() -> None:
    assert describe_types(CLUSTER, [8, 0, 1]) == "2 x A100 + 1 x T4"


def test_a_stage_in_short() -> None:
    replicas = tuple(Replica(devices=pair, samples=1) for pair in ((0, 1), (8, 9)))
    stage = GroupStage(start=0, stop=1, replicas=replicas)
    assert describe_stage(CLUSTER, stage, cp=1) == "2 x A100 + 2 x T4 tp2 dp2"
    assert describe_stage(CLUSTER, stage, cp=2) == "2 x A100 + 2 x T4 tp1 cp2 dp2"


def test_degrees_of_types_that_differ() -> None:
    replicas = (Replica(devices=(0,), samples=1), Replica(devices=(8, 9), samples=1))
    stage = GroupStage(start=0, stop=1, replicas=replicas)
    assert describe_stage(CLUSTER, stage, cp=1) == "1 x A100 + 2 x T4 tp1 (A100) + 2 (T4) dp2"


def test_a_cluster_in_short() -> None:
    text = "2 nodes of 4 x A100, 1 node of 2 x T4, 1 node of 4 x A100, 1 node of 2 x A100"
    assert describe_cluster(CLUSTER) == text

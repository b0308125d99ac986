"""Which nodes of a cluster, and how much of their memory, plans may use."""

from dataclasses import replace

import pytest

from ilp_planner.base.errors import UsageError
from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.inputs.devices import usable, with_headroom
from ilp_planner.specs.cluster import ClusterSpec, NodeGroup
from ilp_planner.specs.fabric import Fabric
from ilp_planner.specs.link import Link
from tests.megatron_cases import device, small_cluster


def mixed() -> ClusterSpec:
    """Return two named nodes and two others, with a link of its own between each two."""
    links = [[Link(bandwidth=10 * x + y + 1, latency=1e-6) for y in range(4)] for x in range(4)]
    return ClusterSpec(
        name="mixed",
        device_types={"a100": device(), "l4": device("l4")},
        nodes=(
            NodeGroup(device="a100", devices=2, count=2, name="big"),
            NodeGroup(device="l4", devices=2, count=2),
        ),
        intra_node=Link(bandwidth=1e9, latency=1e-6),
        inter_node=Link(bandwidth=1e9, latency=1e-6),
        matrix=tuple(map(tuple, links)),
    )


@pytest.mark.parametrize(
    ("without", "types", "kept"),
    [
        ("node1", ["a100", "l4", "l4"], [0, 2, 3]),
        ("1,3", ["a100", "l4"], [0, 2]),
        ("big", ["l4", "l4"], [2, 3]),
        (["big", 2], ["l4"], [3]),
    ],
)
def test_nodes_are_left_out_with_their_links(without: str, types: list[str], kept: list[int]):
    whole = mixed()
    part = usable(whole, constraints_of({"without": without}))
    assert list(part.node_types) == types
    assert part.matrix == tuple(tuple(whole.matrix[x][y] for y in kept) for x in kept)
    assert part.notes[-1].startswith("nodes: ")
    assert f"numbered 0 to {len(kept) - 1} here" in part.notes[-1]


def test_nodes_keep_their_names() -> None:
    assert [group.name for group in usable(mixed(), constraints_of({"without": 0})).nodes] == [
        "big 1", "node 2", "node 3",
    ]  # fmt: skip
    part = usable(mixed(), constraints_of({"without": "3"}))
    # One without a name is called by its place, which it keeps.
    assert [(group.name, group.count) for group in part.nodes] == [("big", 2), ("", 1)]


def test_devices_at_most_are_whole_nodes() -> None:
    whole = small_cluster(4, 2)
    assert usable(whole, constraints_of({"max_devices": 8})) is whole
    part = usable(whole, constraints_of({"max_devices": 5}))
    assert part.device_count == 4
    assert part.notes == ("nodes: 0 to 1 of 4 are used",)
    part = usable(whole, constraints_of({"max_devices": 4, "without": 0}))
    assert part.notes == ("nodes: 1 to 2 of 4 are used, numbered 0 to 1 here",)


@pytest.mark.parametrize(
    ("fabric", "kept"),
    [
        (Fabric(nodes_per_leaf=3, oversubscription=2.0), (1, 1)),
        (Fabric(leaves=(1, 1, 2, 2), oversubscription=2.0), (1, 1)),
        (Fabric(leaves=(1, 2, 2, 2)), (1, 2)),  # room for all
        (Fabric(leaves=(1, 2, 2, 2), oversubscription=2.0), None),
        (Fabric(leaves=(1, 1, 2, 3), oversubscription=2.0), None),
    ],
)
def test_devices_at_most_are_under_the_first_of_equal_leaves(
    fabric: Fabric, kept: tuple[int, ...] | None
) -> None:
    whole, asked = replace(small_cluster(4, 2), fabric=fabric), constraints_of({"max_devices": 4})
    if kept is None:
        with pytest.raises(UsageError, match="found nodes that differ"):
            usable(whole, asked)
    else:
        assert usable(whole, asked).leaves == kept


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"without": "node4"},
         "without: found 'node4', expected a node of mixed: node0 to node3, "),
        ({"without": "big,2,3"}, "without: found big,2,3, all 4 nodes of mixed, expected one or"),
        ({"max_devices": 4},
         "max_devices: found nodes that differ in mixed, expected equal ones; "),
        ({"max_devices": 1, "without": "big"}, "max_devices: found 1, expected at least 2, the"),
    ],
)  # fmt: skip
def test_what_cannot_be_used(said: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=f"^{words}"):
        usable(mixed(), constraints_of(said))


def test_headroom() -> None:
    free = constraints_of({"headroom": 10})
    assert with_headroom({"a": 30.0, "b": 20.0}, free) == {"a": 20.0, "b": 10.0}
    with pytest.raises(UsageError, match="headroom: found 10 B, expected less than the 5 B that"):
        with_headroom({"a": 30.0, "b": 5.0}, free)


def test_the_same_nodes_of_a_cluster_are_one_object() -> None:
    """What is known of it is found again by the next point of a sweep; a cluster that is alike is
    another one."""
    whole, left = mixed(), constraints_of({"without": "3"})
    assert usable(whole, left) is usable(whole, left)
    assert usable(mixed(), left) is not usable(whole, left)

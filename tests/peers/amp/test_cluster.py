"""AMP's clusters as the planner sees them."""

from dataclasses import replace

import pytest

from ilp_planner.base.errors import SpecError
from ilp_planner.peers.amp.profile import (
    GIGABIT,
    AmpNode,
    amp_cluster,
    device_types,
    on_hosts,
    read_amp_nodes,
)
from ilp_planner.specs.toml_reader import Table
from tests.amp_cases import NODE, SLOW
from tests.examples import for_each

FAST = AmpNode(
    number=0,
    instance="fast.large",
    gpu="F1",
    gpus=4,
    memory=16 * 2**30,
    within=160 * GIGABIT,
    between=16 * GIGABIT,
)


def read(*nodes: object) -> tuple[AmpNode, ...]:
    return read_amp_nodes(Table({"nodes": list(nodes)}, file="amp.json", where="clusters.pair"))


def test_figures_become_bytes() -> None:
    assert read(NODE) == (FAST,)


def test_a_link_between_nodes_is_the_slower_of_the_two() -> None:
    other = replace(FAST, number=1, gpu="S1", instance="slow.large", between=8 * GIGABIT)
    cluster, instances = amp_cluster("pair", (FAST, other))
    assert cluster.link(0, 0).bandwidth == 160e9 / 8
    assert cluster.link(0, 1).bandwidth == cluster.link(1, 0).bandwidth == 8e9 / 8
    assert cluster.type_names == ("F1", "S1")
    assert instances == {"F1": "fast.large", "S1": "slow.large"}
    assert cluster.symmetric


def test_nodes_of_one_type_may_have_different_links_to_others() -> None:
    nodes = [replace(FAST, number=n, between=b * GIGABIT) for n, b in enumerate((8, 16, 16))]
    cluster, _ = amp_cluster("three", nodes)
    assert not cluster.symmetric
    assert [cluster.link(*pair).bandwidth for pair in ((0, 1), (1, 2), (2, 0))] == [1e9, 2e9, 1e9]
    assert cluster.link(1, 1).bandwidth == 20e9


def test_what_differs_inside_is_another_type() -> None:
    nodes = (
        FAST,
        replace(FAST, number=1, within=80 * GIGABIT),
        replace(FAST, number=2, instance="fast.small"),
        replace(FAST, number=3),
    )
    kinds = device_types(nodes)
    assert kinds[0] == kinds[3]
    assert len(set(kinds)) == 3
    cluster, instances = amp_cluster("four", nodes)
    assert [cluster.link(n, n).bandwidth * 8 / 1e9 for n in range(4)] == [160, 80, 160, 160]
    assert instances[kinds[2]] == "fast.small"


def test_memory_alone_makes_a_type() -> None:
    nodes = (FAST, replace(FAST, number=1, memory=32 * 2**30))
    cluster, _ = amp_cluster("two", nodes)
    assert [cluster.device_types[kind].memory for kind in cluster.type_of] == (
        [16 * 2**30] * 4 + [32 * 2**30] * 4
    )


def test_the_order_of_lines_does_not_matter() -> None:
    assert read(NODE, SLOW) == read(SLOW, NODE)


@for_each(
    ("change", "expected"),
    [
        ({"gpus": 0}, "gpus must be a whole number of at least 1, found 0"),
        ({"intra_Gbps": -1}, "intra_Gbps must be a positive number, found -1"),
        ({"mem_GB": "16"}, "mem_GB must be a positive number, found '16'"),
        ({"gpu": ""}, "gpu must be a text, found ''"),
        ({"id": "first"}, "id must be a whole number, found 'first'"),
    ],
)
def test_a_bad_field_is_named(change: dict[str, object], expected: str) -> None:
    with pytest.raises(SpecError) as error:
        read({**NODE, **change})
    assert str(error.value) == f"amp.json: clusters.pair.nodes[0]: {expected}"


@for_each("key", [key for key in NODE if key != "id"])
def test_a_missing_field_is_named(key: str) -> None:
    with pytest.raises(
        SpecError, match=rf"^amp\.json: clusters\.pair\.nodes\[0\]: {key} is missing"
    ):
        read({k: v for k, v in NODE.items() if k != key})


@for_each("nodes", [None, [], {}, "four"])
def test_nodes_must_be_there(nodes: object) -> None:
    with pytest.raises(SpecError, match="nodes must be a list of at least one node, found"):
        read_amp_nodes(Table({"nodes": nodes}, file="amp.json", where="clusters.pair"))


def test_two_nodes_with_one_id() -> None:
    with pytest.raises(SpecError, match="nodes must have different ids, found 0 twice"):
        read(NODE, {**SLOW, "id": 0})


# ---- hostfiles ----------------------------------------------------------------------------------


def test_equal_nodes_may_be_more_or_fewer() -> None:
    hosts = [("a", 4), ("b", 2), ("c", 4)]
    nodes = on_hosts([FAST, replace(FAST, number=1)], hosts, file="hostfile")
    assert [(n.name, n.gpus, n.number) for n in nodes] == [("a", 4, 0), ("b", 2, 1), ("c", 4, 2)]


@for_each(
    ("hosts", "expected"),
    [
        (
            [("a", 4)],
            "expected 2 hosts, one for each node of the cluster (its nodes differ), found 1",
        ),
        ([("a", 4), ("b", 8)], "b: slots must be 1 to 4, which a node of slow.large has, found 8"),
        ([("a", 0), ("b", 4)], "a: slots must be 1 to 4, which a node of fast.large has, found 0"),
        ([], "expected at least one host, found none"),
    ],
)
def test_hosts_that_cannot_be_the_nodes(hosts: list[tuple[str, int]], expected: str) -> None:
    with pytest.raises(SpecError) as error:
        on_hosts(read(NODE, SLOW), hosts, file="hostfile")
    assert str(error.value) == f"hostfile: {expected}"

"""Switches between nodes: what a file says of them, and what some nodes keep of them."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from ilp_planner.base.errors import SpecError
from ilp_planner.spaces.objectives.node_sets import kinds_of
from ilp_planner.specs.cluster import ClusterSpec
from ilp_planner.specs.cluster_reader import read_cluster
from ilp_planner.specs.cluster_writer import cluster_text
from ilp_planner.specs.fabric import Fabric
from ilp_planner.specs.gpu_cluster import with_more_nodes
from ilp_planner.specs.link import Link
from ilp_planner.specs.zones import Zone, with_nodes
from tests.examples import for_each
from tests.megatron_cases import small_cluster

PODS = Fabric(nodes_per_leaf=2, oversubscription=4.0, rail_only=True)


def under(fabric: Fabric, nodes: int = 4) -> ClusterSpec:
    """Return equal nodes under these switches."""
    return dataclasses.replace(small_cluster(nodes, 2), fabric=fabric)


@for_each(
    "fabric",
    [Fabric(), PODS, Fabric(rail_only=True), Fabric(leaves=(2, 3, 3, 1), oversubscription=1.5)],
)
def test_it_is_read_as_it_was_written(fabric: Fabric, tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(cluster_text(under(fabric)))
    assert read_cluster(file).fabric == fabric


def test_some_nodes_are_under_the_same_switches() -> None:
    some = with_nodes(under(PODS, 6), [1, 2, 3, 5])
    assert some.fabric.leaves == (1, 2, 2, 3)
    assert [some.fabric.leaf(node) for node in range(4)] == [1, 2, 2, 3]
    assert (some.fabric.oversubscription, some.fabric.rail_only) == (4.0, True)
    assert with_nodes(under(Fabric(rail_only=True)), [0, 2]).fabric == Fabric(rail_only=True)


@for_each(
    ("said", "expected"),
    [
        ({"nodes_per_leaf": -1}, "from 0 to"),
        ({"oversubscription": 0.5, "nodes_per_leaf": 2}, "at least 1"),
        ({"oversubscription": float("inf"), "nodes_per_leaf": 2}, "must be positive"),
        ({"oversubscription": 2.0}, "needs nodes_per_leaf"),
        ({"nodes_per_leaf": 2, "leaves": (1, 1, 2, 2)}, "found both"),
        ({"leaves": (1, 2, 1, 2)}, "one after the other"),
    ],
)
def test_what_is_no_fabric_is_refused(said: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        Fabric(**said)


@for_each(
    ("text", "expected"),
    [
        ("oversubscription = 2.0", "needs nodes_per_leaf"),
        ("leaves = [1, 2]", "must have 4 entries, one per node, found 2"),
        ("nodes_per_leaf = 1.5", "nodes_per_leaf"),
        ("rail_only = 1", "rail_only"),
        ("over_subscription = 2", "oversubscription"),
    ],
)
def test_a_file_s_mistakes_have_one_line(text: str, expected: str, tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(f"{cluster_text(under(Fabric()))}\n[links.fabric]\n{text}\n")
    with pytest.raises(SpecError, match=expected) as caught:
        read_cluster(file)
    assert "\n" not in str(caught.value)


@for_each(
    ("fabric", "kinds"),
    [
        (Fabric(nodes_per_leaf=2, oversubscription=4.0), [(0, 1, 2, 3)]),
        (Fabric(nodes_per_leaf=3, oversubscription=4.0), [(0, 1, 2), (3,)]),
        (Fabric(leaves=(1, 2, 2, 2), oversubscription=4.0), [(0,), (1, 2, 3)]),
        (Fabric(nodes_per_leaf=3), [(0, 1, 2, 3)]),  # room for all
        (Fabric(nodes_per_leaf=9, oversubscription=4.0), [(0, 1, 2, 3)]),  # one leaf
    ],
)
def test_nodes_are_alike_under_leaves_of_as_many(
    fabric: Fabric, kinds: list[tuple[int, ...]]
) -> None:
    cluster = under(fabric)
    assert list(kinds_of(cluster)) == kinds
    assert cluster.shares_uplinks == (fabric.oversubscription > 1 and fabric.nodes_per_leaf < 9)


def test_more_nodes_than_have_a_leaf_are_refused() -> None:
    more = [dataclasses.replace(under(PODS).nodes[0], count=8)]
    assert with_more_nodes(under(PODS), more).leaves == (1, 1, 2, 2, 3, 3, 4, 4)
    with pytest.raises(SpecError, match=r"leaves of 4 nodes, expected nodes_per_leaf.* needs 8"):
        with_more_nodes(under(Fabric(leaves=(1, 1, 1, 2))), more)


@for_each(
    ("fabric", "note"),
    [
        (PODS, "no run that the expected error rests on .* oversubscribed 4:1"),
        (Fabric(nodes_per_leaf=2), "without effect, as oversubscription is 1"),
        (Fabric(rail_only=True), ""),
    ],
)
def test_notes_say_what_is_not_known_and_what_has_no_effect(
    fabric: Fabric, note: str, tmp_path: Path
) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(cluster_text(under(fabric)))
    found = [text for text in read_cluster(file).notes if text.startswith("links.fabric")]
    assert len(found) == bool(note)
    assert re.search(note, "".join(found))


def test_zones_say_it_otherwise() -> None:
    zone = Zone(name="all", link=Link(bandwidth=1e9, latency=1e-5))
    plain = small_cluster(2, 2)
    nodes = tuple(dataclasses.replace(group, zone="all") for group in plain.nodes)
    with pytest.raises(ValueError, match="expected fabric or zones"):
        dataclasses.replace(plain, nodes=nodes, zones=(zone,), fabric=PODS)

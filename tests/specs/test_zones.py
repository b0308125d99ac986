"""Zones of a cluster file: the link of the smallest common zone, and what is no tree."""

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.errors import SpecError
from ilp_planner.base.files import Document
from ilp_planner.specs.cluster import ClusterSpec, Device, NodeGroup
from ilp_planner.specs.cluster_reader import read_cluster
from ilp_planner.specs.cluster_writer import cluster_text
from ilp_planner.specs.link import Link
from ilp_planner.specs.zones import Zone, with_nodes
from tests.examples import examples, for_each

SEEDS = st.integers(0, 2**32 - 1)
HEAD = """\
name = "regions"
[devices.gpu]
memory = "16 GiB"
[links.intra_node]
bandwidth = "40 GB/s"
latency = "10 us"
"""
TOP = '[links.inter_node]\nbandwidth = "1 GB/s"\nlatency = "1 ms"\n'
TREE = (("east", "", 5), ("east-a", "east", 11), ("east-b", "east", 12), ("west", "", 13))
NODES = (("east-a", 2), ("east-b", 1), ("west", 1))


def zone_text(name: str, inside: str, rate: int) -> str:
    within = f'inside = "{inside}"\n' if inside else ""
    return f'[[zones]]\nname = "{name}"\n{within}bandwidth = "{rate} GB/s"\nlatency = "30 us"\n'


def text(
    zones: Sequence[tuple[str, str, int]] = TREE,
    nodes: Sequence[tuple[str, int]] = NODES,
    top: str = TOP,
) -> str:
    """Return a file of zones (name, inside, GB/s) and of nodes (zone, count)."""
    groups = [
        '[[nodes]]\ndevice = "gpu"\ndevices = 2\n'
        + f"count = {n}\n"
        + (f'zone = "{z}"\n' if z else "")
        for z, n in nodes
    ]
    return HEAD + top + "".join([*groups, *(zone_text(*zone) for zone in zones)])


def read(written: str) -> ClusterSpec:
    return read_cluster(Document("regions.toml", written))


def rates(cluster: ClusterSpec) -> list[list[float]]:
    nodes = range(cluster.node_count)
    return [[cluster.link(a, b).bandwidth / 1e9 for b in nodes] for a in nodes]


def test_the_smallest_common_zone_says_the_link() -> None:
    cluster = read(text())
    assert not cluster.symmetric
    assert rates(cluster) == [[40, 11, 5, 1], [11, 40, 5, 1], [5, 5, 40, 1], [1, 1, 1, 40]]
    assert cluster.slowest_between == Link(bandwidth=1e9, latency=1e-3)


def test_one_zone_around_all_others_needs_no_link_beside_it() -> None:
    zones = [("world", "", 2), *((n, inside or "world", rate) for n, inside, rate in TREE)]
    cluster = read(text(zones, top=""))
    assert rates(cluster)[0] == [40, 11, 5, 2]
    assert rates(cluster)[3] == [2, 2, 2, 40]


def random_zones(random: np.random.Generator) -> ClusterSpec:
    """Draw a tree, and nodes in all of its zones that have none inside."""

    def link() -> Link:
        return Link(bandwidth=float(random.choice([1, 2, 3, 5])) * 1e9 / 3, latency=1e-5 / 7)

    zones: list[Zone] = []
    for n in range(int(random.integers(1, 8))):
        inside = str(random.choice(["", *(zone.name for zone in zones)]))
        zones.append(Zone(name=f"zone {n}", link=link(), inside=inside))
    outer = {zone.inside for zone in zones}
    places = [z.name for z in zones if z.name not in outer or random.random() < 0.3]
    return ClusterSpec(
        name="drawn",
        device_types={"gpu": Device(name="gpu", memory=2**30)},
        nodes=tuple(
            NodeGroup(device="gpu", devices=2, zone=place, count=int(random.integers(1, 3)))
            for place in places
        ),
        intra_node=link(),
        inter_node=link(),
        zones=tuple(zones[n] for n in random.permutation(len(zones))),
    )


@examples(40)
@given(seed=SEEDS)
def test_what_is_written_is_read_again(seed: int) -> None:
    cluster = random_zones(np.random.default_rng(seed))
    assert read(cluster_text(cluster)) == cluster


@examples(40)
@given(seed=SEEDS)
def test_links_by_climbing_from_both_nodes(seed: int) -> None:
    cluster = random_zones(np.random.default_rng(seed))
    of = {zone.name: zone for zone in cluster.zones}
    places = [group.zone for group in cluster.nodes for _ in range(group.count)]
    for a, b in product(range(cluster.node_count), repeat=2):
        above, name = [], places[a]
        while name:
            above.append(name)
            name = of[name].inside
        name = places[b]
        while name and name not in above:
            name = of[name].inside
        link = of[name].link if name else cluster.inter_node
        assert cluster.link(a, b) == (cluster.intra_node if a == b else link)


@examples(40)
@given(seed=SEEDS)
def test_some_of_the_nodes_keep_their_links(seed: int) -> None:
    """Zones that hold none of them go."""
    random = np.random.default_rng(seed)
    cluster = random_zones(random)
    kept = sorted(set(random.integers(0, cluster.node_count, 3).tolist()))
    fewer = with_nodes(cluster, kept)
    assert rates(fewer) == [[rates(cluster)[a][b] for b in kept] for a in kept]


BAD = {
    "a circle": (text([("a", "b", 1), ("b", "a", 1)], [("a", 1)]),
     "zones: found 'a' inside 'b' inside 'a', expected a tree; leave out `inside` of the"),
    "itself": (text([("a", "a", 1)], [("a", 1)]), "zones: found 'a' inside 'a', expected a tree"),
    "two places": (text([*TREE, ("east-a", "west", 1)]),
     "zones: found 2 of the name 'east-a', expected a tree, in which every zone is there once"),
    "nowhere": (text([("a", "b", 1)], [("a", 1)]), "zone 'a': inside must be one of a, found 'b'"),
    "more zones than nodes": (text([(f"z{n}", "", 1) for n in range(3)], [("z0", 1), ("z1", 1)]),
     "zones: found no node in z2 (3 zones, 2 nodes), expected at least one in each; leave these "
     'out, or say zone = "z2" of nodes'),
    "an unknown zone": (text(nodes=[("east-c", 1)]),
     "node 1: zone must be one of east, east-a, east-b, west, found 'east-c'"),
    "a node in no zone": (text(nodes=[*NODES, ("", 1)]),
     "node 4: zone must be one of east, east-a, east-b, west, found none"),
    "a zone that is not there": (text(zones=()), "node 1: zone expected [[zones]], found 'east-a'"),
    "beside a matrix": (
        text(nodes=NODES[1:], zones=TREE[:1] + TREE[2:])
        + '[links.matrix]\nbandwidth = [["-", "1 GB/s"], ["1 GB/s", "-"]]\nlatency = "1 us"\n',
        "links: expected zones or matrix, found both",
    ),
    "no link above": (text(top=""),
     "links.inter_node is missing, which nodes of different zones out of east, west have; add"),
    "no bandwidth": (text().replace('bandwidth = "11 GB/s"\n', ""),
     "zone 'east-a': bandwidth is missing"),
}  # fmt: skip


@for_each("case", BAD)
def test_what_is_no_tree_is_refused(case: str) -> None:
    written, expected = BAD[case]
    with pytest.raises(SpecError) as error:
        read(written)
    assert str(error.value).startswith(f"regions.toml: {expected}")
    assert "\n" not in str(error.value)


def test_repairs_that_are_offered_work() -> None:
    broken = text([("a", "b", 1), ("b", "a", 2)], [("a", 2)])
    assert rates(read(broken.replace('inside = "a"\n', "")))[0] == [40, 1]
    empty = text([(f"z{n}", "", 1) for n in range(3)], [("z0", 1), ("z1", 1)])
    assert read(empty.replace(zone_text("z2", "", 1), "")).node_count == 2
    assert read(empty + '[[nodes]]\ndevice = "gpu"\ndevices = 2\nzone = "z2"\n').node_count == 3
    above = text([("world", "", 2), *((n, i or "world", r) for n, i, r in TREE)], top="")
    assert read(above).inter_node.bandwidth == 2e9

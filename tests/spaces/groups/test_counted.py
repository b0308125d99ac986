"""Which device types are counted together, and which may stand for each other."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from ilp_planner.costs.groups import GroupClass
from ilp_planner.spaces.groups import seat_chain as counted
from ilp_planner.spaces.groups.seat_chain import alike, regions_of, zones_of
from ilp_planner.specs.cluster import ClusterSpec
from ilp_planner.specs.link import Link
from ilp_planner.specs.node_kinds import with_kinds
from tests.examples import for_each
from tests.zones import NEAR, as_matrix, as_types, tree

NODES = [(kind, 2, f"z{zone}") for zone in range(3) for kind in ("fast", "fast", "slow")]


@for_each("spelt", [lambda cluster: cluster, as_matrix, as_types])
def test_the_types_of_a_zone_are_together(spelt: Callable[[ClusterSpec], ClusterSpec]) -> None:
    cluster = with_kinds(spelt(tree(NODES)))
    assert zones_of(cluster) == [[0, 1], [2, 3], [4, 5]]
    assert alike(cluster, zones_of(cluster)).tolist() == [0, 1, 0, 1, 0, 1]


def test_zones_that_differ_are_not_alike() -> None:
    cluster = as_types(tree(NODES))
    zones = zones_of(cluster)
    fewer = as_types(tree(NODES[:-1]))
    assert alike(fewer, zones_of(fewer)).tolist() == [0, 1, 0, 1, 2]
    name = cluster.type_names[2]
    smaller = replace(cluster.device_types[name], memory=2**33)
    other = replace(cluster, device_types={**cluster.device_types, name: smaller})
    assert alike(other, zones).tolist() == [0, 1, 2, 3, 0, 1]
    kind = cluster.device_types[name]
    for changed, same in (
        (replace(kind, price=9.0, spot_price=1.0), True),
        (replace(kind, profile="measured"), False),  # no data sheet says that it is the same
    ):
        called = replace(cluster, device_types={**cluster.device_types, name: changed})
        assert (alike(called, zones).tolist() == [0, 1, 0, 1, 0, 1]) is same
    known = {n: replace(d, peak={"fp16": 1e14}) for n, d in cluster.device_types.items()}
    known[name] = replace(known[name], profile="measured")
    assert alike(replace(cluster, device_types=known), zones).tolist() == [0, 1, 0, 1, 0, 1]
    inside = replace(cluster, within={name: Link(bandwidth=1e12, latency=1e-6)})
    assert alike(inside, zones).tolist() == [0, 1, 2, 3, 0, 1]
    near = replace(NEAR, bandwidth=2 * NEAR.bandwidth)
    linked = as_types(tree(NODES, {"z2": near}))
    assert alike(linked, zones_of(linked)).tolist() == [0, 1, 0, 1, 2, 3]


def test_no_region_is_where_links_between_types_are_no_slower_than_between_nodes() -> None:
    cluster = as_types(tree(NODES))
    first, second = sorted(cluster.type_names)[:2]
    assert zones_of(replace(cluster, between={})) == []
    between = {pair: link for pair, link in cluster.between.items() if pair[0] != pair[1]}
    assert zones_of(replace(cluster, between=between)) == []
    assert zones_of(replace(cluster, between={(first, second): NEAR})) == []
    assert regions_of(cluster, [], [(0,), (1,)], 100).most == 1


def test_types_that_are_zones_by_themselves_are_told_apart_by_prices() -> None:
    """Unless they are alike, as those of two zones of one type."""
    single = as_types(tree([("fast", 2, zone) for zone in ("z0", "z0", "z1", "z1")]))
    assert zones_of(single) == [[0], [1]]
    assert alike(single, [[0], [1]]).tolist() == [0, 0]
    name = single.type_names[0]
    larger = replace(single.device_types[name], memory=2**35)
    unlike = replace(single, device_types={**single.device_types, name: larger})
    assert zones_of(unlike) == []


def test_many_devices_are_counted_in_units(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = as_types(tree([(k, 8, z) for z in ("z0", "z1") for k in ("fast", "slow") * 2]))
    zones = zones_of(cluster)
    classes = [GroupClass((kind,), within_node=True).types for kind in range(4)]
    found = regions_of(cluster, zones, classes, 100)
    assert (found.unit.tolist(), found.most) == ([2, 2, 2, 2], 81)
    monkeypatch.setattr(counted, "MOST_NUMBERS", 1000)
    assert regions_of(cluster, zones, classes, 100).most == 17 * 17
    few = regions_of(cluster, zones, classes, counted.MOST_STATES // 30)  # numbers for each state
    assert (few.unit.tolist(), few.most) == ([4, 4, 4, 4], 25)
    assert regions_of(cluster, zones, classes, 2 * counted.MOST_STATES).most == 1

"""One cluster of nodes in zones, spelt in three ways: as a tree, as a matrix of links between
nodes, and with a device type for every type in every zone."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations_with_replacement

import numpy as np

from ilp_planner.specs.cluster import ClusterSpec, Device, NodeGroup
from ilp_planner.specs.link import Link
from ilp_planner.specs.zones import Zone

NEAR, FAR = Link(bandwidth=1.1e10, latency=3e-5), Link(bandwidth=1.2e9, latency=1e-3)
INSIDE = Link(bandwidth=2.4e11, latency=1e-5)


def tree(
    nodes: Sequence[tuple[str, int, str]], links: dict[str, Link] | None = None
) -> ClusterSpec:
    """Return nodes (type, devices, zone), whose zones are in no other.

    links: of each zone, `NEAR` where it is not said.
    """
    names, zones = sorted({name for name, _, _ in nodes}), sorted({zone for _, _, zone in nodes})
    return ClusterSpec(
        name="zones",
        device_types={
            name: Device(name=name, memory=2**34, memory_bandwidth=1e12) for name in names
        },
        nodes=tuple(NodeGroup(device=d, devices=n, zone=zone) for d, n, zone in nodes),
        intra_node=INSIDE,
        inter_node=FAR,
        zones=tuple(Zone(name=zone, link=(links or {}).get(zone, NEAR)) for zone in zones),
    )


def as_matrix(cluster: ClusterSpec) -> ClusterSpec:
    """Return the same cluster with a link from node to node."""
    nodes = range(cluster.node_count)
    return replace(
        cluster,
        nodes=tuple(replace(group, zone="") for group in cluster.nodes),
        zones=(),
        matrix=tuple(tuple(cluster.link(a, b) for b in nodes) for a in nodes),
    )


def as_types(cluster: ClusterSpec) -> ClusterSpec:
    """Return the same cluster with a type for every type in every zone."""
    own = [f"{group.device} {group.zone}" for group in cluster.nodes]
    zone = {name: group.zone for name, group in zip(own, cluster.nodes, strict=True)}
    link = {each.name: each.link for each in cluster.zones}
    return replace(
        cluster,
        device_types={
            name: replace(cluster.device_types[g.device], name=name, type=name)
            for name, g in zip(own, cluster.nodes, strict=True)
        },
        nodes=tuple(
            replace(g, device=name, zone="") for name, g in zip(own, cluster.nodes, strict=True)
        ),
        zones=(),
        between={
            (a, b): link[zone[a]]
            for a, b in combinations_with_replacement(sorted(zone), 2)
            if zone[a] == zone[b]
        },
    )


def random_tree(random: np.random.Generator, devices: int) -> ClusterSpec:
    """Draw at most so many devices of up to two types, on small nodes in up to three zones."""
    nodes: list[tuple[str, int, str]] = []
    while not nodes or (random.random() < 0.8 and len(nodes) < devices):
        size = int(random.integers(1, 3))
        if sum(n for _, n, _ in nodes) + size > devices:
            break
        nodes.append((str(random.choice(["fast", "slow"])), size, f"z{random.integers(3)}"))
    rates = {f"z{n}": float(random.choice([3e9, 1.1e10, 5e10])) for n in range(3)}
    alike = random.random() < 0.5
    return tree(
        nodes, {} if alike else {z: Link(bandwidth=r, latency=3e-5) for z, r in rates.items()}
    )

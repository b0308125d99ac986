"""Nodes of one type that links tell apart, as types of their own.

Two nodes of a type are of one kind if no other node can tell them apart: their links to each other
node, in both directions, are equal, and so are the links between the two. If the link between two
nodes follows from their kinds, a search that knows types alone knows all links.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product
from typing import TYPE_CHECKING

from ilp_planner.base.units import number_ranges

if TYPE_CHECKING:
    from ilp_planner.specs.cluster import ClusterSpec
    from ilp_planner.specs.link import Link

MOST_KINDS = 12  # beyond, groups of several kinds are too many to try


def with_kinds(cluster: ClusterSpec) -> ClusterSpec:
    """Return the same cluster with a device type for each kind of node, with its former `type`, and
    links between kinds; as it is if types determine all links already, if a link differs by
    direction, or if there are more than `MOST_KINDS` kinds."""
    if cluster.symmetric or _directed(cluster):
        return cluster
    kinds = node_kinds(cluster)
    if len(kinds) > MOST_KINDS:
        return cluster
    types, within, names = {}, {}, [""] * cluster.node_count
    for nodes in kinds:
        device = cluster.device_types[cluster.node_types[nodes[0]]]
        several = sum(cluster.node_types[other[0]] == device.name for other in kinds) > 1
        name = f"{device.name} of nodes {number_ranges(nodes)}" if several else device.name
        types[name] = replace(device, name=name)
        if device.name in cluster.within:
            within[name] = cluster.within[device.name]
        for node in nodes:
            names[node] = name
    groups = [group for group in cluster.nodes for _ in range(group.count)]
    return replace(
        cluster,
        device_types=types,
        nodes=tuple(
            replace(group, device=name, count=1, zone="")
            for group, name in zip(groups, names, strict=True)
        ),
        within=within,
        between=_between(cluster, kinds, names),
        matrix=(),
        zones=(),
    )


def node_kinds(cluster: ClusterSpec) -> tuple[tuple[int, ...], ...]:
    """Return the nodes of each kind, ascending, in the order of their first ones."""
    kinds: list[list[int]] = []
    for node in range(cluster.node_count):
        for kind in kinds:
            if _alike(cluster, kind[0], node):
                kind.append(node)
                break
        else:
            kinds.append([node])
    return tuple(map(tuple, kinds))


def _alike(cluster: ClusterSpec, a: int, b: int) -> bool:
    """Tell whether two nodes are of one kind. That is transitive: for three nodes with two equal
    pairs, all links between them are equal."""
    if cluster.node_types[a] != cluster.node_types[b] or cluster.link(a, b) != cluster.link(b, a):
        return False
    others = (node for node in range(cluster.node_count) if node not in (a, b))
    return all(
        cluster.link(a, node) == cluster.link(b, node)
        and cluster.link(node, a) == cluster.link(node, b)
        for node in others
    )


def _directed(cluster: ClusterSpec) -> bool:
    """Tell whether a link differs from the way back."""
    pairs = combinations(range(cluster.node_count), 2)
    return any(cluster.link(a, b) != cluster.link(b, a) for a, b in pairs)


def _between(
    cluster: ClusterSpec, kinds: tuple[tuple[int, ...], ...], names: list[str]
) -> dict[tuple[str, str], Link]:
    """Return the link between two nodes of any two kinds that have them."""
    found = {}
    for some, others in product(kinds, repeat=2):
        a = some[0]
        b = next((node for node in others if node != a), a)
        if a != b and names[a] <= names[b]:
            found[names[a], names[b]] = cluster.link(a, b)
    return found

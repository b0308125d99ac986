"""The part of a cluster that a user lets plans use: its nodes and the memory of its devices."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from ilp_planner.base.errors import UsageError
from ilp_planner.base.hashing import Same
from ilp_planner.base.units import format_bytes
from ilp_planner.specs.zones import with_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ilp_planner.inputs.constraints import Constraints
    from ilp_planner.specs.cluster import ClusterSpec

KEPT = 16  # sets of nodes


def usable(cluster: ClusterSpec, constraints: Constraints) -> ClusterSpec:
    """Return the nodes that plans may use.

    Raises
    ------
    UsageError: an unknown left-out node, no node left, or a `max_devices` that leaves the nodes
        open.
    """
    if not constraints.without and constraints.max_devices is None:
        return cluster
    return _with_nodes(Same(cluster), tuple(usable_nodes(cluster, constraints)))


@lru_cache(maxsize=KEPT)
def _with_nodes(cluster: Same[ClusterSpec], nodes: tuple[int, ...]) -> ClusterSpec:
    """Return some nodes of a cluster: the same object for the same ones, for what is known of it to
    be found again."""
    return with_nodes(cluster.value, nodes)


def usable_devices(cluster: ClusterSpec, constraints: Constraints) -> list[int]:
    """Return the numbers of the devices of these nodes among all, ascending.

    Raises
    ------
    UsageError: as `usable` raises it.
    """
    nodes = set(usable_nodes(cluster, constraints))
    return [device for device, node in enumerate(cluster.node_of) if node in nodes]


def usable_nodes(cluster: ClusterSpec, constraints: Constraints) -> list[int]:
    """Return the numbers of the nodes that plans may use, ascending.

    Raises
    ------
    UsageError: as `usable` raises it.
    """
    out = {node for name in constraints.without for node in nodes_named(cluster, name)}
    kept = [node for node in range(cluster.node_count) if node not in out]
    if not kept:
        found = constraints.texts["without"]
        raise UsageError(
            f"without: found {found}, all {cluster.node_count} nodes of {cluster.name}, expected "
            "one or more to be left"
        )
    if constraints.max_devices is not None:
        kept = kept[: _most_nodes(with_nodes(cluster, kept), constraints.max_devices)]
    return kept


def nodes_named(cluster: ClusterSpec, name: str) -> list[int]:
    """Return the numbers of the nodes of a name: a group of them, or a single one.

    Raises
    ------
    UsageError: an unknown node.
    """
    names = [group.name for group in cluster.nodes for _ in range(group.count)]
    if name in names:
        return [node for node, own in enumerate(names) if own == name]
    match = re.fullmatch(r"(?:node)?([0-9]{1,9})", name)
    if match is None or int(match[1]) >= cluster.node_count:
        groups = ", ".join(dict.fromkeys(filter(None, names)))
        near = difflib.get_close_matches(name, set(filter(None, names)), 1)
        last = cluster.node_count - 1
        numbers = f"node0 to node{last}" if last else "node0"
        raise UsageError(
            f"without: found {name!r}, expected a node of {cluster.name}: {numbers}"
            f"{groups and f', or all of {groups}'}{(near and f' (nearest: {near[0]})') or ''}"
        )
    return [int(match[1])]


def _most_nodes(cluster: ClusterSpec, devices: int) -> int:
    """Return how many of equal nodes have at most so many devices together."""
    *full, last = Counter(cluster.leaves).values()
    uneven = cluster.shares_uplinks and (len(set(full)) > 1 or last > full[0])
    if not cluster.equal_nodes or len(cluster.type_names) > 1 or uneven:
        raise UsageError(
            f"max_devices: found nodes that differ in {cluster.name}, expected equal ones; "
            "`without` says which nodes stay idle"
        )
    each = cluster.nodes[0].devices
    if devices < each:
        raise UsageError(
            f"max_devices: found {devices}, expected at least {each}, the devices of a node of "
            f"{cluster.name}; a `cluster` of smaller nodes has fewer"
        )
    return devices // each


def memory_within(cluster: ClusterSpec, limit: float | None) -> dict[str, float]:
    """Return the bytes of each device type that may be used: all, or at most a limit."""
    own = {name: float(cluster.device_types[name].memory) for name in cluster.type_names}
    return own if limit is None else {name: min(each, limit) for name, each in own.items()}


def beyond_memory(cluster: ClusterSpec, limit: float | None) -> Iterator[str]:
    """Yield a note on each device type with less memory than a limit, bytes."""
    for name in cluster.type_names:
        device = cluster.device_types[name]
        if limit is not None and limit > device.memory:
            yield (
                f"memory limit {format_bytes(limit)}: without effect on {device.type}, which has "
                f"{format_bytes(device.memory)}"
            )


def with_memory(cluster: ClusterSpec, limits: Mapping[str, float]) -> ClusterSpec:
    """Return a cluster with devices of so many bytes. limits: device type -> bytes."""
    types = cluster.device_types
    less = {name: replace(types[name], memory=int(each)) for name, each in limits.items()}
    return replace(cluster, device_types={**types, **less})


def with_headroom(limits: Mapping[str, float], constraints: Constraints) -> dict[str, float]:
    """Return the bytes of each device type that plans may use if some of these must stay free.

    Raises
    ------
    UsageError: none would be left.
    """
    free = constraints.headroom or 0
    for name, limit in limits.items():
        if free >= limit:
            raise UsageError(
                f"headroom: found {constraints.texts['headroom']}, expected less than the "
                f"{format_bytes(limit)} that plans may use of each {name}"
            )
    return {name: limit - free for name, limit in limits.items()}

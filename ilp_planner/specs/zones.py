"""Zones of nodes, and the cluster that some nodes of another one make."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING

from ilp_planner.base.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ilp_planner.specs.cluster import ClusterSpec, NodeGroup
    from ilp_planner.specs.link import Link


# ---- zones of nodes ------------------------------------------------------------------------------
# A tree with the links of nodes.


@dataclass(frozen=True, kw_only=True)
class Zone:
    """A rack, a zone, a region: a place of nodes or other zones.

    link: between two nodes that are both in it, and in no smaller zone together.
    inside: name of the zone that it is in itself; empty: in none.
    """

    name: str
    link: Link
    inside: str = ""


Ways = dict[str, tuple[Zone, ...]]
"""Of each zone by name: the zones that it is in, the largest first, and itself."""


def ways(zones: Sequence[Zone]) -> Ways:
    """Return the way from the root of the tree to every zone.

    Raises
    ------
    ValueError: the zones are not a tree.
    """
    counts = Counter(zone.name for zone in zones)
    for name, count in counts.items():
        if count > 1:
            raise ValueError(
                f"zones: found {count} of the name {name!r}, expected a tree, in which every zone "
                "is there once, inside one other at most; rename or merge them"
            )
    of = {zone.name: zone for zone in zones}
    for zone in zones:
        if zone.inside and zone.inside not in of:
            raise ValueError(
                f"zone {zone.name!r}: inside must be one of {', '.join(of)}, found {zone.inside!r}"
            )
    return {zone.name: _way(zone, of) for zone in zones}


def _way(zone: Zone, of: Mapping[str, Zone]) -> tuple[Zone, ...]:
    """Return the zones from the outermost one to a zone."""
    found = [zone]
    while found[-1].inside:
        outer = of[found[-1].inside]
        if outer in found:
            circle = " inside ".join(repr(z.name) for z in [*found[found.index(outer) :], outer])
            raise ValueError(
                f"zones: found {circle}, expected a tree; leave out `inside` of the outermost one"
            )
        found.append(outer)
    return tuple(reversed(found))


def check_filled(zones: Sequence[Zone], used: Sequence[str], nodes: int) -> None:
    """Refuse zones without a node.

    Parameters
    ----------
    used: zones that nodes say they are in. nodes: how many there are.

    Raises
    ------
    ValueError: names the empty zones.
    """
    filled = {zone.name for way in map(ways(zones).__getitem__, used) for zone in way}
    empty = [zone.name for zone in zones if zone.name not in filled]
    if empty:
        raise ValueError(
            f"zones: found no node in {', '.join(empty)} ({len(zones)} zones, {nodes} nodes), "
            f'expected at least one in each; leave these out, or say zone = "{empty[-1]}" of nodes'
        )


def common(a: Sequence[Zone], b: Sequence[Zone]) -> Zone | None:
    """Return the smallest zone that two ways share; None if they share none."""
    shared = [x for x, _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False))]
    return shared[-1] if shared else None


# ---- clusters of some nodes ----------------------------------------------------------------------


def with_nodes(cluster: ClusterSpec, nodes: Collection[int]) -> ClusterSpec:
    """Return the cluster of some nodes alone, in their order and numbered from 0, by their names
    among all, with a note that lists them; of all of them, the cluster as it is.

    Raises
    ------
    SpecError: there are none.
    """
    kept = sorted(nodes)
    if not kept:
        raise SpecError(f"cluster {cluster.name!r}: found no node left of {cluster.node_count}")
    if len(kept) == cluster.node_count:
        return cluster
    groups: list[NodeGroup] = []
    first = left = 0
    for group in cluster.nodes:
        own = [node - first for node in kept if first <= node < first + group.count]
        if len(own) == group.count and (group.name or left == first):
            groups.append(group)
        elif own == [*range(len(own))] and own and not group.name and left == first:
            groups.append(replace(group, count=len(own)))  # which are called the same
        else:  # each by itself, as it is called in the whole cluster
            for copy in own:
                name = group.name and f"{group.name} {copy}" if group.count > 1 else group.name
                groups.append(replace(group, count=1, name=name or f"node {first + copy}"))
        first, left = first + group.count, left + len(own)
    matrix = tuple(tuple(cluster.matrix[x][y] for y in kept) for x in kept if cluster.matrix)
    numbers = f"numbered 0 to {len(kept) - 1} here" if kept[-1] >= len(kept) else ""
    filled = {zone.name for group in groups for zone in ways(cluster.zones).get(group.zone, ())}
    zones = tuple(zone for zone in cluster.zones if zone.name in filled)
    note = f"nodes: {shown(kept)} of {cluster.node_count} are used{numbers and ', '}{numbers}"
    notes = (*cluster.notes, note)
    return replace(
        cluster,
        nodes=tuple(groups),
        matrix=matrix,
        zones=zones,
        fabric=cluster.fabric.of_nodes(kept),
        notes=notes,
    )


def shown(numbers: Sequence[int]) -> str:
    """Return ascending numbers in few words: `0 to 2, 4`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)

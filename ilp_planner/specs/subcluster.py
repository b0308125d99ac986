"""A cluster without some of its nodes, or with more."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ilp_planner.base.errors import SpecError
from ilp_planner.specs.zones import ways

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ilp_planner.specs.cluster import ClusterSpec, NodeGroup


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
    return replace(cluster, nodes=tuple(groups), matrix=matrix, zones=zones, notes=notes)


def with_more_nodes(cluster: ClusterSpec, groups: Sequence[NodeGroup]) -> ClusterSpec:
    """Return the cluster with groups of at least as many nodes. The link inside a single node,
    which stands for the one between nodes, loses its collectives there."""
    alone = replace(cluster.inter_node, collectives={})
    return replace(cluster, nodes=tuple(groups), inter_node=alone)


def shown(numbers: Sequence[int]) -> str:
    """Return ascending numbers in few words: `0 to 2, 4`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)

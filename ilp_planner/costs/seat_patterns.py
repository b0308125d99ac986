"""Patterns of a stage's replicas on nodes: packed, or spread evenly.

*Packed*: of the nodes of a type that hold the stage, at most one has room, by its size, for another
replica. *Spread evenly*: over several nodes of one type, equally many replicas in each. A stage may
be both, if it fills all nodes alike.

Neighbours that are spread over the same nodes are *pairs*: in every node there are the replicas of
both that pass on the same samples, so that nothing crosses between nodes. Two packed stages of one
type each are never on the same several nodes: of two nodes both would have to fill one that the
other leaves devices of, and either leaves less than one of its replicas needs.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ilp_planner.plan import GroupStage
    from ilp_planner.specs.cluster import ClusterSpec


def seats_of(stage: GroupStage, cluster: ClusterSpec) -> Mapping[int, int] | None:
    """Return the replicas of a stage on each node; None if one is on several nodes."""
    seats: Counter[int] = Counter()
    for replica in stage.replicas:
        nodes = {cluster.node_of[device] for device in replica.devices}
        if len(nodes) > 1:
            return None
        seats[nodes.pop()] += 1
    return seats


def spread_over(stage: GroupStage, cluster: ClusterSpec) -> frozenset[int]:
    """Return the nodes of a stage that is spread evenly over several of one type; none of one that
    is not."""
    seats = seats_of(stage, cluster)
    if seats is None or len(seats) == 1 or len(stage.degrees) > 1:
        return frozenset()
    alike = len({*seats.values()}) == 1 and len({cluster.node_types[node] for node in seats}) == 1
    return frozenset(seats) if alike else frozenset()


def is_packed(stage: GroupStage, cluster: ClusterSpec) -> bool:
    """Tell whether a stage is packed; one with a replica on several nodes is not."""
    seats = seats_of(stage, cluster)
    if seats is None:
        return False
    tp_on = {cluster.node_of[r.devices[0]]: r.tp for r in stage.replicas}
    sizes, types = cluster.devices_of_nodes, cluster.node_types
    roomy = [types[v] for v, count in seats.items() if (count + 1) * tp_on[v] <= sizes[v]]
    return len(roomy) == len({*roomy})


def are_pairs(stage: GroupStage, following: GroupStage, cluster: ClusterSpec) -> bool:
    """Tell whether two stages are spread over the same nodes."""
    nodes = spread_over(stage, cluster)
    return bool(nodes) and nodes == spread_over(following, cluster)

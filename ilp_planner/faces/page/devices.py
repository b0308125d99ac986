"""The place of every device of every node in the plan, as the script of the page draws it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ilp_planner.faces.page.packed import packed
from ilp_planner.plan import is_of_groups

if TYPE_CHECKING:
    from ilp_planner.plan import AnyPlan
    from ilp_planner.specs.cluster import ClusterSpec

MOST_DEVICES = 16_384  # that a page draws


def device_map(plan: AnyPlan, cluster: ClusterSpec) -> dict[str, Any]:
    """Return the script's data for every device of a cluster, ready for JSON.

    `packed` has three columns, in the cluster's order of devices: pipeline rank, data-parallel
    replica, and place in the replica; -1 of devices that the plan leaves idle, and, of plans that
    differ from operator to operator, of the last two. `tp` is the number of places of a
    tensor-parallel group: a replica has `tp` x cp of them.
    """
    place = np.full((3, cluster.device_count), -1, np.int64)
    for rank in range(plan.ranks):
        for device in plan.stages[rank].devices:
            if device < cluster.device_count:
                place[0, device] = rank
    if is_of_groups(plan):
        for stage in plan.stages[: plan.ranks]:
            for r, replica in enumerate(stage.replicas):
                here = [device for device in replica.devices if device < cluster.device_count]
                place[1, here], place[2, here] = r, np.arange(len(here))
    return {
        "nodes": list(cluster.devices_of_nodes),
        "types": list(cluster.called),
        "ranks": plan.ranks,
        "cp": plan.cp,
        "grouped": is_of_groups(plan),
        "packed": packed(*place),
    }

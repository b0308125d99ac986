"""The frozen instance: layers, device groups, costs and limits. No solver in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ilp_planner.costs.groups import GroupCosts
    from ilp_planner.specs.cluster import ClusterSpec


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class GroupProblem:
    """One planning problem of whole layers on device groups.

    model: its name. space: `planner` (any groups, idle devices allowed), `metis` or `amp` (exactly
    what those search). micro_batches: numbers of micro-batches per iteration (B) to try.
    memory_limits: device type -> bytes. memory_rule: `device` (every device by itself) or `metis`.
    placement: `default`, or `free` to place AMP's ranks as well. profile_source: what to show.
    notes: what was left out, one line each.
    """

    model: str
    cluster: ClusterSpec
    costs: GroupCosts
    global_batch: int
    micro_batches: tuple[int, ...]
    memory_limits: Mapping[str, float]
    max_stages: int
    max_tp: int
    space: str = "planner"
    memory_rule: str = "device"
    placement: str = "default"
    profile_source: str = ""
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return (
            f"<GroupProblem {self.model} on {self.cluster.name}, {self.global_batch} samples, "
            f"space {self.space}>"
        )

"""The GPUs of a job, and more of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ilp_planner.base.errors import PlanError, SpecError
from ilp_planner.base.limits import DEVICES
from ilp_planner.specs.degrees import divisors
from ilp_planner.specs.gpu_cluster import with_more_nodes
from ilp_planner.specs.zones import with_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ilp_planner.specs.cluster import ClusterSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A cluster of nodes with equally many devices.

    Raises
    ------
    SpecError: nodes differ in their devices.
    """

    cluster: ClusterSpec

    def __post_init__(self) -> None:
        if not self.cluster.equal_nodes:
            sizes = sorted({group.devices for group in self.cluster.nodes})
            raise SpecError(
                f"cluster {self.cluster.name!r}: found nodes of {', '.join(map(str, sizes))} "
                "devices, expected equally many in each; a file with some of the nodes would do"
            )

    @property
    def each(self) -> int:
        """Devices of a node."""
        return self.cluster.nodes[0].devices

    @property
    def grows(self) -> bool:
        """Whether more nodes would be like the present ones: all of one type, and linked alike."""
        return len(self.cluster.type_names) == 1 and self.cluster.symmetric

    def of(self, world: int) -> ClusterSpec:
        """Return the first nodes, or devices of one node, that so many ranks fill; with more nodes
        like them if there are too few.

        Raises
        ------
        PlanError: nodes are not filled, or more are needed and their kind is unknown.
        """
        cluster, each = self.cluster, self.each
        if world < each and each % world == 0:
            first = with_nodes(cluster, [0])
            return replace(first, nodes=(replace(first.nodes[0], devices=world),))
        if world % each:
            fitting = max(1, round(world / each)) * each
            raise PlanError(
                f"GPUs: found {world} ranks, expected whole nodes of {each} of {cluster.name}; "
                f"{fitting} ranks would do"
            )
        nodes = world // each
        if nodes <= cluster.node_count:
            return with_nodes(cluster, range(nodes))
        if not self.grows:
            raise PlanError(
                f"GPUs: found {world} ranks, expected at most the {cluster.device_count} of "
                f"{cluster.name}, whose nodes differ"
            )
        return with_more_nodes(cluster, [replace(cluster.nodes[0], count=nodes)])

    def more(self, world: int) -> Iterator[int]:
        """Yield all larger numbers of ranks that fill a part of a node evenly or whole nodes,
        ascending."""
        each = self.each
        yield from (part for part in divisors(each) if world < part < each)
        most = DEVICES if self.grows else self.cluster.device_count
        yield from range((world // each + 1) * each, most + 1, each)

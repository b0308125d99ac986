"""The GPUs of a job, more of them, and the memory that it needs there, without its time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ilp_planner.analysis.recomputation import rank_memories
from ilp_planner.base.errors import PlanError, SpecError
from ilp_planner.base.limits import DEVICES
from ilp_planner.job.verdict import Verdict, verdict_of
from ilp_planner.specs.degrees import divisors
from ilp_planner.specs.gpu_cluster import with_more_nodes
from ilp_planner.specs.training import ORDERS
from ilp_planner.specs.zones import with_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ilp_planner.job.memory import RankMemory
    from ilp_planner.specs.cluster import ClusterSpec, Device
    from ilp_planner.specs.training import TrainingJob


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """A job with the memory that it needs.

    ranks: memory of a GPU of every pipeline rank. devices: that with least memory of each.
    """

    job: TrainingJob
    ranks: tuple[RankMemory, ...]
    devices: tuple[Device, ...]

    @property
    def fullest(self) -> int:
        """The pipeline rank that decides: the one that needs the largest share of its memory."""
        return max(range(len(self.ranks)), key=self.share)

    def share(self, pp_rank: int) -> float:
        """Return the share of its memory that a GPU of a pipeline rank needs."""
        return self.ranks[pp_rank].needed / self.devices[pp_rank].memory

    def room(self, pp_rank: int) -> float:
        """Return the bytes that a GPU of a pipeline rank has left; below 0 if it has too few."""
        return self.devices[pp_rank].memory - self.ranks[pp_rank].needed

    @property
    def left(self) -> float:
        """Bytes that are left on the GPU that decides."""
        return self.room(self.fullest)

    @property
    def verdict(self) -> Verdict:
        """Whether every GPU has enough memory."""
        return verdict_of(self.ranks[self.fullest].needed, self.devices[self.fullest].memory)

    @property
    def fits(self) -> bool:
        """Whether every GPU certainly has enough memory."""
        return self.verdict is Verdict.FITS


def needs_of(job: TrainingJob, cluster: ClusterSpec) -> Needs:
    """Return the memory of a job, with ranks that fill the nodes of a cluster in order."""
    ranks = tuple(rank_memories((job,) * job.pp))
    return Needs(job=job, ranks=ranks, devices=smallest_devices(job, cluster))


def smallest_devices(job: TrainingJob, cluster: ClusterSpec) -> tuple[Device, ...]:
    """Return the device with least memory of every pipeline rank."""
    kinds, types = cluster.type_of, cluster.device_types
    each = job.world // job.pp
    found = []
    for stage in range(job.pp):
        first = first_rank(job, stage)
        if job.settings.order == ORDERS[0]:
            own = set(kinds[first : first + each])
        else:
            width, apart = job.tp * job.settings.cp, job.pp * job.tp * job.settings.cp
            starts = range(first, job.world, apart)
            own = {name for start in starts for name in kinds[start : start + width]}
        found.append(min((types[name] for name in sorted(own)), key=lambda d: d.memory))
    return tuple(found)


def telling_ranks(job: TrainingJob, devices: Sequence[Device]) -> tuple[int, ...]:
    """Return pipeline ranks; one of them is the fullest.

    Without virtual stages, of ranks with equal layers on equal devices the first one holds most
    micro-batches.
    """
    if job.virtual > 1:
        return tuple(range(job.pp))
    kinds, starts = job.layer_kinds, job.pipeline.starts
    first: dict[object, int] = {}
    for rank, (stage, start) in enumerate(zip(job.stages, starts, strict=True)):
        own = tuple(sorted(kinds[start : start + stage.layers]))
        first.setdefault((stage, own, devices[rank].memory), rank)
    return tuple(first.values())


def first_rank(job: TrainingJob, pp_rank: int) -> int:
    """Return the first of the ranks of a pipeline rank."""
    if job.settings.order == ORDERS[0]:
        return pp_rank * job.world // job.pp
    return pp_rank * job.tp * job.settings.cp

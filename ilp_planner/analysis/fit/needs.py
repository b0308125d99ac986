"""Memory that a job needs on its GPUs, without its time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ilp_planner.analysis.recomputation import rank_memories
from ilp_planner.job.verdict import Verdict, verdict_of
from ilp_planner.specs.training import ORDERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.job.memory import RankMemory
    from ilp_planner.specs.cluster import ClusterSpec, Device
    from ilp_planner.specs.training import TrainingJob


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
    experts, starts = job.model.expert_layers, job.pipeline.starts
    first: dict[object, int] = {}
    for rank, (stage, start) in enumerate(zip(job.stages, starts, strict=True)):
        routed = sum(experts[start : start + stage.layers])
        first.setdefault((stage, routed, devices[rank].memory), rank)
    return tuple(first.values())


def first_rank(job: TrainingJob, pp_rank: int) -> int:
    """Return the first of the ranks of a pipeline rank."""
    if job.settings.order == ORDERS[0]:
        return pp_rank * job.world // job.pp
    return pp_rank * job.tp * job.settings.cp

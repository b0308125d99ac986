"""Savings and costs of recomputation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ilp_planner.job.arithmetic import extra_flops
from ilp_planner.job.memory import RankMemory, memory_parts, stage_of_rank
from ilp_planner.settings.labels import describe_recompute
from ilp_planner.specs.training import Recompute, TrainingJob

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

OPTIONS = (
    ("none", Recompute()),
    ("selective: core_attn", Recompute(granularity="selective")),
    ("full: every layer", Recompute(granularity="full", method="uniform", layers=1)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """Effect of one kind of recomputation.

    peaks: bytes of a GPU of every pipeline stage. flops: extra arithmetic of an iteration, as a
    share of all of it without recomputation. chosen: the job does this.
    """

    name: str
    peaks: tuple[float, ...]
    flops: float
    chosen: bool


def savings(jobs: Sequence[TrainingJob]) -> Iterator[Saving]:
    """Yield the effects of no, selective, full and the job's own recomputation."""
    own = jobs[0].settings.recompute
    options = dict(OPTIONS)
    if own not in options.values():
        options[describe_recompute(own)] = own
    for name, recompute in options.items():
        changed = {
            job: replace(job, settings=replace(job.settings, recompute=recompute))
            for job in dict.fromkeys(jobs)
        }
        others = [changed[job] for job in jobs]
        yield Saving(
            name=name,
            peaks=tuple(memory.peak for memory in rank_memories(others)),
            flops=extra_flops(others[0]),
            chosen=recompute == own,
        )


def rank_memories(jobs: Sequence[TrainingJob]) -> Iterator[RankMemory]:
    """Yield the memory of a GPU of every stage; equal jobs are measured once."""
    parts = {job: memory_parts(job) for job in dict.fromkeys(jobs)}
    for pp_rank, job in enumerate(jobs):
        yield stage_of_rank(parts[job], pp_rank)

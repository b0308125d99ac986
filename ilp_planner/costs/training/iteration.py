"""Seconds of an iteration of a training job: its virtual stages, its schedule, its gradients."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ilp_planner.costs.training.host import Waits, moved_seconds, waits
from ilp_planner.costs.training.job import ends_of
from ilp_planner.costs.training.shares import AGAIN, COMPUTE, MESSAGES, WAITING
from ilp_planner.schedule.engine import StageTimes, simulate
from ilp_planner.schedule.schedules import schedule_orders

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.costs.training.ranks import RankCosts
    from ilp_planner.costs.training.times import ElementTime
    from ilp_planner.schedule.engine import Timeline
    from ilp_planner.specs.training import Recompute, TrainingJob

HOST = "activations from and to the host"
SLOWEST = "slowest stage"
SYNC = "gradient reduction, optimiser step and parameter gathering"
TIED = "gradient of the tied embedding"
STEP = "what no rank does"


@dataclass(frozen=True)
class Stage:
    """The time of a micro-batch in a (virtual) stage. again: seconds that are recomputed. host:
    waits of its passes for activations there; None if all are on the device."""

    elements: tuple[ElementTime, ...]
    again: float
    host: Waits | None

    @cached_property
    def own(self) -> tuple[float, float, float]:
        """Seconds of forward passes, of both, and of the gradients of weights."""
        each = self.elements
        return sum(e.forward for e in each), sum(e.total for e in each), sum(e.weight for e in each)

    @property
    def late(self) -> Waits:
        """Seconds."""
        return self.host or Waits()

    @property
    def terms(self) -> dict[str, float]:
        """Seconds of both passes, by terms."""
        own = {
            COMPUTE: sum(element.compute for element in self.elements),
            MESSAGES: sum(element.messages for element in self.elements),
            AGAIN: self.again,
        }
        return own if self.host is None else {**own, HOST: sum(self.host)}


def stage_times(ranks: RankCosts, job: TrainingJob, stages: Sequence[Stage]) -> StageTimes:
    """Return the passes of a micro-batch through virtual stages, and the sends between them.

    job: as in `stages_of`. Recomputation and waits for activations from the host are part of the
    backward pass, and of its first part if a schedule divides it. PyTorch runs none of that of the
    first stage, as its input needs no gradient, but all of it as the second part
    (`backward_one_chunk` of `torch.distributed.pipelining.stage`).
    """
    alone, own, weight = np.array([stage.own for stage in stages]).T
    own = own - alone
    forward = alone + np.array([stage.late.forward for stage in stages])
    again = np.array([stage.again + stage.late.backward for stage in stages])
    whole, weight = own + again, weight.copy()
    if job.schedule.divides:
        weight[0] = whole[0]
    sends = np.array(sends_of(ranks, job)) / 2
    return StageTimes(forward, whole, whole - weight, weight, sends, sends)


def sends_of(ranks: RankCosts, job: TrainingJob) -> list[float]:
    """Return the seconds of a micro-batch's messages between every (virtual) stage and the next
    one, both ways; between those of one rank there are none."""
    transfers, pp = ranks.transfers, job.pp
    places = (job.rank_of(stage) for stage in range(len(job.stages)))
    return [
        0.0 if here == there else transfers[here if there == (here + 1) % pp else there]
        for here, there in pairwise(places)
    ]


def stages_of(
    ranks: RankCosts, job: TrainingJob, known: dict[object, Any] | None = None
) -> list[Stage]:
    """Return the time of every virtual stage.

    Parameters
    ----------
    job: that of `ranks`, with any layout and recomputation. known: cached results of jobs that
        differ in layouts, and in the number of recomputed layers of a block.
    """
    ends, found, known = ends_of(job.pipeline), [], {} if known is None else known
    chains = {kind: ranks.elements(kind) for kind in set(ranks.kinds)}
    moved = {kind: moved_seconds(job, ranks.network, kind) for kind in chains}
    for number, (start, stop) in enumerate(pairwise(ends)):
        kind = ranks.kinds[job.rank_of(number)]
        key = (kind, start, stop, job.settings.recompute.layers)
        if key in known:
            found.append(known[key])
            continue
        elements, edges = chains[kind][start:stop], (start == 0, stop == ends[-1])
        again = recomputed(job.settings.recompute, elements, embedding=edges[0], output=edges[1])
        host = None
        if sent := moved[kind][start:stop]:
            host = waits(job, elements, sent, embedding=edges[0], output=edges[1])
        known[key] = Stage(elements, again, host)
        found.append(known[key])
    return found


def timeline(job: TrainingJob, times: StageTimes) -> Timeline:
    """Run the micro-batches of an iteration, operation by operation.

    Messages between stages travel while ranks compute with several virtual stages, as is Megatron's
    default for them; otherwise both ends wait. In groups of more micro-batches than ranks, early
    arrivals lie ready, and messages count as overlapped anyway.
    """
    turn = job.settings.turn if job.virtual > 1 else 0
    shape = (job.pp, job.micro_batches, job.virtual, turn or None)
    return simulate(schedule_orders(job.schedule.name, *shape), times, blocking=not travels(job))


def travels(job: TrainingJob) -> bool:
    """Tell whether messages travel while ranks compute (`timeline`)."""
    own = job.settings
    return job.virtual > 1 and (own.overlap_sends or own.turn not in (0, job.pp))


def slowest_seconds(job: TrainingJob, times: StageTimes) -> float:
    """Return how long the rank with most work is busy; no iteration takes less."""
    return job.micro_batches * max(rank_seconds(job, times))


def rank_seconds(job: TrainingJob, times: StageTimes) -> list[float]:
    """Return the seconds of a micro-batch on every pipeline rank."""
    passes = times.forward + times.backward
    return [float(sum(passes[list(job.stages_of(rank))])) for rank in range(job.pp)]


def iteration_terms(
    ranks: RankCosts,
    job: TrainingJob,
    times: StageTimes | None = None,
    known: dict[object, Any] | None = None,
) -> dict[str, float]:
    """Return the seconds of an iteration, by term.

    Parameters
    ----------
    job, known: as in `stages_of`. times: of its stages.
    """
    times = times or stage_times(ranks, job, stages_of(ranks, job, known))
    slowest = slowest_seconds(job, times)
    _, longest = ranks.longest_sync(job, known)
    return {
        SLOWEST: slowest,
        WAITING: max(0.0, timeline(job, times).seconds - slowest),
        SYNC: longest,
        TIED: ranks.tied_seconds,
        STEP: ranks.step_seconds,
    }


def recomputed(
    recompute: Recompute, elements: Sequence[ElementTime], *, embedding: bool, output: bool
) -> float:
    """Return the recomputation seconds of a (virtual) stage of these elements."""
    layers = elements[int(embedding) : len(elements) - int(output)]
    if recompute.granularity == "none":
        return 0.0
    if recompute.granularity == "selective":
        return sum(layer.parts.get(name, 0.0) for layer in layers for name in recompute.modules)
    count = recompute.layers if recompute.method == "block" else len(layers)
    return sum(layer.again for layer in layers[:count])

"""Seconds of an iteration of a training job: its virtual stages, its schedule, its gradients."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from ilp_planner.spaces.megatron.job import ends_of
from ilp_planner.spaces.megatron.shares import AGAIN, COMPUTE, SENDING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.spaces.megatron.ranks import RankCosts
    from ilp_planner.spaces.megatron.times import ElementTime
    from ilp_planner.specs.training import Recompute

MESSAGES = "messages within layers"
SYNC = "gradient reduction, optimiser step and parameter gathering"
TIED = "gradient of the tied embedding"
STEP = "what no rank does"


def stage_terms(ranks: RankCosts) -> list[dict[str, float]]:
    """Return what a micro-batch takes in every virtual stage, forward and backward, by terms."""
    ends, job = ends_of(ranks.job.pipeline), ranks.job
    found = []
    for number, (start, stop) in enumerate(pairwise(ends)):
        rank = number % job.pp
        elements = ranks.elements(ranks.kinds[rank])[start:stop]
        again = recomputed(
            job.settings.recompute, elements, embedding=start == 0, output=stop == ends[-1]
        )
        found.append(
            {
                COMPUTE: sum(element.compute for element in elements),
                MESSAGES: sum(element.messages for element in elements),
                AGAIN: again,
                SENDING: 0.0 if stop == ends[-1] else ranks.transfers[rank],
            }
        )
    return found


def iteration_terms(ranks: RankCosts, stages: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return what an iteration of stages with such terms takes, by terms."""
    job, ends = ranks.job, ends_of(ranks.job.pipeline)
    spans = list(pairwise(ends))
    seconds = [sum(terms.values()) for terms in stages]
    loads = [sum(seconds[rank :: job.pp]) for rank in range(job.pp)]
    syncs = []
    for rank, kind in enumerate(ranks.kinds):
        fixed, each = ranks.sync(kind)
        held = sum(float(each[start:stop].sum()) for start, stop in spans[rank :: job.pp])
        syncs.append(fixed + held)
    return {
        "slowest stage": job.schedule.steady(loads),
        "pipeline fill": job.schedule.fill(loads),
        SYNC: max(syncs),
        TIED: ranks.tied_seconds,
        STEP: ranks.step_seconds,
    }


def recomputed(
    recompute: Recompute, elements: Sequence[ElementTime], *, embedding: bool, output: bool
) -> float:
    """Return the seconds that a (virtual) stage of these elements computes again."""
    layers = elements[int(embedding) : len(elements) - int(output)]
    if recompute.granularity == "none":
        return 0.0
    if recompute.granularity == "selective":
        return sum(layer.parts.get(name, 0.0) for layer in layers for name in recompute.modules)
    count = recompute.layers if recompute.method == "block" else len(layers)
    return sum(layer.again for layer in layers[:count])

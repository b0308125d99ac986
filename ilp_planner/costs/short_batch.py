"""The stages of a plan with other samples than a full micro-batch's: of a partial last one, and as
counted for messages."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.costs.base import StageCost
    from ilp_planner.plan import GroupPlan, GroupStage
    from ilp_planner.specs.cluster import ClusterSpec

COMPUTE, RECOMPUTE = "compute", "recompute"
"""Terms of a stage's time that keep its devices busy."""
LAST = "short micro-batch"
"""What the last one takes beyond the part of a full one that it is."""


def last_micro_batch(plan: GroupPlan) -> GroupPlan:
    """Return a plan with at most the last micro-batch's samples in every micro-batch."""

    def shared(stage: GroupStage) -> GroupStage:
        shares = [plan.batches.share_of_last(replica.samples) for replica in stage.replicas]
        return _with_samples(stage, shares)

    return replace(plan, stages=tuple(map(shared, plan.stages)))


def beyond_its_part(
    full: Sequence[StageCost], last: Sequence[StageCost], part: float
) -> tuple[float, float]:
    """Return the excess seconds of a partial last micro-batch over its fraction of a full one
    (`costs/groups.py`): on devices, and of messages.

    Parameters
    ----------
    full, last: the stages at the samples of either.
    """
    busy = [max(0.0, _busy(b) - part * _busy(a)) for a, b in zip(full, last, strict=True)]
    sent = sum(stage.time_terms["point-to-point"] for stage in last)
    return max(busy), (1 - part) * sent


def _busy(stage: StageCost) -> float:
    return stage.time_terms[COMPUTE] + stage.time_terms.get(RECOMPUTE, 0.0)


def as_sent(stage: GroupStage, cluster: ClusterSpec) -> GroupStage:
    """Return a stage with the samples counted for its messages: on devices of one type, its largest
    replica's, so that the choice of that replica does not matter."""
    shares = [replica.samples for replica in stage.replicas]
    if len(set(shares)) == 1 or len({cluster.type_of[d] for d in stage.devices}) > 1:
        return stage
    return _with_samples(stage, [max(shares)] * stage.dp)


def _with_samples(stage: GroupStage, shares: Sequence[int]) -> GroupStage:
    replicas = zip(stage.replicas, shares, strict=True)
    return replace(stage, replicas=tuple(replace(r, samples=x) for r, x in replicas))

"""The stages of a plan with other samples than those of a full micro-batch: those of a short last
one, and those that messages are counted with."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.plan import GroupPlan, GroupStage
    from ilp_planner.specs.cluster import ClusterSpec

LAST = "last, short micro-batch"


def last_micro_batch(plan: GroupPlan) -> GroupPlan:
    """Return a plan whose every micro-batch has the samples that the last one has, at most."""

    def shared(stage: GroupStage) -> GroupStage:
        shares = [plan.batches.share_of_last(replica.samples) for replica in stage.replicas]
        return _with_samples(stage, shares)

    return replace(plan, stages=tuple(map(shared, plan.stages)))


def as_sent(stage: GroupStage, cluster: ClusterSpec) -> GroupStage:
    """Return a stage with the samples that its messages are counted with: where all devices are of
    one type, those of its largest replica, so that it matters to nobody which replica that is."""
    shares = [replica.samples for replica in stage.replicas]
    if len(set(shares)) == 1 or len({cluster.type_of[d] for d in stage.devices}) > 1:
        return stage
    return _with_samples(stage, [max(shares)] * stage.dp)


def _with_samples(stage: GroupStage, shares: Sequence[int]) -> GroupStage:
    replicas = zip(stage.replicas, shares, strict=True)
    return replace(stage, replicas=tuple(replace(r, samples=x) for r, x in replicas))

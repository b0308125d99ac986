"""Sources of the seconds of a plan of whole layers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ilp_planner.costs.launch_floor import time_origins
from ilp_planner.costs.layer_stage import pieces, stage_seconds
from ilp_planner.costs.profiles.shares import LINKS, Tally
from ilp_planner.costs.profiles.table import Origin, Provenance
from ilp_planner.costs.short_batch import LAST, last_micro_batch

if TYPE_CHECKING:
    from ilp_planner.costs.layers import LayerCosts
    from ilp_planner.costs.profiles.layers import LayerKey, LayerProfile
    from ilp_planner.plan import GroupPlan, GroupStage
    from ilp_planner.specs.cluster import ClusterSpec


def layer_tally(costs: LayerCosts, plan: GroupPlan, cluster: ClusterSpec) -> Tally:
    """Return the seconds of an iteration; none of a plan that cannot be priced.

    The slowest stage counts with every micro-batch and each other one once, as in the iteration
    time itself. Messages come from the cluster's description of its links.
    """
    cost = costs.plan_cost(plan, cluster)
    if not math.isfinite(cost.iteration_time):
        return Tally()
    tally = Tally()
    counts = plan.schedule.counts([stage.time for stage in cost.stages])
    for stage, found, count in zip(plan.stages, cost.stages, counts, strict=True):
        key = costs.slowest(stage, cluster)
        if key is not None:
            for rows, layers in pieces(costs, stage):
                for origin, seconds in time_origins(rows.profile, key, rows.row(key)):
                    tally.add(origin, count * float(seconds[layers].sum()))
        tally.add(LINKS, count * found.time_terms["point-to-point"])
    if plan.batches.short:
        _add_last(tally, costs, plan, cost.terms[LAST], cluster)
    peaks = costs.peaks(plan, cluster)
    last = max(range(len(peaks)), key=lambda number: sum(peaks[number]))
    tally.add(LINKS, peaks[last][0])
    tally.add(step_origin(costs.profile, plan, last, cluster), peaks[last][1])
    return tally


def _add_last(
    tally: Tally, costs: LayerCosts, plan: GroupPlan, seconds: float, cluster: ClusterSpec
) -> None:
    """Add the excess of a partial last micro-batch, with the sources of the slowest stage's rows
    for it."""
    stages = last_micro_batch(plan).stages
    keys = [(stage, key) for stage in stages if (key := costs.slowest(stage, cluster)) is not None]

    def busy(stage: GroupStage, key: LayerKey) -> float:
        return stage_seconds(pieces(costs, stage), key)

    stage, key = max(keys, key=lambda one: busy(*one))
    for rows, layers in pieces(costs, stage):
        for origin, each in time_origins(rows.profile, key, rows.row(key)):
            share = float(each[layers].sum()) / busy(stage, key)
            tally.add(origin, seconds * share)


def step_origin(
    profile: LayerProfile, plan: GroupPlan, number: int, cluster: ClusterSpec
) -> Origin:
    """Return the source of the seconds of a stage's optimiser step: the profile if it has them, and
    has measured anything of that degree."""
    stage = plan.stages[number]
    pairs = {(cluster.type_of[d], r.tp) for r in stage.replicas for d in r.devices}
    if not all(pair in profile.optimizer for pair in pairs):
        return Origin(Provenance.ANALYTIC)
    # Rows that leave their messages to links are not measured as a whole.
    partly = (key for key, parts in profile.origins.items() if Provenance.MEASURED in parts)
    measured = {(key.device, key.tp) for key in (*profile.measured, *partly)}
    if pairs <= measured:
        return Origin(Provenance.MEASURED)
    known = profile.measured or profile.origins
    return Origin(Provenance.EXTRAPOLATED if known else Provenance.ANALYTIC)

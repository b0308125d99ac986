"""Where the seconds of a plan for Megatron-LM come from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ilp_planner.costs.launch_floor import time_origins
from ilp_planner.costs.layer_shares import step_origin
from ilp_planner.profiles.shares import LINKS, Tally
from ilp_planner.profiles.table import Origin, Provenance

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ilp_planner.costs.base import PlanCost
    from ilp_planner.plan import GroupPlan
    from ilp_planner.spaces.megatron.ranks import RankCosts

COMPUTE, AGAIN = "compute", "recomputation"
WAITING = "pipeline fill, sends and waiting"


def megatron_tally(ranks: RankCosts, plan: GroupPlan, cost: PlanCost) -> Tally:
    """Return the seconds of an iteration.

    The slowest rank counts with every micro-batch; what it waits are sends, where both ends wait
    for them, and the other ranks' work while the pipeline fills. Without a profile everything is an
    estimate; with one, the layers are its own, and recomputation where it says what a forward pass
    takes (otherwise it is a third of both, an extrapolation). So are optimiser steps that it has,
    and the messages of links that it has measured.
    """
    tally = Tally()
    loads = plan.per_rank([stage.time for stage in cost.stages])
    slowest, waiting = loads.index(max(loads)), cost.terms[WAITING]
    sent = plan.micro_batches * ranks.transfers[slowest] if plan.virtual == 1 < plan.ranks else 0.0
    sent = min(sent, waiting)
    tally.add(ranks.transfer_origin(slowest), sent)
    others = sum(loads) - loads[slowest]
    if not others:
        tally.add(LINKS, waiting - sent)
    for number, (stage, found) in enumerate(zip(plan.stages, cost.stages, strict=True)):
        rank = number % plan.ranks
        weight = plan.micro_batches if rank == slowest else (waiting - sent) / others
        terms = dict(found.time_terms)
        if ranks.profile is not None:
            key = ranks.slowest(ranks.kinds[rank])
            row = ranks.row(ranks.profile, key)
            parts = [
                (origin, float(seconds[stage.start : stage.stop].sum()))
                for origin, seconds in time_origins(ranks.profile, key, row)
            ]
            total = sum(seconds for _, seconds in parts)
            for origin, seconds in parts if total > 0 else ():
                share = seconds / total
                tally.add(origin, weight * share * terms[COMPUTE])
                again = (
                    Origin(Provenance.EXTRAPOLATED) if key not in ranks.profile.forward else origin
                )
                tally.add(again, weight * share * terms[AGAIN])
            terms = {name: spent for name, spent in terms.items() if name not in (COMPUTE, AGAIN)}
        tally.add(LINKS, weight * sum(terms.values()))
    tally.add(ranks.constant_origin(), ranks.tied_seconds)
    tally.add(LINKS, ranks.step_seconds)
    _add_sync(tally, ranks, plan)
    return tally


def _add_sync(tally: Tally, ranks: RankCosts, plan: GroupPlan) -> None:
    """Count the rings and the optimiser's step of the rank that takes longest for both."""
    slowest, _ = ranks.longest_sync((0, *(stage.stop for stage in plan.stages)))
    kind = ranks.kinds[slowest]
    for share, ring in ranks.exposed_rings(kind):
        size = _held(ring.sizes, plan, slowest)
        tally.add(ring.origin(size), share * (ring.latency + ring.per_byte * size))
    origin = LINKS
    if ranks.profile is not None:
        origin = step_origin(ranks.profile, plan, slowest, ranks.network.cluster)
    tally.add(origin, _held(ranks.step(kind), plan, slowest))


def _held(each: NDArray[np.float64], plan: GroupPlan, rank: int) -> float:
    """Return the sum over the elements of a pipeline rank."""
    return sum(float(each[s.start : s.stop].sum()) for s in plan.stages[rank :: plan.ranks])

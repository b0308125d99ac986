"""Where the seconds of a plan for Megatron-LM come from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ilp_planner.costs.launch_floor import time_origins
from ilp_planner.profiles.shares import LINKS, Tally
from ilp_planner.profiles.table import Origin, Provenance

if TYPE_CHECKING:
    from ilp_planner.costs.groups import PlanCost
    from ilp_planner.costs.megatron.ranks import RankCosts
    from ilp_planner.plan import GroupPlan

COMPUTE, AGAIN = "compute", "recomputation"


def megatron_tally(ranks: RankCosts, plan: GroupPlan, cost: PlanCost, *analytic: str) -> Tally:
    """Return the seconds of an iteration.

    The slowest rank counts with every micro-batch and each other one once. Without a profile
    everything is an estimate; with one, the layers are its own, and recomputation where it says
    what a forward pass takes (otherwise it is a third of both, an extrapolation).

    Parameters
    ----------
    analytic: terms of the plan's cost that are estimates in any case.
    """
    tally = Tally()
    loads = [
        sum(stage.time for stage in cost.stages[rank :: plan.ranks]) for rank in range(plan.ranks)
    ]
    slowest = loads.index(max(loads))
    for number, (stage, found) in enumerate(zip(plan.stages, cost.stages, strict=True)):
        rank = number % plan.ranks
        weight = 1 / plan.virtual
        weight += plan.micro_batches - 1 / plan.virtual if rank == slowest else 0.0
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
    tally.add(LINKS, sum(cost.terms[name] for name in analytic))
    return tally

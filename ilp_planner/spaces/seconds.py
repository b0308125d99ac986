"""Terms of an iteration's seconds, by the work of the slowest rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ilp_planner.costs.base import PlanCost
    from ilp_planner.plan import Plan

FILL = "pipeline fill and waiting"


def seconds_of_slowest(plan: Plan[Any], cost: PlanCost) -> dict[str, float]:
    """Return seconds of an iteration by name, which add up to its time.

    The time of micro-batches in stages (`PlanCost.passing`) is the slowest rank's work with all of
    them, by the terms of its own stages; all else of it is waiting for other ranks. The other terms
    of the cost stay as they are, and so do all of a cost without this distinction.
    """
    if not cost.passing:
        return dict(cost.terms)
    loads = plan.per_rank([stage.time for stage in cost.stages])
    slowest = loads.index(max(loads))
    found: dict[str, float] = {}
    for number in plan.schedule.stages_of(slowest, plan.ranks):
        for name, seconds in cost.stages[number].time_terms.items():
            found[name] = found.get(name, 0.0) + plan.micro_batches * seconds
    passing = sum(cost.terms[name] for name in cost.passing)
    found[FILL] = passing - sum(found.values())
    return found | {name: s for name, s in cost.terms.items() if name not in cost.passing}

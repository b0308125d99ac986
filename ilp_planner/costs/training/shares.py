"""Sources of the seconds of a plan for Megatron-LM."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ilp_planner.costs.profiles.message_times import worst
from ilp_planner.costs.profiles.shares import LINKS, Tally
from ilp_planner.costs.training.times import element_messages

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ilp_planner.costs.base import PlanCost
    from ilp_planner.costs.profiles.table import Origin
    from ilp_planner.costs.training.measured import Timed
    from ilp_planner.costs.training.ranks import RankCosts
    from ilp_planner.plan import GroupPlan

COMPUTE, AGAIN = "compute", "recomputation"
MESSAGES = "messages within layers"
WAITING = "pipeline fill, sends and waiting"


def megatron_tally(ranks: RankCosts, plan: GroupPlan, cost: PlanCost) -> Tally:
    """Return the seconds of an iteration.

    The slowest rank counts with every micro-batch; its waits are sends, if both ends wait for them,
    and the other ranks' work while the pipeline fills. Without a profile everything is an estimate;
    with one, layers with a row are its own, and recomputation if the row has a forward pass
    (otherwise it is an extrapolation); all other layers are scaled kernels. Its own are optimiser
    steps that it has, and the messages of links that it has measured.
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
        rank = plan.rank_of(number)
        weight = plan.micro_batches if rank == slowest else (waiting - sent) / others
        terms = dict(found.time_terms)
        if ranks.profile is not None:
            chain = ranks.slowest(ranks.kinds[rank])[stage.start : stage.stop]
            parts = {
                COMPUTE: [(e.origin, e.time.compute) for e in chain],
                AGAIN: [(e.again, e.time.forward) for e in chain],
                MESSAGES: [part for e in chain for part in _sent(ranks, e, rank)],
            }
            for name, seconds in parts.items():
                _divide(tally, weight * terms[name], seconds)
            terms = {}
        tally.add(LINKS, weight * sum(terms.values()))
    tally.add(ranks.constant_origin(), ranks.tied_seconds)
    tally.add(LINKS, ranks.step_seconds)
    _add_sync(tally, ranks, plan)
    return tally


def _add_sync(tally: Tally, ranks: RankCosts, plan: GroupPlan) -> None:
    """Count the rings and the optimiser's step of the rank that takes longest for both."""
    slowest, _ = ranks.longest_sync(ranks.job)
    kind = ranks.kinds[slowest]
    for share, ring in ranks.exposed_rings(kind):
        size = _held(ring.sizes, plan, slowest)
        tally.add(ring.origin(size), share * (ring.latency + ring.per_byte * size))
    names = ranks.network.stage_types(ranks.job, kind)
    origin = LINKS
    if ranks.profile is not None:
        origin = worst([ranks.profile.step_origin(name, ranks.job.tp) for name in names])
    tally.add(origin, _held(ranks.step(kind), plan, slowest))


def _divide(tally: Tally, total: float, parts: list[tuple[Origin, float]]) -> None:
    """Count seconds, divided like the parts are among their origins; of no parts, by estimate."""
    whole = sum(seconds for _, seconds in parts)
    for origin, seconds in parts if whole > 0 else [(LINKS, 1.0)]:
        tally.add(origin, total * seconds / (whole or 1.0))


def _sent(ranks: RankCosts, element: Timed, rank: int) -> list[tuple[Origin, float]]:
    """Return the sources of the seconds of an element's messages."""
    if ranks.links is None:
        return [(LINKS, element.time.messages)]
    job, net, links = ranks.job, ranks.network, ranks.links
    parts = [
        (
            net.message_origin(job, message, rank, links),
            net.message_seconds(job, [message], rank, links),
        )
        for message in element_messages(job, element.kind)
    ]
    whole = sum(seconds for _, seconds in parts)
    return [
        (origin, element.time.messages * seconds / whole) for origin, seconds in parts if whole > 0
    ]


def _held(each: NDArray[np.float64], plan: GroupPlan, rank: int) -> float:
    """Return the sum over the elements of a pipeline rank."""
    own = (plan.stages[k] for k in plan.schedule.stages_of(rank, plan.ranks))
    return sum(float(each[s.start : s.stop].sum()) for s in own)

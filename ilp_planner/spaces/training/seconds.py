"""Terms of a training job's iteration time, with its messages by purpose."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from ilp_planner.costs.training.iteration import AGAIN, COMPUTE, MESSAGES, STEP, TIED, WAITING
from ilp_planner.costs.training.times import job_passes
from ilp_planner.job.traffic import FAMILIES, FAMILY
from ilp_planner.spaces.seconds import FILL

if TYPE_CHECKING:
    from ilp_planner.costs.base import PlanCost
    from ilp_planner.costs.training.ranks import RankCosts
    from ilp_planner.plan import GroupPlan

SENDS = "pipeline communication"
DATA = "data communication"
OPTIMISER = "optimiser step"


def communication(family: str) -> str:
    """Return the name of the seconds that messages of a family take."""
    return f"{family} communication"


def job_seconds(ranks: RankCosts, plan: GroupPlan, cost: PlanCost) -> dict[str, float]:
    """Return seconds of an iteration by name, which add up to its time.

    The slowest rank counts with every micro-batch. Its messages to other stages count if both ends
    wait for them, in 1F1B; messages that virtual stages send while they compute show as waiting.
    Gradients and the optimiser's step are from the slowest rank in both.
    """
    loads = plan.per_rank([stage.time for stage in cost.stages])
    slowest, count = loads.index(max(loads)), plan.micro_batches
    found = dict.fromkeys((COMPUTE, AGAIN, *map(communication, FAMILIES)), 0.0)
    for number in plan.schedule.stages_of(slowest, plan.ranks):
        stage = plan.stages[number]
        terms = cost.stages[number].time_terms
        sent = _messages(ranks, slowest, stage.start, stage.stop, terms[MESSAGES])
        for name, seconds in ({**terms, **sent}).items():
            if name != MESSAGES:
                found[name] = found.get(name, 0.0) + count * seconds
    waiting = cost.terms[WAITING]
    blocking = plan.virtual == 1 < plan.ranks
    sends = min(waiting, count * ranks.transfers[slowest]) if blocking else 0.0
    found[SENDS] += sends
    found[FILL] = waiting - sends
    step, rings = _synchronisation(ranks, plan)
    found[DATA] += rings
    found[OPTIMISER] = step
    found[SENDS] += cost.terms[TIED]
    found[STEP] = cost.terms[STEP]
    return {name: seconds for name, seconds in found.items() if seconds or name == COMPUTE}


def _messages(ranks: RankCosts, rank: int, start: int, stop: int, total: float) -> dict[str, float]:
    """Return the seconds of a micro-batch's messages within layers of the chain, by families.

    Each family counts the saving of leaving it out, after the families before it. The rest of the
    total are waits of layers for sharded gradients and parameters, counted as data parallelism. Of
    layers that were measured, the parts of the total are in proportion to estimates of them.
    """
    kind = ranks.kinds[rank]
    sent = defaultdict[str, float](float)
    for name, times in _kinds_between(ranks, start, stop).items():
        for family, seconds in _by_family(ranks, kind, name).items():
            sent[family] += times * seconds
    estimated = sum(sent.values())
    if ranks.profile is not None or estimated > total:
        share = total / estimated if estimated else 0.0
        found = {communication(family): share * s for family, s in sent.items()}
        rest = total - sum(found.values())
    else:
        found = {communication(family): s for family, s in sent.items()}
        rest = total - estimated
    found[DATA] = found.get(DATA, 0.0) + rest
    return found


def _kinds_between(ranks: RankCosts, start: int, stop: int) -> Counter[str]:
    """Return how many elements of each kind, as `JobPasses` names them, a range has."""
    names = [
        "embedding",
        *("expert" if experts else "dense" for experts in ranks.job.model.expert_layers),
        "output",
    ]
    return Counter(names[start:stop])


def _by_family(ranks: RankCosts, kind: int, element: str) -> dict[str, float]:
    """Return family -> seconds of an element's messages for a micro-batch, on the slowest device
    type."""
    job, network = ranks.job, ranks.network
    key = ("families", ranks.seen(kind), element)
    if key in ranks.known:
        known: dict[str, float] = ranks.known[key]
        return known
    types = [network.cluster.device_types[name] for name in network.stage_types(job, kind)]
    without: set[str] = set()
    left, found = None, {}
    for family in ("", *FAMILIES):
        without |= {group for group, own in FAMILY.items() if own == family}
        passes = (
            getattr(
                job_passes(job, network, device, kind, links=ranks.links, without=without), element
            )
            for device in types
        )
        seconds = max(0.0 if one is None else sum(one.sent) for one in passes)
        if left is not None:
            found[family] = left - seconds
        left = seconds
    ranks.known[key] = found
    return found


def _synchronisation(ranks: RankCosts, plan: GroupPlan) -> tuple[float, float]:
    """Return the seconds of the optimiser's step and of its messages, on the slowest rank in
    both."""
    slowest, whole = ranks.longest_sync(ranks.job)
    each = ranks.step(ranks.kinds[slowest])
    own = (plan.stages[k] for k in plan.schedule.stages_of(slowest, plan.ranks))
    step = sum(float(each[s.start : s.stop].sum()) for s in own)
    return step, whole - step

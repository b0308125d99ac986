"""The cost of a stage of whole layers, and the sources of a plan's seconds."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.costs.base import StageCost
from ilp_planner.costs.group_network import stage_transfer
from ilp_planner.costs.launch_floor import time_origins
from ilp_planner.costs.profiles.layers import LayerKey
from ilp_planner.costs.profiles.shares import LINKS, Tally
from ilp_planner.costs.profiles.table import Origin, Provenance

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.costs.layer_rows import LayerRows
    from ilp_planner.costs.layers import LayerCosts
    from ilp_planner.costs.profiles.layers import LayerProfile
    from ilp_planner.plan import GroupPlan, GroupStage, Replica
    from ilp_planner.specs.cluster import ClusterSpec


# ---- stages with other samples than a full micro-batch's -----------------------------------------
# Of a partial last one, and as counted for messages.


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


# ---- one stage of whole layers, judged on the devices that it names ------------------------------


class Piece(NamedTuple):
    """Layers of a stage that the same rows price."""

    rows: LayerRows
    layers: slice


def pieces(rows: LayerRows, stage: GroupStage) -> tuple[Piece, ...]:
    """Return the layers of a stage that are recomputed, if any, and then the others."""
    recompute, start, stop = stage.recompute, stage.start, stage.stop
    if recompute.granularity == "none":
        return (Piece(rows, slice(start, stop)),)
    cut = stop
    if recompute.kind == "block":
        cut = min(stop, max(start, 1) + recompute.layers)
    again = Piece(rows.again[recompute.granularity], slice(start, cut))
    return (again, Piece(rows, slice(cut, stop))) if cut < stop else (again,)


def stage_seconds(parts: Sequence[Piece], key: LayerKey) -> float:
    """Return seconds of a micro-batch through a stage on one replica."""
    return sum(float(part.rows.row(key)[part.layers].sum()) for part in parts)


def stage_needs(parts: Sequence[Piece], key: LayerKey, in_flight: int) -> dict[str, float]:
    """Return bytes of a stage on one device, by name."""
    every = [part.rows.needs(key, part.layers, in_flight) for part in parts]
    largest = max(needs.pop("workspace") for needs in every)
    sums = {name: sum(needs[name] for needs in every) for name in every[0]}
    return {**sums, "workspace": largest}


def stage_cost(
    rows: LayerRows,
    stage: GroupStage,
    after: tuple[GroupStage, ...],
    in_flight: int,
    cluster: ClusterSpec,
) -> StageCost:
    """Judge a stage before others that holds so many micro-batches."""
    compute, missing = 0.0, []
    slowest: LayerKey | None = None
    memory: list[float] = []
    fullest: dict[str, float] = {}
    for replica in stage.replicas:
        held: dict[str, float] = {}
        for name in types_of(replica, cluster):
            if (name, replica.tp) not in rows.profiled:
                compute = math.inf
                missing.append(f"{name}, tp {replica.tp}")
                continue
            key = LayerKey(name, replica.tp, replica.samples)
            if rows.too_many(key):
                compute = math.inf
                missing.append(f"{name}, tp {replica.tp}, {key.samples} samples, which failed")
            seconds, needs = _judged(rows, stage, key, in_flight)
            if seconds > compute:
                compute, slowest = seconds, key
            held = max(held, needs, key=lambda terms: sum(terms.values()))
        if len({cluster.node_of[d] for d in replica.devices}) > 1:
            missing.append("tensor-parallel ranks on several nodes")
        memory.append(sum(held.values()))
        if not fullest or memory[-1] > sum(fullest.values()):
            fullest = held
    sending = 0.0
    if after:
        transfer = stage_transfer(as_sent(stage, cluster), after[0], cluster)
        sending = transfer.seconds(float(rows.profile.boundary[stage.stop]))
    terms = {COMPUTE: compute, "point-to-point": sending}
    if stage.recompute.granularity != "none" and slowest is not None:
        once = float(rows.row(slowest)[stage.start : stage.stop].sum())
        terms |= {COMPUTE: once, RECOMPUTE: compute - once}
    return StageCost(
        time=compute + sending,
        memory=tuple(memory),
        time_terms=terms,
        memory_terms={**fullest},
        unprofiled=tuple(dict.fromkeys(missing)),
    )


def _judged(
    rows: LayerRows, stage: GroupStage, key: LayerKey, in_flight: int
) -> tuple[float, dict[str, float]]:
    """Return the seconds and the bytes of a stage on a replica, cached for plans that put it on
    other devices: of those to look through there may be a thousand."""
    own = stage.start, stage.stop, stage.recompute, key, in_flight
    found = rows.judged.get(own)
    if found is None:
        parts = pieces(rows, stage)
        found = stage_seconds(parts, key), stage_needs(parts, key, in_flight)
        rows.judged.keep(own, found, 1)
    return found


def types_of(replica: Replica, cluster: ClusterSpec) -> tuple[str, ...]:
    """Return the device types of a replica, each once."""
    return tuple(dict.fromkeys(cluster.type_of[d] for d in replica.devices))


# ---- sources of a plan's seconds -----------------------------------------------------------------


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

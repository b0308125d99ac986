"""One stage of whole layers, judged on the devices that it names."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.costs.base import StageCost
from ilp_planner.costs.group_network import stage_transfer
from ilp_planner.costs.profiles.layers import LayerKey
from ilp_planner.costs.short_batch import COMPUTE, RECOMPUTE, as_sent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.costs.layer_rows import LayerRows
    from ilp_planner.plan import GroupStage, Replica
    from ilp_planner.specs.cluster import ClusterSpec


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
    parts = pieces(rows, stage)
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
            seconds = stage_seconds(parts, key)
            if seconds > compute:
                compute, slowest = seconds, key
            needs = stage_needs(parts, key, in_flight)
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
        memory_terms=fullest,
        unprofiled=tuple(dict.fromkeys(missing)),
    )


def types_of(replica: Replica, cluster: ClusterSpec) -> tuple[str, ...]:
    """Return the device types of a replica, each once."""
    return tuple(dict.fromkeys(cluster.type_of[d] for d in replica.devices))

"""The planner's own cost model of whole layers on groups of devices that may differ.

A stage of layers [i, j) with replicas r of tp_r devices, x_r samples of every micro-batch each, at
most those of its largest one if all are of one type:

    u      = max over r of sum of time(d_r, tp_r, x_r) over [i, j)   (costs/launch_floor.py)
             + transfer to the next stage, there and back            (costs/group_network.py)
    peak   = ring all-reduce of the gradients (costs/group_network.py)
             + optimiser step of the slowest device: nothing hides either
    memory = state + in_flight * x_r * activation + max over layers of workspace
    in_flight: micro-batches that the schedule holds      (schedule/formulas.py)

or what the profile says of layers that are recomputed      (costs/recomputed_layers.py).

1F1B without overlap waits for a transfer at the sender, so it adds to the time of every
micro-batch. The sending stage's cards carry both directions.

A partial last micro-batch takes the time of its samples, with each replica's share in proportion,
rounded up (`batches`, `costs/groups.py`). Unprofiled numbers of samples are on straight lines
between profiled ones.

Sharing of a micro-batch's samples among replicas of different speed.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import reduce
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ilp_planner.costs.base import PlanCost, StageCost
from ilp_planner.costs.group_network import (
    Transfer,
    best_across,
    best_ring,
    best_transfer,
    fits_nodes,
    loads_of,
    seen_from,
    shared_rings,
    stage_ring,
)
from ilp_planner.costs.groups import GroupClass, GroupOption, OptionTables
from ilp_planner.costs.launch_floor import DEFAULT, Calibration
from ilp_planner.costs.layer_rows import Kept, LayerRows
from ilp_planner.costs.layer_shares import (
    LAST,
    beyond_its_part,
    last_micro_batch,
    layer_tally,
    pieces,
    stage_cost,
    stage_seconds,
    types_of,
)
from ilp_planner.costs.profiles.layers import LayerKey, LayerProfile
from ilp_planner.costs.recomputed_layers import (
    NONE,
    Runs,
    known_kinds,
    most_held,
    recomputed_stages,
    rows_needed,
)
from ilp_planner.schedule.batches import Batches
from ilp_planner.specs.data_sheets import memory_rates

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ilp_planner.costs.profiles.shares import Share
    from ilp_planner.costs.profiles.table import Provenance
    from ilp_planner.plan import GroupPlan, GroupStage
    from ilp_planner.specs.cluster import ClusterSpec


# ---- sample split --------------------------------------------------------------------------------


def share_samples(
    times: Sequence[NDArray[np.float64]], replicas: Sequence[int], samples: int
) -> tuple[int, ...] | None:
    """Share whole samples, at least one per replica, so that the slowest replica is least.

    Giving every further sample to the replica that is then the fastest is optimal, because more
    samples never take less time: the running maximum of a table counts.

    Parameters
    ----------
    times: per kind of replica, seconds of 0, 1, ... `samples` samples.
    replicas: how many there are of each kind.
    samples: to share.

    Returns
    -------
    Samples of each replica, kind by kind, the larger shares first; None when there are fewer
    samples than replicas.
    """
    kinds = [kind for kind, count in enumerate(replicas) for _ in range(count)]
    if not kinds or samples < len(kinds):
        return None
    rising = [np.maximum.accumulate(seconds) for seconds in times]
    used = [kind for kind, count in enumerate(replicas) if count]
    if len(used) == 1:
        each, left = divmod(samples, len(kinds))
        return tuple(each + (i < left) for i in range(len(kinds)))
    # Seconds of every further sample of a replica of each kind, in the order of its samples.
    further = [rising[kind][2 : samples + 1] for kind in used]
    counts = [replicas[kind] for kind in used]
    missing = samples - len(kinds)
    if not missing:
        return (1,) * len(kinds)
    last = _least_ceiling(further, counts, missing)
    given = [int(np.searchsorted(seconds, last, side="left")) for seconds in further]
    missing -= sum(count * more for count, more in zip(counts, given, strict=True))
    shares: list[int] = []
    # Ties go to the earlier kind, then to the replica with the smaller share.
    for seconds, count, more in zip(further, counts, given, strict=True):
        equal = int(np.searchsorted(seconds, last, side="right")) - more
        ties = min(missing, count * equal)
        missing -= ties
        shares += [1 + more + ties // count + (i < ties % count) for i in range(count)]
    return tuple(shares)


def _least_ceiling(
    further: Sequence[NDArray[np.float64]], counts: Sequence[int], missing: int
) -> float:
    """Return the least seconds that suffice for the replicas to take that many samples more."""

    def enough(ceiling: float) -> bool:
        taken = (
            count * np.searchsorted(seconds, ceiling, side="right")
            for seconds, count in zip(further, counts, strict=True)
        )
        return int(sum(taken)) >= missing

    least = np.inf
    for seconds in further:
        # one kind alone could take all of them, were it slow enough
        least = min(least, float(seconds[bisect_left(seconds, True, key=enough)]))
    return least


# ---- layers --------------------------------------------------------------------------------------


PEAK = "gradient all-reduce and optimiser step"


def layer_costs(
    profile: LayerProfile,
    cluster: ClusterSpec,
    limits: Mapping[str, float] | None = None,
    calibration: Calibration = DEFAULT,
    *,
    uneven: bool = True,
    mixed_tp: bool = False,
    spread: bool = False,
    recomputations: Sequence[str] = (),
) -> LayerCosts:
    """Return the native cost model of a profile on a cluster.

    Parameters
    ----------
    profile: with the cluster's names of device types (`profiles.device_names.for_cluster`).
    limits: device type -> bytes per device; by default the devices' whole memory.
    uneven, mixed_tp, spread, recomputations: as `LayerCosts` has them.
    """
    if limits is None:
        limits = {name: float(cluster.device_types[name].memory) for name in cluster.type_names}
    rates = memory_rates(cluster)
    return LayerCosts(
        profile,
        limits,
        rates=rates,
        calibration=calibration,
        uneven=uneven,
        mixed_tp=mixed_tp,
        spread=spread,
        recomputations=recomputations,
    )


MOST_KEPT = 20_000  # replicas of the stages whose judgements are kept


class _Judged(NamedTuple):
    """Judgements of stages on a cluster, by the stage, the next one and the micro-batches that it
    holds; and results of `LayerCosts.peak_parts`."""

    cluster: ClusterSpec
    stages: Kept[StageCost]
    peaks: Kept[tuple[float, float]]


class LayerCosts(LayerRows):
    """The planner's predictions for mixed clusters (`GroupTables`).

    Parameters
    ----------
    profile, limits, rates: as `LayerRows` has them.
    uneven: replicas of one type may differ by a sample, and the last micro-batch may be short.
    mixed_tp: replicas of one stage may have a tensor-parallel degree for each device type.
    spread: replicas of a stage may be spread evenly over nodes of one type.
    recomputations: kinds of recomputation that stages may have; all that the profile knows where
    none are named.
    """

    name = "native"

    def __init__(
        self,
        profile: LayerProfile,
        limits: Mapping[str, float],
        *,
        rates: Mapping[str, float] | None = None,
        calibration: Calibration = DEFAULT,
        uneven: bool = True,
        mixed_tp: bool = False,
        spread: bool = False,
        recomputations: Sequence[str] = (),
    ) -> None:
        super().__init__(
            profile,
            limits,
            rates=rates,
            calibration=calibration,
            recomputed=rows_needed(recomputations),
        )
        self.uneven, self.mixed_tp, self.spread = uneven, mixed_tp, spread
        self.recomputations = known_kinds(self, recomputations)
        self._transfers: tuple[ClusterSpec | None, dict[object, Transfer]] = (None, {})
        self._seen: dict[object, object] = {}
        self._nonempty = np.triu(np.ones(self._gradients.shape, bool), 1)
        self._last: tuple[object, dict[object, Any]] = (None, {})
        self._known: _Judged | None = None

    # ---- the optimiser's side -------------------------------------------------------------------

    def degrees(self) -> dict[str, tuple[int, ...]]:
        """Return the tensor-parallel degrees that each device type is profiled for."""
        return {device: self.profile.degrees(device) for device in self.profile.devices}

    def constant(self, micro_batches: int) -> float:
        """Nothing is the same for every plan."""
        return 0.0

    def split(
        self, option: GroupOption, samples: int, cluster: ClusterSpec
    ) -> tuple[int, ...] | None:
        """Share the samples of a micro-batch over an option's replicas, in the order of the types.

        Equal replicas take equally many, or some of them one more; unequal ones share so that the
        slowest, by its time through the whole model, is least. None if that is impossible.
        """
        kinds = _kinds(option, cluster)
        total = sum(n for _, _, n in kinds)
        if samples < total:
            return None
        if len(kinds) == 1:
            each, more = divmod(samples, total)
            equal = self.uneven or not more
            return (each + 1,) * more + (each,) * (total - more) if equal else None
        curves = [self._curve(name, tp, samples) for name, tp, _ in kinds]
        return share_samples(curves, [n for _, _, n in kinds], samples)

    def can_have(self, option: GroupOption, cluster: ClusterSpec) -> bool:
        """Tell whether there are rows of every type, and nodes that hold the tensor-parallel
        ranks."""
        profiled = [(name, tp) in self.profiled for name, tp, _ in _kinds(option, cluster)]
        return bool(profiled) and all(profiled) and fits_nodes(option, cluster)

    @property
    def largest_samples(self) -> int | None:
        """Nothing: sizes that were not profiled are predicted."""
        return None

    def crossing(self, start: int, stop: int) -> tuple[float, float] | None:
        """Return the bytes of gradients of layers [start, stop), and of the message over the
        cut."""
        gradients = float(self.profile.gradients[start:stop].sum())
        return gradients, float(self.profile.boundary[stop])

    def plainest(self) -> LayerCosts:
        """Return the same costs if stages are packed, and each has one degree."""
        return self._with(self.limits, mixed_tp=False, spread=False)

    def with_limits(self, limits: Mapping[str, float]) -> LayerCosts:
        """Return the same costs with other limits.

        Parameters
        ----------
        limits: device type -> bytes per device.
        """
        return self._with(limits, mixed_tp=self.mixed_tp, spread=self.spread)

    def _with(self, limits: Mapping[str, float], *, mixed_tp: bool, spread: bool) -> LayerCosts:
        return LayerCosts(
            self.profile,
            limits,
            rates=self.rates,
            calibration=self.calibration,
            uneven=self.uneven,
            mixed_tp=mixed_tp,
            spread=spread,
            recomputations=self.recomputations,
        )

    def option_tables(
        self, option: GroupOption, micro_batches: int, global_batch: int, cluster: ClusterSpec
    ) -> OptionTables | None:
        """Return times, peaks and memory of every range of layers; None if a type has no rows, the
        tensor-parallel ranks fit no node or the samples cannot be shared."""
        kinds, batches = _kinds(option, cluster), Batches(global_batch, micro_batches)
        if not batches.possible or (batches.short and not self.uneven):
            return None
        if not self.can_have(option, cluster):
            return None
        samples = self.split(option, batches.size, cluster)
        if samples is None:
            return None
        keys = _keys(kinds, samples)
        if any(self.too_many(key) for key in keys):
            return None
        shape = self._gradients.shape
        time = reduce(np.maximum, (self.range_of("time", key) for key in keys))
        step = reduce(np.maximum, (self.range_of("step", key) for key in keys))
        ring = best_ring(option, cluster)
        ringing = np.where(self._nonempty, ring.latency + ring.per_byte * self._gradients, 0.0)
        held = reduce(np.minimum, (self.in_flight(key) for key in keys))
        if NONE not in self.recomputations:
            held = np.zeros_like(held)
        last: tuple[int, ...] = ()
        rest: list[LayerKey] = []
        peaks = [ringing + step]
        if batches.short:
            last = tuple(batches.share_of_last(x) for x in samples)
            rest = _keys(kinds, last)
            busy = reduce(np.maximum, (self.range_of("time", key) for key in rest))
            peaks.append(np.maximum(busy - batches.part * time, 0.0))
        return OptionTables(
            time=time,
            extra=np.zeros(shape),
            peaks=np.stack(peaks),
            in_flight=held,
            samples=samples,
            last=last,
            recomputed=recomputed_stages(
                self,
                Runs(
                    keys=keys,
                    last=rest,
                    kinds=self.recomputations,
                    most=most_held(
                        len(self.chain), cluster.device_count - sum(option.use), micro_batches
                    ),
                    fixed=peaks[0],
                    part=batches.part,
                    devices=cluster.device_count,
                ),
                held,
            ),
        )

    def send(
        self,
        option: GroupOption,
        samples: tuple[int, ...],
        micro_batches: int,
        to: GroupClass,
        cluster: ClusterSpec,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the additions of sending to the next stage to u and to extra, by the cut."""
        if sum(map(bool, option.replicas)) > 1:
            transfer = self._transfer_of_unlike(option, samples, to, cluster)
        else:
            transfer = self._transfer_of_equals(option, max(samples), to, cluster)
        seconds = transfer.latency + transfer.per_byte * self.profile.boundary
        seconds[0] = seconds[-1] = 0.0
        return seconds, np.zeros_like(seconds)

    def _transfer_of_equals(
        self, option: GroupOption, share: int, to: GroupClass, cluster: ClusterSpec
    ) -> Transfer:
        """Return the sending costs of replicas of one type for so many samples each, cached for
        groups of many numbers of micro-batches."""
        self._begin(cluster)
        key = (option, share, to)
        known = self._transfers[1]
        if key not in known:
            known[key] = best_transfer(option, (share,) * sum(option.replicas), to, cluster)
        return known[key]

    def _transfer_of_unlike(
        self, option: GroupOption, samples: tuple[int, ...], to: GroupClass, cluster: ClusterSpec
    ) -> Transfer:
        """Return the sending costs of replicas of several types; the last option's are cached, as
        many classes are the same to it."""
        self._begin(cluster)
        if self._last[0] != option:
            self._last = (option, {})
        types = tuple(kind for kind, count in enumerate(option.replicas) if count)
        seen, known = self._seen.get((types, to)), self._last[1]
        if seen is None:
            seen = self._seen[types, to] = seen_from(types, to, cluster)
        if samples not in known:
            known[samples] = loads_of(option, samples, types, cluster)
        if (samples, seen) not in known:
            known[samples, seen] = best_across(known[samples], to, cluster)
        transfer: Transfer = known[samples, seen]
        return transfer

    def _begin(self, cluster: ClusterSpec) -> None:
        """Forget the sending costs on another cluster."""
        if self._transfers[0] is not cluster:
            self._transfers, self._seen, self._last = (cluster, {}), {}, (None, {})

    # ---- the judge's side -----------------------------------------------------------------------

    def plan_cost(self, plan: GroupPlan, cluster: ClusterSpec) -> PlanCost:
        """Judge a plan on the devices that it names, in plain floating point.

        The iteration takes infinitely long if something has no rows.
        """
        stages = self._stages(plan, cluster)
        times = [stage.time for stage in stages]
        terms = {
            "slowest stage": plan.schedule.steady(times),
            "pipeline fill": plan.schedule.fill(times),
        }
        passing = tuple(terms)
        if plan.batches.short:
            last = self._stages(last_micro_batch(plan), cluster)
            terms[LAST] = sum(beyond_its_part(stages, last, plan.batches.part))
        terms[PEAK] = max(map(sum, self.peaks(plan, cluster)))
        return PlanCost(
            iteration_time=sum(terms.values()), stages=stages, terms=terms, passing=passing
        )

    def shares(self, plan: GroupPlan, cluster: ClusterSpec) -> dict[Provenance, Share]:
        """Return the shares of the iteration time by source of its figures."""
        return layer_tally(self, plan, cluster).shares()

    def slowest(self, stage: GroupStage, cluster: ClusterSpec) -> LayerKey | None:
        """Return the runs of a stage's slowest replica; None if nothing is profiled."""
        keys = [
            LayerKey(name, replica.tp, replica.samples)
            for replica in stage.replicas
            for name in types_of(replica, cluster)
            if (name, replica.tp) in self.profiled and replica.samples
        ]
        parts = pieces(self, stage)
        return max(keys, key=lambda key: stage_seconds(parts, key), default=None)

    def peaks(self, plan: GroupPlan, cluster: ClusterSpec) -> list[tuple[float, float]]:
        """Return seconds of the gradient reduction of each stage, with the reductions that it waits
        for, and of its optimiser step."""
        rings, steps = zip(*(self.peak_parts(each, cluster) for each in plan.stages), strict=True)
        return list(zip(shared_rings(plan.stages, rings, cluster), steps, strict=True))

    def peak_parts(self, stage: GroupStage, cluster: ClusterSpec) -> tuple[float, float]:
        """Return seconds of a stage's gradient reduction by itself and of its optimiser step."""
        known = self._judged_on(cluster).peaks
        found = known.get((stage,))
        if found is None:
            found = self._peak_parts(stage, cluster)
            known.keep((stage,), found, len(stage.replicas))
        return found

    def _peak_parts(self, stage: GroupStage, cluster: ClusterSpec) -> tuple[float, float]:
        layers = slice(stage.start, stage.stop)
        kinds = {(name, r.tp) for r in stage.replicas for name in types_of(r, cluster)}
        steps = [
            float(self.step(LayerKey(name, tp, 0))[layers].sum())
            for name, tp in kinds.intersection(self.profiled)
        ]
        gradients = float(self.profile.gradients[layers].sum())
        return stage_ring(stage, cluster).seconds(gradients), max(steps, default=0.0)

    def _stages(self, plan: GroupPlan, cluster: ClusterSpec) -> tuple[StageCost, ...]:
        """Judge the stages of a plan, at as many micro-batches in flight as it has: each once, of
        plans to look through that differ in few stages."""
        known, schedule, found = self._judged_on(cluster).stages, plan.schedule, []
        for number, stage in enumerate(plan.stages, 1):
            after = plan.stages[number:]
            in_flight = schedule.in_flight(len(after))
            key = stage, after[:1], in_flight
            cost = known.get(key)
            if cost is None:
                cost = self._stage(stage, after, in_flight, cluster)
                known.keep(key, cost, len(stage.replicas))
            found.append(cost)
        return tuple(found)

    def _judged_on(self, cluster: ClusterSpec) -> _Judged:
        """Return the judgements of stages on a cluster: those on another one are forgotten."""
        known = self._known
        if known is None or known.cluster is not cluster:
            known = self._known = _Judged(cluster, Kept(MOST_KEPT), Kept(MOST_KEPT))
        return known

    def _stage(
        self, stage: GroupStage, after: tuple[GroupStage, ...], in_flight: int, cluster: ClusterSpec
    ) -> StageCost:
        """Judge a stage, by itself and the next one; other costs of layers may judge it
        otherwise."""
        return stage_cost(self, stage, after, in_flight, cluster)


def _kinds(option: GroupOption, cluster: ClusterSpec) -> list[tuple[str, int, int]]:
    """Return (device type, tensor-parallel degree, replicas) of an option."""
    counts = zip(cluster.type_names, option.replicas, strict=True)
    return [(name, option.degree(kind), n) for kind, (name, n) in enumerate(counts) if n]


def _keys(kinds: Sequence[tuple[str, int, int]], samples: Sequence[int]) -> list[LayerKey]:
    """Return the rows that an option's replicas run with so many samples, each once."""
    rest = iter(samples)
    return [
        LayerKey(name, tp, x) for name, tp, count in kinds for x in sorted({*islice(rest, count)})
    ]

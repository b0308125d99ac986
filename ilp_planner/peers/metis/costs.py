"""Cost model `metis`: Metis's own cost of a mixed cluster, equal to the last bit.

Milliseconds per iteration of B micro-batches through stages s with layers [a, b):

    (B - 1) max_s t_s + sum_s t_s       t_s: the slowest replica's layers
    + B fb_sync                         of the last stage: loss, and the turn from forward to
    backward + max_s optimizer_s + max_s gradients_s + sum_s send_s + B batch_generator

Tensor-parallel communication and memory are the profile's: nothing grows with the micro-batches in
flight. `peers.metis.formulas` has each term.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ilp_planner.base.errors import PlanError, ProfileError
from ilp_planner.costs.base import PlanCost, StageCost
from ilp_planner.costs.groups import GroupClass, GroupOption, OptionTables
from ilp_planner.costs.profiles.layers import LayerKey, layer_names
from ilp_planner.costs.profiles.shares import Share, term_shares
from ilp_planner.costs.profiles.table import Origin, Provenance
from ilp_planner.peers.metis.formulas import MetisFormulas, MetisGroup
from ilp_planner.peers.metis.profile import total
from ilp_planner.schedule.formulas import OneForwardOneBackward

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ilp_planner.plan import GroupPlan
    from ilp_planner.specs.cluster import ClusterSpec

MIB = 2**20
UNLIMITED = 10**6  # micro-batches in flight of a stage that fits: their number does not matter
GRADIENTS, OPTIMIZER = "gradient all-reduce", "optimizer"


def rank_types(formulas: MetisFormulas, node_sequence: Sequence[str]) -> tuple[str, ...]:
    """Return the device type of every rank: type by type."""
    count = dict.fromkeys(formulas.cluster.device_types, 0)
    for node in formulas.cluster.nodes:
        count[node.device] += node.devices
    if sorted(node_sequence) != list(formulas.cluster.device_types):
        raise PlanError(
            f"node_sequence must order {', '.join(count)}, found {', '.join(node_sequence)}"
        )
    return tuple(device for device in node_sequence for _ in range(count[device]))


def terms_ms(
    formulas: MetisFormulas,
    groups: Sequence[MetisGroup],
    ranges: Sequence[tuple[int, int]],
    batches: int,
) -> dict[str, float]:
    """Return the terms of a plan's milliseconds, by name.

    Raises
    ------
    ProfileError: a row is missing.
    """
    times, gradients, optimizer, send = [], [], [], 0.0
    for s, (group, (a, b)) in enumerate(zip(groups, ranges, strict=True)):
        table = formulas.compute(group)
        if table is None:
            missing = ", ".join(formulas.unprofiled(group))
            raise ProfileError(f"{formulas.profile.source}: not profiled: {missing}")
        times.append(float(table[a, b]))
        gradients.append(float(formulas.gradients(group)[a, b]))
        optimizer.append(float(formulas.optimizer(group)[a, b]))
        if s + 1 < len(groups):
            send += formulas.send(group, groups[s + 1].types, b)
    sync = formulas.sync(groups[-1])
    if sync is None:
        missing = ", ".join(formulas.unprofiled_end(groups[-1]))
        raise ProfileError(f"{formulas.profile.source}: not profiled: {missing}")
    return {
        "execution": OneForwardOneBackward(batches).steady(times) + total(times),
        "fb_sync": sync * batches,
        OPTIMIZER: max(optimizer),
        GRADIENTS: max(gradients),
        "send": send,
        "batch generator": formulas.profile.batch_generator * batches,
    }


def total_ms(terms: Mapping[str, float]) -> float:
    """Add terms up in Metis's order."""
    return total(terms.values())


@dataclass(frozen=True, kw_only=True, eq=False)
class MetisCosts:
    """Metis's cost model for any groups of devices (`GroupTables`).

    max_tp: largest tensor-parallel degree; None for the largest profiled one.
    limits: device type -> bytes per device; the cluster's own if empty.
    """

    name: ClassVar[str] = "metis"
    uneven: ClassVar[bool] = False
    mixed_tp: ClassVar[bool] = False
    spread: ClassVar[bool] = False
    formulas: MetisFormulas
    max_tp: int | None = None
    limits: Mapping[str, float] = field(default_factory=dict)

    @property
    def chain(self) -> tuple[str, ...]:
        """Names of the layers."""
        return layer_names(self.formulas.layers)

    @property
    def limits_mb(self) -> dict[str, float]:
        """MB per device of each type."""
        memory = self.formulas.cluster.memory
        return {d: self.limits[d] / MIB if d in self.limits else memory[d] for d in memory}

    @property
    def notes(self) -> tuple[str, ...]:
        """One-line remarks about missing or suspicious rows."""
        formulas, notes = self.formulas, []
        degrees = [
            tp
            for device in formulas.profile.device_types
            for tp in formulas.profile.degrees(device)
        ]
        if self.max_tp is not None and self.max_tp > max(degrees):
            notes.append(
                f"{formulas.profile.source}: tp is profiled up to {max(degrees)}, "
                f"found {self.max_tp} asked: larger ones are left out"
            )
        return (*formulas.cluster.notes, *formulas.profile.notes, *notes)

    def degrees(self) -> Mapping[str, tuple[int, ...]]:
        """Return the tensor-parallel degrees that each device type is profiled for."""
        formulas = self.formulas
        return {
            device: tuple(
                tp
                for tp in formulas.profile.degrees(formulas.row_name(device))
                if self.max_tp is None or tp <= self.max_tp
            )
            for device in formulas.cluster.device_types
        }

    def constant(self, micro_batches: int) -> float:
        """Seconds per iteration that every plan with B micro-batches takes."""
        formulas = self.formulas
        return (formulas.profile.batch_generator + formulas.least_sync) * micro_batches / 1e3

    @property
    def largest_samples(self) -> int | None:
        """Samples per replica that are profiled at most."""
        return self.formulas.largest_samples

    def crossing(self, start: int, stop: int) -> tuple[float, float] | None:
        """Return nothing: Metis does not tell nodes apart."""
        return None

    def plainest(self) -> MetisCosts:
        """Return the same costs: stages are packed, and each has one degree."""
        return self

    def with_limits(self, limits: Mapping[str, float]) -> MetisCosts:
        """Return the same costs with other limits.

        Parameters
        ----------
        limits: device type -> bytes per device.
        """
        return replace(self, limits=limits)

    @property
    def recomputations(self) -> tuple[str, ...]:
        """Return the kinds of recomputation: Metis measures layers without."""
        return ("none",)

    def replica_seconds(self, device: str, tp: int, samples: int) -> NDArray[np.float64] | None:
        """Return nothing: how Metis shares samples is known of whole groups only."""
        return None

    def layer_memory(self, device: str, tp: int) -> NDArray[np.float64] | None:
        """Return the bytes that every layer takes by itself on a device, for the profiled
        micro-batch that needs least. None if none is profiled."""
        formulas = self.formulas
        name = formulas.row_name(device)
        rows = [
            np.asarray(formulas.profile.rows[LayerKey(name, tp, samples)].memory)
            for samples in formulas.profile.samples(name, tp)
        ]
        return MIB * np.min(rows, axis=0) if rows else None

    def plan_cost(self, plan: GroupPlan, cluster: ClusterSpec) -> PlanCost:
        """Judge a plan on the devices that it names; all nan if it needs rows that are missing."""
        formulas = self.formulas
        groups = self._groups(plan, cluster)
        ranges = [(stage.start, stage.stop) for stage in plan.stages]
        stages = [
            self._stage_cost(group, a, b) for group, (a, b) in zip(groups, ranges, strict=True)
        ]
        ends = formulas.unprofiled_end(groups[-1])
        missing = tuple(dict.fromkeys((*stages[-1].unprofiled, *ends)))
        stages[-1] = replace(stages[-1], unprofiled=missing)
        try:
            terms = terms_ms(formulas, groups, ranges, plan.micro_batches)
        except ProfileError:
            return PlanCost(iteration_time=math.nan, stages=tuple(stages), terms={})
        return PlanCost(
            iteration_time=total_ms(terms) / 1e3,
            stages=tuple(stages),
            terms={name: value / 1e3 for name, value in terms.items()},
        )

    def shares(self, plan: GroupPlan, cluster: ClusterSpec) -> dict[Provenance, Share]:
        """Return the shares of the iteration time: Metis takes every other term from its files."""
        terms = self.plan_cost(plan, cluster).terms
        return term_shares(terms, (GRADIENTS, "send"), Origin(Provenance.MEASURED))

    def group_memory(
        self, plan: GroupPlan, cluster: ClusterSpec
    ) -> tuple[tuple[float, float], ...]:
        """Return (bytes that Metis wants the devices of a stage to have in sum, bytes that they
        have) of each stage: its own memory rule. nan if it needs rows that are missing."""
        formulas = self.formulas
        groups = self._groups(plan, cluster)
        used = [device for group in groups for replica in group.replicas for device in replica]
        sequence = list(dict.fromkeys((*used, *formulas.cluster.device_types)))
        ranks = rank_types(formulas, sequence)
        found = []
        for group, stage in zip(groups, plan.stages, strict=True):
            demand = formulas.metis_demand(group, ranks, plan.micro_batch_size)
            wanted = math.nan if demand is None else float(demand[stage.start, stage.stop])
            found.append((wanted * MIB, formulas.capacity(group, self.limits_mb) * MIB))
        return tuple(found)

    def _groups(self, plan: GroupPlan, cluster: ClusterSpec) -> list[MetisGroup]:
        return [
            MetisGroup(
                tuple(tuple(cluster.type_of[d] for d in r.devices) for r in stage.replicas),
                tuple(r.samples for r in stage.replicas),
                plan.global_batch // stage.dp // plan.micro_batches,
            )
            for stage in plan.stages
        ]

    def _stage_cost(self, group: MetisGroup, a: int, b: int) -> StageCost:
        table = self.formulas.compute(group)
        seconds = math.nan if table is None else float(table[a, b]) / 1e3
        held = [
            self.formulas.replica_memory(group, replica[0], samples)
            for replica, samples in zip(group.replicas, group.samples, strict=True)
        ]
        memory = tuple(math.nan if t is None else float(t[a, b]) * MIB for t in held)
        return StageCost(
            time=seconds,
            memory=memory,
            time_terms={"compute": seconds},
            memory_terms={"profiled": max(memory)},
            unprofiled=self.formulas.unprofiled(group),
        )

    def option_tables(
        self, option: GroupOption, micro_batches: int, global_batch: int, cluster: ClusterSpec
    ) -> OptionTables | None:
        """Return the optimiser's tables; exact, as bandwidths depend on device types only.

        Replicas share the samples as Metis has them do, in the order of the types' names.
        """
        names = [
            name
            for name, n in zip(cluster.type_names, option.replicas, strict=True)
            for _ in range(n)
        ]
        if not names or global_batch % micro_batches:
            return None
        if any(option.tp not in self.degrees()[name] for name in names):
            return None
        order = sorted(range(len(names)), key=names.__getitem__)
        ranks = [names[i] for i in order for _ in range(option.tp)]
        batch = global_batch // micro_batches
        group = self.formulas.group(ranks, option.tp, batch)
        if group is None or group.mean < 1:
            return None
        time = self.formulas.compute(group)
        if time is None:
            return None
        fits = self.formulas.fits(group, self.limits_mb)[:-1]
        extra = np.zeros_like(time)
        sync = self.formulas.sync(group)
        if sync is None:
            fits[:, -1] = False
        else:
            extra[:, -1] = (sync - self.formulas.least_sync) * micro_batches / 1e3
        peaks = np.stack([self.formulas.gradients(group), self.formulas.optimizer(group)])
        samples = dict(zip(order, group.samples, strict=True))
        ahead = np.triu(np.ones(fits.shape, dtype=np.bool_), 1)
        return OptionTables(
            time=time[:-1] / 1e3,
            extra=extra[:-1],
            peaks=np.where(ahead, peaks[:, :-1] / 1e3, 0.0),
            in_flight=np.where(ahead & fits, UNLIMITED, 0),
            samples=tuple(samples[i] for i in range(len(names))),
        )

    def send(
        self,
        option: GroupOption,
        samples: tuple[int, ...],
        micro_batches: int,
        to: GroupClass,
        cluster: ClusterSpec,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return (seconds added to u, seconds added to extra), float64 [L + 1] by the cut."""
        names = cluster.type_names
        replicas = tuple(
            (name,) * option.tp
            for name, n in zip(names, option.replicas, strict=True)
            for _ in range(n)
        )
        group = MetisGroup(replicas, samples, sum(samples) // len(samples))
        target = frozenset(names[number] for number in to.types)
        layers = self.formulas.layers
        extra = np.zeros(layers + 1)
        extra[1:layers] = [self.formulas.send(group, target, cut) / 1e3 for cut in range(1, layers)]
        return np.zeros(layers + 1), extra

"""Megatron's plan space as parts: choices of degrees, and in each the schedules and recomputations.

A variant of a part decides virtual stages and recomputation; its plans differ in the cuts of the
chain into pipeline ranks. With virtual stages, a rank's layers are spread over them as evenly as
possible, the first ones taking the rest; models with different layers then have equally many layers
in all virtual stages but the first and the last.
"""

from __future__ import annotations

import dataclasses
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.base.numerics import FINE_ROUNDING, NEVER
from ilp_planner.costs.training.iteration import iteration_terms, lone_waits, moved_seconds
from ilp_planner.costs.training.job import base_layout, layout_of, seats_of, virtual_sizes
from ilp_planner.costs.training.ranks import RankCosts, decisive, shared_of
from ilp_planner.job.memory import stage_of_rank
from ilp_planner.job.parts import memory_of_each
from ilp_planner.job.quantised import most_saved
from ilp_planner.job.states import adapter_widths, frozen_width, state_widths
from ilp_planner.plan import GroupPlan, GroupStage, Plan, Replica
from ilp_planner.schedule.formulas import DIVIDED, schedule_of
from ilp_planner.spaces.training.bounds.cut_tables import cut_tables
from ilp_planner.spaces.training.bounds.variant import (
    fill_factor,
    least_bound,
    variant_bound,
)
from ilp_planner.spaces.training.bounds.work import sample_seconds
from ilp_planner.spaces.training.enumerate.choices import different
from ilp_planner.spaces.training.enumerate.keeping import keeps, rank_of
from ilp_planner.spaces.training.enumerate.recomputations import NOTHING
from ilp_planner.spaces.training.enumerate.variants import (
    Variant,
    block_of,
    divided_variants,
    pipelines,
    variants,
)
from ilp_planner.specs.pipeline_layout import ALONE, ANYHOW
from ilp_planner.specs.training import TrainingJob

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from numpy.typing import NDArray

    from ilp_planner.costs.training.memory import Fits
    from ilp_planner.costs.training.times import ElementTime
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.job.memory import MemoryParts
    from ilp_planner.job.parts import Activations
    from ilp_planner.schedule.formulas import Schedule
    from ilp_planner.spaces.training.bounds.variant import LeastWork
    from ilp_planner.spaces.training.costs import MegatronCosts
    from ilp_planner.spaces.training.enumerate.degrees import MegatronDegrees
    from ilp_planner.spaces.training.enumerate.keeping import Kept
    from ilp_planner.spaces.training.enumerate.partition import CutTables
    from ilp_planner.specs.training import Recompute, Settings


# What is demanded of variants, besides degrees and settings.
OF_VARIANTS = (
    "virtual_stages", "micro_batch_group_size", "layout", "remainder", "schedule", "recompute",
    "keep",
)  # fmt: skip


class MegatronPart:
    """One choice of degrees (`search.parts.Part`).

    bounded: what a search knows of it is at least `trivial_bound` and `least_bound`.
    """

    def __init__(
        self, problem: Problem[MegatronCosts], costs: MegatronCosts, degrees: MegatronDegrees
    ) -> None:
        self.problem, self.costs, self.degrees = problem, costs, degrees
        self.micro_batches = degrees.micro_batches(problem.global_batch)
        self.settings = settings_of(problem, costs, degrees)
        self.constant = 0.0
        self.bounded = False
        self._repeated: dict[tuple[object, ...], NDArray[np.float64]] = {}
        # Of `most_of_a_rank`, by the kind of a variant and its recomputed layers, and of
        # `variant_bound`, by what it sees:
        self.crowded: dict[tuple[object, ...], dict[int, int]] = {}
        self.slowest: dict[tuple[object, ...], float] = {}
        self.slowest_blocks: NDArray[np.float64] | None = None
        self.wholes: dict[tuple[object, ...], tuple[LeastWork, NDArray[np.float64]]] = {}
        self.least: dict[tuple[object, ...], LeastWork] = {}
        self.least_memory: dict[Recompute, Fits | None] = {}  # of `with_least_memory`

    @property
    def name(self) -> str:
        """Degrees, and differences from the plainest choice."""
        plainest = settings_of(self.problem, self.costs, self.degrees._replace(choice=0))
        return ", ".join(
            (self.degrees.describe(self.problem.cluster), *different(self.settings, plainest))
        )

    @property
    def decisive(self) -> tuple[Hashable, ...]:
        """All that decides the variants, for parts that share results."""
        asked = self.problem.constraints
        return (
            self.settings, self.degrees[:-1], self.problem.global_batch,
            *(getattr(asked, name) for name in OF_VARIANTS),
        )  # fmt: skip

    @cached_property
    def kept(self) -> Kept:
        """The ranks with stages that are to be kept, and the elements of their virtual stages."""
        every, cluster = self.problem.constraints.keep, self.problem.cluster
        found = ((rank_of(stage, cluster, self.degrees), stage.ranges) for stage in every)
        return tuple({(rank, ranges) for rank, ranges in found if rank is not None})

    @cached_property
    def job(self) -> TrainingJob:
        """The job with any layout, without recomputation."""
        d, model = self.degrees, self.costs.model
        return TrainingJob(
            model=model,
            micro_batch=d.micro_batch,
            global_batch=self.problem.global_batch,
            tp=d.tp,
            pp=d.pp,
            dp=d.dp,
            layout=base_layout(model, d.pp),
            settings=self.settings,
            devices_per_node=self.problem.cluster.nodes[0].devices,
            gpu_architecture=self.costs.gpu_architecture(self.problem.cluster),
        )

    @cached_property
    def ranks(self) -> RankCosts:
        """Times of the ranks."""
        costs, cluster = self.costs, self.problem.cluster
        network = costs.network(cluster, self.degrees.nodes)
        return RankCosts(self.job, network, costs.profile, costs.known(cluster))

    @cached_property
    def elements(self) -> NDArray[np.float64]:
        """Seconds [kinds, 3, n]: of each element in all, once more, and of its forward pass."""
        each, places = self._distinct
        return np.array([(e.total, e.again, e.forward) for e in each])[places].transpose(0, 2, 1)

    @cached_property
    def _chains(self) -> list[tuple[ElementTime, ...]]:
        return [self.ranks.elements(kind) for kind in self.ranks.distinct]

    @cached_property
    def _distinct(self) -> tuple[list[ElementTime], NDArray[np.int64]]:
        """The different elements of all chains, and the place of each among them, [kinds, n]."""
        each = {id(e): e for chain in self._chains for e in chain}
        number = {key: place for place, key in enumerate(each)}
        return [*each.values()], np.array([[number[id(e)] for e in c] for c in self._chains])

    def repeated(self, recompute: Recompute) -> NDArray[np.float64]:
        """Return the seconds [kinds, n] that layers take once more, in all or in parts; of the
        first ones of a stage, any."""
        key = (recompute.granularity, recompute.modules)
        if key not in self._repeated:
            self._repeated[key] = self.repeated_of_each((recompute,))[0]
        return self._repeated[key]

    def repeated_of_each(self, every: Sequence[Recompute]) -> NDArray[np.float64]:
        """Return the result of `repeated` for several recomputations, [every, kinds, n]."""
        each, places = self._distinct
        found = np.array([[_once_more(e, one) for e in each] for one in every]).take(places, axis=1)
        found[:, :, 0] = found[:, :, -1] = 0.0
        return found

    def waits(self, recompute: Recompute) -> NDArray[np.float64]:
        """Return the seconds [kinds, 2, n] that passes through elements wait for activations on the
        host, forward and backward, at least."""
        if not self.settings.offload.modules:
            return np.zeros((len(self._chains), 2, len(self._chains[0])))
        job, found = self.variant_job(Variant(1, recompute)), []
        for kind, chain in zip(self.ranks.distinct, self._chains, strict=True):
            sent = moved_seconds(job, self.ranks.network, kind)
            found.append(lone_waits(job, chain, sent or (0.0,) * len(chain)))
        return np.array(found)

    @cached_property
    def rank_rows(self) -> NDArray[np.int64]:
        """Row of `elements` of every rank."""
        number = {kind: i for i, kind in enumerate(self.ranks.distinct)}
        return np.array([number[kind] for kind in self.ranks.kinds], np.int64)

    @cached_property
    def syncs(self) -> NDArray[np.float64]:
        """Seconds [kinds, 1 + n] of synchronisation: fixed, and of each element."""
        found = [self.ranks.syncs[kind] for kind in self.ranks.distinct]
        return np.array([np.concatenate(([fixed], each)) for fixed, each in found])

    @cached_property
    def alike(self) -> bool:
        """All layers are of one kind, and take equally long, steps of the optimiser included:
        layers of a profile may not."""
        if self.costs.profile is None:
            return len(set(self.job.layer_kinds)) == len(set(self.ranks.stays_exact)) == 1
        layers, syncs = self.elements[:, :, 1:-1], self.syncs[:, 2:-1]
        return len(set(self.job.layer_kinds)) == 1 and bool(
            (layers == layers[:, :, :1]).all() and (syncs == syncs[:, :1]).all()
        )

    @cached_property
    def fits_at_all(self) -> bool:
        """Parameters, gradients and states fit the ranks on average."""
        return self._states_in_all / self.degrees.pp <= max(self.limits)

    @property
    def _states_in_all(self) -> float:
        """Bytes of them on all ranks, the same for all sizes of micro-batches."""
        known = self.costs.own.on(self.problem.cluster)
        key = "states", self.degrees[:6], id(self.settings)  # which is kept (`settings_of`)
        if key not in known:
            known[key] = self._states()
        return float(known[key])

    def _states(self) -> float:
        job, whole, saved = self.job, self.ranks.held_in_all, most_saved(self.job)
        dense, expert = (state_widths(job, expert=flag).total - saved for flag in (False, True))
        if job.settings.tuning.rank:
            dense = adapter_widths(job).total
        still, still_experts = (
            max(0.0, frozen_width(job, job.settings.width, expert=flag) - saved)
            for flag in (False, True)
        )
        states = whole.dense * dense + whole.expert * expert
        states += whole.still * still + whole.still_experts * still_experts
        return states

    @cached_property
    def limits(self) -> tuple[float, ...]:
        """Bytes on the devices of each rank."""
        limits, network = self.problem.memory_limits, self.ranks.network
        if len(names := network.cluster.type_names) == 1:
            return (limits[names[0]],) * self.degrees.pp
        return tuple(
            min(limits[name] for name in network.stage_types(self.job, rank))
            for rank in range(self.degrees.pp)
        )

    def spread(self, variant: Variant) -> bool:
        """Tell whether a plan's cuts are between ranks, with layers spread over their virtual
        stages; else they are between virtual stages, and layouts are tried one by one."""
        if self.problem.constraints.one_layout is not None:
            return False
        even = variant.remainder != ANYHOW and not variant.divided
        return variant.virtual == 1 or (even and self.alike)

    def holds(self, plan: GroupPlan) -> bool:
        """Tell whether a plan has these degrees, and its ranks the same devices."""
        if plan.settings is None or plan.micro_batches != self.micro_batches:
            return False
        own = plan.settings
        settings = dataclasses.replace(
            self.job.settings, recompute=own.recompute, turn=own.turn, schedule=own.schedule
        )
        groups = tuple(stage.replicas for stage in plan.stages[: self.degrees.pp])
        return plan.settings == settings and groups == self.rank_devices()

    # ---- variants -------------------------------------------------------------------------------

    def allows(self, recompute: Recompute) -> bool:
        """Tell whether a recomputation is one that plans may have."""
        costs = self.costs
        return self.problem.constraints.recomputes(recompute) and costs.runtime.recomputes(
            self.settings, costs.model, recompute
        )

    @cached_property
    def recomputations(self) -> tuple[Recompute, ...]:
        """The tried ones without a number of layers."""
        costs, asked = self.costs, self.problem.constraints
        every = costs.runtime.recomputations(costs.model, self.settings.kernels, asked)
        return tuple(filter(self.allows, every))

    @cached_property
    def pipelines(self) -> tuple[Variant, ...]:
        """The schedules with their virtual stages, without recomputation: the same ones of parts
        that have as many."""
        found = tuple(pipelines(self))
        known = self.costs.known(self.problem.cluster)
        same: tuple[Variant, ...] = known.setdefault(("pipelines", found), found)
        return same

    @cached_property
    def bare(self) -> MemoryParts:
        """The memory of the part's jobs with one virtual stage per rank, without recomputation."""
        return self.memory(Variant(1, NOTHING))

    @cached_property
    def activations(self) -> Callable[[Recompute, str], Activations]:
        """Bytes that a part of the model keeps, by the recomputation and its kind."""
        return self.costs.activations(self.bare.job, self.problem.cluster)

    @cached_property
    def allowed_blocks(self) -> NDArray[np.int64]:
        """Numbers of a virtual stage's first layers that plans may compute again, ascending."""
        counts = range(1, self.costs.model.layers + 1)
        return np.array([n for n in counts if self.allows(block_of(n))], np.int64)

    def variants(self) -> tuple[Variant, ...]:
        """Return all of them."""
        return variants(self)

    @cached_property
    def usual(self) -> bool:
        """The runtime takes the job with the usual schedules; others that it has may do with fewer
        micro-batches."""
        runtime = self.costs.runtime
        return len(runtime.schedules) == 1 or not any(runtime.refusals(self.job))

    @cached_property
    def divided(self) -> tuple[Variant, ...]:
        """Variants with schedules that divide backward passes."""
        if not any(name in DIVIDED for name in self.costs.runtime.schedules):
            return ()
        known, key = self.costs.known(self.problem.cluster), ("divided", *self.decisive)
        if key not in known:
            known[key] = tuple(divided_variants(self))
        found: tuple[Variant, ...] = known[key]
        return found

    def bound(self, variant: Variant) -> float:
        """Return a lower bound in seconds of a variant's plans, memory aside."""
        return variant_bound(self, variant)

    @property
    def alone(self) -> tuple[object, ...]:
        """All that `least_alone` depends on, besides the model, for problems with any cluster."""
        known, d = self.costs.own.on(self.problem.cluster), self.degrees
        if "devices" not in known:
            known["devices"] = self._devices()
        key = "decisive", id(self.settings)  # which is kept (`settings_of`)
        if key not in known:
            known[key] = shared_of(self.costs.model).number(decisive(self.settings))
        return known["devices"], known[key], d.tp, d.micro_batch

    def _devices(self) -> int:
        """Return a number of the devices, the batch and the rest that all parts have."""
        cluster, costs = self.problem.cluster, self.costs
        shared = shared_of(costs.model)
        types = (shared.device(one) for one in cluster.device_types.values())
        measured = costs.profile is not None
        own = self.problem.global_batch, cluster.nodes[0].devices, measured
        return shared.number((*own, costs.gpu_architecture(cluster).name, *types))

    def least_alone(self) -> float:
        """Return the seconds that a micro-batch takes at least, without any message."""
        return self.ranks.least_alone

    def least_products(self) -> float:
        """Return the seconds of a micro-batch's products at least, on all ranks of a replica."""
        d, known = self.degrees, self.costs.own.on(self.problem.cluster)
        if "products" not in known:
            known["products"] = sample_seconds(self.problem)
        return float(known["products"]) * d.micro_batch / (d.tp * d.cp)

    def earliest_bound(self, least: float) -> float:
        """Return a lower bound in seconds of the part's plans: all kernels of all micro-batches,
        divided evenly, without any message. least: what `least_alone` or `least_products`
        returns."""
        return self.fill_factor * least

    def trivial_bound(self) -> float:
        """Return a lower bound in seconds of the part's plans, without its elements: all work of
        all micro-batches, divided evenly."""
        if not self.fits_at_all:
            return NEVER
        return self.fill_factor * self.ranks.least_work

    @cached_property
    def fill_factor(self) -> float:
        """How many times the work of one micro-batch an iteration takes at least."""
        return fill_factor(self)

    def share_fill(self, other: MegatronPart) -> None:
        """Take the `fill_factor` of a part of the same problem that differs in settings alone, and
        in none that it depends on: which layers are of one kind, and which ranks of one kind."""
        own, others = self.settings, other.settings
        if (
            self.costs.profile is None
            and self.degrees[:-1] == other.degrees[:-1]
            and own.kernels == others.kernels
            and own.optimizer.instances == others.optimizer.instances
        ):
            self.__dict__["fill_factor"] = other.fill_factor

    def least_bound(self) -> float:
        """Return a lower bound in seconds of the part's plans."""
        if not self.fits_at_all:
            return NEVER
        return least_bound(self)

    def tables(self, variant: Variant) -> CutTables:
        """Return the cost of every range of the chain."""
        return cut_tables(self, variant)

    def seconds(self, variant: Variant, ends: Sequence[int]) -> float:
        """Return the time of a cut's plan, by the judge's own arithmetic."""
        job = self.job_of_stages(variant, self.stops(variant, ends))
        known = self.costs.of_cuts(self.problem.cluster, (self.degrees, variant))
        return sum(iteration_terms(self.ranks, job, known=known).values())

    def job_of_stages(self, variant: Variant, stops: Sequence[int]) -> TrainingJob:
        """Return the job of a variant with virtual stages that end there."""
        job, again = self.variant_job(variant), variant.recompute
        layout = layout_of(stops, self.costs.model)
        if again.method == "block":
            # More than there are would be all, and is no number of layers to write down.
            longest = max(stage.layers for stage in layout.stages)
            again = dataclasses.replace(again, layers=min(again.layers, longest))
        settings = dataclasses.replace(job.settings, recompute=again)
        return dataclasses.replace(job, layout=layout, settings=settings)

    def sends(self, virtual: int) -> tuple[float, ...]:
        """Return the seconds that each rank sends to the next and back per micro-batch."""
        schedule, last = self.schedule(virtual), self.degrees.pp - 1
        return tuple(
            schedule.sends(last - rank) * seconds
            for rank, seconds in enumerate(self.ranks.transfers)
        )

    def schedule(self, virtual: int) -> Schedule:
        """Return the usual schedule of so many virtual stages per rank."""
        return schedule_of(self.micro_batches, ranks=self.degrees.pp, virtual=virtual)

    def memory_of_each(self, every: Sequence[Recompute]) -> MemoryParts:
        """Return the memory of the model's parts with one virtual stage per rank and one
        recomputation, or with several of no whole layers; without what passes between stages."""
        found = memory_of_each(self.bare, every, self.activations)
        return dataclasses.replace(found, fixed={**found.fixed, "between stages": 0.0})

    def memory(self, variant: Variant) -> MemoryParts:
        """Return the memory of a variant's parts."""
        return self.costs.memory(self.variant_job(variant), self.problem.cluster)

    def variant_job(self, variant: Variant) -> TrainingJob:
        """Return the job with the recomputation, the microbatch groups and the schedule of a
        variant, with any layout."""
        job = self.job
        settings = dataclasses.replace(
            job.settings,
            recompute=variant.recompute,
            turn=variant.turn,
            schedule=variant.schedule,
        )
        layout = base_layout(job.model, job.pp * variant.virtual)
        return dataclasses.replace(job, settings=settings, layout=layout)

    # ---- plans ----------------------------------------------------------------------------------

    def stops(self, variant: Variant, ends: Sequence[int]) -> list[int]:
        """Return the ends of virtual stages, from `ends` of ranks or of virtual stages."""
        if not self.spread(variant):
            return list(ends)
        layers = self.costs.model.layers
        sizes = virtual_sizes(ends, variant.virtual, layers, variant.remainder)
        return [0, *accumulate(sizes)]

    def picks(self, variant: Variant) -> bool:
        """Tell whether cuts must be asked one by one (`keeps`): tables of ranks do not know the
        beginnings of kept virtual stages, nor the rank with the last norm of a model that predicts
        further tokens."""
        alone = variant.remainder == ALONE
        norm = self.spread(variant) and bool(self.costs.model.prediction_layers) and not alone
        return variant.virtual > 1 and (bool(self.kept) or norm)

    def keeps(self, variant: Variant, ends: Sequence[int]) -> bool:
        """Tell whether a cut leaves the kept stages, begins where stages may, and fits if tables
        cannot tell."""
        stops, limited = self.stops(variant, ends), self.kept or self.costs.model.bound
        return (not limited or keeps(self, stops, v_shaped=variant.v_shaped)) and (
            not self.picks(variant) or self._fits(variant, stops)
        )

    def _fits(self, variant: Variant, stops: Sequence[int]) -> bool:
        """Tell whether every rank has the memory for virtual stages that end there."""
        parts = self.memory(variant)
        job = dataclasses.replace(parts.job, layout=layout_of(stops, self.costs.model))
        own = dataclasses.replace(parts, job=job)
        needs = (stage_of_rank(own, rank).needed for rank in range(self.degrees.pp))
        return all(
            n <= most * (1 + FINE_ROUNDING) for n, most in zip(needs, self.limits, strict=True)
        )

    def group_plan(self, variant: Variant, ends: Sequence[int]) -> GroupPlan:
        """Return the plan with the elements between `ends` on ranks or virtual stages."""
        stops = self.stops(variant, ends)
        groups, job = self.rank_devices(), self.job_of_stages(variant, stops)
        return Plan(
            model=self.problem.model,
            global_batch=self.problem.global_batch,
            micro_batches=self.micro_batches,
            stages=tuple(
                GroupStage(start=start, stop=stop, replicas=groups[job.rank_of(k)])
                for k, (start, stop) in enumerate(pairwise(stops))
            ),
            settings=job.settings,
            virtual=variant.virtual,
        )

    def rank_devices(self) -> tuple[tuple[Replica, ...], ...]:
        """Return the replicas of every pipeline rank."""
        d = self.degrees
        each = self.problem.cluster.nodes[0].devices
        return _replicas(each, d.nodes, d.order, (d.pp, d.dp, d.tp * d.cp), d.micro_batch)


@lru_cache(maxsize=16)  # of large clusters they are many
def _replicas(
    each: int, nodes: tuple[int, ...], order: int, shape: tuple[int, int, int], samples: int
) -> tuple[tuple[Replica, ...], ...]:
    """Return the replicas of every pipeline rank. each: devices of a node. shape: pp, dp, and the
    devices of a replica."""
    return tuple(
        tuple(Replica(devices=tuple(row), samples=samples) for row in stage)
        for stage in seats_of(each, nodes, order, shape).tolist()
    )


def settings_of(
    problem: Problem[MegatronCosts], costs: MegatronCosts, degrees: MegatronDegrees
) -> Settings:
    """Return a choice of settings with its degrees: one object for all sizes of micro-batches and
    orders of nodes."""
    known = costs.own.on(problem.cluster)
    own = ("settings", *degrees[:6], degrees.order, degrees.choice)
    found: Settings | None = known.get(own)
    if found is None:
        alike = degrees._replace(micro_batch=0, nodes=())
        choice, plainest = costs.choices[degrees.choice], costs.choices[0]
        shared, key = costs.known(problem.cluster), ("settings", alike[:-1], choice, plainest)
        if key not in shared:
            shared[key] = costs.runtime.with_degrees(choice, plainest, alike)
        found = known[own] = shared[key]
    return found


def _once_more(element: ElementTime, recompute: Recompute) -> float:
    """Return the seconds that an element takes once more, in all or in parts."""
    if recompute.granularity == "full":
        return element.again
    if recompute.granularity == "none":
        return 0.0
    return sum((element.parts.get(name, 0.0) for name in recompute.modules), 0.0)

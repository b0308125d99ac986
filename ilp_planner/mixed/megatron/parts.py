"""Megatron's plan space as parts: choices of degrees, and in each the schedules and recomputations.

A variant of a part decides virtual stages and recomputation; its plans differ in where the chain is
cut into pipeline ranks. With virtual stages, a rank's layers are spread over them as evenly as
possible, the first ones taking what is left over; models whose layers differ then have equally many
layers in all virtual stages but the first and the last.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.anatomy.memory import memory_parts
from ilp_planner.anatomy.states import state_widths
from ilp_planner.costs.megatron.job import base_layout, layout_of, virtual_sizes
from ilp_planner.costs.megatron.memory import chain_ranges, fits, most_layers
from ilp_planner.costs.megatron.network import Network
from ilp_planner.costs.megatron.ranks import RankCosts
from ilp_planner.mixed.megatron.partition import INFINITE, CutTables
from ilp_planner.mixed.megatron.space import megatron_space
from ilp_planner.mixed.space import FixedPlacement
from ilp_planner.plan import GroupPlan, GroupStage, Replica
from ilp_planner.specs.data_sheets import generation
from ilp_planner.specs.training import ORDERS, Recompute, TrainingJob

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ilp_planner.anatomy.memory import MemoryParts
    from ilp_planner.costs.megatron.costs import MegatronCosts
    from ilp_planner.mixed.megatron.space import MegatronDegrees
    from ilp_planner.mixed.problem import GroupProblem

NOTHING = Recompute()
SELECTIVE = Recompute(granularity="selective")
FULL = Recompute(granularity="full", method="uniform", layers=1)
MOST_FIGURES = 4_000_000  # of memory at once


@dataclass(frozen=True, slots=True)
class Variant:
    """virtual: stages per pipeline rank."""

    virtual: int
    recompute: Recompute

    def __str__(self) -> str:
        again = self.recompute
        text = again.granularity
        if text == "full":
            text = f"{again.method} {again.layers}"
        return f"virtual {self.virtual}, recompute {text}"


class MegatronPart(FixedPlacement):
    """One choice of degrees (`SpacePart` as far as certificates need it)."""

    def __init__(
        self, problem: GroupProblem, costs: MegatronCosts, degrees: MegatronDegrees
    ) -> None:
        self.problem, self.costs, self.degrees = problem, costs, degrees
        self.micro_batches = degrees.micro_batches(problem.global_batch)
        self.name = degrees.describe(problem.cluster)
        self.constant = 0.0

    @cached_property
    def job(self) -> TrainingJob:
        """The job with any layout, without recomputation."""
        d, model = self.degrees, self.costs.model
        settings = self.costs.with_settings(
            cp=d.cp, ep=d.ep, etp=d.etp, sequence_parallel=d.tp > 1, order=ORDERS[d.order]
        )
        return TrainingJob(
            model=model,
            micro_batch=d.micro_batch,
            global_batch=self.problem.global_batch,
            tp=d.tp,
            pp=d.pp,
            dp=d.dp,
            layout=base_layout(model, d.pp),
            settings=settings,
            devices_per_node=self.problem.cluster.nodes[0].devices,
            generation=generation(self.problem.cluster),
        )

    @cached_property
    def ranks(self) -> RankCosts:
        """Times of the ranks."""
        return RankCosts(
            self.job, Network(self.problem.cluster, self.degrees.nodes), self.costs.profile
        )

    @cached_property
    def elements(self) -> NDArray[np.float64]:
        """Seconds [kinds, 3, n]: of each element in all, of its forward pass, and of its core."""
        return np.array(
            [
                [(e.total, e.again, e.core) for e in self.ranks.elements(kind)]
                for kind in self.ranks.times
            ]
        ).transpose(0, 2, 1)

    @cached_property
    def syncs(self) -> NDArray[np.float64]:
        """Seconds [kinds, 1 + n] of synchronisation: fixed, and of each element."""
        found = [self.ranks.sync(kind) for kind in self.ranks.times]
        return np.array([np.concatenate(([fixed], each)) for fixed, each in found])

    @cached_property
    def alike(self) -> bool:
        """All layers are of one kind, and take equally long: those of a profile may not."""
        layers = self.elements[:, :, 1:-1]
        return len(set(self.costs.model.expert_layers)) == 1 and bool(
            (layers == layers[:, :, :1]).all()
        )

    @cached_property
    def fits_at_all(self) -> bool:
        """Parameters, gradients and states fit the ranks on average."""
        dense = state_widths(self.job, expert=False).total
        expert = state_widths(self.job, expert=True).total
        total = sum(h.dense * dense + h.expert * expert for h in self.ranks.held)
        return total / self.degrees.pp <= max(self.limits)

    @cached_property
    def limits(self) -> tuple[float, ...]:
        """Bytes on the devices of each rank."""
        limits, network = self.problem.memory_limits, self.ranks.network
        return tuple(
            min(limits[name] for name in network.stage_types(self.job, rank))
            for rank in range(self.degrees.pp)
        )

    def spread(self, variant: Variant) -> bool:
        """Tell whether a plan's cuts are between ranks, whose layers are spread over their virtual
        stages; else they are between virtual stages."""
        return variant.virtual == 1 or self.alike

    # ---- variants -------------------------------------------------------------------------------

    def virtual_stages(self) -> tuple[int, ...]:
        """Return the possible numbers of virtual stages per rank.

        The interleaved schedule takes micro-batches in groups of pp.
        """
        pp, layers = self.degrees.pp, self.costs.model.layers
        if pp == 1 or self.micro_batches % pp:
            return (1,)
        # the last virtual stage may have the output alone; where stages are chosen one by one, the
        # first one the embedding as well
        alone = 1 if self.alike else 2
        return tuple(range(1, max(1, (layers + alone) // pp) + 1))

    def variants(self) -> tuple[Variant, ...]:
        """Return all of them."""
        layers, pp = self.costs.model.layers, self.degrees.pp
        found = []
        for virtual in self.virtual_stages():
            # Layers in a virtual stage, at most: the others of the rank have as many, the other
            # ranks one in each, but for the output's.
            most = layers - max(0, pp * virtual - 2)
            even = virtual > 1 and self.alike
            longest = 1 + -(-most // virtual) if even else most
            blocks = [
                Recompute(granularity="full", method="block", layers=k) for k in range(1, longest)
            ]
            found += [Variant(virtual, r) for r in (NOTHING, SELECTIVE, FULL, *blocks)]
        return tuple(found)

    def bound(self, variant: Variant) -> float:
        """Return seconds that no plan of a variant undercuts, memory aside.

        What ranks compute together is at least every element's time on the fastest kind of rank,
        and the slowest rank takes at least its share of that (`_slowest`).
        """
        if not self.fits_at_all:
            return INFINITE
        again, pp, v = variant.recompute, self.degrees.pp, variant.virtual
        kind = {"selective": 2, "full": 1}.get(again.granularity, 0)
        block = again.layers if again.method == "block" else 0
        sends = np.array(self.sends(v))
        total, least_again = self._work[kind if not block else 0]
        slowest = self._slowest(kind, block, sends)
        if block:
            # However its layers are spread over virtual stages, a rank that has the mean, or more,
            # computes so many again.
            total += min(block, -(-self.costs.model.layers // pp)) * least_again
        weight = v * self.micro_batches - 1
        syncs = self.syncs.min(axis=0)
        sync = syncs[0] + max(syncs[1:].sum() / pp, syncs[1:].max())
        seconds = (weight * slowest + total + sends.sum()) / v + sync + self.ranks.constant
        return float(seconds)

    @cached_property
    def _work(self) -> tuple[tuple[float, float], ...]:
        """Return, for no recomputation, full and selective: seconds of all elements on the fastest
        kind of rank, and of one layer's forward pass there."""
        times = self.elements.min(axis=0)
        extra = (0.0, times[1, 1:-1].sum(), times[2, 1:-1].sum())
        least = float(times[1, 1:-1].min())
        return tuple((float(times[0].sum() + more), least) for more in extra)

    def _slowest(self, kind: int, block: int, sends: NDArray[np.float64]) -> float:
        """Return seconds of a micro-batch that the slowest rank takes at least.

        Within tau seconds, a rank computes at most what takes (tau - sending) * s on the fastest
        kind of rank, with s the best ratio that any element has there; and whole layers. All ranks
        together must do all.

        Parameters
        ----------
        kind: row of `elements` that is computed again, 0 for none. block: or only the first so many
            layers of every virtual stage.
        """
        row = self._rows
        times = self.elements[:, 0].copy()
        if kind and not block:
            times[:, 1:-1] += self.elements[:, kind, 1:-1]
        fastest = times.min(axis=0)
        speed = (fastest / times).max(axis=1)[row]
        mean = float((fastest.sum() + (speed * sends).sum()) / speed.sum())
        layer = times[:, 1:-1].min(axis=1)
        more = self.elements[:, 1, 1:-1].min(axis=1) if block else np.zeros_like(layer)
        steps = np.arange(1, self.costs.model.layers + 1)
        took = steps * layer[:, None] + np.minimum(steps, block) * more[:, None]  # [kinds, L]
        pairs, count = np.unique(np.stack((row, sends)), axis=1, return_counts=True)
        rows = pairs[0].astype(np.int64)
        ends = took[rows] + pairs[1][:, None]  # when a rank can have had so many layers
        moments = np.sort(ends, axis=None)
        low, high = 0, moments.size - 1
        while low < high:
            middle = (low + high) // 2
            limit = moments[middle]
            if ((ends <= limit).sum(axis=1) * count).sum() >= steps[-1]:
                high = middle
            else:
                low = middle + 1
        return max(mean, float(moments[low]), float(fastest.max()))

    @cached_property
    def _rows(self) -> NDArray[np.int64]:
        """Row of `elements` of every rank."""
        number = {kind: i for i, kind in enumerate(self.ranks.times)}
        return np.array([number[kind] for kind in self.ranks.kinds], np.int64)

    def least_bound(self) -> float:
        """Return seconds that no plan of the part undercuts."""
        return min(self.bound(Variant(v, NOTHING)) for v in self.virtual_stages())

    def sends(self, virtual: int) -> tuple[float, ...]:
        """Return the seconds that each rank sends to the next and back per micro-batch."""
        each = self.ranks.transfers
        return (*(virtual * t for t in each[:-1]), (virtual - 1) * each[-1])

    # ---- tables ---------------------------------------------------------------------------------

    def tables(self, variant: Variant) -> CutTables:
        """Return what every range of the chain costs."""
        found = fits(self.memory(variant), self.limits)
        sends = self.sends(variant.virtual)
        number = {kind: i for i, kind in enumerate(self.ranks.times)}
        rows: dict[tuple[int, float], int] = {}
        kind = [
            rows.setdefault((number[k], sends[rank]), len(rows))
            for rank, k in enumerate(self.ranks.kinds)
        ]
        load, peak = [], []
        again = [self._again(variant, row) for row in range(len(number))]
        for row, send in rows:
            own = _ranges(self.elements[row, 0]) + again[row] + send
            load.append(self._settled(own / variant.virtual))
            peak.append(self._settled(_ranges(self.syncs[row, 1:]) + self.syncs[row, 0]))
        v, pp = variant.virtual, self.degrees.pp
        least = [1] * pp if v == 1 else [v + 1, *[v] * (pp - 1)]
        return CutTables(
            kind=np.array(kind, np.int64),
            load=np.array(load),
            peak=np.array(peak),
            row=found.row,
            fits=found.possible,
            least=np.array(least, np.int64),
            weight=float(v * self.micro_batches - 1),
            sample=self.sample if self.alike else None,
        )

    @property
    def sample(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Starts and stops of ranges that have all the times there are: of equal counts, one."""
        number = chain_ranges(self.costs.model.expert_layers).number
        ranges = np.triu_indices(number.shape[0], 1)
        _, places = np.unique(number[ranges], return_index=True)
        return ranges[0][places], ranges[1][places]

    def _settled(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return what ranges take where those of equal counts take exactly the same.

        As differences of running sums they differ in the last digit, and a limit that one of them
        sets would exclude the others.
        """
        if not self.alike:
            return values
        number = chain_ranges(self.costs.model.expert_layers).number
        ranges = np.triu_indices(number.shape[0], 1)
        found = values.copy()
        found[ranges] = values[self.sample][number[ranges]]
        return found

    def memory(self, variant: Variant) -> MemoryParts:
        """Return the memory of a variant's parts."""
        return memory_parts(self.variant_job(variant))

    def hopeless(self, variants: Sequence[Variant]) -> set[Variant]:
        """Return the variants whose ranks cannot hold all layers together, however they are cut."""
        groups: dict[tuple[int, str, str], list[Variant]] = {}
        for variant in variants:
            again = variant.recompute
            key = variant.virtual, again.granularity, again.method
            groups.setdefault(key, []).append(variant)
        found: set[Variant] = set()
        for (_, _, method), group in groups.items():
            if not self.spread(group[0]):
                continue
            parts = self.memory(group[0])
            step = max(1, MOST_FIGURES // (self.degrees.pp * 40 * self.costs.model.layers))
            for begin in range(0, len(group), step):
                some = group[begin : begin + step]
                blocks = [v.recompute.layers for v in some] if method == "block" else []
                held = most_layers(parts, self.limits, blocks).sum(axis=1)
                too_few = (held < self.costs.model.layers).tolist()
                found |= {v for v, few in zip(some, too_few, strict=True) if few}
        return found

    def variant_job(self, variant: Variant) -> TrainingJob:
        """Return the job with the recomputation of a variant, with any layout."""
        job = self.job
        settings = dataclasses.replace(job.settings, recompute=variant.recompute)
        layout = base_layout(job.model, job.pp * variant.virtual)
        return dataclasses.replace(job, settings=settings, layout=layout)

    def _again(self, variant: Variant, row: int) -> NDArray[np.float64]:
        """Return the seconds that every range computes again."""
        _, forward, core = self.elements[row]
        recompute = variant.recompute
        inner = np.ones_like(forward)
        inner[[0, -1]] = 0.0
        if recompute.granularity == "none":
            return _ranges(0.0 * inner)
        if recompute.granularity == "selective":
            return _ranges(core * inner)
        if recompute.method == "uniform":
            return _ranges(forward * inner)
        if variant.virtual > 1:
            count, extra = np.divmod(_ranges(inner).astype(np.int64), variant.virtual)
            spread = extra * np.minimum(recompute.layers, count + 1)
            spread += (variant.virtual - extra) * np.minimum(recompute.layers, count)
            seconds: NDArray[np.float64] = spread * forward[1]
            return seconds
        sums = np.concatenate(([0.0], np.cumsum(forward * inner)))
        edge = np.arange(sums.size)
        begin = np.maximum(edge, 1)  # the embedding is no layer
        stop = np.minimum(
            begin[:, None] + recompute.layers, np.maximum(edge[None, :], begin[:, None])
        )
        return np.where(edge[:, None] < edge[None, :], sums[stop] - sums[begin][:, None], 0.0)

    # ---- plans ----------------------------------------------------------------------------------

    def group_plan(self, variant: Variant, ends: Sequence[int]) -> GroupPlan:
        """Return the plan whose ranks, or virtual stages, have the elements between `ends`."""
        stops = list(ends)
        if self.spread(variant):
            sizes = virtual_sizes(ends, variant.virtual, self.costs.model.layers)
            stops = np.cumsum([0, *sizes]).tolist()
        groups = self.rank_devices()
        settings = self.variant_job(variant).settings
        if variant.recompute.method == "block":
            layout = layout_of(stops, self.costs.model)
            longest = max(stage.layers for stage in layout.stages)
            # More than there are would be all, and is no number of layers to write down.
            again = dataclasses.replace(
                variant.recompute, layers=min(variant.recompute.layers, longest)
            )
            settings = dataclasses.replace(settings, recompute=again)
        return GroupPlan(
            model=self.problem.model,
            global_batch=self.problem.global_batch,
            micro_batches=self.micro_batches,
            stages=tuple(
                GroupStage(start=start, stop=stop, replicas=groups[k % self.degrees.pp])
                for k, (start, stop) in enumerate(pairwise(stops))
            ),
            settings=settings,
            virtual=variant.virtual,
        )

    def rank_devices(self) -> tuple[tuple[Replica, ...], ...]:
        """Return the replicas of every pipeline rank."""
        d = self.degrees
        each = self.problem.cluster.nodes[0].devices
        devices = (np.array(d.nodes)[:, None] * each + np.arange(each)).ravel()
        width = d.tp * d.cp
        if d.order == 0:
            seats = devices.reshape(d.pp, d.dp, width)
        else:
            seats = devices.reshape(d.dp, d.pp, width).transpose(1, 0, 2)
        return tuple(
            tuple(Replica(devices=tuple(row), samples=d.micro_batch) for row in stage)
            for stage in seats.tolist()
        )


def _ranges(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sums over [start, stop); 0 where the range is empty or backward."""
    sums = np.concatenate(([0.0], np.cumsum(values)))
    found: NDArray[np.float64] = np.triu(sums[None, :] - sums[:, None])
    return found


def megatron_parts(problem: GroupProblem, costs: MegatronCosts) -> list[MegatronPart]:
    """Return a part for every choice of degrees.

    Raises
    ------
    InfeasibleError: there is none.
    """
    space = megatron_space(
        costs.model,
        problem.cluster,
        problem.global_batch,
        micro_batches=problem.micro_batches,
        max_tp=problem.max_tp,
        max_cp=costs.max_cp,
        max_stages=problem.max_stages,
        profiled=costs.profiled(problem.cluster),
    )
    return [MegatronPart(problem, costs, degrees) for degrees in space]

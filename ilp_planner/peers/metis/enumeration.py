"""Metis's own search space, whole, as stage graphs: one per order of device types and number of
micro-batches.

Ranks are laid out type by type. A plan cuts all of them into groups of sizes that are powers of
two, and the layers into as many ranges of at least one layer each; every group runs with any (dp,
tp) that is profiled. Metis itself looks at a part of it, and prints plans that are none: with empty
stages, or layers that are lost.

A node is (ranks used, layers done, the next group's properties for the sender). The last is the
bandwidth of the next group's device types: that of the boundary is the less of both groups'.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby, permutations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ilp_planner.optimize.graph import StageGraph
from ilp_planner.peers.metis.costs import MetisCosts, rank_types
from ilp_planner.plan import GroupPlan, GroupStage, Plan, Replica
from ilp_planner.schedule.formulas import OneForwardOneBackward

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from ilp_planner.peers.metis.formulas import MetisGroup
    from ilp_planner.specs.cluster import ClusterSpec


@dataclass(frozen=True, kw_only=True, eq=False)
class MetisGraph:
    """The part of the space with one order of device types and one number of micro-batches.

    Its paths are the plans: `graph.path_time(path) + constant` is the cost in seconds.

    devices: device number of each rank. first, size, tp: int64 [arcs], first rank, ranks and
    tensor-parallel degree of each arc. groups: of each (first, size, tp).
    """

    sequence: tuple[str, ...]
    global_batch: int
    micro_batches: int
    graph: StageGraph
    constant: float
    devices: tuple[int, ...]
    first: NDArray[np.int64]
    size: NDArray[np.int64]
    tp: NDArray[np.int64]
    groups: dict[tuple[int, int, int], MetisGroup]
    model: str = ""

    def plan_of(self, path: Sequence[int]) -> GroupPlan:
        """Return the plan that a path stands for."""
        stages = []
        for arc in path:
            first, tp = int(self.first[arc]), int(self.tp[arc])
            group = self.groups[first, int(self.size[arc]), tp]
            replicas = tuple(
                Replica(
                    devices=self.devices[first + i * tp : first + (i + 1) * tp], samples=samples
                )
                for i, samples in enumerate(group.samples)
            )
            start, stop = int(self.graph.start[arc]), int(self.graph.stop[arc])
            stages.append(GroupStage(start=start, stop=stop, replicas=replicas))
        return Plan(
            model=self.model,
            global_batch=self.global_batch,
            micro_batches=self.micro_batches,
            stages=tuple(stages),
        )


def metis_graphs(
    costs: MetisCosts,
    cluster: ClusterSpec,
    *,
    global_batch: int,
    micro_batches: Sequence[int] | None = None,
    summed: bool = False,
    model: str = "",
) -> Iterator[MetisGraph]:
    """Yield the whole space; graphs without a path from end to end are left out.

    Parameters
    ----------
    cluster: of the device numbers in plans; nodes as in `costs.formulas.cluster`.
    micro_batches: numbers of micro-batches to try; every divisor of global_batch when None.
    summed: memory is checked of every group in sum, as Metis does; else of every device.
    """
    if micro_batches is None:
        micro_batches = [b for b in range(1, global_batch + 1) if global_batch % b == 0]
    for sequence in permutations(costs.formulas.cluster.device_types):
        for batches in sorted(micro_batches):
            if global_batch % batches:
                continue
            builder = _Builder(
                costs=costs,
                ranks=rank_types(costs.formulas, sequence),
                batches=batches,
                batch=global_batch // batches,
                summed=summed,
            )
            graph = builder.graph()
            if graph is None:
                continue
            arcs, first, size, tp = graph
            yield MetisGraph(
                sequence=sequence,
                global_batch=global_batch,
                micro_batches=batches,
                graph=arcs,
                constant=costs.constant(batches),
                devices=tuple(
                    number
                    for device in sequence
                    for number, found in enumerate(cluster.type_of)
                    if found == device
                ),
                first=first,
                size=size,
                tp=tp,
                groups=builder.groups,
                model=model,
            )


class _Shape(NamedTuple):
    """The inputs of a group's terms, for any place of its ranks.

    runs: (device type, ranks) in order. tp: tensor-parallel degree. opens, ends: the group has the
    first or the last rank.
    """

    runs: tuple[tuple[str, int], ...]
    tp: int
    opens: bool
    ends: bool


class _Ranges(NamedTuple):
    """Ranges of layers that a group may have, and their costs in seconds."""

    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    time: NDArray[np.float64]
    extra: NDArray[np.float64]
    peaks: NDArray[np.float64]


class _Arcs(NamedTuple):
    """Arcs of one group with one next group's bandwidth."""

    tail: NDArray[np.int64]
    head: NDArray[np.int64]
    ranges: _Ranges
    extra: NDArray[np.float64]
    first: int
    size: int
    tp: int


@dataclass(kw_only=True, eq=False)
class _Builder:
    costs: MetisCosts
    ranks: tuple[str, ...]
    batches: int
    batch: int
    summed: bool

    groups: dict[tuple[int, int, int], MetisGroup] = field(default_factory=dict, init=False)
    _shapes: dict[_Shape, tuple[MetisGroup, _Ranges] | None] = field(
        default_factory=dict, init=False
    )

    def __post_init__(self) -> None:
        self._limits = self.costs.limits_mb
        self._degrees = self.costs.degrees()

    def graph(
        self,
    ) -> tuple[StageGraph, NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]] | None:
        """Return the graph, and first rank, size and tp of its arcs; None without a path."""
        layers, total = self.costs.formulas.layers, len(self.ranks)
        entries = {first: self._entry_bandwidths(first) for first in range(total)}
        # Layer by layer, so that every arc goes to a higher number; the sink is the last.
        offsets = np.cumsum([0, *(len(entries[first]) for first in range(total))])
        sink = int(layers * offsets[-1])
        arcs = [
            arc
            for first in range(total)
            for size in _powers_up_to(total - first)
            for arc in self._group_arcs(first, size, entries, offsets, sink)
        ]
        if not arcs:
            return None
        tail = np.concatenate([arc.tail for arc in arcs])
        head = np.concatenate([arc.head for arc in arcs])
        counts = [arc.tail.size for arc in arcs]
        first, size, tp = (
            np.repeat(np.array([getattr(arc, name) for arc in arcs], dtype=np.int64), counts)
            for name in ("first", "size", "tp")
        )
        start = np.concatenate([arc.ranges.start for arc in arcs])
        keep = _on_a_path(tail, head, start, layers, sink, sources=int(offsets[1]))
        if not keep.any():
            return None
        graph = StageGraph(
            nodes=sink + 1,
            sources=tuple(range(int(offsets[1]))),
            sink=sink,
            operators=layers,
            weight=OneForwardOneBackward(self.batches).weight,
            tail=tail[keep],
            head=head[keep],
            start=start[keep],
            stop=np.concatenate([arc.ranges.stop for arc in arcs])[keep],
            time=np.concatenate([arc.ranges.time for arc in arcs])[keep],
            extra=np.concatenate([arc.extra for arc in arcs])[keep],
            peaks=np.concatenate([arc.ranges.peaks for arc in arcs], axis=1)[:, keep],
        )
        return graph, first[keep], size[keep], tp[keep]

    def _entry_bandwidths(self, first: int) -> list[float]:
        """Return the bandwidths that groups beginning at a rank may have, ascending."""
        sizes = _powers_up_to(len(self.ranks) - first)
        return sorted({self._bandwidth(first, size) for size in sizes})

    def _bandwidth(self, first: int, size: int) -> float:
        types = frozenset(self.ranks[first : first + size])
        return self.costs.formulas.bandwidth(types)

    def _group_arcs(
        self,
        first: int,
        size: int,
        entries: dict[int, list[float]],
        offsets: NDArray[np.int64],
        sink: int,
    ) -> Iterator[_Arcs]:
        """Yield the arcs of one group, by tensor-parallel degree and next group's bandwidth."""
        after = first + size
        runs = tuple(
            (device, sum(1 for _ in run)) for device, run in groupby(self.ranks[first:after])
        )
        stride = int(offsets[-1])
        own = self._bandwidth(first, size)
        entered = int(offsets[first]) + entries[first].index(own)
        for tp in _powers_up_to(size):
            shape = _Shape(runs, tp, opens=first == 0, ends=after == len(self.ranks))
            if shape not in self._shapes:
                self._shapes[shape] = self._ranges(shape, self.ranks[first:after])
            found = self._shapes[shape]
            if found is None:
                continue
            group, ranges = found
            self.groups[first, size, tp] = group
            tail = ranges.start * stride + entered
            if shape.ends:
                yield _Arcs(tail, np.full_like(tail, sink), ranges, ranges.extra, first, size, tp)
                continue
            send = self._send(group, own)
            for number, bandwidth in enumerate(entries[after]):
                head = ranges.stop * stride + int(offsets[after]) + number
                extra = ranges.extra + send[ranges.stop] / min(own, bandwidth)
                yield _Arcs(tail, head, ranges, extra, first, size, tp)

    def _send(self, group: MetisGroup, own: float) -> NDArray[np.float64]:
        """Return seconds of sending at each cut, times the bandwidth in GB/s."""
        formulas = self.costs.formulas
        none: frozenset[str] = frozenset()
        cuts = [formulas.send(group, none, cut) * own for cut in range(formulas.layers + 1)]
        return np.array(cuts) / 1e3

    def _ranges(self, shape: _Shape, types: Sequence[str]) -> tuple[MetisGroup, _Ranges] | None:
        formulas = self.costs.formulas
        if any(shape.tp not in self._degrees[device] for device in set(types)):
            return None
        group = formulas.group(types, shape.tp, self.batch)
        if group is None or not 1 <= group.mean <= formulas.largest_samples:
            return None
        time, sync = formulas.compute(group), formulas.sync(group)
        if time is None or (shape.ends and sync is None):
            return None
        if self.summed:
            demand = formulas.metis_demand(group, self.ranks, self.batch)
            if demand is None:
                return None
            fits = demand <= formulas.capacity(group, self._limits)
        else:
            fits = formulas.fits(group, self._limits)
        layer = np.arange(formulas.layers + 1)
        allowed = fits & (layer[:, None] < layer[None, :])
        allowed &= (layer[:, None] == 0) == shape.opens
        allowed &= (layer[None, :] == formulas.layers) == shape.ends
        start, stop = np.nonzero(allowed)
        extra = np.zeros(start.size)
        if shape.ends and sync is not None:
            extra += (sync - formulas.least_sync) * self.batches / 1e3
        peaks = np.stack([formulas.gradients(group)[allowed], formulas.optimizer(group)[allowed]])
        ranges = _Ranges(
            start.astype(np.int64), stop.astype(np.int64), time[allowed] / 1e3, extra, peaks / 1e3
        )
        return group, ranges


def _powers_up_to(limit: int) -> list[int]:
    return [1 << bit for bit in range(limit.bit_length())]


def _on_a_path(
    tail: NDArray[np.int64],
    head: NDArray[np.int64],
    start: NDArray[np.int64],
    layers: int,
    sink: int,
    sources: int,
) -> NDArray[np.bool_]:
    """Tell the arcs on a path from a source to the sink, layer by layer."""
    by_start = [np.nonzero(start == layer)[0] for layer in range(layers)]
    reached = np.zeros(sink + 1, dtype=np.bool_)
    reached[:sources] = True
    for arcs in by_start:
        reached[head[arcs[reached[tail[arcs]]]]] = True
    leads = np.zeros(sink + 1, dtype=np.bool_)
    leads[sink] = True
    for arcs in reversed(by_start):
        leads[tail[arcs[leads[head[arcs]]]]] = True
    result: NDArray[np.bool_] = reached[tail] & leads[head]
    return result

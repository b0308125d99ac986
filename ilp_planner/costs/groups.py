"""The protocol between cost models of whole layers on device groups and everything that plans with
them.

An iteration of B micro-batches takes

    T = (B - 1) * max_s u_s + sum_s (u_s + extra_s) + sum_k max_s peak_{k,s} + constant

u_s: seconds of one micro-batch through stage s, that the whole pipeline repeats with; extra_s:
seconds that stage s adds once; a peak is added once, by the stage with the largest. A cost model
defines each term.

*A short last micro-batch* (`batches`) counts in B as a fraction p < 1 of a full one by its samples,
and adds its excess:

    max_s max(0, c'_s - p c_s) + (1 - p) sum_s t'_s

c_s, c'_s: seconds of a full and of the last one on the devices of stage s, a peak; t'_s: seconds of
sending the last one on, no more than t_s of a full one; u_s = c_s + t_s. No path of the
micro-batches through the stages, one after the other, takes longer: if stage k waits for the last
one, of c'_s + t'_s, it ends no later than

    (B - 2) max_s u_s + sum_s u_s + c'_k + t'_k

with B micro-batches in all, and c'_k + t'_k <= p u_k + max(0, c'_k - p c_k) + (1 - p) t'_k.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from ilp_planner.costs.base import Costs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ilp_planner.specs.cluster import ClusterSpec


class GroupOption(NamedTuple):
    """One form of a stage: replicas of `tp` devices each, so many of each device type.

    replicas: in the order of the cluster's device types (`ClusterSpec.type_names`).
    degrees: devices of a replica of each type, if types differ (`option_of`): `tp` is then the
    largest. Empty: `tp` of all.
    over: nodes of its one type that the replicas are spread over evenly, two at least; 0: they are
    packed (`costs/seat_patterns.py`).
    """

    tp: int
    replicas: tuple[int, ...]
    degrees: tuple[int, ...] = ()
    over: int = 0

    def degree(self, kind: int) -> int:
        """Return the devices of a replica of a type."""
        return self.degrees[kind] if self.degrees else self.tp

    @property
    def pieces(self) -> int:
        """In how many equal pieces gradients are reduced: the ranks of every replica hold as many
        whole ones each."""
        return lcm(*self.degrees) if self.degrees else self.tp

    @property
    def each(self) -> int:
        """Replicas in every node of a group that is spread evenly."""
        return sum(self.replicas) // self.over

    def in_turn(self, nodes: Sequence[int]) -> list[int]:
        """Return the node of each replica of a group that is spread over these, replicas with more
        samples in turn: pairs that share samples unevenly have the same ones in a node."""
        return [node for _ in range(self.each) for node in nodes]

    @property
    def use(self) -> tuple[int, ...]:
        """Devices of each type."""
        return tuple(self.degree(kind) * r for kind, r in enumerate(self.replicas))


def option_of(degrees: Sequence[int], replicas: Sequence[int]) -> GroupOption:
    """Return the option of so many replicas of each type, with so many devices each.

    Parameters
    ----------
    degrees: of each type; of types without replicas any.
    """
    tp = max(degree for degree, count in zip(degrees, replicas, strict=True) if count)
    own = tuple(d if count else tp for d, count in zip(degrees, replicas, strict=True))
    return GroupOption(tp, tuple(replicas), own if min(own) < tp else ())


class GroupClass(NamedTuple):
    """The class of a downstream group for its sender: its device types, and whether the two may
    share a node.

    types: numbers of the device types that the group has, ascending.
    within_node: the group is smaller than a node of its type (it has one type only).
    apart: types without a shared node, ascending.
    over: nodes that the group is spread over evenly; 0: it is packed.
    leaves: devices that a packed group leaves at most of a node that it fills, if it is on
        several.
    """

    types: tuple[int, ...]
    within_node: bool
    apart: tuple[int, ...] = ()
    over: int = 0
    leaves: int = 0


class RecomputedStages(NamedTuple):
    """Stages of an option that recompute layers, each holding more micro-batches than the same
    range of layers with fewer of them.

    start, stop: int64 [stages]. way: int64 [stages], number of the recomputation
    (`costs/recomputed_layers.py`). time: float64 [stages], peaks: float64 [K, stages], in_flight:
    int64 [stages], as in `OptionTables`.
    """

    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    way: NDArray[np.int64]
    time: NDArray[np.float64]
    peaks: NDArray[np.float64]
    in_flight: NDArray[np.int64]

    def only(self, keep: NDArray[np.bool_]) -> RecomputedStages:
        """Return some of them."""
        columns: tuple[Any, ...] = self
        return RecomputedStages(*(column[..., keep] for column in columns))

    def of(self, start: int, stop: int) -> NDArray[np.intp]:
        """Return the numbers of the stages of a range of layers."""
        return np.flatnonzero((self.start == start) & (self.stop == stop))


@dataclass(frozen=True, kw_only=True, eq=False)
class OptionTables:
    """One option on every range of layers [i, j), for one B; L layers.

    time, extra: float64 [L, L + 1], seconds, u and extra above, without sending to the next stage.
    peaks: float64 [K, L, L + 1], seconds.
    in_flight: int64 [L, L + 1], micro-batches whose activations fit every device of the group at
        once; 0 where not even one does, or where the range is empty or not profiled.
    samples: of each replica, in the order of the types, per micro-batch (fixed for the option).
    last: the same of a short last micro-batch, at most; none if it is like the others.
    recomputed: stages that recompute layers, besides the stages above that do not; None: none.
    """

    time: NDArray[np.float64]
    extra: NDArray[np.float64]
    peaks: NDArray[np.float64]
    in_flight: NDArray[np.int64]
    samples: tuple[int, ...]
    last: tuple[int, ...] = ()
    recomputed: RecomputedStages | None = None

    @property
    def possible(self) -> NDArray[np.bool_]:
        """Ranges of layers that fit, recomputed or not, bool [L, L + 1]."""
        fits: NDArray[np.bool_] = self.in_flight > 0
        if self.recomputed is not None:
            fits[self.recomputed.start, self.recomputed.stop] = True
        return fits

    def seconds(self, start: int, stop: int, way: int) -> float:
        """Return the time of a stage that there is. way: number of its recomputation."""
        if way == 0 or self.recomputed is None:
            return float(self.time[start, stop])
        of = self.recomputed.of(start, stop)
        return float(self.recomputed.time[of][self.recomputed.way[of] == way].min())

    def fastest(self, start: int, stop: int, held: int) -> int:
        """Return the number of the recomputation of the fastest stage that holds so many
        micro-batches; there is one."""
        if self.recomputed is None or self.in_flight[start, stop] >= held:
            return 0
        of = self.recomputed.of(start, stop)
        able = of[self.recomputed.in_flight[of] >= held]
        return int(self.recomputed.way[able[self.recomputed.time[able].argmin()]])


class GroupTables(Costs, Protocol):
    """Prices stages of whole layers on any group of devices."""

    @property
    def uneven(self) -> bool:
        """Replicas of one type may differ by a sample, and the last micro-batch may be short."""

    @property
    def mixed_tp(self) -> bool:
        """Replicas of one stage may have a tensor-parallel degree for each device type."""

    @property
    def spread(self) -> bool:
        """Replicas of a stage may be spread evenly over nodes, besides being packed."""

    @property
    def recomputations(self) -> tuple[str, ...]:
        """Return the kinds of recomputation that stages may have (`Recompute.kind`)."""

    def degrees(self) -> Mapping[str, tuple[int, ...]]:
        """Return the tensor-parallel degrees that each device type is profiled for."""

    def constant(self, micro_batches: int) -> float:
        """Seconds per iteration that every plan with B micro-batches takes."""

    def option_tables(
        self, option: GroupOption, micro_batches: int, global_batch: int, cluster: ClusterSpec
    ) -> OptionTables | None:
        """Return the optimiser's tables, on the best links that the option can have; None when it
        is not profiled or its replicas cannot share the samples."""

    def send(
        self,
        option: GroupOption,
        samples: tuple[int, ...],
        micro_batches: int,
        to: GroupClass,
        cluster: ClusterSpec,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return (seconds added to u, seconds added to extra), float64 [L + 1] by the cut, of
        sending from a stage of this option to the next one, on the best link that the two can
        have."""

    @property
    def largest_samples(self) -> int | None:
        """Samples per replica that are profiled at most; None if there is no limit."""

    def replica_seconds(self, device: str, tp: int, samples: int) -> NDArray[np.float64] | None:
        """Return seconds per micro-batch of every layer on a replica with 1, 2 ... so many samples,
        float64 [samples, L]; inf if the layer alone does not fit or is not profiled. No stage takes
        less than the sum of its layers on any of its replicas. None if that is not known."""

    def layer_memory(self, device: str, tp: int) -> NDArray[np.float64] | None:
        """Return the bytes that each layer needs at least by itself, float64 [L]; None if it is not
        profiled."""

    def with_limits(self, limits: Mapping[str, float]) -> GroupTables:
        """Return the same costs with other limits: device type -> bytes per device."""

    def plainest(self) -> GroupTables:
        """Return the same costs if stages are packed, and each has one degree."""

    def crossing(self, start: int, stop: int) -> tuple[float, float] | None:
        """Return the bytes of gradients of layers [start, stop) and of the message over the cut
        after them; None if the costs do not tell nodes apart."""

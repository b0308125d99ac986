"""Cost models of operators by name: time and memory of a stage, by our formulas or a system's.

The planner's own cost model: corrections and additions to Aceso's, on the same rows.

Added: gradient reduction over the data-parallel replicas and the optimiser step, once per
iteration. A device that is busy B * t + s seconds per iteration is counted as t + s / B per
micro-batch, so that the slowest stage is the device with most work. Mended: bandwidths are
interpolated at the message's own size, collectives between their profiled sizes, and never more
micro-batches are in flight than there are.

A stage may have replicas on h whole nodes; its tensor-parallel groups stay inside a node. Its
gradients are then reduced as `costs.training.network` has it, by rings that pass the network of
each node once and share it: with tp x dp devices, tp of them, so

    seconds = 2 (dp - 1) / dp * max(tp * bytes / network, bytes inside the node) + 2 (h - 1) latency

with the bandwidth of the largest messages between nodes, as a stage's gradients are one buffer, and
a latency per step between nodes, once per stage. Steps inside nodes take none. Nothing is changed
between replicas on several nodes, as T5's activations would be before `enc-final-layernorm`.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.base.parts import part
from ilp_planner.costs.chain import ChainCosts, missing_row
from ilp_planner.costs.profiles.table import MIB, OperatorRow, Origin, Provenance
from ilp_planner.schedule.formulas import OneForwardOneBackward

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ilp_planner.costs.operators import Option


# ---- native --------------------------------------------------------------------------------------


# Adam reads and writes 16 bytes of state per 2-byte weight, twice the bytes the states take: a
# device streams them from memory at no less than this rate, the order of every data-centre GPU
# since 2017.
OPTIMIZER_BANDWIDTH = 700e9  # bytes/s
LONGEST_COLLECTIVE = 100.0  # seconds; Aceso's files have such a time for one that failed


class NativeCosts(ChainCosts):
    """The planner's predictions."""

    name = "native"
    weight_floor = False
    spans_nodes = True
    missing = missing_row(2.0**60)  # fits nowhere

    def activation(self, operator: str, row: OperatorRow) -> float:
        """Bytes kept, as profiled."""
        return row.activations

    def is_shared(self, operator: str) -> bool:
        """No operator is a special case."""
        return False

    def starts_checkpoint(self, operator: str) -> bool:
        """A layer's input is always kept, so recomputation restarts there."""
        return operator.endswith("1st-layernorm") or operator.endswith("-conv1")

    def transfer(self, size: float, between_nodes: bool) -> float:
        """Seconds, interpolated between the measured messages of 1, 2, 4 ... MiB.

        Below the smallest at its bandwidth, above the largest at that one's.
        """
        mib = size / MIB
        if mib <= 0:
            return 0.0
        table = self.profile.inter_node if between_nodes else self.profile.intra_node
        sizes, times = self._messages[int(between_nodes)]
        if mib <= sizes[0]:
            return size / table[0]
        if mib >= sizes[-1]:
            return size / table[-1]
        return float(np.interp(mib, sizes, times))

    @cached_property
    def _messages(self) -> tuple[tuple[NDArray[np.float64], NDArray[np.float64]], ...]:
        """MiB and seconds of the measured messages, inside a node and between two."""
        tables = self.profile.intra_node, self.profile.inter_node
        found = []
        for table in tables:
            sizes = 2.0 ** np.arange(len(table), dtype=np.float64)
            found.append((sizes, sizes * MIB / np.array(table)))
        return tuple(found)

    def collective(self, primitive: str, devices: int, size: float) -> float:
        """Seconds, linear between profiled sizes and in proportion beyond them."""
        known = self._curves.get((primitive, devices))
        if known is None:
            return self._ring(primitive, devices, size)
        sizes, times = known
        mib = size / MIB
        if mib > sizes[-1]:
            return float(times[-1] * mib / sizes[-1])
        return float(np.interp(mib, sizes, times))

    @cached_property
    def _curves(self) -> dict[tuple[str, int], tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """MiB, ascending, and seconds of the profiled collectives, by primitive and devices."""
        curves = {}
        for key, table in self.profile.collectives.items():
            known = sorted((s, t) for s, t in table.items() if s > 0 and t < LONGEST_COLLECTIVE)
            if known:
                sizes, times = np.array(known, np.float64).T.copy()
                curves[key] = sizes, times
        return curves

    def _ring(self, primitive: str, devices: int, size: float) -> float:
        """Seconds of a ring collective at the node's point-to-point bandwidth.

        `size` is the tensor's on one device; for an all-gather, that device's contribution.
        """
        share = {"all_reduce": 2.0 / devices, "all_gather": 1.0}.get(primitive, 1.0 / devices)
        return share * (devices - 1) * self.transfer(size, between_nodes=False)

    def transfer_origin(self, size: float, between_nodes: bool) -> Origin:
        """Return the source of the seconds of `transfer`: between two messages, interpolated."""
        known = self.profile.link_origins[int(between_nodes)]
        count = len(self.profile.inter_node if between_nodes else self.profile.intra_node)
        return _at(size / MIB, tuple(2**i for i in range(count)), known)

    def collective_origin(self, primitive: str, devices: int, size: float) -> Origin:
        """Return the source of the seconds of `collective`, likewise."""
        table = self.profile.collectives.get((primitive, devices), {})
        known = sorted(s for s, t in table.items() if s > 0 and t < LONGEST_COLLECTIVE)
        if not known:
            return Origin(Provenance.ANALYTIC)
        origins = self.profile.collective_origins.get((primitive, devices), {})
        nearest = min(known, key=lambda s: abs(s - size / MIB))
        return _at(size / MIB, tuple(known), origins.get(nearest, Origin()))

    def iteration_work(self, row: OperatorRow, option: Option) -> float:
        """Gradient all-reduce over dp replicas, and the optimiser's pass over its states."""
        optimizer = 2 * self.state_factor * row.weights / OPTIMIZER_BANDWIDTH
        if option.dp == 1 or row.weights == 0:
            return optimizer
        nodes = self.nodes_of(option.tp * option.dp)
        if nodes == 1:
            return optimizer + self._ring("all_reduce", option.dp, row.weights)
        network = option.tp * row.weights / self.profile.inter_node[-1]
        inside = self.transfer(row.weights, between_nodes=False) if option.dp > nodes else 0.0
        return optimizer + 2 * (option.dp - 1) / option.dp * max(network, inside)

    def stage_work(self, devices: int) -> float:
        """The latencies of the gradient all-reduce between nodes, one way around and again."""
        return 2 * (self.nodes_of(devices) - 1) * self._network_latency

    @cached_property
    def _network_latency(self) -> float:
        """Seconds until a message between nodes starts: the intercept of the line through messages
        of 1 and 2 MiB. 0 if only one size is known, or the line begins below."""
        one, two = (self.transfer(size, between_nodes=True) for size in (MIB, 2 * MIB))
        return max(0.0, 2 * one - two)

    def in_flight(self, behind: int, micro_batch_count: int) -> int:
        """As many as 1F1B holds."""
        return OneForwardOneBackward(micro_batch_count).in_flight(behind)

    def reshards(self, have: str, want: str) -> bool:
        """Every family pays for a change of layout."""
        return True


def _at(size: float, known: tuple[int, ...], origin: Origin) -> Origin:
    """Return the source of a figure from a table of measured ones.

    Parameters
    ----------
    known: sizes of the table, ascending. origin: of the nearest of them.
    """
    if origin.provenance is not Provenance.MEASURED or size in known:
        return origin
    inside = known[0] < size < known[-1]
    return Origin(Provenance.INTERPOLATED if inside else Provenance.EXTRAPOLATED)


# ---- models --------------------------------------------------------------------------------------


COST_MODELS = ("aceso", "native")


def costs_named(name: str) -> type[ChainCosts]:
    """Return one of `COST_MODELS`."""
    if name == "native":
        return NativeCosts
    found: type[ChainCosts] = part(f"peers.{name}.costs:COSTS")
    return found

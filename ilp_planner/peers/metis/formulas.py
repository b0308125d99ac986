"""The terms of Metis's cost of a mixed cluster (ATC 2024), each for every range of layers at once.

Milliseconds and MB (2^20 bytes), in the order of floating-point operations of its implementation,
so that their combination is equal to the last bit. A table is float64 [L + 1, L + 1]: row = first
layer, column = layer after the last one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ilp_planner.base.errors import ProfileError, UsageError
from ilp_planner.costs.profiles.layers import LayerKey
from ilp_planner.peers.metis.profile import MetisProfile, MetisRow, total

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ilp_planner.peers.metis.cluster import MetisCluster

MB_PER_GB_MS = 1024 * 1024  # bytes that Metis moves in a millisecond for each GB/s
# Metis compares the memory of all devices of a group with this multiple of one replica's.
METIS_MEMORY_FACTOR = 5.0
METIS_MEMORY_FLOOR = 0.001  # MB


class MetisGroup(NamedTuple):
    """The devices of a stage and how they share a micro-batch.

    replicas: device types of each replica, by rank. samples: of each replica, in every micro-batch.
    mean: samples of a micro-batch over the replicas, rounded down (Metis's `mbs`).
    """

    replicas: tuple[tuple[str, ...], ...]
    samples: tuple[int, ...]
    mean: int

    @property
    def tp(self) -> int:
        """Tensor-parallel degree."""
        return len(self.replicas[0])

    @property
    def dp(self) -> int:
        """Data-parallel degree."""
        return len(self.replicas)

    @property
    def types(self) -> frozenset[str]:
        """Device types of all replicas."""
        return frozenset(device for replica in self.replicas for device in replica)

    @property
    def uniform(self) -> bool:
        """All replicas do the same: Metis reads one row, and does not slice the micro-batch."""
        return len(self.types) == 1 and set(self.samples) == {self.mean}


def powers(samples: int) -> tuple[int, ...]:
    """Return the powers of two that add up to a number of samples, largest first."""
    return tuple(1 << bit for bit in reversed(range(samples.bit_length())) if samples >> bit & 1)


def running_sums(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sum of every range, float64 [L + 1, L + 1], each added up from its own start."""
    layers = values.size
    sums = np.zeros((layers + 1, layers + 1))
    for start in range(layers):
        np.cumsum(values[start:], out=sums[start, start + 1 :])
    return sums


@dataclass(frozen=True, kw_only=True, eq=False)
class MetisFormulas:
    """The inputs of Metis's cost model from a profile and a cluster.

    hidden, sequence, vocabulary: sizes of the model; a vocabulary of 0 makes the last cut free.
    row_names: device type -> its name in the profile, if that is not its name in capitals.
    """

    profile: MetisProfile
    cluster: MetisCluster
    hidden: int
    sequence: int
    vocabulary: int
    row_names: Mapping[str, str] = field(default_factory=dict)
    _tables: dict[tuple[str, LayerKey], NDArray[np.float64]] = field(
        default_factory=dict, init=False, repr=False
    )

    def __post_init__(self) -> None:
        for name, least in (("hidden", 1), ("sequence", 1), ("vocabulary", 0)):
            if getattr(self, name) < least:
                raise UsageError(
                    f"{name} size must be at least {least}, found {getattr(self, name)}"
                )
        known = self.profile.device_types
        missing = [d for d in self.cluster.device_types if self.row_name(d) not in known]
        if missing:
            raise ProfileError(
                f"{self.profile.source}: no file of device type {self.row_name(missing[0])!r}, "
                f"which the cluster has; found {', '.join(known)}"
            )

    def row_name(self, device: str) -> str:
        """Return the profile's name of a device type."""
        return self.row_names.get(device, device).upper()

    @property
    def layers(self) -> int:
        """Number of layers, L."""
        return self.profile.layers

    @cached_property
    def largest_samples(self) -> int:
        """Most samples of a replica that any row has."""
        return max(key.samples for key in self.profile.rows)

    def row(self, device: str, tp: int, samples: int) -> MetisRow | None:
        """Return a row; None when it is not profiled."""
        return self.profile.rows.get(LayerKey(self.row_name(device), tp, samples))

    def share(self, leads: Sequence[str], tp: int, batch: int) -> tuple[int, ...] | None:
        """Split a micro-batch over replicas by the speed of the whole model with one sample; the
        rest goes to the largest fractions, first come first served. None without the rows.

        leads: device type of the first device of each replica, by rank.
        """
        speeds = []
        for device in leads:
            row = self.row(device, tp, 1)
            if row is None:
                return None
            speeds.append(1.0 / total(row.compute))
        together = total(speeds)
        parts = [batch * (speed / together) for speed in speeds]
        samples = [int(part) for part in parts]
        fractions = [part - int(part) for part in parts]
        order = sorted(range(len(parts)), key=lambda i: fractions[i], reverse=True)
        for i in order[: batch - sum(samples)]:
            samples[i] += 1
        return tuple(samples)

    def group(self, types: Sequence[str], tp: int, batch: int) -> MetisGroup | None:
        """Form a group of devices, given by type and rank; None if the samples of a micro-batch
        cannot be shared, equal replicas without a rest (Metis itself drops the rest)."""
        dp = len(types) // tp
        mean = batch // dp
        replicas = tuple(tuple(types[i * tp : (i + 1) * tp]) for i in range(dp))
        if len(set(types)) == 1:
            return MetisGroup(replicas, (mean,) * dp, mean) if mean * dp == batch else None
        samples = self.share([replica[0] for replica in replicas], tp, batch)
        return None if samples is None else MetisGroup(replicas, samples, mean)

    def unprofiled(self, group: MetisGroup) -> tuple[str, ...]:
        """Name the rows that the group needs and the profile lacks."""
        return tuple(
            f"{self.row_name(device)} tp{group.tp} bs{samples}"
            for device, samples in sorted(self._needed(group))
            if self.row(device, group.tp, samples) is None
        )

    def unprofiled_end(self, group: MetisGroup) -> tuple[str, ...]:
        """Name the rows that the group lacks as the last stage, beyond its layers (`sync`)."""
        return tuple(
            f"{self.row_name(device)} tp{group.tp} bs{group.mean}"
            for device in sorted(group.types)
            if self.row(device, group.tp, group.mean) is None
        )

    def compute(self, group: MetisGroup) -> NDArray[np.float64] | None:
        """Milliseconds of one micro-batch: the slowest replica, each running its samples in powers
        of two one after the other. None when a row is missing."""
        if self.unprofiled(group):
            return None
        if group.uniform:
            return self._table("compute", group.replicas[0][0], group.tp, group.mean)
        slowest: NDArray[np.float64] | None = None
        for device, samples in sorted(
            {(r[0], s) for r, s in zip(group.replicas, group.samples, strict=True) if s}
        ):
            time = np.zeros((self.layers + 1, self.layers + 1))
            for part in powers(samples):
                time = time + self._table("compute", device, group.tp, part)
            slowest = time if slowest is None else np.maximum(slowest, time)
        return slowest

    def sync(self, group: MetisGroup) -> float | None:
        """Milliseconds per micro-batch that the last stage takes beyond its layers; None without
        the row. (Metis takes 0 for a missing row, too; here it is a measurement.)"""
        rows = [self.row(device, group.tp, group.mean) for device in sorted(group.types)]
        found = [row.sync for row in rows if row is not None]
        return max(found) if len(found) == len(rows) else None

    @cached_property
    def least_sync(self) -> float:
        """The least of all rows' sync, at most 0: measured times may be less than their layers'."""
        return min(0.0, *(row.sync for row in self.profile.rows.values()))

    def bandwidth(self, types: frozenset[str]) -> float:
        """GB/s between devices of these types: the least of theirs, inside a node or not."""
        return min(self.cluster.bandwidth[device] for device in types)

    def gradients(self, group: MetisGroup) -> NDArray[np.float64]:
        """Milliseconds of reducing the gradients of a range, a ring over the replicas."""
        layers, tp, dp = self.layers, group.tp, group.dp
        figures = self.profile.parameters
        inner = float(figures[1]) if layers > 1 else 0.0
        first = np.arange(layers + 1)[:, None] == 0
        last = np.arange(layers + 1)[None, :] == layers
        others = self._lengths - first - last
        size = np.where(first, float(figures[0]) / tp, 0.0)
        size = size + np.where(last, float(figures[-1]) / tp, 0.0)
        size = size + inner / tp * others
        result: NDArray[np.float64] = (
            2 * (dp - 1) / (dp * (self.bandwidth(group.types) * MB_PER_GB_MS))
        ) * size
        return result

    def optimizer(self, group: MetisGroup) -> NDArray[np.float64]:
        """Milliseconds of the optimiser step: that of the whole model by the number of layers."""
        result: NDArray[np.float64] = (
            self.profile.optimizer / group.tp * (self._lengths / self.layers)
        )
        return result

    def send(self, group: MetisGroup, to: frozenset[str], cut: int) -> float:
        """Milliseconds of sending to a group of the types `to`, once per iteration.

        Metis counts elements as bytes, one micro-batch, and before the last layer the logits.
        """
        size: float = group.mean * self.sequence * self.hidden
        if cut == self.layers - 1:
            size = group.mean * self.sequence * self.vocabulary / group.tp
        return size / (self.bandwidth(group.types | to) * MB_PER_GB_MS)

    def fits(self, group: MetisGroup, limits: Mapping[str, float]) -> NDArray[np.bool_]:
        """Tell for every range whether each device by itself has the memory that it holds.

        limits: MB per device of each type.
        """
        fits = np.ones((self.layers + 1, self.layers + 1), dtype=np.bool_)
        for device, limit, samples in {
            (r[0], min(limits[d] for d in r), s)
            for r, s in zip(group.replicas, group.samples, strict=True)
        }:
            held = self.replica_memory(group, device, samples)
            if held is None:
                return np.zeros_like(fits)
            fits &= held <= limit
        return fits

    def replica_memory(
        self, group: MetisGroup, device: str, samples: int
    ) -> NDArray[np.float64] | None:
        """MB that each device of one replica holds; of the largest power of two of its samples if
        these run one after the other. None without the row."""
        if samples == 0:
            return np.zeros((self.layers + 1, self.layers + 1))
        part = samples if group.uniform else powers(samples)[0]
        if self.row(device, group.tp, part) is None:
            return None
        return self._table("memory", device, group.tp, part)

    def capacity(self, group: MetisGroup, limits: Mapping[str, float]) -> float:
        """MB of all devices of the group together.

        limits: MB per device of each type.
        """
        return total(limits[device] for replica in group.replicas for device in replica)

    def metis_demand(
        self, group: MetisGroup, ranks: Sequence[str], batch: int
    ) -> NDArray[np.float64] | None:
        """MB that Metis wants a group to have in sum, for every range. None without the rows.

        Five times the memory of one replica on the type of the cluster's first rank; for a mixed
        group five times that of all replicas of a split of the micro-batch over the whole cluster.

        ranks: device types of all ranks. batch: samples of a micro-batch.
        """
        parts: list[int] = [group.mean]
        if len(group.types) > 1:
            size = len(ranks) // group.dp
            leads = [ranks[i * size] for i in range(group.dp)]
            split = self.share(leads, group.tp, batch)
            if split is None:
                return None
            parts = [part for samples in split for part in powers(samples)]
        if any(self.row(ranks[0], group.tp, part) is None for part in parts):
            return None
        demand = np.full((self.layers + 1, self.layers + 1), METIS_MEMORY_FLOOR)
        for part in parts:
            demand += self._table("memory", ranks[0], group.tp, part) * METIS_MEMORY_FACTOR
        return demand

    @cached_property
    def _lengths(self) -> NDArray[np.int64]:
        return np.arange(self.layers + 1)[None, :] - np.arange(self.layers + 1)[:, None]

    def _needed(self, group: MetisGroup) -> set[tuple[str, int]]:
        if group.uniform:
            return {(group.replicas[0][0], group.mean)}
        pairs = set(zip((r[0] for r in group.replicas), group.samples, strict=True))
        return {(device, part) for device, samples in pairs for part in powers(samples)}

    def _table(self, kind: str, device: str, tp: int, samples: int) -> NDArray[np.float64]:
        key = LayerKey(self.row_name(device), tp, samples)
        if (kind, key) not in self._tables:
            self._tables[kind, key] = running_sums(getattr(self.profile.rows[key], kind))
        return self._tables[kind, key]

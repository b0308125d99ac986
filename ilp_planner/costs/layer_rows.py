"""A replica's figures from a profile of whole layers: seconds and bytes of layers and of ranges of
them, at any number of samples, and micro-batches that fit in memory.

Tables over all ranges of layers [i, j): [L, L + 1] arrays from one figure per layer.

Cached results by key; the oldest are dropped if there are too many.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from ilp_planner.base.numerics import FINE_ROUNDING, ROUNDING
from ilp_planner.costs.launch_floor import DEFAULT, Calibration, predict_times

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from numpy.typing import NDArray

    from ilp_planner.costs.profiles.layers import LayerKey, LayerProfile
    from ilp_planner.costs.recomputed_layers import AllCuts


# ---- kept ----------------------------------------------------------------------------------------


T = TypeVar("T")


class Kept(Generic[T]):
    """Values by key, in the order of arrival. most: sum of their sizes."""

    def __init__(self, most: int) -> None:
        self.most, self.size = most, 0
        self.values: dict[tuple[object, ...], tuple[T, int]] = {}

    def get(self, key: tuple[object, ...]) -> T | None:
        """Return a value; None if it is not there, or not any more."""
        value = self.values.get(key)
        return None if value is None else value[0]

    def keep(self, key: tuple[object, ...], value: T, size: int) -> None:
        """Keep a value that is not there yet; drop the oldest values as long as there are too
        many."""
        self.values[key] = value, size
        self.size += size
        while self.size > self.most:
            self.size -= self.values.pop(next(iter(self.values)))[1]


# ---- ranges --------------------------------------------------------------------------------------


def range_sums(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sum of values[i:j] at [i, j]; 0 if the range is empty."""
    ends = np.concatenate(([0.0], np.cumsum(values)))
    return np.triu(ends[None, :] - ends[:-1, None], 1)


def range_maxima(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the largest of values[i:j] at [i, j], values >= 0; 0 if the range is empty."""
    steps = np.concatenate(([0.0], values))
    return np.maximum.accumulate(np.triu(np.broadcast_to(steps, (values.size, steps.size)), 1), 1)


# ---- layer rows ----------------------------------------------------------------------------------


ALL_IN_FLIGHT = 10**6  # more micro-batches than any iteration has
MOST_KEPT = 2_000_000  # stages that options share, of 56 bytes each
MOST_JUDGED = 20_000  # stages on a replica whose seconds and bytes are kept


class LayerRows:
    """Rows of a profile on devices with so much memory, kept once they are computed.

    Parameters
    ----------
    profile: rows by the cluster's names of device types.
    limits: device type -> bytes per device.
    rates: device type -> sustained bytes/s of its memory, if known; for the launch floor, and
    for the optimiser step if the profile does not have it.
    recomputed: kinds of recomputation that the profile knows; None: all of them.
    least: rows that these are never faster than, nor between the samples of the profile.

    `again` are the rows of the same layers recomputed, by the kind of recomputation. `cuts` are the
    stages that `recomputed_layers` finds, kept by the way and by what their replicas run.
    """

    def __init__(
        self,
        profile: LayerProfile,
        limits: Mapping[str, float],
        *,
        rates: Mapping[str, float] | None = None,
        calibration: Calibration = DEFAULT,
        recomputed: Collection[str] | None = None,
        least: LayerRows | None = None,
    ) -> None:
        self.profile = profile
        self.limits = dict(limits)
        self.rates = dict(rates or {})
        self.calibration = calibration
        self.least = least
        self.again = {
            way: LayerRows(rows, limits, rates=rates, calibration=calibration, least=self)
            for way, rows in profile.recomputed.items()
            if recomputed is None or way in recomputed
        }
        self.chain = profile.layers
        self._rows: dict[LayerKey, NDArray[np.float64]] = {}
        self._curves: dict[tuple[str, int], NDArray[np.float64]] = {}
        self._ranges: dict[tuple[str, LayerKey], NDArray[np.float64]] = {}
        self._ends: dict[tuple[str, LayerKey], NDArray[np.float64]] = {}
        self._held: dict[LayerKey, NDArray[np.int64]] = {}
        self.cuts: Kept[AllCuts] = Kept(MOST_KEPT)
        self.judged: Kept[tuple[float, dict[str, float]]] = Kept(MOST_JUDGED)
        self._gradients = range_sums(profile.gradients)
        self.profiled = {(key.device, key.tp) for key in profile.time}

    def replica_seconds(self, device: str, tp: int, samples: int) -> NDArray[np.float64] | None:
        """Return seconds per micro-batch of every layer on a replica with 1, 2 ... so many samples,
        float64 [samples, L]; inf if the layer alone does not fit, recomputed or not, or is not
        profiled."""
        shape = (samples, len(self.chain))
        if (device, tp) not in self.profiled:
            return np.full(shape, np.inf)
        pair, shares = (device, tp), np.arange(1, samples + 1)
        seconds = self._predict(device, tp, shares)
        limit = self.limits.get(device, 0.0) * (1 + ROUNDING)
        fits = np.zeros(shape, np.bool_)
        for rows in (self, *self.again.values()):
            fits |= shares[:, None] * rows._growing(pair) + rows._fixed(pair) <= limit
        seconds[~fits] = np.inf
        seconds[self.profile.most_samples.get(pair, samples) :] = np.inf
        return seconds

    def layer_memory(self, device: str, tp: int) -> NDArray[np.float64] | None:
        """Return the bytes that every layer takes by itself on a device of a replica of one sample,
        recomputed or not: all that must be there while it runs. None if that is not profiled."""
        pair = (device, tp)
        if pair not in self.profiled:
            return None
        every = (self, *self.again.values())
        least: NDArray[np.float64] = np.min(
            [rows._growing(pair) + rows._fixed(pair) for rows in every], axis=0
        )
        return least

    def _growing(self, pair: tuple[str, int]) -> NDArray[np.float64]:
        """Bytes per layer and sample, of one micro-batch in flight that runs."""
        growing = self.profile.workspace_per_sample.get(pair)
        kept = self.profile.activation[pair]
        return kept if growing is None else kept + growing

    def _fixed(self, pair: tuple[str, int]) -> NDArray[np.float64]:
        """Bytes per layer, however many samples there are."""
        return self.profile.state[pair] + self.profile.workspace[pair]

    def too_many(self, key: LayerKey) -> bool:
        """Tell whether so many samples ran out of memory, or failed, when they were measured."""
        return key.samples > self.profile.most_samples.get((key.device, key.tp), key.samples)

    def needs(self, key: LayerKey, layers: slice, in_flight: int) -> dict[str, float]:
        """Return the bytes of layers on one device, by name."""
        pair = (key.device, key.tp)
        activation = key.samples * float(self.profile.activation[pair][layers].sum())
        return {
            "state": float(self.profile.state[pair][layers].sum()),
            "activations": in_flight * activation,
            "workspace": float(self._workspace(key)[layers].max(initial=0.0)),
        }

    def _predict(self, name: str, tp: int, samples: NDArray[np.int64]) -> NDArray[np.float64]:
        return predict_times(self.profile, name, tp, samples, self.calibration, self.rates)

    def row(self, key: LayerKey) -> NDArray[np.float64]:
        """Return seconds per layer, float64 [L]."""
        if key not in self._rows:
            row = self._predict(key.device, key.tp, np.array([key.samples]))[0]
            self._rows[key] = row if self.least is None else np.maximum(row, self.least.row(key))
        return self._rows[key]

    def _curve(self, name: str, tp: int, samples: int) -> NDArray[np.float64]:
        """Seconds through the whole model of 0, 1, ... samples."""
        known = self._curves.get((name, tp))
        if known is None or known.size <= samples:
            known = self._predict(name, tp, np.arange(samples + 1)).sum(axis=1)
            self._curves[name, tp] = known
        return known[: samples + 1]

    def _workspace(self, key: LayerKey) -> NDArray[np.float64]:
        """Bytes per layer while it runs."""
        pair = (key.device, key.tp)
        growing = self.profile.workspace_per_sample.get(pair)
        fixed = self.profile.workspace[pair]
        return fixed if growing is None else fixed + key.samples * growing

    def step(self, key: LayerKey) -> NDArray[np.float64]:
        """Seconds per layer of the optimiser step: profiled, or reading and writing all states."""
        pair = (key.device, key.tp)
        if pair in self.profile.optimizer:
            return self.profile.optimizer[pair]
        rate = self.rates.get(key.device, math.inf)
        return 2 * self.profile.state[pair] / rate

    def range_of(self, what: str, key: LayerKey) -> NDArray[np.float64]:
        """Return sums over ranges of layers of `time`, `step`, `state` or `activation`, or the
        largest `workspace`, float64 [L, L + 1], kept."""
        if what in ("state", "activation", "step"):
            key = key._replace(samples=0)  # it does not depend on them
        found = self._ranges.get((what, key))
        if found is None:
            largest = what == "workspace"
            found = (
                range_maxima(self._workspace(key)) if largest else range_sums(self._of(what, key))
            )
            self._ranges[what, key] = found
        return found

    def ends_of(self, what: str, key: LayerKey) -> NDArray[np.float64]:
        """Return the sums of `time`, `state` or `activation` over all layers before one, float64 [L
        + 1], kept."""
        if what != "time":
            key = key._replace(samples=0)
        if (what, key) not in self._ends:
            self._ends[what, key] = np.concatenate(([0.0], np.cumsum(self._of(what, key))))
        return self._ends[what, key]

    def _of(self, what: str, key: LayerKey) -> NDArray[np.float64]:
        """Return seconds or bytes of every layer."""
        if what == "time":
            return self.row(key)
        if what == "step":
            return self.step(key)
        rows = self.profile.state if what == "state" else self.profile.activation
        return rows[key.device, key.tp]

    def in_flight(self, key: LayerKey) -> NDArray[np.int64]:
        """Return the micro-batches in flight that fit one device, for every range of layers, int64
        [L, L + 1], kept."""
        if key in self._held:
            return self._held[key]
        limit = self.limits.get(key.device, 0.0) * (1 - FINE_ROUNDING)
        room = limit - self.range_of("state", key) - self.range_of("workspace", key)
        each = key.samples * self.range_of("activation", key)
        with np.errstate(divide="ignore", invalid="ignore"):
            fitting = np.where(each > 0, room / each, np.where(room >= 0, ALL_IN_FLIGHT, 0))
        fitting = np.triu(np.clip(np.floor(fitting), 0, ALL_IN_FLIGHT), 1)
        self._held[key] = fitting.astype(np.int64)
        return self._held[key]

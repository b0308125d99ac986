"""The layer profile: time and memory of each whole layer on one device of each type."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ilp_planner.base.numerics import Floats
    from ilp_planner.costs.profiles.link_times import LinkTimes
    from ilp_planner.costs.profiles.table import Provenance


class LayerKey(NamedTuple):
    """One way to run the layers: device type, tensor-parallel degree, samples of one replica."""

    device: str
    tp: int
    samples: int


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerProfile:
    """Measured or estimated rows of one model, L layers; per device of a replica of tp devices.

    source: for the user (`metis:DIR`, `analytic`).
    layers: names, in order.
    time: float64 [L], seconds, forward and backward of one micro-batch, tensor-parallel
        communication included. A missing key means: not profiled.
    state: (device type, tp) -> float64 [L], bytes held for any micro-batch: parameters,
        gradients, optimiser states.
    activation: (device type, tp) -> float64 [L], bytes per sample that a micro-batch in flight
        keeps.
    workspace: (device type, tp) -> float64 [L], bytes needed while the layer runs; a stage needs
        the largest. Zeros where the profile does not tell it apart.
    workspace_per_sample: likewise, bytes needed besides for every sample of the micro-batch that
        runs (not of those in flight); empty when unknown.
    gradients: float64 [L], bytes of gradients of the whole layer (not divided by tp).
    boundary: float64 [L + 1], bytes per sample that cross a cut before layer i in one direction; 0
        at both ends.
    optimizer: (device type, tp) -> float64 [L], seconds of the optimiser step; empty when unknown.
    measured: keys with measured rows; the others are predictions.
    origins: keys that are not simply one or the other -> {where from: seconds, float64 [L]}, which
        add up to the key's time. errors: key -> expected relative error of the predicted part.
    most_samples: (device type, tp) -> samples that a replica can run at most, if more ran out of
        memory when they were measured.
    forward: keys with a separate forward pass -> its seconds, float64 [L], a part of time.
    recomputed: `full` or `selective` -> the same rows if every layer is recomputed in that
        way: of the same keys, no faster, with `activation` and `workspace` of their own. The first
        and the last layer, embedding and output, are as they are here. Empty when unknown.
    isolated: every layer was timed by itself, the host waiting for the device: a row is what one
        pass costs at most, not what it adds to a pass over the whole model (AMP's profiles).
    links: times of messages between devices, if measured; None: it was not.
    notes: one-line remarks about missing or suspicious values.
    """

    source: str
    layers: tuple[str, ...]
    time: Mapping[LayerKey, Floats]
    state: Mapping[tuple[str, int], Floats]
    activation: Mapping[tuple[str, int], Floats]
    workspace: Mapping[tuple[str, int], Floats]
    gradients: Floats
    boundary: Floats
    optimizer: Mapping[tuple[str, int], Floats] = field(default_factory=dict)
    workspace_per_sample: Mapping[tuple[str, int], Floats] = field(default_factory=dict)
    measured: frozenset[LayerKey] = frozenset()
    origins: Mapping[LayerKey, Mapping[Provenance, Floats]] = field(default_factory=dict)
    errors: Mapping[LayerKey, float] = field(default_factory=dict)
    most_samples: Mapping[tuple[str, int], int] = field(default_factory=dict)
    forward: Mapping[LayerKey, Floats] = field(default_factory=dict)
    recomputed: Mapping[str, LayerProfile] = field(default_factory=dict)
    isolated: bool = False
    links: LinkTimes | None = None
    notes: tuple[str, ...] = ()

    @property
    def devices(self) -> tuple[str, ...]:
        """Device types that have rows, by name."""
        return tuple(sorted({key.device for key in self.time}))

    def degrees(self, device: str) -> tuple[int, ...]:
        """Tensor-parallel degrees that a device type has rows for, ascending."""
        return tuple(sorted({key.tp for key in self.time if key.device == device}))

    def samples(self, device: str, tp: int) -> tuple[int, ...]:
        """Samples per replica that have rows, ascending."""
        return tuple(sorted(k.samples for k in self.time if (k.device, k.tp) == (device, tp)))


def layer_names(layers: int) -> tuple[str, ...]:
    """Return the layers as Metis sees them: an embedding, transformer layers and a head."""
    if layers < 3:
        return tuple(f"layer {i + 1}" for i in range(layers))
    return ("embedding", *(f"layer {i}" for i in range(1, layers - 1)), "head")

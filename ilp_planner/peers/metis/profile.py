"""Metis's measurements of a model: one row of layers per device type, tensor-parallel degree and
micro-batch size of one replica.

Metis takes figures of the whole model (parameters, optimiser and batch generator) from the file
that the directory lists first; here it is the one with the least (tp, bs) of the first type by
name, unless another is named.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ilp_planner.base.numerics import Floats
    from ilp_planner.costs.profiles.layers import LayerKey


@dataclass(frozen=True, kw_only=True, eq=False)
class MetisRow:
    """One file, L layers; milliseconds, and MB of 2^20 bytes.

    compute: float64 [L], forward and backward of each layer. memory: float64 [L], of one device.
    forward_backward: of all layers together; None when the file does not say.
    optimizer, batch_generator: per step and per micro-batch; None when the file does not say.
    parameters: float64 [L], as the file has them (called bytes, often element counts); None
    likewise.
    """

    compute: Floats
    memory: Floats
    forward_backward: float | None = None
    optimizer: float | None = None
    batch_generator: float | None = None
    parameters: Floats | None = None

    @property
    def sync(self) -> float:
        """Milliseconds per micro-batch beyond the layers, Metis's `fb_sync`; 0 when not
        measured."""
        return 0.0 if self.forward_backward is None else self.forward_backward - total(self.compute)


@dataclass(frozen=True, kw_only=True, eq=False)
class MetisProfile:
    """A whole folder.

    source: the folder. rows: in the order of (type, tp, samples). constants: the key of the row
    that holds for the whole model. notes: one-line remarks about missing or suspicious values.
    """

    source: str
    rows: Mapping[LayerKey, MetisRow]
    constants: LayerKey
    model_name: str = ""
    notes: tuple[str, ...] = ()

    @property
    def named(self) -> str:
        """The user's name of it."""
        return f"metis:{self.source}"

    @property
    def layers(self) -> int:
        """Number of layers, L."""
        return int(self.rows[self.constants].compute.size)

    @cached_property
    def device_types(self) -> tuple[str, ...]:
        """Types that have rows, by name."""
        return tuple(sorted({key.device for key in self.rows}))

    @property
    def optimizer(self) -> float:
        """Milliseconds of the optimiser step of the whole model, doubled as Metis does."""
        return (self.rows[self.constants].optimizer or 0.0) * 2

    @property
    def batch_generator(self) -> float:
        """Milliseconds per micro-batch."""
        return self.rows[self.constants].batch_generator or 0.0

    @property
    def parameters(self) -> Floats:
        """Parameters per layer as the file has them, float64 [L]."""
        found = self.rows[self.constants].parameters
        return np.zeros(self.layers) if found is None else found

    def degrees(self, device: str) -> tuple[int, ...]:
        """Tensor-parallel degrees that a type has rows for, ascending."""
        return tuple(sorted({key.tp for key in self.rows if key.device == device}))

    def samples(self, device: str, tp: int) -> tuple[int, ...]:
        """Samples per replica that have rows, ascending."""
        return tuple(sorted(k.samples for k in self.rows if (k.device, k.tp) == (device, tp)))


def total(values: Iterable[float]) -> float:
    """Return the sum in plain floating point, first to last, for any Python version."""
    result = 0.0
    for value in values:
        result += float(value)
    return result


def file_name(key: LayerKey) -> str:
    """Return how Metis names the file of a row."""
    return f"DeviceType.{key.device}_tp{key.tp}_bs{key.samples}.json"

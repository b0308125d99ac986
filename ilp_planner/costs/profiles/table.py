"""The profile: costs of each operator on one device, and of messages, with provenance per row."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas

MIB = 2**20


class Provenance(StrEnum):
    """The source of a number. scaled: an analytic one, times the measured ratio of the same
    kind."""

    MEASURED = "measured"
    INTERPOLATED = "interpolated"
    EXTRAPOLATED = "extrapolated"
    SCALED = "scaled"
    ANALYTIC = "analytic"


TRUST = tuple(Provenance)  # from the most trustworthy on


class Origin(NamedTuple):
    """How far to trust a number. error: expected relative error of a prediction; None: not known, 0
    if measured."""

    provenance: Provenance = Provenance.MEASURED
    error: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """A predicted number, and how far to trust it.

    value: seconds or bytes. provenance: `measured` if the table has the row itself. error: mean
    absolute relative error of predictions of this kind, by cross-validation on the same table; None
    if the table has too few rows to tell, 0 if measured. basis: how it was made, in words.
    """

    value: float
    provenance: Provenance
    error: float | None
    basis: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RowKey:
    """One way to run one operator: samples per replica, tensor-parallel degree, split dimension."""

    operator: str
    micro_batch: int
    tp: int
    split: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRow:
    """Cost of one operator for one micro-batch of one replica, per device.

    forward, backward: seconds, tensor-parallel communication included.
    input, output: bytes that cross a pipeline cut before / after the operator, live skip tensors
    included.
    weights: bytes of parameters. activations: bytes kept for the backward pass.
    forward_reserved, backward_reserved: bytes of allocator growth beyond the activations.
    error: expected relative error of a predicted row; None: not known.
    """

    forward: float
    backward: float
    input: float
    output: float
    weights: float
    activations: float
    forward_reserved: float
    backward_reserved: float
    provenance: Provenance = Provenance.MEASURED
    error: float | None = None


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Tidy table of operator rows and communication tables for one model.

    source: for the user (`aceso:eurosys`, `analytic`).
    micro_batch_sizes, tensor_degrees, splits: the values that occur, ascending.
    rows: the table. A missing key means: not profiled.
    collectives: (primitive, devices) -> {size in whole MiB: seconds}; primitives are all_gather,
        all_reduce, reduce_scatter, all_to_all. Size is the tensor's, as in Aceso's tables.
    intra_node, inter_node: bandwidth in bytes/s for point-to-point messages of 1, 2, 4 ... MiB.
    collective_origins: (primitive, devices) -> {size: source of its seconds}, if they are
        not measured. link_origins: likewise of intra_node and inter_node.
    failed: keys with measurements that failed or ran out of memory; they have no row.
    notes: one-line remarks about missing or suspicious values.
    """

    source: str
    micro_batch_sizes: tuple[int, ...]
    tensor_degrees: tuple[int, ...]
    splits: tuple[int, ...]
    rows: Mapping[RowKey, OperatorRow]
    collectives: Mapping[tuple[str, int], Mapping[int, float]]
    intra_node: tuple[float, ...]
    inter_node: tuple[float, ...]
    collective_origins: Mapping[tuple[str, int], Mapping[int, Origin]] = field(default_factory=dict)
    link_origins: tuple[Origin, Origin] = (Origin(), Origin())
    failed: frozenset[RowKey] = frozenset()
    notes: tuple[str, ...] = field(default=())

    def row(self, operator: str, micro_batch: int, tp: int, split: int) -> OperatorRow | None:
        """Return the row, or None when that combination was not profiled."""
        return self.rows.get(RowKey(operator=operator, micro_batch=micro_batch, tp=tp, split=split))

    def frame(self) -> pandas.DataFrame:
        """Return the operator rows as a data frame, one column per field (seconds, bytes)."""
        import pandas as pd

        keys = [f.name for f in fields(RowKey)]
        values = [f.name for f in fields(OperatorRow)]
        return pd.DataFrame(
            [
                [getattr(key, k) for k in keys] + [getattr(row, v) for v in values]
                for key, row in self.rows.items()
            ],
            columns=keys + values,
        )


# Fields of `OperatorRow` -> columns of the native table, in the order of Aceso's columns.
FIELDS = {
    "forward": "forward_s",
    "backward": "backward_s",
    "input": "input_bytes",
    "output": "output_bytes",
    "weights": "weight_bytes",
    "activations": "activation_bytes",
    "forward_reserved": "forward_workspace_bytes",
    "backward_reserved": "backward_workspace_bytes",
}
# Devices each hold a share of the whole tensor of these; of the others, all of it.
SHARED = ("all_gather", "all_to_all")


def whole_tensor(primitive: str, devices: int) -> int:
    """Return the bytes of the whole tensor per byte that each device passes in."""
    return devices if primitive in SHARED else 1

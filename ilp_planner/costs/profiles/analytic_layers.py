"""A layer profile without measurements, for clusters of different devices.

The operators of `analytic.py`, added up over each layer; decoders (GPT and its kin) from the same
anatomy as Megatron's training jobs (`analytic_decoder`). The work of a layer is found once per
(micro-batch, tensor-parallel degree) and timed on every device type.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.costs.profiles.analytic import (
    TENSOR_DEGREES,
    check_samples,
    operator_weights,
    operator_work,
    work_times,
)
from ilp_planner.costs.profiles.analytic_decoder import DecoderRows, chain_names, decoder_rows
from ilp_planner.costs.profiles.layers import LayerKey, LayerProfile
from ilp_planner.costs.profiles.recomputed import with_ends_of
from ilp_planner.specs.chain_layers import segments
from ilp_planner.specs.data_sheets import architecture_notes, gpu_architecture
from ilp_planner.specs.decoder import Decoder, as_decoder
from ilp_planner.specs.training import NOT_RECOMPUTED, Recompute

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ilp_planner.base.numerics import Floats
    from ilp_planner.costs.profiles.work import Work
    from ilp_planner.specs.cluster import ClusterSpec, Device
    from ilp_planner.specs.link import Link
    from ilp_planner.specs.model import ModelSpec

# Bytes per parameter of parameters, gradients and Adam's states: 2 + 2 + 4 + 4 + 4 in mixed
# precision, 4 + 4 + 4 + 4 in single precision (Rajbhandari et al. 2020, arXiv 1910.02054,
# section 3.1).
STATE_BYTES = 16
WHOLE = Recompute(granularity="full", method="block", layers=1)  # of a layer alone
CORE = Recompute(granularity="selective")


def analytic_layers(
    model: ModelSpec, cluster: ClusterSpec, samples: Sequence[int] = ()
) -> LayerProfile:
    """Estimate every layer of a model on every device type of a cluster.

    Tensor-parallel degrees fit the largest node of a type and divide the model. An optimiser step
    reads and writes the states once, at the device's sustained memory bandwidth. Layers of decoders
    are estimated with recomputation too, whole, and the core of their attention if that keeps its
    scores; of other models the forward passes are told apart.

    samples: of one replica per micro-batch, besides the model's own list.

    Raises
    ------
    SpecError: samples below 1, or a device type without a figure that this needs.
    """
    sizes = check_samples((*model.micro_batch_sizes, *samples))
    cluster.check_figures(model.precision, model.name)
    decoder = as_decoder(model.architecture)
    flash = gpu_architecture(cluster).flash_attention
    possible = [t for t in TENSOR_DEGREES if t <= max(map(max, _node_sizes(cluster)))]
    degrees = [t for t in possible if model.architecture.tensor_parts % t == 0]
    if decoder is None:
        profile = _rows(_Chain(model), cluster, sizes, degrees)
    else:
        kept = _DecoderChain(decoder, model.precision, flash)
        profile = _rows(kept, cluster, sizes, degrees)
        again = {
            recompute.granularity: _rows(
                replace(kept, recompute=recompute), cluster, sizes, degrees
            )
            for recompute in (WHOLE, *(() if flash else (CORE,)))
        }
        recomputed = {name: with_ends_of(profile, rows) for name, rows in again.items()}
        profile = replace(profile, recomputed=recomputed)
    left_out = [str(t) for t in possible if t not in degrees]
    notes = () if decoder is None else architecture_notes(cluster)
    if left_out:
        notes += (f"tp {', '.join(left_out)}: does not divide {model.name}, left out",)
    return replace(profile, notes=notes)


def _node_sizes(cluster: ClusterSpec) -> list[tuple[int, ...]]:
    return [cluster.node_sizes(name) for name in cluster.type_names]


def _rows(
    chain: _Chain | _DecoderChain,
    cluster: ClusterSpec,
    sizes: Sequence[int],
    degrees: Sequence[int],
) -> LayerProfile:
    """Return the rows of so many samples and tensor-parallel ranks, on all device types."""
    time: dict[LayerKey, Floats] = {}
    forward: dict[LayerKey, Floats] = {}
    state: dict[tuple[str, int], Floats] = {}
    activation: dict[tuple[str, int], Floats] = {}
    fixed: dict[tuple[str, int], Floats] = {}
    growing: dict[tuple[str, int], Floats] = {}
    optimizer: dict[tuple[str, int], Floats] = {}
    boundary = np.zeros(len(chain.names) + 1)
    for degree in degrees:
        works = {size: chain.work(size, degree) for size in sizes}
        held = chain.states(degree)
        # One sample needs no transposed copy, several do: the largest covers both.
        kept = np.max([work.activations / size for size, work in works.items()], axis=0)
        base, slope = _line(sizes, [works[size].workspace for size in sizes])
        if degree == 1:
            boundary[1:-1] = works[sizes[0]].inputs[1:] / sizes[0]
        for name in cluster.type_names:
            if degree > max(cluster.node_sizes(name)):
                continue
            device = cluster.device_types[name]
            link = cluster.within.get(name, cluster.intra_node)
            key = (name, degree)
            state[key], activation[key], fixed[key], growing[key] = held, kept, base, slope
            optimizer[key] = chain.step(degree) / device.streaming
            for size, work in works.items():
                time[LayerKey(name, degree, size)] = work.seconds(device, link)
                if work.forward is not None:
                    forward[LayerKey(name, degree, size)] = work.forward(device, link)
    return LayerProfile(
        source="analytic",
        layers=chain.names,
        time=time,
        state=state,
        activation=activation,
        workspace=fixed,
        workspace_per_sample=growing,
        gradients=chain.gradients(),
        boundary=boundary,
        optimizer=optimizer,
        forward=forward,
    )


@dataclass(frozen=True, eq=False)
class _LayerWork:
    """The work of every layer for one micro-batch on one rank, in bytes; seconds, forward: on a
    device with a link to the tensor-parallel peers, of both passes and of the first one alone, if
    it is told apart."""

    activations: Floats
    workspace: Floats
    inputs: Floats
    seconds: Callable[[Device, Link], Floats]
    forward: Callable[[Device, Link], Floats] | None = None


@dataclass(frozen=True, eq=False)
class _DecoderChain:
    """A decoder's layers, each with or without recomputation."""

    decoder: Decoder
    precision: str
    flash: bool
    recompute: Recompute = NOT_RECOMPUTED

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the layers."""
        return chain_names(self.decoder)

    def rows(self, size: int, degree: int) -> DecoderRows:
        """Return everything of a micro-batch."""
        return decoder_rows(
            self.decoder,
            size,
            degree,
            self.precision,
            flash=self.flash,
            recompute=self.recompute,
        )

    def work(self, size: int, degree: int) -> _LayerWork:
        """Return the work and the activations of a micro-batch."""
        rows = self.rows(size, degree)
        sent = size * self.decoder.sequence * self.decoder.hidden * rows.job.settings.width
        return _LayerWork(
            activations=rows.activation,
            workspace=rows.workspace,
            inputs=np.full(len(self.names), float(sent)),
            seconds=rows.seconds,
        )

    def states(self, degree: int) -> Floats:
        """Return bytes of parameters, gradients and optimiser states."""
        return self.rows(1, degree).state

    def step(self, degree: int) -> Floats:
        """Return the bytes that an optimiser step reads and writes."""
        return self.rows(1, degree).step

    def gradients(self) -> Floats:
        """Return the bytes of gradients, of all tensor-parallel ranks together."""
        return self.rows(1, 1).gradients


class _Chain:
    """A model's operators, added up over its layers."""

    def __init__(self, model: ModelSpec) -> None:
        parts = segments(model.operators)
        kinds = {name: i for i, name in enumerate(dict.fromkeys(model.operators))}
        self.model = model
        self.names = tuple(part.name for part in parts)
        self.kinds = tuple(kinds)
        self.order = np.array([kinds[name] for name in model.operators], dtype=np.int64)
        self.starts = np.array([part.start for part in parts], dtype=np.int64)

    def _along(self, values: Mapping[str, float]) -> Floats:
        """Return a figure of every operator along the chain; 0 for others."""
        return np.array([values.get(name, 0.0) for name in self.kinds])[self.order]

    def added(self, values: Mapping[str, float]) -> Floats:
        """Return the sum over each layer."""
        return np.add.reduceat(self._along(values), self.starts)

    def work(self, size: int, degree: int) -> _LayerWork:
        """Return the work and the activations of a micro-batch."""
        works = operator_work(self.model, size, degree)

        def passes(device: Device, link: Link) -> Iterator[tuple[str, tuple[float, float]]]:
            for operator, done in works.items():
                yield operator, work_times(done, degree, device, link, self.model.precision)

        def seconds(device: Device, link: Link) -> Floats:
            return self.added({operator: sum(both) for operator, both in passes(device, link)})

        def forward(device: Device, link: Link) -> Floats:
            return self.added({operator: once for operator, (once, _) in passes(device, link)})

        def largest(field: str) -> Floats:
            return np.maximum.reduceat(self._along(_field(works, field)), self.starts)

        return _LayerWork(
            activations=self.added(_field(works, "activations")),
            # An allocator that has grown for one pass keeps it beside the other.
            workspace=largest("forward_reserved") + largest("backward_reserved"),
            inputs=self._along(_field(works, "input"))[self.starts],
            seconds=seconds,
            forward=forward,
        )

    def step(self, degree: int) -> Floats:
        """Return the bytes that an optimiser step reads and writes."""
        return 2 * self.states(degree)

    def gradients(self) -> Floats:
        """Return the bytes of gradients, of all tensor-parallel ranks together."""
        return self.added(operator_weights(self.model, 1))

    def states(self, degree: int) -> Floats:
        """Return bytes of parameters, gradients and optimiser states."""
        per_byte = STATE_BYTES / self.model.bytes_per_number
        return per_byte * self.added(operator_weights(self.model, degree))


def _field(works: Mapping[str, Work], name: str) -> dict[str, float]:
    return {operator: getattr(work, name) for operator, work in works.items()}


def _line(sizes: Sequence[int], values: Sequence[Floats]) -> tuple[Floats, Floats]:
    """Return (fixed, per sample) of the line through the first and the last size.

    Buffers are the largest of lines, so this one is above them in between.
    """
    first, last = values[0], values[-1]
    if len(sizes) == 1:
        return np.zeros_like(first), first / sizes[0]
    slope = (last - first) / (sizes[-1] - sizes[0])
    return np.maximum(first - slope * sizes[0], 0.0), slope

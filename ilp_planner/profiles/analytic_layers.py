"""A layer profile without measurements, for clusters whose devices differ.

The operators of `analytic.py`, added up over each layer. What an operator does is found once per
(micro-batch, tensor-parallel degree) and timed on every device type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.errors import SpecError
from ilp_planner.profiles.analytic import (
    TENSOR_DEGREES,
    check_samples,
    operator_weights,
    operator_work,
    work_times,
)
from ilp_planner.profiles.layers import LayerKey, LayerProfile
from ilp_planner.specs.chain_layers import segments

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ilp_planner.profiles.work import Work
    from ilp_planner.specs.cluster import ClusterSpec
    from ilp_planner.specs.model import ModelSpec

# Bytes per parameter of parameters, gradients and Adam's states: 2 + 2 + 4 + 4 + 4 in mixed
# precision, 4 + 4 + 4 + 4 in single precision (Rajbhandari et al. 2020, arXiv 1910.02054,
# section 3.1).
STATE_BYTES = 16


def analytic_layers(
    model: ModelSpec, cluster: ClusterSpec, samples: Sequence[int] = ()
) -> LayerProfile:
    """Estimate every layer of a model on every device type of a cluster.

    Tensor-parallel degrees are those that fit the largest node of a type and divide the model. An
    optimiser step reads and writes the states once, at the device's sustained memory bandwidth.

    Parameters
    ----------
    samples: of one replica per micro-batch, besides the model's own list.

    Raises
    ------
    SpecError: samples below 1, or a device type without a figure that this needs.
    """
    sizes = check_samples((*model.micro_batches, *samples))
    for name in cluster.type_names:
        try:
            cluster.device_types[name].arithmetic(model.precision)
            _ = cluster.device_types[name].streaming
        except SpecError as error:
            raise SpecError(f"cluster {cluster.name!r}: {error}") from None
    chain = _Chain(model)
    room = {name: max(cluster.node_sizes(name)) for name in cluster.type_names}
    possible = [t for t in TENSOR_DEGREES if t <= max(room.values())]
    degrees = [t for t in possible if model.architecture.tensor_parts % t == 0]
    time: dict[LayerKey, NDArray[np.float64]] = {}
    state: dict[tuple[str, int], NDArray[np.float64]] = {}
    activation: dict[tuple[str, int], NDArray[np.float64]] = {}
    fixed: dict[tuple[str, int], NDArray[np.float64]] = {}
    growing: dict[tuple[str, int], NDArray[np.float64]] = {}
    optimizer: dict[tuple[str, int], NDArray[np.float64]] = {}
    boundary = np.zeros(len(chain.names) + 1)
    for degree in degrees:
        works = {size: operator_work(model, size, degree) for size in sizes}
        held = chain.states(degree)
        # One sample needs no transposed copy, several do: the largest covers both.
        kept = np.max([chain.activations(work) / size for size, work in works.items()], axis=0)
        base, slope = _line(sizes, [chain.workspace(works[size]) for size in sizes])
        if degree == 1:
            boundary[1:-1] = chain.inputs(works[sizes[0]])[1:] / sizes[0]
        for name in cluster.type_names:
            if degree > room[name]:
                continue
            device = cluster.device_types[name]
            link = cluster.within.get(name, cluster.intra_node)
            key = (name, degree)
            state[key], activation[key], fixed[key], growing[key] = held, kept, base, slope
            optimizer[key] = 2 * held / device.streaming
            for size, work in works.items():
                seconds = {
                    operator: sum(work_times(done, degree, device, link, model.precision))
                    for operator, done in work.items()
                }
                time[LayerKey(name, degree, size)] = chain.added(seconds)
    left_out = [str(t) for t in possible if t not in degrees]
    return LayerProfile(
        source="analytic",
        layers=chain.names,
        time=time,
        state=state,
        activation=activation,
        workspace=fixed,
        workspace_per_sample=growing,
        gradients=chain.added(operator_weights(model, 1)),
        boundary=boundary,
        optimizer=optimizer,
        notes=(f"tp {', '.join(left_out)}: does not divide {model.name}, left out",)
        if left_out
        else (),
    )


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

    def _along(self, values: Mapping[str, float]) -> NDArray[np.float64]:
        """Return a figure of every operator along the chain; 0 for those without."""
        return np.array([values.get(name, 0.0) for name in self.kinds])[self.order]

    def added(self, values: Mapping[str, float]) -> NDArray[np.float64]:
        """Return the sum over each layer."""
        return np.add.reduceat(self._along(values), self.starts)

    def states(self, degree: int) -> NDArray[np.float64]:
        """Return bytes of parameters, gradients and optimiser states."""
        per_byte = STATE_BYTES / self.model.bytes_per_number
        return per_byte * self.added(operator_weights(self.model, degree))

    def activations(self, work: Mapping[str, Work]) -> NDArray[np.float64]:
        """Return bytes that a micro-batch keeps."""
        return self.added({name: done.activations for name, done in work.items()})

    def workspace(self, work: Mapping[str, Work]) -> NDArray[np.float64]:
        """Return the bytes of the largest forward and the largest backward buffer together.

        An allocator that has grown for one keeps it beside the other.
        """
        forward = self._along({name: done.forward_reserved for name, done in work.items()})
        backward = self._along({name: done.backward_reserved for name, done in work.items()})
        return np.maximum.reduceat(forward, self.starts) + np.maximum.reduceat(
            backward, self.starts
        )

    def inputs(self, work: Mapping[str, Work]) -> NDArray[np.float64]:
        """Return bytes that a cut before each layer sends."""
        return self._along({name: done.input for name, done in work.items()})[self.starts]


def _line(
    sizes: Sequence[int], values: Sequence[NDArray[np.float64]]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return (fixed, per sample) of the line through the first and the last size.

    Buffers are the largest of lines, so this one is above them in between.
    """
    first, last = values[0], values[-1]
    if len(sizes) == 1:
        return np.zeros_like(first), first / sizes[0]
    slope = (last - first) / (sizes[-1] - sizes[0])
    return np.maximum(first - slope * sizes[0], 0.0), slope

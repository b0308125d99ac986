"""Seconds of a rank's data in the host's memory: transfers of activations, and the optimiser's step
there.

Activations go to the host while the forward pass goes on, and come back while the backward pass
does, on streams of their own in both directions; a pass waits for the excess.

Megatron's `HybridDeviceOptimizer` (`optimizer/cpu_offloading/hybrid_optimizer.py`) gives a share of
the parameters to PyTorch's optimiser on the host. Their gradients go there, the host steps, and
parameters come back; the device steps the others meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ilp_planner.job.parts import memory_parts
from ilp_planner.job.recompute import recomputed_layers
from ilp_planner.job.work import host_step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ilp_planner.costs.training.network import Network
    from ilp_planner.costs.training.times import ElementTime
    from ilp_planner.specs.cluster import Device
    from ilp_planner.specs.training import Offload, Recompute, Settings, TrainingJob


class Waits(NamedTuple):
    """Seconds that the passes of a (virtual) stage wait for the host, per micro-batch."""

    forward: float = 0.0
    backward: float = 0.0


class Turn(NamedTuple):
    """Seconds of a layer: of its passes, recomputation included, and of its activations' way."""

    forward: float
    backward: float
    sent: float


def moved_seconds(job: TrainingJob, network: Network, pp_rank: int) -> tuple[float, ...]:
    """Return the seconds that activations of a micro-batch take to the host, of every element of
    the chain on a pipeline rank, on its slowest device; nothing if none go there."""
    if not (job.settings.offload.layers or job.settings.offload.modules):
        return ()
    types = network.cluster.device_types
    rate = min(types[name].to_host for name in network.stage_types(job, pp_rank))
    parts = memory_parts(job).parts
    layers = ("expert layer" if experts else "layer" for experts in job.model.expert_layers)
    predicted = job.model.prediction_layers * parts["prediction layer"].moved
    return (0.0, *(parts[kind].moved / rate for kind in layers), predicted / rate)


def lone_waits(
    job: TrainingJob, elements: Sequence[ElementTime], sent: Sequence[float]
) -> NDArray[np.float64]:
    """Return the waits of passes through each element of the chain for the host, seconds [2, n],
    forward and backward; 0 if it depends on the other elements of its stage.

    Activations of modules move layer by layer, so that a stage waits for the sum of its elements;
    of a stage with some recomputed layers, no less.
    """
    found = np.zeros((2, len(elements)))
    if job.settings.offload.modules and job.settings.recompute.granularity != "full":
        last = len(elements) - 1
        for number, pair in enumerate(zip(elements, sent, strict=True)):
            element, seconds = pair
            edges = {"embedding": number == 0, "output": number == last}
            found[:, number] = waits(job, (element,), (seconds,), **edges)
    return found


def waits(
    job: TrainingJob,
    elements: Sequence[ElementTime],
    sent: Sequence[float],
    *,
    embedding: bool,
    output: bool,
) -> Waits:
    """Return the wait of a (virtual) stage of these elements for the host.

    Parameters
    ----------
    sent: seconds of their activations' way there. embedding, output: these are among them.
    """
    recompute, offload = job.settings.recompute, job.settings.offload
    first, last = int(embedding), len(elements) - int(output)
    forgotten = recomputed_layers(job, last - first)
    turns = [
        Turn(
            element.forward,
            element.total - element.forward + _again(recompute, element),
            0.0 if first <= number < first + forgotten else seconds,
        )
        for number, (element, seconds) in enumerate(zip(elements, sent, strict=True))
    ]
    if offload.layers:
        return layer_waits(offload, turns[first:last])
    return Waits(
        sum(max(0.0, turn.sent - turn.forward) for turn in turns),
        sum(max(0.0, turn.sent - turn.backward) for turn in turns),
    )


def _again(recompute: Recompute, element: ElementTime) -> float:
    """Return the seconds of a layer's selective recomputation."""
    if recompute.granularity != "selective":
        return 0.0
    return sum(element.parts.get(name, 0.0) for name in recompute.modules)


def layer_waits(offload: Offload, turns: Sequence[Turn]) -> Waits:
    """Return the waits of passes through layers if the first n of L go to the host one after the
    other.

    Layer i has to be there before layer L - n + i begins, and starts to come back when the backward
    pass of layer L - 1 - n + i does (Transformer Engine's `_default_offload_sync_init`).
    """
    count, moved = len(turns), min(offload.layers, len(turns) - 1)
    ahead = count - moved
    ends: list[float] = []  # of the ways there, by layer
    clock = waited = 0.0
    for number, turn in enumerate(turns):
        if number >= ahead:
            late = max(0.0, ends[number - ahead] - clock)
            waited, clock = waited + late, clock + late
        clock += turn.forward
        if number < moved:
            ends.append(max(clock, ends[-1] if ends else 0.0) + turn.sent)
    forward, clock, free, waited = waited, 0.0, 0.0, 0.0
    back: dict[int, float] = {}  # layer -> when it is there again
    for number in reversed(range(count)):
        coming = number - ahead + 1
        if 0 <= coming < moved:
            free = back[coming] = max(clock, free) + turns[coming].sent
        late = max(0.0, back.get(number, 0.0) - clock)
        waited, clock = waited + late, clock + late
        clock += turns[number].backward
    return Waits(forward, waited)


def divided_step(
    settings: Settings, device: Device, alone: NDArray[np.float64], counts: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the seconds of the optimiser's step of each element, some of it on the host.

    With overlap every parameter has an optimiser of its own, so that gradients and parameters
    travel while others are stepped. Without, gradients wait for none of them and come first,
    parameters last.

    Parameters
    ----------
    alone: the device's seconds to step all of an element. counts: parameters of the elements.
    """
    share = settings.optimizer.offload
    if not share:
        return alone
    each = host_step(settings)
    there, back = (share * counts * size / device.to_host for size in (each.sent, each.returned))
    stepped = np.maximum(share * counts * each.traffic / device.on_host, (1 - share) * alone)
    if settings.optimizer.overlap_offload:
        return np.asarray(np.maximum(stepped, np.maximum(there, back)), np.float64)
    return np.asarray(there + stepped + back, np.float64)

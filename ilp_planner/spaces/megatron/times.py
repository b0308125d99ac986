"""Seconds of a training job's modules: the roofline of their kernels, and their messages.

For one micro-batch on one rank, per element of the chain (word embedding, layer, output): forward,
backward, and what recomputation adds. Kernels are in `anatomy.work`, messages in
`anatomy.messages`, links in `megatron/network`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ilp_planner.anatomy.messages import (
    embedding_messages,
    layer_messages,
    output_messages,
    prediction_messages,
)
from ilp_planner.anatomy.work import embedding_work, layer_work, output_work, prediction_work
from ilp_planner.profiles.work import kernel_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.anatomy.messages import Messages
    from ilp_planner.anatomy.work import ModuleWork
    from ilp_planner.spaces.megatron.network import Network
    from ilp_planner.specs.cluster import Device
    from ilp_planner.specs.training import TrainingJob

CORE = "core_attention"


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementTime:
    """Seconds of one element of the chain. compute, messages: both ways. again: the forward pass
    once more, its messages included. core: likewise, of the attention's core only."""

    compute: float = 0.0
    messages: float = 0.0
    again: float = 0.0
    core: float = 0.0

    @property
    def total(self) -> float:
        """Forward and backward."""
        return self.compute + self.messages


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTimes:
    """Seconds of the elements of a job on one kind of pipeline rank."""

    embedding: ElementTime
    dense: ElementTime
    expert: ElementTime
    output: ElementTime


def job_times(
    job: TrainingJob, network: Network, devices: Sequence[Device], pp_rank: int
) -> JobTimes:
    """Return the seconds of all elements on a pipeline rank: of each, those of its slowest device.

    Raises
    ------
    SpecError: a device type has no figures, or none for the job's precision.
    """
    slowest = partial(_slowest, job, network, devices, pp_rank)

    def layer(experts: bool) -> ElementTime:
        if experts not in job.model.expert_layers:
            return slowest((), {})
        return slowest(layer_work(job, experts=experts), layer_messages(job, experts))

    output = slowest(output_work(job), output_messages(job))
    if count := job.model.prediction_layers:
        messages = prediction_messages(job, job.model.expert_layers[-1])
        more = slowest(prediction_work(job), messages)
        output = ElementTime(
            compute=output.compute + count * more.compute,
            messages=output.messages + count * more.messages,
        )
    embedding = slowest(embedding_work(job), {"embedding": embedding_messages(job)})
    return JobTimes(embedding=embedding, dense=layer(False), expert=layer(True), output=output)


def _slowest(
    job: TrainingJob,
    network: Network,
    devices: Sequence[Device],
    pp_rank: int,
    work: tuple[ModuleWork, ...],
    messages: Messages,
) -> ElementTime:
    precision = job.settings.precision

    def seconds(device: Device) -> tuple[float, float, float]:
        forward = [(kernel_time(m.forward, device, precision), m.core) for m in work]
        backward = sum(kernel_time(m.backward, device, precision) for m in work)
        once = sum(spent for spent, _ in forward)
        return once, once + backward, sum(spent for spent, core in forward if core)

    every = [seconds(device) for device in devices]
    once, compute, core = (max(column) for column in zip(*every, strict=True))
    sent = {
        name: network.message_seconds(job, forward, pp_rank)
        for name, (forward, _) in messages.items()
    }
    back = sum(network.message_seconds(job, both[1], pp_rank) for both in messages.values())
    there = sum(sent.values())
    return ElementTime(
        compute=compute,
        messages=there + back,
        again=once + there,
        core=core + sum(spent for name, spent in sent.items() if name.endswith(CORE)),
    )

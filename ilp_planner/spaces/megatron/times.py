"""Seconds of a training job's modules: their kernels, and their messages.

For one micro-batch on one rank, per element of the chain (word embedding, layer, output): forward,
backward, and what recomputation adds. Kernels are in `anatomy.work`, what they take in
`profiles.work`, messages in `anatomy.messages`, links in `megatron/network`.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.anatomy.messages import (
    embedding_messages,
    layer_messages,
    output_messages,
    prediction_messages,
)
from ilp_planner.anatomy.recompute import recomputed_parts
from ilp_planner.anatomy.work import embedding_work, layer_work, output_work, prediction_work
from ilp_planner.profiles.work import kernel_time

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ilp_planner.anatomy.messages import Messages
    from ilp_planner.anatomy.work import ModuleWork
    from ilp_planner.spaces.megatron.network import Network
    from ilp_planner.specs.cluster import Device
    from ilp_planner.specs.machine import Machine
    from ilp_planner.specs.training import TrainingJob

CORE, CORE_PATH = "core_attn", "self_attention.core_attention"
FORWARD, BACKWARD = 0, 1
EXPERTS = "moe"  # in the parts of a layer with experts
# What graphs may have of the second half of a layer, without and with experts.
AFTER_ATTENTION = (frozenset(("mlp",)), frozenset(("moe", "moe_router", "moe_preprocess")))
EXCHANGES = ("mlp.dispatch", "mlp.combine")  # messages of expert parallelism
# Products with divided columns: how the names of their messages end.
COLUMNS = ("_qkv", "_fc1", "_up_proj", "linear_q_proj", "eh_proj", "output_layer")


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementTime:
    """Seconds of one element of the chain.

    compute, messages: both ways. forward: of both together, in the forward pass. again: the forward
    pass once more, its messages included. parts: likewise, of what selective recomputation names.
    """

    compute: float = 0.0
    messages: float = 0.0
    forward: float = 0.0
    again: float = 0.0
    parts: Mapping[str, float] = field(default_factory=dict)

    @property
    def total(self) -> float:
        """Forward and backward."""
        return self.compute + self.messages

    @property
    def core(self) -> float:
        """The attention's core once more."""
        return self.parts.get(CORE, 0.0)

    def waiting(self, there: float, back: float) -> ElementTime:
        """Return the element where each pass takes at least so long, for what is sent beside."""
        forward, backward = self.forward, self.total - self.forward
        late = max(0.0, there - forward), max(0.0, back - backward)
        return replace(self, messages=self.messages + sum(late), forward=forward + late[0])

    def plus(self, other: ElementTime, times: int) -> ElementTime:
        """Return this element and so many of another one after it."""
        return ElementTime(
            compute=self.compute + times * other.compute,
            messages=self.messages + times * other.messages,
            forward=self.forward + times * other.forward,
            again=self.again,
            parts=self.parts,
        )


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
    rank = _Rank(job, network, devices, pp_rank)

    def layer(experts: bool) -> ElementTime:
        if experts not in job.model.expert_layers:
            return ElementTime()
        parts = recomputed_parts(experts=experts)
        work, messages = layer_work(job, experts=experts), layer_messages(job, experts)
        return rank.slowest(_Element(work, messages, layers=1, parts=parts))

    output = rank.slowest(_Element(output_work(job), output_messages(job)))
    if count := job.model.prediction_layers:
        messages = prediction_messages(job, job.model.expert_layers[-1])
        more = rank.slowest(_Element(prediction_work(job), messages, layers=1))
        output = output.plus(more, count)
    embedding = rank.slowest(_Element(embedding_work(job), {"embedding": embedding_messages(job)}))
    return JobTimes(embedding=embedding, dense=layer(False), expert=layer(True), output=output)


class _Element(NamedTuple):
    """What an element of the chain does, by its modules.

    layers: that the host starts. parts: how names of what can be computed again begin.
    """

    work: tuple[ModuleWork, ...]
    messages: Messages
    layers: int = 0
    parts: Mapping[str, tuple[str, ...]] = MappingProxyType({})


class _Way(NamedTuple):
    """Seconds of a pass through an element, by the modules of each."""

    kernels: Mapping[str, float]
    messages: Mapping[str, float]

    def of(self, names: Sequence[str]) -> float:
        """Return the seconds of modules whose names begin so."""
        starts = tuple(names)
        both = (*self.kernels.items(), *self.messages.items())
        return sum(seconds for name, seconds in both if name.startswith(starts))


class _Rank(NamedTuple):
    """A pipeline rank of a job, and the device types that it is on."""

    job: TrainingJob
    network: Network
    devices: Sequence[Device]
    number: int

    def slowest(self, element: _Element) -> ElementTime:
        """Return the seconds of an element: of all its figures the largest that a device has."""
        every = [self.on(device, element) for device in self.devices]
        return ElementTime(
            compute=max(one.compute for one in every),
            messages=max(one.messages for one in every),
            forward=max(one.forward for one in every),
            again=max(one.again for one in every),
            parts={name: max(one.parts[name] for one in every) for name in element.parts},
        )

    def on(self, device: Device, element: _Element) -> ElementTime:
        """Return the seconds of an element on a device."""
        job, machine = self.job, device.machine
        ways = [self.way(device, element, way) for way in (FORWARD, BACKWARD)]
        floors = _host_floors(job, machine, element.parts)
        passes = []
        for way, floor in zip(ways, floors, strict=True):
            sent = _exposed(job, machine, way, backward=way is ways[BACKWARD])
            passes.append((max(sum(way.kernels.values()), element.layers * floor - sent), sent))
        (forward, sent), (backward, returned) = passes
        return ElementTime(
            compute=forward + backward,
            messages=sent + returned,
            forward=forward + sent,
            again=forward + sent,
            parts={name: ways[FORWARD].of(starts) for name, starts in element.parts.items()},
        )

    def way(self, device: Device, element: _Element, way: int) -> _Way:
        """Return the seconds of a pass through an element on a device, by modules."""
        job = self.job
        messages = {
            name: self.network.message_seconds(job, pair[way], self.number)
            for name, pair in element.messages.items()
        }
        return _Way(_kernel_seconds(job, device, element.work, way), messages)


def _host_floors(
    job: TrainingJob, machine: Machine, parts: Mapping[str, tuple[str, ...]]
) -> tuple[float, float]:
    """Return the seconds that the host takes to start a layer's kernels, forward and backward.

    A graph starts at once what it has: all of a layer, or of its two halves, attention and what
    follows, those that are named (an assumption: they have equally many kernels). Tokens that are
    dropped or padded to a capacity need no counts from the device, which cost half of what experts
    do.
    """
    kernels, experts = job.settings.kernels, EXPERTS in parts
    if kernels.graphs and not kernels.graphed:
        return 0.0, 0.0
    after = AFTER_ATTENTION[experts].intersection(kernels.graphed)
    halves = (("attn" not in kernels.graphed) + (not after)) / 2
    share = (0.5 if kernels.pad_to_capacity else 1.0) if experts and not after else 0.0
    there, back = machine.host(experts=0.0)
    more = machine.host(experts=share)[0] - there
    return halves * there + more, halves * back + more


def _kernel_seconds(
    job: TrainingJob, device: Device, work: tuple[ModuleWork, ...], way: int
) -> dict[str, float]:
    """Return module -> seconds of its kernels."""
    settings, found = job.settings, defaultdict[str, float](float)
    for module in work:
        found[module.name] += kernel_time(
            module.ways[way], device, settings.precision, settings.quantised
        )
    return found


def _exposed(job: TrainingJob, machine: Machine, way: _Way, *, backward: bool) -> float:
    """Return the seconds of messages that nothing hides.

    Gradients of inputs are summed while those of weights are made, and with sequence parallelism
    inputs are gathered again while the former are made (Korthikanti et al. 2022, arXiv 2205.05198,
    section 4.2.2).
    Around a ring of context-parallel ranks, keys and values are passed on while the part that is
    there is multiplied (Liu et al. 2023, arXiv 2310.01889, section 3).
    """
    settings = job.settings
    tensor = machine.tensor_exposed if settings.overlap_tensor else 1.0
    columns = machine.tensor_exposed if backward and settings.async_tensor else tensor
    experts = machine.expert_exposed if settings.overlap_experts else 1.0
    total = 0.0
    for name, seconds in way.messages.items():
        if name == CORE_PATH and settings.cp_comm == "p2p":
            others = (settings.cp - 1) / settings.cp
            total += max(0.0, seconds - others * way.kernels["core_attention"])
        else:
            inner = columns if name.endswith(COLUMNS) else tensor
            total += seconds * (experts if name in EXCHANGES else inner)
    return total

"""Seconds of a training job's modules: their kernels, and their messages.

For one micro-batch on one rank, per element of the chain (word embedding, layer, output): forward,
backward, and the addition of recomputation. Kernels are in `job.work`, their times in
`profiles.work`, messages in `job.messages`, links in `costs.training.network`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.costs.profiles.work import kernel_timer
from ilp_planner.costs.training.starts import Element, graphed_shares, host_seconds
from ilp_planner.job.messages import (
    embedding_messages,
    encoder_messages,
    layer_messages,
    output_messages,
    prediction_messages,
)
from ilp_planner.job.operators import shares_again
from ilp_planner.job.work import (
    embedding_work,
    encoder_work,
    layer_work,
    output_work,
    prediction_work,
)
from ilp_planner.specs.layer_kinds import EXPERTS, LAYER_KINDS, PLAIN
from ilp_planner.specs.training import MIXTURES
from ilp_planner.specs.tuning import FORWARD_ONLY, trains_encoder, trains_projector

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from ilp_planner.costs.profiles.link_times import LinkTimes
    from ilp_planner.costs.training.network import Network
    from ilp_planner.costs.training.starts import Host
    from ilp_planner.job.modules import Message
    from ilp_planner.job.work import Kernel
    from ilp_planner.specs.cluster import Device
    from ilp_planner.specs.images import AnyEncoder
    from ilp_planner.specs.machine import Machine
    from ilp_planner.specs.training import TrainingJob

CORE, CORE_PATH = "core_attn", "self_attention.core_attention"
FORWARD, BACKWARD = 0, 1
KEPT = 128  # jobs whose elements are kept: the runs of a calibration
EXCHANGES = ("mlp.dispatch", "mlp.combine")  # messages of expert parallelism
# Modules that compute on tokens that have been sent: how their names begin.
INNER = ("permute", "experts_", "shared_experts_", "unpermute")
# Multiprocessors that exchanges of tokens run on, by dispatcher, as a multiple of those of DeepEP:
# 20 (`moe_deepep_num_sms` of `megatron.core`); NCCL has up to 32 channels, of one each.
PROCESSORS = {"flex": 1.0, "alltoall": 1.6, "allgather": 1.6}
# Products with divided columns: how the names of their messages end.
COLUMNS = ("_qkv", "_fc1", "_up_proj", "linear_q_proj", "in_proj", "eh_proj", "output_layer")


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementTime:
    """Seconds of one element of the chain.

    compute, messages: both ways. forward: of both together, in the forward pass. weight: of
    compute, the gradients of weights alone. again: the forward pass once more, its messages
    included. parts: likewise, by the names of selective recomputation.
    """

    compute: float = 0.0
    messages: float = 0.0
    forward: float = 0.0
    weight: float = 0.0
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

    def waiting(self, there: float, back: float, exposed: float) -> ElementTime:
        """Return the element with passes that are longer by their messages.

        there, back: seconds of messages with each pass. exposed: share of them that a pass does not
        hide, however long it is.
        """
        forward, backward = self.forward, self.total - self.forward
        late = max(exposed * there, there - forward), max(exposed * back, back - backward)
        return replace(self, messages=self.messages + sum(late), forward=forward + late[0])

    def sending(self, back: float) -> ElementTime:
        """Return the element with so many seconds of messages more in its backward pass."""
        return replace(self, messages=self.messages + back)


class Passes(NamedTuple):
    """Seconds of an element on a device, each forward and backward.

    kernels: at least the host's time to start them. sent: messages that nothing hides. weight: of
    the backward kernels that make gradients of weights alone. parts: kernels and messages of the
    forward pass, by the names of selective recomputation. returns: there is a backward pass, which
    needs what the forward pass made. repeated: the least that the host takes for the forward pass
    once more.
    """

    kernels: tuple[float, float]
    sent: tuple[float, float]
    weight: float = 0.0
    parts: Mapping[str, tuple[float, float]] = MappingProxyType({})
    returns: bool = True
    repeated: float = 0.0

    def plus(self, other: Passes, times: int) -> Passes:
        """Return this element and so many of another one after it."""
        pairs = (
            zip(self.kernels, other.kernels, strict=True),
            zip(self.sent, other.sent, strict=True),
        )
        (a, b), (c, d) = ([own + times * more for own, more in both] for both in pairs)
        weight = self.weight + times * other.weight
        repeated = self.repeated + times * other.repeated
        return self._replace(kernels=(a, b), sent=(c, d), weight=weight, repeated=repeated)

    def element(self, ratios: tuple[float, float] = (1.0, 1.0)) -> ElementTime:
        """Return the element. ratios: of its kernels' measured times, each way, to the ones
        here."""
        there, back = self.kernels[0] * ratios[0], self.kernels[1] * ratios[1]
        return ElementTime(
            compute=there + back,
            messages=sum(self.sent),
            forward=there + self.sent[0],
            weight=self.weight * ratios[1],
            again=self.returns * max(there + self.sent[0], self.repeated),
            parts={
                name: kernels * ratios[0] + sent for name, (kernels, sent) in self.parts.items()
            },
        )


def of_slowest(every: Sequence[ElementTime]) -> ElementTime:
    """Return an element on several device types: the largest of each figure, but for the gradients
    of weights, which leave the most to the rest."""
    return ElementTime(
        compute=max(one.compute for one in every),
        messages=max(one.messages for one in every),
        forward=max(one.forward for one in every),
        weight=min(one.weight for one in every),
        again=max(one.again for one in every),
        parts={name: max(one.parts[name] for one in every) for name in every[0].parts},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTimes:
    """Seconds of the elements of a job on one kind of pipeline rank. others: layers of a hybrid, by
    name."""

    embedding: ElementTime
    dense: ElementTime
    expert: ElementTime
    output: ElementTime
    others: Mapping[str, ElementTime] = field(default_factory=dict)

    def layer(self, kind: int) -> ElementTime:
        """Return the seconds of a layer, by its kind."""
        if kind < PLAIN:
            return self.expert if kind else self.dense
        return self.others[LAYER_KINDS[kind].name]


# Elements that are layers, and their numbers in `LAYER_KINDS`.
LAYERS = {"dense": 0, "expert": 1} | {
    kind.name: number for number, kind in enumerate(LAYER_KINDS) if number >= PLAIN
}
NAMES = {number: name for name, number in LAYERS.items()}


def elements_of(job: TrainingJob) -> tuple[str, ...]:
    """Return the elements that a job has: those of `JobTimes`, with the layers of a hybrid."""
    return ("embedding", *(NAMES[kind] for kind in sorted(set(job.layer_kinds))), "output")


def counts_of(job: TrainingJob) -> dict[str, int]:
    """Return how many of each a job's chain has."""
    kinds = job.layer_kinds
    layers = {NAMES[kind]: kinds.count(kind) for kind in sorted(set(kinds))}
    return {"embedding": 1, **layers, "output": 1}


class JobPasses(NamedTuple):
    """Passes through the elements of a job on one device; None of layers that the model has not."""

    embedding: Passes
    dense: Passes | None
    expert: Passes | None
    output: Passes


def element_time(
    job: TrainingJob,
    network: Network,
    devices: Sequence[Device],
    pp_rank: int,
    name: str,
    alone: Sequence[Alone] = (),
) -> ElementTime:
    """Return the seconds of an element of `JobTimes` on the slowest device of a pipeline rank.

    alone: of each device, what `element_alone` returns, if it is known.

    Raises
    ------
    SpecError: a device type has no figures, or none for the job's precision.
    """
    alone = alone or [element_alone(job, device, name) for device in devices]
    ranks = (_Rank(job, network, device, pp_rank) for device in devices)
    every = (rank.passes(own).element() for rank, own in zip(ranks, alone, strict=True))
    return of_slowest(list(every))


def has_element(job: TrainingJob, name: str) -> bool:
    """Tell whether the model has an element of `JobTimes`: layers of a kind it may not have."""
    return name not in LAYERS or LAYERS[name] in job.layer_kinds


def has_experts(job: TrainingJob, name: str) -> bool:
    """Tell whether an element of `JobTimes` has experts: the output has if its layers of
    multi-token prediction have."""
    if name in LAYERS:
        return job.kind(LAYERS[name]).routed
    predicts = job.model.prediction_layers and LAYER_KINDS[job.model.last_kind].inner == EXPERTS
    return bool(name == "output" and predicts)


def job_passes(
    job: TrainingJob,
    network: Network | None,
    device: Device,
    pp_rank: int,
    *,
    links: LinkTimes | None = None,
    without: Collection[str] = (),
) -> JobPasses:
    """Return the passes through all elements on one device type of a pipeline rank.

    Parameters
    ----------
    network: between its ranks; None: messages are left out. links: that were measured. without:
        groups with left-out messages.

    Raises
    ------
    SpecError: a device type has no figures, or none for the job's precision.
    """

    def passes(name: str) -> Passes | None:
        return element_passes(job, network, device, pp_rank, name, links=links, without=without)

    embedding, output = passes("embedding"), passes("output")
    assert embedding is not None
    assert output is not None
    return JobPasses(embedding, passes("dense"), passes("expert"), output)


def element_passes(
    job: TrainingJob,
    network: Network | None,
    device: Device,
    pp_rank: int,
    name: str,
    *,
    links: LinkTimes | None = None,
    without: Collection[str] = (),
) -> Passes | None:
    """Return the passes through one kind of element, by its name in `elements_of`; None of layers
    that the model has not. The rest is as `job_passes` has it."""
    if not has_element(job, name):
        return None
    rank = _Rank(job, network, device, pp_rank, links, frozenset(without))
    return rank.passes(element_alone(job, device, name))


def element_messages(job: TrainingJob, kind: str) -> list[Message]:
    """Return the messages of both passes of a kind of element, by its name in `JobPasses`."""
    if kind == "embedding":
        pairs = [embedding_messages(job)]
        for encoder in job.model.encoders:
            layer, ends = encoder_messages(job, encoder)
            pairs += [*encoder.layers * list(layer.values()), *ends.values()]
    elif kind == "output":
        pairs = list(output_messages(job).values())
        if count := job.model.prediction_layers:
            more = prediction_messages(job, job.model.last_kind)
            pairs += count * list(more.values())
    else:
        pairs = list(layer_messages(job, *job.kind(LAYERS[kind])).values())
    return [message for pair in pairs for way in pair for message in way]


@dataclass(frozen=True, eq=False)
class Lone:
    """An element of a job on a device type, but for the seconds of its messages. Of most of them a
    bound asks for `seconds` alone, so that the rest waits until it is asked for."""

    job: TrainingJob
    device: Device
    element: Element

    @cached_property
    def host(self) -> Host:
        """Seconds of the host."""
        return host_seconds(self.job, self.device.machine, self.element)

    @cached_property
    def timer(self) -> Callable[[Kernel], float]:
        """Returns the seconds of a kernel alone."""
        settings = self.job.settings
        return kernel_timer(self.device, settings.precision, settings.quantised)

    @cached_property
    def kernels(self) -> tuple[Mapping[str, float], Mapping[str, float]]:
        """Seconds of each pass by module."""
        found: tuple[dict[str, float], dict[str, float]] = {}, {}
        for module in self.element.work:
            for own, kernels in zip(found, module.ways, strict=True):
                spent = _spent(self.timer, kernels, self.host)
                own[module.name] = own.get(module.name, 0.0) + spent
        return found

    @cached_property
    def weight(self) -> float:
        """Share of the backward kernels that make gradients of weights alone."""
        modules = self.element.work
        weights = sum(_spent(self.timer, one.of_weights, self.host) for one in modules)
        # in proportion, where the host takes longer to start them
        return weights / (sum(self.kernels[BACKWARD].values()) or 1.0)

    @cached_property
    def again(self) -> Mapping[str, tuple[float, Callable[[str], float]]]:
        """Seconds of a recomputed module's kernels, and its share of the messages."""
        element, forward = self.element, self.kernels[FORWARD]
        return {
            name: (
                sum(seconds * share(module) for module, seconds in forward.items())
                + element.returns * _checkpoints(element, name) * self.host.checkpoint,
                share,
            )
            for name, share in element.again.items()
        }

    @property
    def seconds(self) -> float:
        """Both passes if no message took any time, at least: no more than with messages, and where
        the host starts both in turn."""
        busy = sum(sum(own.values()) for own in self.kernels)
        return max(busy, sum(self.host.floors)) + sum(self.host.waits)


Alone = tuple[tuple[Lone, int], ...]
"""What an element of `JobTimes` is made of on a device type, each with its number of times."""


def element_alone(job: TrainingJob, device: Device, name: str) -> Alone:
    """Return an element of `JobTimes` on a device type without the seconds of its messages. Whoever
    asks for its seconds gets a SpecError where the device type has no figures, or none for the
    job's precision."""
    return tuple((Lone(job, device, one), times) for one, times in ELEMENTS[name](job))


def least_alone(alone: Alone) -> float:
    """Return a lower bound in seconds of an element's passes."""
    return sum(times * one.seconds for one, times in alone)


class _Way(NamedTuple):
    """Seconds of a pass through an element, by the modules of each."""

    kernels: Mapping[str, float]
    messages: Mapping[str, float]


class _Rank(NamedTuple):
    """A pipeline rank of a job on a device type, and the messages that count there."""

    job: TrainingJob
    network: Network | None
    device: Device
    number: int
    links: LinkTimes | None = None
    without: frozenset[str] = frozenset()

    def passes(self, alone: Alone) -> Passes:
        """Return the seconds of an element."""
        (first, _), *others = alone
        found = self._passes(first)
        for one, times in others:
            found = found.plus(self._passes(one), times)
        return found

    def _passes(self, lone: Lone) -> Passes:
        job, machine, host = self.job, self.device.machine, lone.host
        ways = [self.way(lone, way) for way in (FORWARD, BACKWARD)]
        exposed = [_exposed(job, machine, way, backward=way is ways[BACKWARD]) for way in ways]
        busy = [sum(way.kernels.values()) for way in ways]
        if job.settings.overlap_experts and lone.element.experts:
            exposed = [a + b for a, b in zip(exposed, _exchanged(job, machine, ways), strict=True)]
            # The host starts a pass of either micro-batch in turn.
            late = max(0.0, sum(host.floors) - sum(exposed) - sum(busy))
            busy = [each + late / len(ways) for each in busy]
        else:
            rows = zip(busy, host.floors, exposed, strict=True)
            busy = [max(each, floor - sent) for each, floor, sent in rows]
        sent, returned = exposed
        forward, backward = (each + wait for each, wait in zip(busy, host.waits, strict=True))
        messages = ways[FORWARD].messages
        return Passes(
            kernels=(forward, backward),
            sent=(sent, returned),
            weight=backward * lone.weight,
            parts={
                name: (kernels, sum(seconds * share(own) for own, seconds in messages.items()))
                for name, (kernels, share) in lone.again.items()
            },
            returns=lone.element.returns,
            # before a backward pass of the same layer, which gives the host time
            repeated=host.repeated - max(0.0, busy[BACKWARD] + returned - host.floors[BACKWARD]),
        )

    def way(self, lone: Lone, way: int) -> _Way:
        """Return the seconds of a pass through an element, by modules."""
        messages = {}
        if self.network is not None:
            messages = {
                name: self.network.message_seconds(
                    self.job,
                    [message for message in pair[way] if message.group not in self.without],
                    self.number,
                    self.links,
                )
                for name, pair in lone.element.messages.items()
            }
        return _Way(lone.kernels[way], messages)


# What a job does is the same on every device type, and on every machine that a calibration tries.
@lru_cache(maxsize=KEPT)
def _embedding_element(job: TrainingJob) -> Element:
    return Element(embedding_work(job), {"embedding": embedding_messages(job)})


@lru_cache(maxsize=KEPT)
def _encoder_elements(job: TrainingJob, encoder: AnyEncoder) -> tuple[Element, Element]:
    """Return a layer of an encoder, and what is before and after its layers."""
    model, tuning = job.model, job.settings.tuning
    trained = trains_encoder(model, tuning)
    returns = trained, trained or trains_projector(model, tuning)
    parts = encoder_work(job, encoder), encoder_messages(job, encoder)
    each = zip(*parts, (1.0, 0.0), strict=True)
    layer, ends = (Element(*one, returns=back) for one, back in zip(each, returns, strict=True))
    return layer, ends


@lru_cache(maxsize=KEPT)
def _layer_element(job: TrainingJob, number: int) -> Element:
    kind, state = job.kind(number)
    work = layer_work(job, kind=kind, state=state)
    messages = layer_messages(job, kind, state)
    own, returns = LAYER_KINDS[kind], state != FORWARD_ONLY
    again = shares_again(job, kind)
    if not returns:
        again = dict.fromkeys(again, _nothing)
    return Element(
        work,
        messages,
        layer=own.blocks / 2,
        experts=own.inner == EXPERTS,
        graphed=graphed_shares(own),
        again=again,
        returns=returns,
    )


def _nothing(name: str) -> float:
    """Return the share of a layer without a backward pass that is computed again."""
    return 0.0


@lru_cache(maxsize=KEPT)
def _output_element(job: TrainingJob) -> Element:
    return Element(output_work(job), output_messages(job))


@lru_cache(maxsize=KEPT)
def _prediction_element(job: TrainingJob) -> Element:
    kind = LAYER_KINDS[job.model.last_kind]
    messages, routed = prediction_messages(job, job.model.last_kind), kind.inner == EXPERTS
    shares = graphed_shares(kind)
    return Element(prediction_work(job), messages, layer=1.0, experts=routed, graphed=shares)


def _layers(job: TrainingJob, *, number: int) -> tuple[tuple[Element, int], ...]:
    return ((_layer_element(job, number), 1),)


def _embedding(job: TrainingJob) -> tuple[tuple[Element, int], ...]:
    """Return the embedding of words, and the encoders before it."""
    found: list[tuple[Element, int]] = [(_embedding_element(job), 1)]
    for encoder in job.model.encoders:
        layer, ends = _encoder_elements(job, encoder)
        found += [(layer, encoder.layers), (ends, 1)]
    return tuple(found)


def _output(job: TrainingJob) -> tuple[tuple[Element, int], ...]:
    """Return the output, and the layers of multi-token prediction."""
    output = ((_output_element(job), 1),)
    count = job.model.prediction_layers
    return (*output, (_prediction_element(job), count)) if count else output


ELEMENTS: Mapping[str, Callable[[TrainingJob], tuple[tuple[Element, int], ...]]] = {
    "embedding": _embedding,
    **{name: partial(_layers, number=number) for name, number in LAYERS.items()},
    "output": _output,
}


def _checkpoints(element: Element, name: str) -> float:
    """Return how many modules a name of selective recomputation has in a layer: norms, one for each
    of its blocks, and with mixtures of streams the mixtures before both and those after the first;
    one of all else."""
    each = {"layernorm": 2, MIXTURES: 5}
    return each[name] * element.layer if name in each else 1.0


def _spent(timer: Callable[[Kernel], float], kernels: tuple[Kernel, ...], host: Host) -> float:
    """Return the seconds of kernels, grouped products as fast as the host starts each.

    timer: returns the seconds of a kernel alone.
    """
    spent = sum(map(timer, kernels))
    if host.product:
        groups = ((each, each.products) for each in kernels)
        spent += sum(max(0.0, n * host.product - timer(each)) for each, n in groups if n)
    return spent


def _exposed(job: TrainingJob, machine: Machine, way: _Way, *, backward: bool) -> float:
    """Return the seconds of messages that nothing hides.

    Gradients of inputs are summed during the gradients of weights, and with sequence parallelism
    inputs are gathered again during the former (Korthikanti et al. 2022, arXiv 2205.05198, section
    4.2.2). Around a ring of context-parallel ranks, keys and values are passed on while the part
    that is there is multiplied (Liu et al. 2023, arXiv 2310.01889, section 3).
    """
    settings = job.settings
    tensor = machine.tensor_exposed if settings.overlap_tensor else 1.0
    columns = machine.tensor_exposed if backward and settings.async_tensor else tensor
    total = 0.0
    for name, seconds in way.messages.items():
        if name.endswith(CORE_PATH) and settings.passes_on:
            others = (settings.cp - 1) / settings.cp
            total += max(0.0, seconds - others * way.kernels["core_attention"])
        elif not name.endswith(EXCHANGES):
            total += seconds * (columns if name.endswith(COLUMNS) else tensor)
        elif not settings.overlap_experts:
            total += seconds
    return total


def _exchanged(job: TrainingJob, machine: Machine, ways: Sequence[_Way]) -> tuple[float, float]:
    """Return the seconds of both passes' exchanges of tokens that kernels do not hide.

    A layer's forward pass of a micro-batch is beside its backward pass of another one
    (`model_chunk_schedule_plan.py: TransformerLayerSchedulePlan.run` of `megatron.core`): attention
    beside the other's combining, the experts beside the other's dispatch. A message takes as long
    as there is nothing else, and of the kernels beside it the share of multiprocessors that it runs
    on.
    """
    share = min(1.0, machine.expert_exposed * PROCESSORS[job.settings.kernels.dispatcher])
    there, back = ([_sent(way, name) for name in EXCHANGES] for way in ways)
    experts = [sum(s for name, s in way.kernels.items() if name.startswith(INNER)) for way in ways]
    others = [sum(way.kernels.values()) - own for way, own in zip(ways, experts, strict=True)]

    def late(message: float, beside: float) -> float:
        return max(share * message, message - beside)

    forward, backward = (
        late(dispatched, experts[other]) + late(combined, others[other])
        for (dispatched, combined), other in ((there, BACKWARD), (back, FORWARD))
    )
    return forward, backward


def _sent(way: _Way, name: str) -> float:
    return sum(seconds for path, seconds in way.messages.items() if path.endswith(name))

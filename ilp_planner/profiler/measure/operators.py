"""The measurement of a model, and its operators under the names of `specs`.

A GPT has 13 to a layer and 3; T5's layers have the same and 8 more in the decoder; a Wide ResNet's
are convolutions, norms and the operators between.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch

from ilp_planner.costs.profiles.analytic import operator_work
from ilp_planner.profiler.measure.shard import HEAD, Run
from ilp_planner.profiler.measure.transformer_operators import (
    Side,
    attention,
    embedding,
    final_norm,
    mlp,
    norm,
    post_process,
)
from ilp_planner.specs.architecture import Architecture, Parameters
from ilp_planner.specs.chain_layers import Segment, segments
from ilp_planner.specs.gpt import Gpt

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ilp_planner.costs.profiles.work import Exchange, Work
    from ilp_planner.job.work import Kernel
    from ilp_planner.profiler.measure.t5_job import T5Job
    from ilp_planner.profiler.measure.transformer_operators import Operator
    from ilp_planner.specs.model import ModelSpec
    from ilp_planner.specs.training import Settings, TrainingJob


CLIP = 1.0  # norm of all gradients, Megatron's default
LOSS_SCALE = 4096.0  # of fp16


class MixedAdam:
    """Adam as in mixed-precision training, and the gradients of all micro-batches of a step.

    Gradients are added up in single precision, with 2-byte parameters a master copy is stepped and
    then rounded: 2 + 4 + 4 + 8 bytes for each, in single precision 4 + 4 + 8 (as in Megatron-LM). A
    product's gradient is made first and then added: PyTorch has no kernel for both.

    scale: factor of the loss.

    stepped: make the master copy and the moments as well; without, gradients only.
    """

    def __init__(self, parameters: Iterable[Any], *, stepped: bool = True) -> None:
        self.parameters = list(parameters)
        self.gradients = [torch.zeros_like(p, dtype=torch.float32) for p in self.parameters]
        self.hooks = [
            parameter.register_post_accumulate_grad_hook(partial(_add_up, gradient))
            for parameter, gradient in zip(self.parameters, self.gradients, strict=True)
        ]
        self.single = all(p.dtype == torch.float32 for p in self.parameters)
        self.scale = LOSS_SCALE if any(p.dtype == torch.float16 for p in self.parameters) else 1.0
        self.masters: list[Any] = []
        self.adam: Any = None
        if stepped:
            self.masters = (
                self.parameters
                if self.single
                else [p.detach().to(torch.float32).requires_grad_() for p in self.parameters]
            )
            self.adam = torch.optim.AdamW(self.masters, lr=1e-5, fused=True)

    def step(self) -> None:
        """Unscale and clip the gradients, step, round, and begin to add up anew."""
        for master, gradient in zip(self.masters, self.gradients, strict=True):
            master.grad = gradient
        if self.scale != 1.0:
            torch._foreach_mul_(self.gradients, 1.0 / self.scale)
        torch.nn.utils.clip_grad_norm_(self.masters, CLIP)
        self.adam.step()
        if not self.single:
            with torch.no_grad():
                torch._foreach_copy_(self.parameters, self.masters)
        for master in self.masters:
            master.grad = None
        torch._foreach_zero_(self.gradients)

    def release(self) -> None:
        """Let go of the parameters, as they would keep the gradients otherwise."""
        for hook in self.hooks:
            hook.remove()


def state_bytes(parameters: float, dtype: str) -> float:
    """Return the bytes that `MixedAdam` and so many parameters of a precision hold."""
    return parameters * (16 if dtype == "fp32" else 18)


def learnt_bytes(parameters: int, width: int, dtype: str) -> dict[str, float]:
    """Return the columns of the states of so many parameters, of so many bytes each."""
    return {
        "weight_bytes": parameters * width,
        "gradient_bytes": 4 * parameters,
        "state_bytes": state_bytes(parameters, dtype),
    }


def _add_up(gradient: Any, parameter: Any) -> None:
    gradient.add_(parameter.grad)
    parameter.grad = None


# ---- the measurement of a model of any family ----------------------------------------------------
# One rank's share, for one micro-batch.


SINGLE = 4  # bytes of an accumulated gradient
# Unfused kernels keep more than those that the estimate is of, and an allocator needs room.
SAFETY = 1.5

Ways = tuple[list[float], list[float]]


def traffic_of(kernels: Iterable[Kernel]) -> dict[str, float]:
    """Return the columns `flop` and `traffic_bytes` of kernels."""
    every = list(kernels)
    return {"flop": sum(k.flops for k in every), "traffic_bytes": sum(k.traffic for k in every)}


class Held(NamedTuple):
    """The memory of a part. parameters: numbers learnt. states: bytes of them and of the optimiser.
    kept, moment: bytes of a micro-batch till its backward pass, and besides at the worst moment."""

    parameters: float
    states: float
    kept: float
    moment: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Job(ABC):
    """A chain of parts; planners of whole layers cut between them.

    splits: dimensions of its products that tensor parallelism can divide.
    """

    model: Any
    micro_batch: int
    tp: int
    settings: Settings

    splits: ClassVar[tuple[int, ...]] = (0,)

    @cached_property
    @abstractmethod
    def chain(self) -> tuple[str, ...]:
        """Return the kind of every part, in order; equal kinds are equal parts."""

    @abstractmethod
    def build(self, kind: str, *, device: Any, dtype: Any) -> Any:
        """Return a part as a module."""

    @abstractmethod
    def batch(self, dtype: Any) -> tuple[Any, ...]:
        """Return a micro-batch on the host: inputs of the parts besides each other's tensors."""

    @abstractmethod
    def shapes(self, kind: str) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of the tensors before a part; none before the first."""

    @abstractmethod
    def operators(self, split: int) -> dict[str, Operator]:
        """Return every distinct operator of a rank, by name, in the order of the chain."""

    @abstractmethod
    def describe(self, device: Any, dtype: Any) -> dict[str, str]:
        """Return the table's heading on the kernels."""

    @abstractmethod
    def known_values(self, kind: str) -> dict[str, Any]:
        """Return the columns that need no measuring: arithmetic, traffic, the message over a
        cut."""

    @abstractmethod
    def sent(self, kind: str) -> Ways:
        """Return the bytes of every tensor-parallel all-reduce of either pass."""

    @abstractmethod
    def held(self, kind: str) -> Held:
        """Return the approximate memory of a part, for an estimate of the memory that it needs."""

    @property
    def sizes(self) -> dict[str, int]:
        """Return the columns `sequence` and `hidden`, if the family has them."""
        return {}

    @property
    def spread(self) -> bool:
        """Tell whether routed experts are on other ranks, so that only parts with some differ."""
        return False

    @property
    def plain(self) -> bool:
        """Tell whether a rank has whole samples and all experts."""
        return True

    def degrees(self, kind: str) -> dict[str, int]:
        """Return the columns `cp`, `ep` and `etp` of a part, if they are not 1, 1 and tp."""
        return {}

    def passing(self, kind: str) -> float:
        """Return the bytes that travel through a part, made by one far before it."""
        return 0.0

    def load(self, host: tuple[Any, ...], device: Any) -> tuple[Any, ...]:
        """Return the inputs of the parts from a micro-batch, on its way to the device."""
        return tuple(tensor.to(device, non_blocking=True, copy=True) for tensor in host)

    def call(self, kind: str, part: Any, batch: tuple[Any, ...], *state: Any) -> Any:
        """Return the output of a part for the micro-batch and the tensors before it."""
        return part(batch, *state)

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        """Return the chain, with equal neighbours together."""
        found: list[Run] = []
        for kind, alike in groupby(self.chain):
            first = found[-1].last + 1 if found else 0
            found.append(Run(kind=kind, first=first, last=first + len(list(alike)) - 1))
        return tuple(found)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Return the kinds of parts, in the order of their first."""
        return tuple(dict.fromkeys(self.chain))

    def repeats(self, kind: str) -> bool:
        """Tell whether parts of a kind follow each other, so that a stack may have copies."""
        return any(run.kind == kind and run.last > run.first for run in self.runs)

    def after(self, kind: str) -> str:
        """Return the kind of the part after the last of a kind."""
        return self.chain[max(run.last for run in self.runs if run.kind == kind) + 1]

    def handed(self, kind: str) -> tuple[float, float]:
        """Return the bytes that a part takes over from the one before, and leaves to the next."""
        known = self.known_values(kind)
        return known["input_bytes"], known["output_bytes"]

    def need(self, kinds: Sequence[str], copies: int, *, stepped: bool = False) -> float:
        """Return about how many bytes parts need that run in one stack. copies: of each kind that
        repeats. stepped: of the optimiser's step instead of the passes."""
        parts = [self.held(kind) for kind in kinds]
        if stepped:
            return sum(2 * part.states for part in parts)
        width = self.settings.width
        held, kept, moment = 0.0, 0.0, 0.0
        for kind, part in zip(kinds, parts, strict=True):
            count = copies if self.repeats(kind) else 1
            held += count * part.parameters * (width + SINGLE)
            kept += count * part.kept
            moment = max(moment, part.moment + part.parameters * width)
        return held + SAFETY * (kept + moment)


# ---- a model that is a chain of operators and no plain decoder (T5, Wide ResNet) -----------------
# Its parts are the layers that planners cut the chain in (`specs.chain_layers`). Work, messages
# and outputs of a part are sums over its operators from `profiles.analytic`.


class ChainJob(Job):
    """The measurement of a model of this kind."""

    model: Architecture

    @cached_property
    @abstractmethod
    def works(self) -> Mapping[str, Work]:
        """Return the work of every operator."""

    @abstractmethod
    def kind_of(self, segment: str, first: str) -> str:
        """Return the kind of a segment of the chain; equal kinds are equal parts.
        segment: its name. first: its first operator."""

    def flop(self, operator: str) -> float:
        """Return the arithmetic of an operator's forward pass."""
        return sum(kernel.flops for kernel in self.works[operator].forward)

    def kept(self, operator: str) -> float:
        """Return the bytes that an operator keeps inside a layer."""
        return self.works[operator].activations

    def traffic(self, operator: str) -> float:
        """Return the bytes that an operator's forward pass reads and writes inside a layer."""
        return sum(kernel.traffic for kernel in self.works[operator].forward)

    @cached_property
    def parts(self) -> tuple[Segment, ...]:
        """Return the layers that planners cut the chain in."""
        return segments(self.model.operators)

    @cached_property
    def chain(self) -> tuple[str, ...]:
        """Return the kind of every part."""
        operators = self.model.operators
        return tuple(self.kind_of(part.name, operators[part.start]) for part in self.parts)

    def names(self, kind: str) -> tuple[str, ...]:
        """Return the operators of a part of a kind."""
        first = next(run.first for run in self.runs if run.kind == kind)
        part = self.parts[first]
        return self.model.operators[part.start : part.stop]

    def known_values(self, kind: str) -> dict[str, Any]:
        """Return arithmetic, traffic, and the message over a cut."""
        names = self.names(kind)
        return {
            "flop": sum(map(self.flop, names)),
            "traffic_bytes": sum(map(self.traffic, names)),
            "input_bytes": 0 if kind == self.kinds[0] else self.works[names[0]].input,
            "output_bytes": 0 if kind == HEAD else self.works[names[-1]].output,
        }

    def sent(self, kind: str) -> Ways:
        """Return the bytes of every tensor-parallel all-reduce of either pass."""
        works = [self.works[name] for name in self.names(kind)]
        return (
            [self.reduced(e) for work in works for e in work.forward_exchanges if self.tp > 1],
            [self.reduced(e) for work in works for e in work.backward_exchanges if self.tp > 1],
        )

    def reduced(self, exchange: Exchange) -> float:
        """Return the bytes of the all-reduce that moves as much: of a gathered tensor the half, as
        on a ring an all-reduce is a reduce-scatter and an all-gather."""
        if exchange.primitive == "all_gather":
            return exchange.size * self.tp / 2
        return exchange.size

    def parameters(self, kind: str) -> float:
        """Return how many numbers one rank learns."""
        held = (self.model.parameters.get(name, Parameters()) for name in self.names(kind))
        return sum(one.split / self.tp + one.whole for one in held)

    def held(self, kind: str) -> Held:
        """Return the approximate memory of a part."""
        names, learnt = self.names(kind), self.parameters(kind)
        return Held(
            parameters=learnt,
            states=state_bytes(learnt, self.settings.precision),
            kept=sum(map(self.kept, names)),
            moment=max(self.works[name].backward_reserved for name in names if self.kept(name)),
        )


# ---- operators -----------------------------------------------------------------------------------


def gpt_operators(job: TrainingJob, split: int) -> dict[str, Operator]:
    """Return the operators of a GPT."""
    side = Side("enc", job, job.model.sequence)
    return {
        "encoder-embedding": embedding(side),
        "enc-1st-layernorm": norm(side),
        **attention(side, split, masked=True),
        "enc-2nd-layernorm": norm(side),
        **mlp(side, split),
        "final-layernorm": final_norm(side),
        "gpt-post-process": post_process(side),
    }


def t5_operators(job: T5Job) -> dict[str, Operator]:
    """Return the operators of a T5. Through the decoder the encoder's output travels along."""
    memory = job.model.encoder_sequence
    encoded = float(job.micro_batch * memory * job.model.hidden)
    first = Side("enc", job.like, memory)
    second = Side("dec", job.like, job.model.decoder_sequence, past=encoded)
    return {
        "encoder-embedding": embedding(first),
        "enc-1st-layernorm": norm(first),
        **attention(first, masked=False),
        "enc-2nd-layernorm": norm(first),
        **mlp(first),
        "enc-final-layernorm": final_norm(first),
        "decoder-embedding": embedding(second, memory),
        "dec-1st-layernorm": norm(second),
        **attention(second, number="-1", masked=True),
        "dec-2nd-layernorm": norm(second),
        **attention(second, number="-2", masked=False, memory=memory),
        "dec-3rd-layernorm": norm(second),
        **mlp(second),
        "dec-final-layernorm": final_norm(second),
        "t5-post-process": post_process(second, bias=True),
    }


def operator_traffic(model: ModelSpec, name: str, job: Job) -> dict[str, Any]:
    """Return `flop` and `traffic_bytes` of the forward pass of one rank."""
    if isinstance(job, ChainJob):
        return traffic_of(job.works[name].forward) | {"flop": job.flop(name)}
    gpt = model.architecture
    assert isinstance(gpt, Gpt)
    tokens = job.model.sequence
    longest = max(tokens, gpt.max_position_embeddings)
    same = replace(
        model,
        precision=job.settings.precision,
        architecture=replace(gpt, sequence=tokens, max_position_embeddings=longest),
    )
    return traffic_of(operator_work(same, job.micro_batch, job.tp)[name].forward)

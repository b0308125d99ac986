"""One rank's share of a model that is a chain of operators and no plain decoder (T5, Wide ResNet),
for one micro-batch.

Its parts are the layers that planners cut the chain in (`specs.chain_layers`). What a part
computes, sends and hands on is the sum over its operators as `profiles.analytic` knows them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from ilp_planner.measure.shard import HEAD, Run
from ilp_planner.specs.architecture import Architecture, Parameters
from ilp_planner.specs.chain_layers import Segment, segments
from ilp_planner.specs.training import Settings, TrainingJob

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ilp_planner.measure.operator import Operator
    from ilp_planner.profiles.work import Exchange, Work

SINGLE = 4  # bytes of an accumulated gradient
STATES = {2: 18, 4: 16}  # bytes of `MixedAdam` per parameter of so many bytes
# Unfused kernels keep more than those that the estimate is of, and an allocator needs room.
SAFETY = 1.5

Ways = tuple[list[float], list[float]]


@dataclass(frozen=True, kw_only=True, eq=False)
class ChainJob(ABC):
    """What is measured of such a model.

    splits: which dimensions of its products tensor parallelism can divide.
    """

    model: Architecture
    micro_batch: int
    tp: int
    settings: Settings

    splits: ClassVar[tuple[int, ...]] = (0,)

    # ---- what a family says ----------------------------------------------------------------------

    @cached_property
    @abstractmethod
    def works(self) -> Mapping[str, Work]:
        """Return what every operator does."""

    @abstractmethod
    def kind_of(self, segment: str, first: str) -> str:
        """Return the kind of a segment of the chain; equal kinds are equal parts.
        segment: its name. first: its first operator."""

    @abstractmethod
    def build(self, kind: str, *, device: Any, dtype: Any) -> Any:
        """Return a part as a module: batch and the tensors before it -> the tensors after it."""

    @abstractmethod
    def batch(self, dtype: Any) -> tuple[Any, ...]:
        """Return a micro-batch on the host: what the parts read besides each other's tensors."""

    @abstractmethod
    def shapes(self, kind: str) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of the tensors before a part; none before the first."""

    @abstractmethod
    def operators(self, split: int) -> dict[str, Operator]:
        """Return every distinct operator, by name, in the order of the chain."""

    @abstractmethod
    def describe(self, device: Any, dtype: Any) -> dict[str, str]:
        """Return what the table's heading says of the kernels."""

    @property
    def sizes(self) -> dict[str, int]:
        """Return the columns `sequence` and `hidden`, where the family has them."""
        return {}

    def flop(self, operator: str) -> float:
        """Return the arithmetic of an operator's forward pass."""
        return sum(kernel.flops for kernel in self.works[operator].forward)

    def kept(self, operator: str) -> float:
        """Return the bytes that an operator keeps inside a layer."""
        return self.works[operator].activations

    def traffic(self, operator: str) -> float:
        """Return the bytes that an operator's forward pass reads and writes inside a layer."""
        return sum(kernel.traffic for kernel in self.works[operator].forward)

    def passing(self, kind: str) -> float:
        """Return the bytes that travel through a part, made by one far before it."""
        return 0.0

    # ---- the chain -------------------------------------------------------------------------------

    @cached_property
    def parts(self) -> tuple[Segment, ...]:
        """Return the layers that planners cut the chain in."""
        return segments(self.model.operators)

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        """Return the chain, what is alike and neighbours together."""
        found: list[Run] = []
        for number, part in enumerate(self.parts):
            kind = self.kind_of(part.name, self.model.operators[part.start])
            if found and found[-1].kind == kind:
                found[-1] = replace(found[-1], last=number)
            else:
                found.append(Run(kind=kind, first=number, last=number))
        return tuple(found)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Return the kinds of parts, in the order of their first."""
        return tuple(dict.fromkeys(run.kind for run in self.runs))

    def repeats(self, kind: str) -> bool:
        """Tell whether parts of a kind follow each other, so that a stack may have copies."""
        return any(run.kind == kind and run.last > run.first for run in self.runs)

    def after(self, kind: str) -> str:
        """Return the kind of the part after the last of a kind."""
        last = max(run.last for run in self.runs if run.kind == kind)
        return next(run.kind for run in self.runs if run.first <= last + 1 <= run.last)

    def names(self, kind: str) -> tuple[str, ...]:
        """Return the operators of a part of a kind."""
        first = next(run.first for run in self.runs if run.kind == kind)
        part = self.parts[first]
        return self.model.operators[part.start : part.stop]

    # ---- figures that need no measuring ----------------------------------------------------------

    def known_values(self, kind: str) -> dict[str, Any]:
        """Return arithmetic, traffic, and what crosses a cut."""
        names = self.names(kind)
        return {
            "flop": sum(map(self.flop, names)),
            "traffic_bytes": sum(map(self.traffic, names)),
            "input_bytes": 0 if kind == self.kinds[0] else self.works[names[0]].input,
            "output_bytes": 0 if kind == HEAD else self.works[names[-1]].output,
        }

    def operator_values(self, operator: str) -> dict[str, Any]:
        """Return arithmetic and traffic of an operator by itself."""
        forward = self.works[operator].forward
        return {"flop": self.flop(operator), "traffic_bytes": sum(k.traffic for k in forward)}

    def handed(self, kind: str) -> tuple[float, float]:
        """Return the bytes that a part takes over from the one before, and leaves to the next."""
        known = self.known_values(kind)
        return known["input_bytes"], known["output_bytes"]

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

    def need(self, kinds: Sequence[str], copies: int, *, stepped: bool = False) -> float:
        """Return about how many bytes parts need that run in one stack. copies: of each kind that
        repeats. stepped: of the optimiser's step instead of the passes."""
        width = self.settings.width
        held, kept, moment = 0.0, 0.0, 0.0
        for kind in kinds:
            count = copies if self.repeats(kind) else 1
            learnt, names = self.parameters(kind), self.names(kind)
            if stepped:
                held += 2 * STATES[width] * learnt
                continue
            held += count * learnt * (width + SINGLE)
            kept += count * sum(map(self.kept, names))
            most = max(self.works[name].backward_reserved for name in names if self.kept(name))
            moment = max(moment, most + learnt * width)
        return held + SAFETY * (kept + moment)


Job = TrainingJob | ChainJob

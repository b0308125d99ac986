"""The measurement of a model of any family: one rank's share, for one micro-batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from ilp_planner.profiler.measure.shard import Run

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ilp_planner.job.work import Kernel
    from ilp_planner.profiler.measure.operator import Operator
    from ilp_planner.specs.training import Settings

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

"""One rank's share of a model that is a chain of operators and no plain decoder (T5, Wide ResNet),
for one micro-batch.

Its parts are the layers that planners cut the chain in (`specs.chain_layers`). Work, messages and
outputs of a part are sums over its operators from `profiles.analytic`.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ilp_planner.profiler.measure.job import Held, Job, Ways
from ilp_planner.profiler.measure.shard import HEAD
from ilp_planner.profiler.measure.training import state_bytes
from ilp_planner.specs.architecture import Architecture, Parameters
from ilp_planner.specs.chain_layers import Segment, segments

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ilp_planner.costs.profiles.work import Exchange, Work


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

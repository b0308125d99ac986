"""Pipeline schedules: in which order ranks run their stages, and what follows for time and memory.

Every pipeline rank has `virtual` stages (v); its load is the seconds of a micro-batch through all
of them, forward and backward. By the formula, B micro-batches take

    (B - 1/v) * largest load + 1/v * sum of the loads

of which the largest load alone is busy for B times: the rest is the bubble. A last micro-batch with
fewer samples counts in B as the part of a full one that it is. Cost models and bounds
of operators and of groups take it as the time; plans for Megatron-LM are simulated instead
(`simulation`), and the formula only proposes cuts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Schedule(ABC):
    """What cost models, bounds and reports ask of a schedule.

    micro_batches: of an iteration. virtual: stages per rank. Ranks are told by how many come after
    (`behind`). part: of a full micro-batch that the last one is; who prices it adds what it takes
    beyond that.
    """

    name: ClassVar[str]  # in `simulation.schedules`

    micro_batches: int
    virtual: int = 1
    part: float = 1.0

    @property
    def short(self) -> bool:
        """The last micro-batch has fewer samples than the others."""
        return self.part < 1

    @property
    def whole(self) -> Schedule:
        """The schedule of the full micro-batches alone."""
        return replace(self, micro_batches=self.micro_batches - self.short, part=1.0)

    @property
    def _counted(self) -> float:
        """B, above."""
        return self.micro_batches - 1 + self.part

    @property
    def weight(self) -> float:
        """How often the slowest rank counts beyond the first time, in passes through one of its
        virtual stages: v times the iteration is weight * largest load + sum of the loads."""
        return self.virtual * self._counted - 1.0

    @property
    def repeats(self) -> float:
        """The same in passes through all of its virtual stages."""
        return self._counted - 1 / self.virtual

    def steady(self, loads: Sequence[float]) -> float:
        """Return the seconds in which the slowest rank sets the pace."""
        return self.repeats * max(loads) if self.repeats else 0.0

    def fill(self, loads: Sequence[float]) -> float:
        """Return the seconds in which the pipeline fills and drains."""
        return sum(loads) / self.virtual

    def iteration_time(self, loads: Sequence[float]) -> float:
        """Return seconds from the ranks' loads."""
        return self.steady(loads) + self.fill(loads)

    def bubble(self, loads: Sequence[float]) -> float:
        """Return the seconds per iteration in which the slowest rank waits."""
        return self.fill(loads) - max(loads) / self.virtual

    def counts(self, loads: Sequence[float]) -> tuple[float, ...]:
        """Return how often each rank's load counts: the slowest, the first of equal ones, with
        every micro-batch, any other one only while the pipeline fills."""
        counts = [1 / self.virtual] * len(loads)
        counts[loads.index(max(loads))] += self.repeats
        return tuple(counts)

    def sends(self, behind: int) -> int:
        """Return how often a rank sends a micro-batch's activations on, and its gradients come
        back: after every virtual stage but the pipeline's last."""
        return self.virtual - (behind == 0)

    def receives(self, before: int) -> int:
        """Return how often activations come in for a rank with so many before it."""
        return self.virtual - (before == 0)

    @property
    @abstractmethod
    def buffers(self) -> int:
        """Messages between stages that a rank holds besides the inputs it keeps."""

    @abstractmethod
    def in_flight(self, behind: int) -> int:
        """Return the most micro-batches of virtual stages that a rank holds before their backward
        pass. It grows with the number of ranks behind."""

    @abstractmethod
    def held(self, behind: int) -> tuple[tuple[int, ...], ...]:
        """Return every distinct (micro-batches held per virtual stage) just before a backward pass.

        Which virtual stages the held micro-batches belong to changes during an iteration; a rank's
        peak is over all of it.
        """


class OneForwardOneBackward(Schedule):
    """1F1B: a rank goes back as soon as it can, and holds one micro-batch per rank from it on.

    It keeps the gradient that it sent last until the next one takes its name
    (`forward_backward_pipelining_without_interleaving`).
    """

    __slots__ = ()
    name = "1f1b"
    buffers = 1

    def in_flight(self, behind: int) -> int:
        """Return the ranks behind and itself, or all micro-batches."""
        return min(behind + 1, self.micro_batches)

    def held(self, behind: int) -> tuple[tuple[int, ...], ...]:
        """Return how many are in flight."""
        return ((self.in_flight(behind),),)


@dataclass(frozen=True, slots=True)
class Interleaved(Schedule):
    """Interleaved 1F1B (`pipeline_parallel/schedules.py`): virtual stages take turns.

    group: micro-batches that pass one virtual stage before the next one's turn; Megatron's default
    of `--microbatch-group-size-per-virtual-pipeline-stage` is as many as ranks. A rank keeps the
    gradient that it sent last, and the input and the gradient that arrive in advance.
    """

    name = "interleaved"
    group: int = 1
    buffers = 3

    def in_flight(self, behind: int) -> int:
        """Return twice the ranks behind, all virtual stages but the last of one group of
        micro-batches, and one; or all."""
        warm_up = 2 * behind + (self.virtual - 1) * self.group
        return min(warm_up + 1, self.micro_batches * self.virtual)

    def held(self, behind: int) -> tuple[tuple[int, ...], ...]:
        """Return every mix. The pattern repeats with the groups, so two of them in the steady state
        and the warm-up are enough."""
        most, total = self.in_flight(behind), self.micro_batches * self.virtual
        mixes: dict[tuple[int, ...], None] = {}
        counts = [0] * self.virtual
        for step in range(min(total, most + 2 * self.group * self.virtual)):
            counts[self._turn(step)] += 1
            done = step - (most - 1)
            if done >= 0:
                mixes[tuple(counts)] = None
                counts[self.virtual - 1 - self._turn(done)] -= 1
        return tuple(mixes) or (tuple(counts),)

    def _turn(self, step: int) -> int:
        """Return the virtual stage of a rank's so-manieth forward pass; its backward passes go
        through them the other way round. The last group has what is left of the micro-batches."""
        first = step // (self.group * self.virtual) * self.group
        size = min(self.group, self.micro_batches - first)
        return (step - first * self.virtual) // size


def schedule_of(
    micro_batches: int, *, ranks: int, virtual: int = 1, turn: int = 0, part: float = 1.0
) -> Schedule:
    """Return the schedule of so many ranks with `virtual` stages each: interleaved, where that is
    more than one.

    Parameters
    ----------
    turn: micro-batches that pass one virtual stage before the next one's turn; 0: as many as ranks.
    part: of a full micro-batch that the last one is.
    """
    if virtual == 1:
        return OneForwardOneBackward(micro_batches, part=part)
    return Interleaved(micro_batches, virtual=virtual, group=turn or ranks, part=part)

"""Pipeline schedules: the order in which ranks run their stages, with its time and memory.

Every pipeline rank has `virtual` stages (v); its load is the seconds of a micro-batch through all
of them, forward and backward. By the formula, B micro-batches take

    (B - 1/v) * largest load + 1/v * sum of the loads

and the largest load alone is busy for B times: the rest is the bubble. A last micro-batch with
fewer samples counts in B as the part of a full one that it is. Cost models and bounds of operators
and of groups take it as the time; plans for Megatron-LM are simulated instead (`simulation`), and
the formula only proposes cuts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Sequence

KEPT = 256  # orders whose memory is remembered


@dataclass(frozen=True, slots=True)
class Schedule(ABC):
    """A schedule as used by cost models, bounds and reports.

    micro_batches: of an iteration. virtual: stages per rank. Ranks are told by the number of
    downstream ranks (`behind`). part: of a full micro-batch that the last one is; its cost model
    adds the excess.
    """

    name: ClassVar[str]  # in `schedule.schedules`
    divides: ClassVar[bool] = False  # some backward passes run in two parts
    v_shaped: ClassVar[bool] = False  # stages go down the ranks and back up, not down again

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
    def counted(self) -> float:
        """B, above: micro-batches, the last one as the part of a full one that it is."""
        return self.micro_batches - 1 + self.part

    @property
    def weight(self) -> float:
        """How often the slowest rank counts beyond the first time, in passes through one of its
        virtual stages: v times the iteration is weight * largest load + sum of the loads."""
        return self.virtual * self.counted - 1.0

    @property
    def repeats(self) -> float:
        """The same in passes through all of its virtual stages."""
        return self.counted - 1 / self.virtual

    def steady(self, loads: Sequence[float]) -> float:
        """Return the seconds of the steady phase, paced by the slowest rank."""
        return self.repeats * max(loads) if self.repeats else 0.0

    def fill(self, loads: Sequence[float]) -> float:
        """Return the seconds of fill and drain."""
        return sum(loads) / self.virtual

    def iteration_time(self, loads: Sequence[float]) -> float:
        """Return seconds from the ranks' loads."""
        return self.steady(loads) + self.fill(loads)

    def bubble(self, loads: Sequence[float]) -> float:
        """Return the waiting seconds of the slowest rank per iteration."""
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

    def stages_of(self, rank: int, ranks: int) -> tuple[int, ...]:
        """Return the numbers of a rank's (virtual) stages, ascending."""
        laps = (range(lap * ranks, (lap + 1) * ranks) for lap in range(self.virtual))
        return tuple(
            lap[-1 - rank if self.v_shaped and number % 2 else rank]
            for number, lap in enumerate(laps)
        )

    @property
    @abstractmethod
    def buffers(self) -> int:
        """Messages between stages that a rank holds besides the inputs it keeps."""

    @abstractmethod
    def in_flight(self, behind: int) -> int:
        """Return the most micro-batches of virtual stages that a rank holds before their backward
        pass. It grows with the number of downstream ranks."""

    @abstractmethod
    def held(self, behind: int) -> tuple[tuple[int, ...], ...]:
        """Return every distinct (micro-batches held per virtual stage) just before a backward pass.

        The virtual stages of the held micro-batches change during an iteration; a rank's peak is
        over all of it. If backward passes are divided, as many numbers follow: of these
        micro-batches, the ones that wait for gradients of weights.
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
        """Return the downstream ranks and itself, or all micro-batches."""
        return min(behind + 1, self.micro_batches)

    def held(self, behind: int) -> tuple[tuple[int, ...], ...]:
        """Return how many are in flight."""
        return ((self.in_flight(behind),),)


@dataclass(frozen=True, slots=True)
class Interleaved(Schedule):
    """Interleaved 1F1B (`pipeline_parallel/schedules.py`): microbatch groups pass one virtual stage
    after the other.

    group: size of microbatch groups, which pass one virtual stage before the next one; Megatron's
    default of `--microbatch-group-size-per-virtual-pipeline-stage` is as many as ranks. A rank
    keeps the gradient that it sent last, and the input and the gradient that arrive in advance.
    """

    name = "interleaved"
    group: int = 1
    buffers = 3

    def in_flight(self, behind: int) -> int:
        """Return twice the downstream ranks, all virtual stages but the last of one group of
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
        through them the other way round. The last group has the rest of the micro-batches."""
        first = step // (self.group * self.virtual) * self.group
        size = min(self.group, self.micro_batches - first)
        return (step - first * self.virtual) // size


@dataclass(frozen=True, slots=True)
class Divided(Schedule):
    """A schedule that runs some backward passes in two parts: gradients of inputs, awaited by the
    stage before, and gradients of weights, which fill its bubbles. Memory is read off the order of
    operations.

    ranks: of the pipeline. A rank keeps the gradient that it sent last, and the input and the
    gradient that arrive in advance.
    """

    divides = True
    looped = False  # up to their last forward passes, whole groups begin as more of them do
    ranks: int = 1
    buffers = 3

    def in_flight(self, behind: int) -> int:
        """Return the most of all moments, with waiting gradients of weights among them."""
        return max(sum(mix[: self.virtual]) for mix in self.held(behind))

    def held(self, behind: int) -> tuple[tuple[int, ...], ...]:
        """Return every mix that no other one exceeds."""
        shape = (self.ranks, self.micro_batches, self.virtual)
        return _held_by_order(self.name, *shape)[self.ranks - 1 - behind]


class InterleavedZeroBubble(Divided):
    """ZB-H1 on several virtual stages (`schedule.loops.interleaved_zero_bubble`)."""

    __slots__ = ()
    name = "interleaved-zb"
    looped = True


class ZeroBubbleV(Divided):
    """ZB-V (`schedule.loops.zero_bubble_v`)."""

    __slots__ = ()
    name = "zb-v"
    v_shaped = True


class DualPipeV(Divided):
    """DualPipeV (`schedule.loops.dual_pipe_v`)."""

    __slots__ = ()
    name = "dualpipe-v"
    v_shaped = True


USUAL = OneForwardOneBackward.name  # interleaved, where ranks have several virtual stages
DIVIDED: dict[str, type[Divided]] = {
    one.name: one for one in (InterleavedZeroBubble, ZeroBubbleV, DualPipeV)
}
PIPELINES = (USUAL, *DIVIDED)  # what jobs may have


@lru_cache(KEPT)
def _held_by_order(name: str, *shape: int) -> tuple[tuple[tuple[int, ...], ...], ...]:
    from ilp_planner.schedule.orders import held_mixes
    from ilp_planner.schedule.schedules import schedule_orders

    return held_mixes(schedule_orders(name, *shape))


def v_shaped(name: str) -> bool:
    """Tell whether virtual stages go down the ranks and back up, by a schedule of `PIPELINES`."""
    return name in DIVIDED and DIVIDED[name].v_shaped


def rank_of_stage(stage: int, ranks: int, *, v_shaped: bool = False) -> int:
    """Return the rank of so many that a (virtual) stage is on: they go down the ranks again and
    again, or down and back up."""
    lap, place = divmod(stage, ranks)
    return ranks - 1 - place if v_shaped and lap % 2 else place


@lru_cache(maxsize=4096)  # of every layout of a job the same
def ranks_of_stages(ranks: int, virtual: int, name: str = USUAL) -> tuple[int, ...]:
    """Return the rank that each (virtual) stage of a schedule is on."""
    down = v_shaped(name)
    return tuple(rank_of_stage(stage, ranks, v_shaped=down) for stage in range(ranks * virtual))


@lru_cache(maxsize=4096)
def stages_of_ranks(ranks: int, virtual: int, name: str = USUAL) -> tuple[tuple[int, ...], ...]:
    """Return the numbers of each rank's (virtual) stages, ascending."""
    place = ranks_of_stages(ranks, virtual, name)
    return tuple(
        tuple(stage for stage, own in enumerate(place) if own == rank) for rank in range(ranks)
    )


@lru_cache(maxsize=4096)  # jobs ask for theirs again and again
def schedule_of(
    micro_batches: int,
    *,
    ranks: int,
    virtual: int = 1,
    turn: int = 0,
    name: str = USUAL,
    part: float = 1.0,
) -> Schedule:
    """Return the schedule of so many ranks with `virtual` stages each.

    Parameters
    ----------
    turn: size of microbatch groups, which pass one virtual stage before the next one; 0: as many as
    ranks.
    name: one of `PIPELINES`; the usual one is interleaved if there are several virtual stages.
    part: of a full micro-batch that the last one is.
    """
    if name in DIVIDED:
        return DIVIDED[name](micro_batches, virtual, part, ranks)
    if virtual == 1:
        return OneForwardOneBackward(micro_batches, part=part)
    return Interleaved(micro_batches, virtual=virtual, group=turn or ranks, part=part)

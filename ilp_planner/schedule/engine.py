"""The event engine: an iteration of a pipeline, operation by operation; and a lower bound on its
seconds in any order."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ilp_planner.schedule.orders import BACKWARD, FORWARD, WEIGHT

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ilp_planner.schedule.orders import Orders


# ---- start and end of every operation ------------------------------------------------------------
# Plain loops, compiled by numba for large pipelines. Both go round the ranks and let each run until
# it has to wait for another one. Neither looks at more than one rank and one message at a time, so
# they take as long as there are operations, and a little more for ranks that are asked in vain.
# Unfinished ones have an `end` of -1.


class Work(NamedTuple):
    """The operations to run: arrays when compiled, lists when not.

    starts: int64 [ranks + 1], the start of each rank's operations. needs: int64 [n], the operation
    that each one waits for, -1: none. delay: float64 [n], seconds until its input has come.
    duration: float64 [n], seconds. start, end: float64 [n], to be filled; `end` holds -1.
    """

    starts: Any
    needs: Any
    delay: Any
    duration: Any
    start: Any
    end: Any


class Messages(NamedTuple):
    """Further data for blocking sends.

    feeds: int64 [n], the operation of another rank that waits for each one, -1: none. remote: bool
    [n], its input comes from another rank. joined: bool [n], see `Orders`. sent, wanted: float64
    [n], to be filled, hold -1: since when the output may go, since when the input may come.
    finish: float64 [ranks], to be filled.
    """

    feeds: Any
    remote: Any
    joined: Any
    sent: Any
    wanted: Any
    finish: Any


def run_overlapped(work: Work) -> None:
    """Run operations while messages travel: a rank waits for missing inputs, for nothing else.

    Ranks that wait for each other are neighbours, so rounds go up and down the ranks.
    """
    starts, needs, delay, duration, start, end = work
    ranks = len(starts) - 1
    at = [starts[rank] for rank in range(ranks)]
    free = [0.0 for _ in range(ranks)]
    moved = True
    while moved:
        moved = False
        for turn in range(2 * ranks):
            rank = turn if turn < ranks else 2 * ranks - 1 - turn
            i, time, last = at[rank], free[rank], starts[rank + 1]
            while i < last:
                need = needs[i]
                if need >= 0:
                    if end[need] < 0:
                        break
                    time = max(time, end[need] + delay[i])
                start[i] = time
                time += duration[i]
                end[i] = time
                i += 1
            if i > at[rank]:
                moved = True
            at[rank], free[rank] = i, time


def run_blocking(work: Work, messages: Messages) -> None:
    """Run operations that alternate with messages; both ends wait for these.

    Between two operations (or joined ones) a rank sends its output and receives its next input.
    Each message travels as soon as both ends are there; a rank goes on when all of its own have
    come and gone.
    """
    starts, needs, delay, duration, start, end = work
    feeds, remote, joined, sent, wanted, finish = messages
    ranks = len(starts) - 1
    before = [starts[rank] for rank in range(ranks)]  # the operations that were run last
    at = [starts[rank] for rank in range(ranks)]
    free = [0.0 for _ in range(ranks)]
    moved = True
    while moved:
        moved = False
        for turn in range(2 * ranks):
            rank = turn if turn < ranks else 2 * ranks - 1 - turn
            last = starts[rank + 1]
            while finish[rank] < 0:
                first = at[rank]
                behind = first
                while behind < last:
                    behind += 1
                    if not joined[behind - 1]:
                        break
                time, waits = free[rank], False
                for i in range(before[rank], first):
                    if feeds[i] >= 0:
                        if sent[i] < 0:
                            sent[i], moved = free[rank], True
                        goal = feeds[i]
                        if wanted[goal] < 0:
                            waits = True
                        else:
                            time = max(time, max(sent[i], wanted[goal]) + delay[goal])
                for i in range(first, behind):
                    need = needs[i]
                    if need < 0:
                        continue
                    if not remote[i]:
                        # of this rank: it has run, or never will
                        waits = waits or end[need] < 0
                        continue
                    if wanted[i] < 0:
                        wanted[i], moved = free[rank], True
                    if sent[need] < 0:
                        waits = True
                    else:
                        time = max(time, max(sent[need], wanted[i]) + delay[i])
                if waits:
                    break
                moved = True
                if first == last:
                    finish[rank] = time
                for i in range(first, behind):
                    start[i] = time
                    time += duration[i]
                    end[i] = time
                before[rank], at[rank], free[rank] = first, behind, time


# ---- iterations ----------------------------------------------------------------------------------


INTERPRETED = 300_000  # operations that Python runs sooner, once, than numba is imported


class StageTimes(NamedTuple):
    """The time of a micro-batch in each of the S stages of a pipeline, in seconds.

    forward, backward, input, weight: float64 [S]; the whole backward pass, and its parts if it is
    split. send_forward, send_backward: float64 [S - 1], to hand the activations of stage s on to
    stage s + 1, and the gradients back; free of charge between stages of one rank.
    """

    forward: NDArray[np.float64]
    backward: NDArray[np.float64]
    input: NDArray[np.float64]
    weight: NDArray[np.float64]
    send_forward: NDArray[np.float64]
    send_backward: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Timeline:
    """When every operation of an iteration begins and ends.

    start, end: float64 [n], seconds, in the order of `orders.operations`. finish: float64 [ranks],
    when each rank has run and sent everything.
    """

    orders: Orders
    start: NDArray[np.float64]
    end: NDArray[np.float64]
    finish: NDArray[np.float64]

    @property
    def seconds(self) -> float:
        """Return the seconds of the iteration."""
        return float(self.finish.max())

    @cached_property
    def busy(self) -> NDArray[np.float64]:
        """Return the seconds that each rank computes, float64 [ranks]."""
        return np.add.reduceat(self.end - self.start, self.orders.operations.starts[:-1])

    @property
    def bubble(self) -> float:
        """Return the share of the ranks' time in which they do not compute."""
        return 1 - float(self.busy.mean()) / self.seconds if self.seconds else 0.0


def simulate(orders: Orders, times: StageTimes, *, blocking: bool = False) -> Timeline:
    """Run an iteration in time.

    A rank runs its operations in order. A forward pass needs that of the stage before, a backward
    pass (or the input gradient) that of the downstream stage.

    Parameters
    ----------
    blocking: False: messages travel while ranks compute, and arrive a send's seconds after they
        were made, without contention. True: sends and receives are synchronous, as in Megatron-Core
        without `overlap_p2p_comm`: after an operation a rank offers its output and asks for its
        next input, at once; a message travels when both ends are there, and a rank resumes when its
        messages are through. For interleaved stages this is Megatron's order if groups are as large
        as there are ranks; with larger ones Megatron receives ahead of time; that is not modelled.

    Raises
    ------
    ValueError: the order can never run to its end, or there are too few or too many times.
    """
    ops, stages = orders.operations, orders.shape.stages
    if any(len(row) != stages for row in times[:4]) or any(len(r) != stages - 1 for r in times[4:]):
        raise ValueError(f"{stages} stages need as many times, and one less of messages")
    duration = np.concatenate(times[:4])[orders.places]
    start, end = np.zeros(len(duration)), np.full(len(duration), -1.0)
    work = Work(ops.starts, orders.needs, delays(orders, times), duration, start, end)
    if blocking:
        messages = _messages(orders)
        _run(run_blocking, work, messages)
        finish = messages.finish
    else:
        _run(run_overlapped, work)
        finish = end[ops.starts[1:] - 1]
    if (end < 0).any():  # else every message was taken, and all ranks are through
        raise ValueError(_deadlock(orders, end))
    return Timeline(orders, start, end, finish)


def critical_path(timeline: Timeline, times: StageTimes) -> tuple[NDArray[np.int64], float]:
    """Return operations that follow each other without a wait from the beginning of an iteration to
    its end, messages aside, and the seconds of the messages between them.

    timeline: of messages that travel while ranks compute. For any stage times, the iteration takes
    no less than these operations and messages: their order is the schedule's.
    """
    orders = timeline.orders
    starts = set(orders.operations.starts.tolist())
    needs, start, end = orders.needs.tolist(), timeline.start.tolist(), timeline.end.tolist()
    sent, at = delays(orders, times), int(timeline.end.argmax())
    found, seconds = [at], 0.0
    while start[at] > 0:
        if at in starts or end[at - 1] < start[at]:
            seconds += float(sent[at])
            at = needs[at]
        else:
            at -= 1
        found.append(at)
    return np.array(found), seconds


def delays(orders: Orders, times: StageTimes) -> NDArray[np.float64]:
    """Return the transfer seconds of each operation's input, float64 [n]."""
    return np.concatenate([[0.0], times.send_forward, times.send_backward])[orders.ways]


def _messages(orders: Orders) -> Messages:
    count = len(orders.needs)
    feeds = np.full(count, -1, np.int64)
    here = np.flatnonzero(orders.remote)
    feeds[orders.needs[here]] = here
    nothing = [np.full(n, -1.0) for n in (count, count, orders.shape.ranks)]
    return Messages(feeds, orders.remote, orders.joined, *nothing)


def _run(function: Callable[..., None], *records: Any) -> None:
    """Call one of the loops: compiled, unless that takes longer than it saves."""
    if "numba" in sys.modules or len(records[0].end) > INTERPRETED:
        _compiled(function)(*records)
        return
    as_lists = [type(record)(*(array.tolist() for array in record)) for record in records]
    function(*as_lists)
    for record, lists in zip(records, as_lists, strict=True):
        for array, values in zip(record, lists, strict=True):
            array[:] = values


def expect(operations: int) -> None:
    """Be told of how many operations are to come, over all iterations: many are worth compiling."""
    if operations > INTERPRETED:
        _compiled(run_blocking)


@cache
def _compiled(function: Callable[..., None]) -> Any:
    from ilp_planner.base.kernels import kernel

    return kernel(function)


def _deadlock(orders: Orders, end: NDArray[np.float64]) -> str:
    """Say the operations that wait for each other, if none can go on."""
    first = int(np.flatnonzero(end < 0)[0])
    rank = int(np.searchsorted(orders.operations.starts, first, side="right")) - 1
    name, need = orders.name(first), int(orders.needs[first])
    waits = (
        f"for {orders.name(need)}" if need >= 0 and end[need] < 0 else "until a message is taken"
    )
    return f"this order can never run to its end: on rank {rank}, {name} waits {waits}"


def held_memory(
    orders: Orders, activations: NDArray[np.int64], for_weights: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """Return the bytes of activations that a rank holds while it runs each operation, int64 [n].

    They are held from the beginning of a forward pass to the end of the backward pass. That depends
    on the order, not on seconds; with ones for bytes it counts micro-batches.

    Parameters
    ----------
    activations: int64 [S], bytes that a stage holds of a micro-batch. for_weights: int64 [S], bytes
        of these (or others) that it holds on from the end of the input gradient to that of the
        weight gradient; all of them, if None.
    """
    ops = orders.operations
    kept = activations if for_weights is None else for_weights
    taken = np.where(ops.kinds == FORWARD, activations[ops.stages], 0)
    left = np.stack([np.zeros_like(kept), activations, activations - kept, kept])
    given = left[ops.kinds, ops.stages]
    held: NDArray[np.int64] = np.cumsum(taken) - (np.cumsum(given) - given)
    return held


def peak_memory(
    orders: Orders, activations: NDArray[np.int64], for_weights: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """Return the most bytes of activations that each rank holds, int64 [ranks]: `held_memory`."""
    held = held_memory(orders, activations, for_weights)
    return np.maximum.reduceat(held, orders.operations.starts[:-1])


def peak_micro_batches(orders: Orders) -> NDArray[np.int64]:
    """Return the most micro-batches that each stage holds between their forward pass and the end of
    their backward pass, weight gradients included, int64 [S]."""
    ops = orders.operations
    by_stage = np.argsort(ops.stages, kind="stable")
    kinds = ops.kinds[by_stage]
    taken, given = kinds == FORWARD, (kinds == BACKWARD) | (kinds == WEIGHT)
    held = np.cumsum(taken) - (np.cumsum(given) - given)
    firsts = np.searchsorted(ops.stages[by_stage], np.arange(orders.shape.stages))
    return np.maximum.reduceat(held, firsts)


# ---- a lower bound for all schedules -------------------------------------------------------------
# For all synchronous schedules, zero-bubble and V-shaped ones included. Micro-batches enter at the
# first stage and gradients leave there. Let f be the time of the first micro-batch to the first
# stage of rank r, through all stages before, and b the time of the last gradient from there back to
# the first stage. Then no iteration takes less than
#
#     f + forward and input-gradient work of r + b     the last input gradient of r's first stage
#                                                      comes after all of its forward and input
#                                                      gradients of all its stages
#     f + all work of r                                weight gradients may come last
#
# and none less than one micro-batch takes to the last stage and back.


EPSILON = 2.0**-53  # relative: of one rounding


def least_seconds(
    times: StageTimes, place: NDArray[np.integer], micro_batches: int, *, split: bool
) -> float:
    """Return a lower bound on the seconds of every schedule, safe under rounding.

    Parameters
    ----------
    place: integers [ranks, virtual], the stages of each rank (`orders.places`). split: whether the
        schedule may run some backward passes in two parts.
    """
    rank_of = np.empty(place.size, np.int64)
    rank_of[place] = np.arange(len(place))[:, None]
    crosses = rank_of[1:] != rank_of[:-1]
    back = np.minimum(times.backward, times.input) if split else times.backward
    whole = np.minimum(times.backward, times.input + times.weight) if split else times.backward
    before = _sums(times.forward, np.where(crosses, times.send_forward, 0.0))
    after = _sums(back, np.where(crosses, times.send_backward, 0.0))
    first = place.min(axis=1)
    moving = micro_batches * (times.forward + back)[place].sum(axis=1)
    all_work = micro_batches * (times.forward + whole)[place].sum(axis=1)
    ranks = before[first] + np.maximum(moving + after[first], all_work)
    through = before[-1] + times.forward[-1] + back[-1] + after[-1]
    steps = 3 * micro_batches * place.shape[1] + 4 * place.size  # of a sum, each of which rounds
    least = max(float(ranks.max()), float(through))
    return float(least * (1 - 2 * steps * EPSILON))


def _sums(passes: NDArray[np.float64], sends: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the seconds of all stages before each one, and of the messages between."""
    return np.concatenate([[0.0], np.cumsum(passes[:-1] + sends)])

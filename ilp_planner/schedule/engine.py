"""The event engine: an iteration of a pipeline, operation by operation."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ilp_planner.schedule import recursion
from ilp_planner.schedule.orders import BACKWARD, FORWARD, WEIGHT

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ilp_planner.schedule.orders import Orders

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
    work = recursion.Work(ops.starts, orders.needs, delays(orders, times), duration, start, end)
    if blocking:
        messages = _messages(orders)
        _run(recursion.run_blocking, work, messages)
        finish = messages.finish
    else:
        _run(recursion.run_overlapped, work)
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


def _messages(orders: Orders) -> recursion.Messages:
    count = len(orders.needs)
    feeds = np.full(count, -1, np.int64)
    here = np.flatnonzero(orders.remote)
    feeds[orders.needs[here]] = here
    nothing = [np.full(n, -1.0) for n in (count, count, orders.shape.ranks)]
    return recursion.Messages(feeds, orders.remote, orders.joined, *nothing)


def _run(function: Callable[..., None], *records: Any) -> None:
    """Call a recursion: compiled, unless that takes longer than it saves."""
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
        _compiled(recursion.run_blocking)


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

"""Schedules of two virtual stages per rank in a V: the last stage is on the first rank again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.schedule.orders import (
    BACKWARD,
    FORWARD,
    INPUT,
    WEIGHT,
    Orders,
    Shape,
    orders_of,
    places,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

F0, B0, I0, W0 = FORWARD, BACKWARD, INPUT, WEIGHT  # down the ranks
F1, B1, I1, W1 = (4 + kind for kind in (F0, B0, I0, W0))  # and back up


def zero_bubble_v(shape: Shape) -> Orders:
    """Return ZB-V (Qi et al. 2024, arXiv 2405.15362), as `ScheduleZBVZeroBubble` of
    `torch.distributed.pipelining` has it. Of fewer than 2 ranks - 1 micro-batches it runs the
    existing ones of so many."""
    most = max(2 * shape.ranks - 1, shape.micro_batches)
    turns = [_zero_bubble_v(rank, shape.ranks, most) for rank in range(shape.ranks)]
    return orders_of(shape, turns, places(shape.ranks, 2, v_shaped=True), most=most)


def _zero_bubble_v(rank: int, ranks: int, micro_batches: int) -> NDArray[np.int64]:
    rest = ranks - rank
    return _sequence(
        ([F0], 2 * rest - 1),
        ([F1, F0], rank),
        ([F1, I1, W1], rest),
        ([F0, I0, W0, F1, I1, W1], micro_batches - (ranks + rest - 1)),
        ([I0, W0, F1, I1, W1], rest - 1),
        ([I0, I1], rank),
        ([I0, W0], rest),
        ([W1], rank),
        ([W0], rank),
    )


def dual_pipe_v(shape: Shape) -> Orders:
    """Return DualPipeV (github.com/deepseek-ai/DualPipe), as `ScheduleDualPipeV` of
    `torch.distributed.pipelining` has it.

    Its simultaneous forward and backward passes of different micro-batches are here one after the
    other.
    """
    turns = [_dual_pipe_v(rank, shape.ranks, shape.micro_batches) for rank in range(shape.ranks)]
    return orders_of(shape, turns, places(shape.ranks, 2, v_shaped=True))


def _dual_pipe_v(rank: int, ranks: int, micro_batches: int) -> NDArray[np.int64]:
    rest, before = ranks - rank - 1, rank + 1
    steady = _sequence(
        ([F0], 2 * rest),
        ([F0, F1], before),
        ([I1, W1, F1], rest),
        ([F0, B1, F1, B0], micro_batches - 2 * ranks + before),
        ([B1, F1, B0], rest),
    )
    # of the last backward passes, the first half is whole
    whole = before // 2 * 2 + 1 - rank % 2
    last = [(B1, B0)[i % 2] if i < whole else (I1, I0)[i % 2] for i in range(2 * before)]
    waiting = [kind - INPUT + WEIGHT for kind in last if kind in (I0, I1)]
    for _ in range(rest):
        last += [waiting.pop(0), I0]
        waiting.append(W0)
    return np.concatenate([steady, np.array(last + waiting, np.int64)])


def _sequence(*parts: tuple[list[int], int]) -> NDArray[np.int64]:
    """Return patterns one after the other, each repeated so often."""
    return np.concatenate([np.tile(np.array(pattern, np.int64), n) for pattern, n in parts])

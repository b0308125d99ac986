"""Schedules on looped stages and on stages in a V.

On looped stages, forward and backward passes run in turn at a fixed distance: a rank runs so many
forward passes to warm up, then a forward and a backward pass in turn, then the backward passes that
are left. If the backward pass is split, a weight gradient follows so many input gradients later.
These two distances distinguish the schedules. In a V of two virtual stages per rank, the last stage
is on the first rank again.
"""

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


def gpipe(shape: Shape) -> Orders:
    """Return GPipe: all micro-batches forward, then all backward (Huang et al. 2019)."""
    return _woven(shape, np.full(shape.ranks, shape.micro_batches))


def one_forward_one_backward(shape: Shape) -> Orders:
    """Return 1F1B: one warm-up pass for every downstream rank (Megatron-Core,
    `forward_backward_pipelining_without_interleaving`)."""
    return _woven(shape, _behind(shape))


def interleaved(shape: Shape) -> Orders:
    """Return interleaved 1F1B (Megatron-Core, `forward_backward_pipelining_with_interleaving`).

    Warm-up takes two passes for every downstream rank, and a group of micro-batches through all
    virtual stages but the last. The last group has the rest of the micro-batches. Early receives
    (`--overlap-p2p-communication-warmup-flush`) change no order; without any overlap, a pair of a
    forward and a backward pass is computed before either is sent on.
    """
    warm_up = 2 * _behind(shape) + (shape.virtual - 1) * shape.group
    return _woven(shape, warm_up, pairs=True)


def zero_bubble_h1(shape: Shape) -> Orders:
    """Return ZB-H1 (Qi et al. 2023, arXiv 2401.10241, section 2.1), with the memory of 1F1B: weight
    gradients wait for as many micro-batches as there are ranks before."""
    return _woven(shape, _behind(shape), lag=np.arange(shape.ranks))


def interleaved_zero_bubble(shape: Shape) -> Orders:
    """Return ZB-H1 on several virtual stages (`ScheduleInterleavedZeroBubble` of
    `torch.distributed.pipelining`)."""
    warm_up = _behind(shape) + (shape.virtual - 1) * shape.group
    return _woven(shape, warm_up, lag=np.arange(shape.ranks))


def _behind(shape: Shape) -> NDArray[np.int64]:
    return np.arange(shape.ranks)[::-1]


def _woven(
    shape: Shape,
    warm_up: NDArray[np.int64],
    *,
    lag: NDArray[np.int64] | None = None,
    pairs: bool = False,
) -> Orders:
    """Return the orders of ranks with so many warm-up passes each.

    The place of an operation is its own number and how many of the other kinds come before it.

    Parameters
    ----------
    warm_up, lag: int64 [ranks]; without a lag, backward passes are whole. pairs: forward and
        backward passes of the steady state are joined.
    """
    chunks = _chunks(shape)
    total = len(chunks)
    step = np.arange(total)
    warm = np.minimum(warm_up, total)[:, None]

    def before(first: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.clip(first, 0, total)

    late = total if lag is None else lag[:, None]  # no weight gradient comes before the end
    forward = step + before(step - warm) + before(step - warm - late)
    backward = step + before(step + warm + 1) + before(step - late)
    turns = np.empty((shape.ranks, total * (2 if lag is None else 3)), np.int64)
    np.put_along_axis(turns, forward, 4 * chunks + FORWARD, 1)
    backwards = 4 * (shape.virtual - 1 - chunks)
    if lag is None:
        np.put_along_axis(turns, backward, backwards + BACKWARD, 1)
    else:
        np.put_along_axis(turns, backward, backwards + INPUT, 1)
        weight = step + before(step + warm + late + 1) + before(step + late + 1)
        np.put_along_axis(turns, weight, backwards + WEIGHT, 1)
    joined = np.zeros(turns.shape, np.bool_)
    if pairs:
        np.put_along_axis(joined, forward, step >= warm, 1)
    place = places(shape.ranks, shape.virtual)
    return orders_of(shape, list(turns), place, joined=joined.ravel())


def _chunks(shape: Shape) -> NDArray[np.int64]:
    """Return the virtual stage of each forward pass of a rank, int64 [virtual * micro-batches]."""
    whole, rest = divmod(shape.micro_batches, shape.group)
    virtual = np.arange(shape.virtual)
    return np.concatenate(
        [np.tile(np.repeat(virtual, shape.group), whole), np.repeat(virtual, rest)]
    )

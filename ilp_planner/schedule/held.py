"""Micro-batches in flight on ranks in an order of operations, by virtual stage."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.schedule.orders import BACKWARD, FORWARD, INPUT, WEIGHT, placed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ilp_planner.schedule.orders import Orders


def held_mixes(orders: Orders) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Return, of every rank, the mixes that it holds during some operation and that no other one
    exceeds: micro-batches of each of its virtual stages that are kept, and then of each the ones
    with waiting gradients of weights.

    A micro-batch is kept from the beginning of its forward pass to the end of its backward pass; if
    that is divided, its gradients wait from the beginning of the input gradient to the end of the
    weight gradient, and all activations with them (`stage_backward_input` of
    `torch.distributed.pipelining` retains the whole graph).
    """
    ops, stages = orders.operations, placed(orders)
    found = []
    for rank, own in enumerate(stages):
        here = slice(ops.starts[rank], ops.starts[rank + 1])
        kinds, of = ops.kinds[here, None], ops.stages[here, None] == own
        kept = _held(of & (kinds == FORWARD), of & ((kinds == BACKWARD) | (kinds == WEIGHT)))
        waiting = _held(of & (kinds == INPUT), of & (kinds == WEIGHT))
        mixes = {*map(tuple, np.concatenate([kept, waiting], axis=1).tolist())}
        found.append(tuple(map(tuple, _largest(np.array(sorted(mixes))).tolist())))
    return tuple(found)


def _held(taken: NDArray[np.bool_], given: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return how many are there during each operation; its input is there until its end."""
    left = given.cumsum(axis=0) - given
    held: NDArray[np.int64] = taken.cumsum(axis=0) - left
    return held


def _largest(mixes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rows that no other one exceeds."""
    exceeded = np.all(mixes[:, None, :] <= mixes[None, :, :], axis=2)
    np.fill_diagonal(exceeded, False)
    largest: NDArray[np.int64] = mixes[~exceeded.any(axis=1)]
    return largest

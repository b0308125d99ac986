"""Orders of operations: the operations of every pipeline rank in one iteration.

A pipeline of R ranks with v virtual stages each has S = R v stages, counted along the forward pass.
Each of B micro-batches passes every stage forward (F) and backward, whole (B) or as two operations:
input gradients (I), awaited by the stage before, and weight gradients (W), awaited by nobody.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


# ---- orders --------------------------------------------------------------------------------------


FORWARD, BACKWARD, INPUT, WEIGHT = range(4)
KINDS = "FBIW"
NAMES = ("forward", "backward", "input gradient", "weight gradient")


class Shape(NamedTuple):
    """The pipeline of an order.

    virtual: stages per rank. group: size of microbatch groups, which pass one virtual stage before
    the next one.
    """

    ranks: int
    micro_batches: int
    virtual: int = 1
    group: int = 1

    @property
    def stages(self) -> int:
        """Return the stages of the pipeline."""
        return self.ranks * self.virtual


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Operations:
    """Operations in a flat list, rank after rank; within a rank in execution order.

    kinds: int8 [n], of `KINDS`. stages, micro_batches: int32 [n]. starts: int64 [ranks + 1], the
    start of each rank's operations.
    """

    kinds: NDArray[np.int8]
    stages: NDArray[np.int32]
    micro_batches: NDArray[np.int32]
    starts: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Orders:
    """The order of operations of every rank.

    rank_of: int32 [S]. joined: bool [n], if a runtime with blocking sends computes the next
    operation before it sends or receives anything. Every stage runs every micro-batch once in each
    direction, in the order forward, input gradient, weight gradient.
    """

    shape: Shape
    rank_of: NDArray[np.int32]
    operations: Operations
    joined: NDArray[np.bool_]

    def __post_init__(self) -> None:
        first, second, third = self._at
        halves = third >= 0
        if (first < 0).any() or (second < 0).any():
            raise ValueError("every stage must run every micro-batch forward and backward")
        if len(self.operations.kinds) != first.size + second.size + int(halves.sum()):
            raise ValueError("no stage may run a micro-batch twice in one direction")
        if (first >= second).any() or (third[halves] <= second[halves]).any():
            raise ValueError("a micro-batch must run forward, then backward, weights at the end")

    @cached_property
    def _at(self) -> NDArray[np.int64]:
        """Return the operations of the forward pass, the input gradient (or the whole backward
        pass) and the weight gradient of a stage and micro-batch, int64 [3, S, B], -1: none."""
        found = np.full((3, self.shape.stages, self.shape.micro_batches), -1, np.int64)
        for row, kinds in enumerate(((FORWARD,), (BACKWARD, INPUT), (WEIGHT,))):
            here = np.flatnonzero(np.isin(self.operations.kinds, kinds))
            found[row, self.operations.stages[here], self.operations.micro_batches[here]] = here
        return found

    @cached_property
    def needs(self) -> NDArray[np.int64]:
        """Return the operation of another stage that each one waits for, int64 [n], -1: none."""
        needs = np.full(len(self.operations.kinds), -1, np.int64)
        first, second, _ = self._at
        needs[first[1:]] = first[:-1]
        needs[second[:-1]] = second[1:]
        return needs

    @cached_property
    def places(self) -> NDArray[np.int64]:
        """Return the positions of the seconds of every operation in [kinds, S], row by row, int64
        [n]."""
        ops = self.operations
        return ops.kinds.astype(np.int64) * self.shape.stages + ops.stages.astype(np.int64)

    @cached_property
    def ways(self) -> NDArray[np.int64]:
        """Return the positions of the transfer seconds of every operation's input, int64 [n]: in a
        nought, messages forward from the first stage on, and messages backward."""
        kinds, stages = self.operations.kinds, self.operations.stages.astype(np.int64)
        backward = self.shape.stages + stages
        return np.where(self.remote, np.where(kinds == FORWARD, stages, backward), 0)

    @cached_property
    def ranks(self) -> NDArray[np.int32]:
        """Return the rank of every operation, int32 [n]."""
        return self.rank_of[self.operations.stages]

    @cached_property
    def remote(self) -> NDArray[np.bool_]:
        """Return whether an operation's input comes from another rank, bool [n]."""
        elsewhere: NDArray[np.bool_] = self.ranks[self.needs] != self.ranks
        return elsewhere & (self.needs >= 0)

    @property
    def split(self) -> bool:
        """Return whether some backward passes are run in two parts."""
        return bool((self.operations.kinds == INPUT).any())

    def of_rank(self, rank: int) -> list[tuple[str, int, int]]:
        """Return a rank's operations as (kind, stage, micro-batch)."""
        ops = self.operations
        here = slice(ops.starts[rank], ops.starts[rank + 1])
        kinds = [KINDS[kind] for kind in ops.kinds[here]]
        stages, micro_batches = ops.stages[here].tolist(), ops.micro_batches[here].tolist()
        return list(zip(kinds, stages, micro_batches, strict=True))

    def name(self, operation: int) -> str:
        """Return the name of an operation in messages."""
        ops = self.operations
        kind, stage = NAMES[ops.kinds[operation]], ops.stages[operation]
        return f"the {kind} of stage {stage}, micro-batch {ops.micro_batches[operation]}"


def places(ranks: int, virtual: int, *, v_shaped: bool = False) -> NDArray[np.int32]:
    """Return the stage that each rank's virtual stages are, int32 [ranks, virtual].

    v_shaped: the pipeline goes down the ranks and back up, instead of down again and again.
    """
    grid = np.arange(ranks * virtual, dtype=np.int32).reshape(virtual, ranks)
    if v_shaped:
        grid[1::2] = grid[1::2, ::-1].copy()
    return np.ascontiguousarray(grid.T)


def placed(orders: Orders) -> NDArray[np.int64]:
    """Return the stages of each rank, ascending, int64 [ranks, virtual]."""
    by_rank = np.argsort(orders.rank_of, kind="stable")
    return by_rank.reshape(orders.shape.ranks, orders.shape.virtual)


def orders_of(
    shape: Shape,
    turns: Sequence[NDArray[np.int64]],
    place: NDArray[np.int32],
    *,
    most: int | None = None,
    joined: NDArray[np.bool_] | None = None,
) -> Orders:
    """Return the orders of each rank's operations.

    Micro-batches run through every stage in ascending order, so that only kinds and virtual stages
    have to be told.

    Parameters
    ----------
    turns: per rank, 4 * virtual stage + kind of its operations. place: as `places` returns it.
    most: micro-batches of the written order, if these are more than there are.

    Raises
    ------
    ValueError: a stage has too few or too many turns.
    """
    turn = np.concatenate(turns)
    kinds = (turn & 3).astype(np.int8)
    ranks = np.repeat(np.arange(len(turns)), [len(row) for row in turns])
    stages = place[ranks, turn >> 2]
    micro_batches = _numbered(kinds, stages, shape.stages, most or shape.micro_batches)
    if most is not None and most > shape.micro_batches:
        here = micro_batches < shape.micro_batches
        kinds, stages, micro_batches, ranks = (
            kinds[here], stages[here], micro_batches[here], ranks[here]
        )  # fmt: skip
    starts = np.searchsorted(ranks, np.arange(len(turns) + 1))
    rank_of = np.empty(shape.stages, np.int32)
    rank_of[place] = np.arange(len(turns), dtype=np.int32)[:, None]
    if joined is None:
        joined = np.zeros(len(kinds), np.bool_)
    return Orders(shape, rank_of, Operations(kinds, stages, micro_batches, starts), joined)


def _numbered(
    kinds: NDArray[np.int8], stages: NDArray[np.int32], count: int, micro_batches: int
) -> NDArray[np.int32]:
    """Return the micro-batch of every operation: each stage counts them up in each direction."""
    numbers = np.empty(len(kinds), np.int32)
    up = np.tile(np.arange(micro_batches, dtype=np.int32), count)

    def by_stage(*wanted: int) -> NDArray[np.int64]:
        here = np.flatnonzero(np.isin(kinds, wanted))
        return here[np.argsort(stages[here].astype(np.uint16), kind="stable")]

    for wanted in ((FORWARD,), (BACKWARD, INPUT)):
        here = by_stage(*wanted)
        if len(here) != len(up):
            raise ValueError(f"{len(here)} turns for {len(up)} passes in one direction")
        numbers[here] = up
    numbers[by_stage(WEIGHT)] = numbers[by_stage(INPUT)]
    return numbers


# ---- micro-batches in flight ---------------------------------------------------------------------


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
        done = of & (kinds == WEIGHT)
        taken = np.concatenate((of & (kinds == FORWARD), of & (kinds == INPUT)), axis=1)
        given = np.concatenate((of & (kinds == BACKWARD) | done, done), axis=1)
        # an operation's input is there until its end; without one, the next operation has no less
        held = (taken.astype(np.int64) - given).cumsum(axis=0) + given
        last = np.append(given[:-1].any(axis=1), True)
        found.append(tuple(map(tuple, _largest(_distinct(held[last])).tolist())))
    return tuple(found)


def _distinct(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the different rows of counts, ascending."""
    text = np.ascontiguousarray(rows, ">i8")  # whose bytes are ordered as the numbers are
    one = np.unique(text.view(np.dtype((np.void, text.itemsize * text.shape[1]))).ravel())
    return one.view(">i8").reshape(-1, text.shape[1]).astype(np.int64)


def _largest(mixes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rows that no other one exceeds."""
    exceeded = np.all(mixes[:, None, :] <= mixes[None, :, :], axis=2)
    np.fill_diagonal(exceeded, False)
    largest: NDArray[np.int64] = mixes[~exceeded.any(axis=1)]
    return largest

"""A lower bound for all cuts of a chain into pipeline ranks, with any delays between operations.

Let p be a micro-batch's time through the ranks upstream of rank r and back, a its time downstream
of r and back, sends included, f and b its passes through r itself, and M the number of
micro-batches. An iteration takes at least

    p + M (f + b)

as r cannot begin before the first micro-batch comes, nor the first rank end before the last one's
gradients come back. In 1F1B, r has at most k = pp - r micro-batches in flight. With M > k it waits
before its first backward pass, which comes f + a after it began, for the time beyond k forward
passes, and likewise before its last one:

    p + M (f + b) + max(0, f + a - k f') + max(0, a + b - k b')

where its sends, for which both ends wait, count as its own time: f' and b' have them. With M <= k
all forward passes come first:

    p + max(M (f + b), f + a + M b, M f + a + b)

Interleaved (`interleaved`), p is the time of the first virtual stages of the ranks before r.
The least of all cuts, of the largest of all ranks, is found from the last rank on: the time of a
cut of the rest grows by f + b and its sends for one more rank before it.

A lower bound on a rank's time with interleaved virtual stages (`interleaved`).

From the first forward pass of rank r to its first backward pass, the first micro-batch goes through
all virtual stages from there on, and back through the stages downstream of r's last one: A seconds,
sends included. In that time r itself makes w = 2 (pp - r - 1) + (v - 1) g + 1 forward passes
(Megatron's warm-up and one, in groups of g micro-batches), and waits for the rest of A. Likewise at
the end: from its last forward pass to its last backward pass, which takes A' seconds, it makes w
backward passes. Of all M v passes,

    M v (f + b) + max(0, A - F_w) + max(0, A' - B_w)                 where M v > w
    max(M v (f + b), A + M v b, M v f + A')                          otherwise

That holds for groups of any g. The first forward pass is the first micro-batch's through r's first
virtual stage, and the first backward pass its own through r's last one, after w forward passes in
r's order; so much lies between them, and no less than A. The last forward pass is the last
micro-batch's through r's last virtual stage, and the last backward pass its own through the first
one; of the backward passes, all but w have their place before that forward pass. The passes of F_w
and B_w depend on g: the first w forward ones, and the last w backward ones. Seen from the end,
these go through the virtual stages as forward passes do from the beginning, with a first group of M
mod g micro-batches if that is not 0.

A counts for other ranks the least that cuts allow upstream and downstream.
"""

from __future__ import annotations

import threading
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ilp_planner.base.kernels import inner, kernel
from ilp_planner.spaces.training.enumerate.partition import INFINITE
from ilp_planner.specs.pipeline_layout import REMAINDERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ilp_planner.spaces.training.enumerate.partition import CutTables


# ---- interleaved ---------------------------------------------------------------------------------


class Rounds(NamedTuple):
    """How micro-batches go through a rank's virtual stages: how many, through how many, in groups
    of how many, and the stages with the remaining layers, by its place in `REMAINDERS`."""

    micro_batches: int
    virtual: int
    turn: int
    remainder: int


def interleaved(tables: CutTables, through: NDArray[np.float64], own: NDArray[np.float64]) -> None:
    """Write the time of a micro-batch through a rank's first virtual stage and on to the next
    rank, and back, and the rank's time; as `LeastCuts` keeps them.

    tables: of layers that are spread over virtual stages.
    """
    t, spread = tables, tables.spread
    assert spread is not None
    ranks, count = t.kind.size, t.work.shape[1]
    through.fill(INFINITE)
    half = np.append(t.sends[:-1], spread.around) / 2
    behind = np.cumsum(t.sends[::-1])[::-1] / 2
    message = t.virtual * half.sum() - half[-1] - (np.cumsum(half) - half) + behind
    ends = np.full((4, ranks + 1, count), INFINITE)
    ends[:2, ranks, count - 1] = ends[2:, 0, 0] = 0.0
    rounds = Rounds(t.micro_batches, t.virtual, spread.turn, REMAINDERS.index(spread.remainder))
    _interleaved_own(
        t.kind, spread.edge, spread.forward, spread.backward, t.sends, message, t.row, t.fits,
        t.least, rounds, ends, through, own,
    )  # fmt: skip


@inner
def _layers(chunk, layers, virtual, remainder, first, last):  # type: ignore[no-untyped-def]
    # of a virtual stage of a rank, as `costs.training.job.spread`; first, last: whether the rank is
    skipped = 1 if remainder == 2 and first else 0
    count = virtual - skipped - (1 if remainder == 2 and last else 0)
    place = chunk - skipped
    if place < 0 or place >= count:
        return 0
    less, more = layers // count, layers % count
    if remainder > 0 and not last:
        place = count - 1 - place
    return less + 1 if place < more else less


@inner
def _passes(  # type: ignore[no-untyped-def]
    number, begin, turn, layers, virtual, remainder, first, last, head, tail, each
):
    # seconds of a rank's first passes, in a turn of `begin` micro-batches and then of `turn`; of a
    # pass by its count of layers, and what the first and the last virtual stage have besides
    rest = max(number - virtual * begin, 0)
    whole, left = rest // (virtual * turn), rest % (virtual * turn)
    took = 0.0
    for chunk in range(virtual):
        count = min(max(number - chunk * begin, 0), begin)
        count += whole * turn + min(max(left - chunk * turn, 0), turn)
        took += count * each[_layers(chunk, layers, virtual, remainder, first, last)]
        if chunk == 0:
            took += count * head
        if chunk == virtual - 1:
            took += count * tail
    return took


@kernel
def _interleaved_own(  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    kind, edge, forward, backward, sends, message, row, fits, least, rounds, ends, through, own
):
    # ends: of the ranks behind, all forward passes and the last backward one, and the other way
    # round; of the ranks before, all passes but the first, forward and backward
    ranks, count = kind.size, own.shape[1]
    m, v, turn, remainder = rounds
    over = m % turn if m % turn else turn
    for step in range(3 * ranks):
        task = step // ranks
        r = step % ranks
        if task == 0:
            r = ranks - 1 - r
        k = kind[r]
        before = 0
        for q in range(r):
            before += least[q]
        after = 0
        for q in range(r + 1, ranks):
            after += least[q]
        for start in range(before, count - after - least[r]):
            if r == 0 and start > 0:
                break
            for stop in range(start + least[r], count - after):
                if r == ranks - 1 and stop < count - 1:
                    continue
                if not fits[row[r], start, stop]:
                    continue
                layers = min(stop, count - 2) - max(start, 1)
                f_head = b_head = f_tail = b_tail = 0.0
                if start == 0:
                    f_head, b_head = edge[k, 0, 0], edge[k, 0, 1]
                if stop == count - 1:
                    f_tail, b_tail = edge[k, 1, 0], edge[k, 1, 1]
                last = r == ranks - 1
                begin = _layers(0, layers, v, remainder, r == 0, last)
                end = _layers(v - 1, layers, v, remainder, r == 0, last)
                f_first, b_first = forward[k, begin] + f_head, backward[k, begin] + b_head
                f_last, b_last = forward[k, end] + f_tail, backward[k, end] + b_tail
                f, b = f_head + f_tail, b_head + b_tail
                for chunk in range(v):
                    count_here = _layers(chunk, layers, v, remainder, r == 0, last)
                    f += forward[k, count_here]
                    b += backward[k, count_here]
                if task == 0:
                    ends[0, r, start] = min(ends[0, r, start], ends[0, r + 1, stop] + f + b_last)
                    ends[1, r, start] = min(ends[1, r, start], ends[1, r + 1, stop] + f_last + b)
                elif task == 1:
                    ends[2, r + 1, stop] = min(
                        ends[2, r + 1, stop], ends[2, r, start] + f - f_first
                    )
                    ends[3, r + 1, stop] = min(
                        ends[3, r + 1, stop], ends[3, r, start] + b - b_first
                    )
                elif ends[0, r + 1, stop] < INFINITE and ends[2, r, start] < INFINITE:
                    through[r, start, stop] = f_first + b_first + sends[r]
                    there = ends[2, r, start] + f + ends[0, r + 1, stop] + message[r]
                    back = ends[3, r, start] + b + ends[1, r + 1, stop] + message[r]
                    warm = 2 * (ranks - r - 1) + (v - 1) * turn + 1
                    took = m * (f + b)
                    if m * v <= warm:
                        own[r, start, stop] = max(took, there + m * b, m * f + back)
                        continue
                    ahead = _passes(
                        warm, turn, turn, layers, v, remainder, r == 0, last, f_head, f_tail,
                        forward[k],
                    )  # fmt: skip
                    late = _passes(
                        warm, over, turn, layers, v, remainder, r == 0, last, b_head, b_tail,
                        backward[k],
                    )  # fmt: skip
                    own[r, start, stop] = took + max(0.0, there - ahead) + max(0.0, back - late)


# ---- schedule ------------------------------------------------------------------------------------


BEGINNINGS = 500  # of cuts that are looked at for every one that is wanted


class Near(NamedTuple):
    """Cuts and their own bounds, seconds, ascending. rest: of all others, at least."""

    cuts: list[tuple[float, tuple[int, ...]]]
    rest: float


class LeastCuts:
    """The least time of all cuts, without costs once per iteration; of every rank on, and from
    every element on.

    through, own: float64 [ranks, n + 1, n + 1], lower bounds on a micro-batch's time through a rank
    with [start, stop) and back, and on the rank's own time from its first to its last operation;
    INFINITE if no cut has it. value: float64 [ranks + 1, n + 1], seconds of the best cut of the
    rest; INFINITE if there is none.

    room: for `through` and `own`, float64 [2, ranks, n + 1, n + 1]; None: of its own.
    """

    def __init__(self, tables: CutTables, room: NDArray[np.float64] | None = None) -> None:
        self.tables = t = tables
        ranks, count = t.kind.size, t.work.shape[1]
        shape = 2, ranks, count, count
        self.through, self.own = np.empty(shape) if room is None else room
        self.own.fill(INFINITE)
        (interleaved if t.virtual > 1 else _taking_turns)(t, self.through, self.own)
        self.value = np.full((ranks + 1, count), INFINITE)
        self.value[ranks, count - 1] = 0.0
        self.end = np.zeros((ranks, count), np.int64)
        _least(self.through, self.own, t.least, self.value, self.end)

    @property
    def seconds(self) -> float:
        """A lower bound of cuts in seconds; INFINITE if there is none."""
        return float(self.value[0, 0])

    @property
    def ends(self) -> tuple[int, ...]:
        """The ends of ranks of the nearest cut, from 0 to n."""
        ends = [0]
        for rank in range(self.tables.kind.size):
            ends.append(int(self.end[rank, ends[-1]]))
        return tuple(ends)

    def least(self, ends: Sequence[int]) -> float:
        """Return a lower bound in seconds of the cut with these ends."""
        ranks = np.arange(len(ends) - 1)
        through = self.through[ranks, ends[:-1], ends[1:]]
        before = np.cumsum(through) - through
        return float((before + self.own[ranks, ends[:-1], ends[1:]]).max())

    def open(self, limit: float) -> tuple[NDArray[np.int64], ...]:
        """Return (rank, start, stop) of all ranges of ranks in cuts with their own bound below a
        limit, each taken with the best of the upstream and downstream ranks."""
        ranks, count = self.end.shape
        before, reached = np.full(count, INFINITE), np.full(count, INFINITE)
        before[0] = reached[0] = 0.0
        found = []
        for rank in range(ranks):
            through = before[:, None] + self.through[rank]
            took = np.maximum(reached[:, None], before[:, None] + self.own[rank])
            some = np.maximum(took, through + self.value[rank + 1]) < limit
            start, stop = np.nonzero(some)
            found.append((np.full(start.size, rank), start, stop))
            before = np.where(some, through, INFINITE).min(axis=0)
            reached = np.where(some, took, INFINITE).min(axis=0)
        return tuple(np.concatenate(column) for column in zip(*found, strict=True))

    def nearest(self, limit: float, most: int) -> Near:
        """Return the cuts with the least own bounds below a limit, ascending."""
        ranks, count = self.end.shape
        least, left = self.tables.least, BEGINNINGS * (most + ranks)
        found: list[tuple[float, tuple[int, ...]]] = []
        # The least first; of equal ones those that are nearly whole.
        queue: list[tuple[float, int, float, float, tuple[int, ...]]] = []
        if self.seconds < limit:
            queue.append((self.seconds, 0, 0.0, 0.0, (0,)))
        while queue:
            bound, _, prefix, reached, ends = heappop(queue)
            rank, start = len(ends) - 1, ends[-1]
            if left < 0 or len(found) == most:
                return Near(found, bound)
            if rank == ranks:
                found.append((bound, ends))
                continue
            first = count - 1 if rank == ranks - 1 else start + int(least[rank])
            through = prefix + self.through[rank, start, first:]
            took = np.maximum(reached, prefix + self.own[rank, start, first:])
            far = np.maximum(took, through + self.value[rank + 1, first:])
            for place in np.flatnonzero(far < limit).tolist():
                left -= 1
                further = (*ends, first + place)
                heappush(
                    queue,
                    (
                        max(bound, float(far[place])),
                        -rank,
                        float(through[place]),
                        float(took[place]),
                        further,
                    ),
                )
        return Near(found, limit)


def last_room(tables: CutTables) -> NDArray[np.float64]:
    """Return the `room` that the last cuts of this thread had, for those that are looked at one
    after the other: fresh pages would take longer than a bound, and as much memory once more."""
    shape = 2, tables.kind.size, *tables.work.shape[1:]
    room: NDArray[np.float64] | None = getattr(_LAST, "room", None)
    if room is None or room.shape != shape:
        room = _LAST.room = np.empty(shape)
    return room


_LAST = threading.local()


def _taking_turns(t: CutTables, through: NDArray[np.float64], own: NDArray[np.float64]) -> None:
    """Write `through` and `own` of 1F1B."""
    ranks, count = t.kind.size, t.work.shape[1]
    rest = np.full((ranks + 1, count), INFINITE)
    rest[ranks, count - 1] = 0.0
    _own(t.kind, t.work, t.forward, t.sends, t.row, t.fits, t.least, t.micro_batches, rest, own)
    np.take(t.work, t.kind, axis=0, out=through)
    through += t.sends[:, None, None]


@kernel
def _own(  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    kind, work, forward, sends, row, fits, least, micro_batches, rest, own
):
    # rest: of a micro-batch through the ranks from each one on and back
    ranks, count, m = kind.size, work.shape[1], float(micro_batches)
    needed = 0
    for r in range(ranks - 1, -1, -1):
        needed += least[r]
        there = sends[r] / 2
        back = sends[r - 1] / 2 if r > 0 else 0.0
        flight = float(ranks - r)
        for start in range(count - needed + 1):
            for stop in range(start + least[r], count):
                behind = rest[r + 1, stop]
                if behind >= INFINITE or not fits[row[r], start, stop]:
                    continue
                both, f = work[kind[r], start, stop], forward[kind[r], start, stop]
                rest[r, start] = min(rest[r, start], both + sends[r] + behind)
                b, a = both - f, behind + sends[r]
                if m <= flight:
                    own[r, start, stop] = max(m * both, f + a + m * b, m * f + a + b)
                    continue
                took = m * (both + there) + (m - 1) * back
                took += max(0.0, f + a - flight * (f + there))
                took += max(0.0, a + b - flight * b - (flight - 1) * back - there)
                own[r, start, stop] = took


@kernel
def _least(through, own, least, value, end):  # type: ignore[no-untyped-def]  # pragma: no cover
    ranks, count = own.shape[0], own.shape[1]
    needed = 0
    for r in range(ranks - 1, -1, -1):
        needed += least[r]
        for start in range(count - needed + 1):
            for stop in range(start + least[r], count):
                if value[r + 1, stop] >= INFINITE or own[r, start, stop] >= INFINITE:
                    continue
                far = max(own[r, start, stop], through[r, start, stop] + value[r + 1, stop])
                if far < value[r, start]:
                    value[r, start] = far
                    end[r, start] = stop

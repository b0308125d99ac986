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

Interleaved (`interleaved_bound`), p is the time of the first virtual stages of the ranks before r.
The least of all cuts, of the largest of all ranks, is found from the last rank on: the time of a
cut of the rest grows by f + b and its sends for one more rank before it.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ilp_planner.base.kernels import kernel
from ilp_planner.spaces.training.bounds.interleaved import interleaved
from ilp_planner.spaces.training.enumerate.partition import INFINITE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ilp_planner.spaces.training.enumerate.partition import CutTables


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
    """

    def __init__(self, tables: CutTables) -> None:
        self.tables = t = tables
        ranks, count = t.kind.size, t.work.shape[1]
        self.through, self.own = interleaved(t) if t.virtual > 1 else _taking_turns(t)
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


def _taking_turns(t: CutTables) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return `through` and `own` of 1F1B."""
    ranks, count = t.kind.size, t.work.shape[1]
    own = np.full((ranks, count, count), INFINITE)
    rest = np.full((ranks + 1, count), INFINITE)
    rest[ranks, count - 1] = 0.0
    _own(t.kind, t.work, t.forward, t.sends, t.row, t.fits, t.least, t.micro_batches, rest, own)
    return t.work[t.kind] + t.sends[:, None, None], own


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

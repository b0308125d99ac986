"""What no cut of a chain into pipeline ranks undercuts, whatever happens between its operations.

Let p be what a micro-batch takes through the ranks before rank r and back, a what it takes behind r
and back, sends included, f and b its passes through r itself, and M the number of micro-batches. An
iteration takes at least

    p + M (f + b)

as r cannot begin before the first micro-batch comes, nor the first rank end before the last one's
gradients come back. In 1F1B, r has at most k = pp - r micro-batches in flight. With M > k it waits
before its first backward pass, which comes f + a after it began, for all that is not k forward
passes, and likewise before its last one:

    p + M (f + b) + max(0, f + a - k f') + max(0, a + b - k b')

where its sends, for which both ends wait, count as its own time: f' and b' have them. With M <= k
all forward passes come first:

    p + max(M (f + b), f + a + M b, M f + a + b)

Interleaved, p is what the first virtual stages of the ranks before r take, and the first bound is
the one that is used. The least of all cuts, of the largest of all ranks, is found from the last
rank on: what a cut of the rest takes grows by f + b and its sends for one more rank before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.kernels import kernel
from ilp_planner.spaces.megatron.partition import INFINITE

if TYPE_CHECKING:
    from ilp_planner.spaces.megatron.partition import CutTables


BEGINNINGS = 20_000  # of cuts that are looked at


class LeastCuts:
    """The least time of all cuts, without what comes once per iteration; of every rank on, and from
    every element on.

    value: float64 [ranks + 1, n + 1], seconds of the best cut of the rest; INFINITE where there is
    none. rest: likewise, of a micro-batch through the rest and back.
    """

    def __init__(self, tables: CutTables) -> None:
        self.tables = tables
        ranks, count = tables.kind.size, tables.work.shape[1]
        self.value = np.full((ranks + 1, count), INFINITE)
        self.rest = np.full((ranks + 1, count), INFINITE)
        self.end = np.zeros((ranks, count), np.int64)
        self.value[ranks, count - 1] = self.rest[ranks, count - 1] = 0.0
        t = tables
        _least(
            t.kind, t.work, t.forward, t.sends, t.row, t.fits, t.least,
            t.micro_batches, t.virtual, self.value, self.rest, self.end,
        )  # fmt: skip

    @property
    def seconds(self) -> float:
        """Seconds that no cut undercuts; INFINITE where there is none."""
        return float(self.value[0, 0])

    @property
    def ends(self) -> tuple[int, ...]:
        """Where the ranks of a cut end that comes nearest to it, from 0 to n."""
        ends = [0]
        for rank in range(self.tables.kind.size):
            ends.append(int(self.end[rank, ends[-1]]))
        return tuple(ends)

    def below(self, limit: float, most: int) -> list[tuple[float, tuple[int, ...]]] | None:
        """Return all cuts whose own bound is below a limit, with that bound; None where there are
        more than `most`, or too many beginnings of cuts."""
        t, ranks = self.tables, self.tables.kind.size
        count, left = t.work.shape[1], BEGINNINGS
        found: list[tuple[float, tuple[int, ...]]] = []
        open_: list[tuple[float, float, tuple[int, ...]]] = [(0.0, 0.0, (0,))]
        while open_:
            prefix, bound, ends = open_.pop()
            rank, start = len(ends) - 1, ends[-1]
            if rank == ranks:
                found.append((bound, ends))
                if len(found) > most:
                    return None
                continue
            first = count - 1 if rank == ranks - 1 else start + int(t.least[rank])
            for stop in range(first, count):
                both = float(t.work[t.kind[rank], start, stop])
                if prefix + t.micro_batches * t.virtual * both >= limit:
                    break
                after = float(self.value[rank + 1, stop])
                if after >= INFINITE or not t.fits[t.row[rank], start, stop]:
                    continue
                left -= 1
                if left < 0:
                    return None
                through = prefix + both + float(t.sends[rank])
                reached = max(bound, prefix + self._took(rank, start, stop))
                if max(reached, through + after) < limit:
                    open_.append((through, reached, (*ends, stop)))
        return found

    def _took(self, rank: int, start: int, stop: int) -> float:
        """Return what a rank's operations take from its first to its last one, at least."""
        t, own = self.tables, self.tables.kind[rank]
        back = float(t.sends[rank - 1]) / 2 if rank else 0.0
        took: float = _own(
            t.work[own, start, stop], t.forward[own, start, stop], self.rest[rank + 1, stop],
            t.sends[rank] / 2, back, float(t.kind.size - rank), float(t.micro_batches), t.virtual,
        )  # fmt: skip
        return took


@kernel
def _own(both, forward, behind, there, back, flight, m, virtual):  # type: ignore[no-untyped-def]
    if virtual > 1:
        return m * virtual * both
    b, a = both - forward, behind + 2 * there
    if m <= flight:
        return max(m * both, forward + a + m * b, m * forward + a + b)
    took = m * (both + there) + (m - 1) * back
    took += max(0.0, forward + a - flight * (forward + there))
    return took + max(0.0, a + b - flight * b - (flight - 1) * back - there)


@kernel
def _least(  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    kind, work, forward, sends, row, fits, least, micro_batches, virtual, value, rest, end
):
    ranks, count, m = kind.size, work.shape[1], float(micro_batches)
    needed = 0
    for r in range(ranks - 1, -1, -1):
        needed += least[r]
        own = kind[r]
        there = sends[r] / 2
        back = sends[r - 1] / 2 if r > 0 else 0.0
        flight = float(ranks - r)
        for start in range(count - needed + 1):
            for stop in range(start + least[r], count):
                if value[r + 1, stop] >= INFINITE or not fits[row[r], start, stop]:
                    continue
                both, f = work[own, start, stop], forward[own, start, stop]
                took = _own(both, f, rest[r + 1, stop], there, back, flight, m, virtual)
                far = max(took, both + 2 * there + value[r + 1, stop])
                if far < value[r, start]:
                    value[r, start] = far
                    end[r, start] = stop
                rest[r, start] = min(rest[r, start], both + 2 * there + rest[r + 1, stop])

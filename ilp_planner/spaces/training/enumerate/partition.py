"""The best cut of a chain into pipeline ranks under a formula, exactly.

By it, a cut costs weight * (slowest rank) + sum of ranks + largest synchronisation; its schedule
takes another time, so the best cut by the formula is a proposal that is judged. With a limit on
each of the two maxima, the rest is a shortest path over (ranks so far, element). Both limits are
swept over the values that they can take, until not even the shortest path could beat the incumbent.
Times and synchronisation only grow with a range: beyond the first start that breaks a limit, all
do.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ilp_planner.base.kernels import kernel

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

INFINITE = 1e30


class Spread(NamedTuple):
    """Seconds of virtual stages with a rank's equal layers spread over them.

    forward, backward: float64 [kinds, layers + 1], of a virtual stage with so many layers. edge:
    float64 [kinds, 2, 2], of the embedding and of the output, forward and backward. around: of the
    last rank, to the first one and back. remainder: the virtual stages with the remaining layers of
    a rank (`costs.training.job.spread`). turn: size of microbatch groups, which pass one of them
    before the next one.
    """

    forward: NDArray[np.float64]
    backward: NDArray[np.float64]
    edge: NDArray[np.float64]
    around: float
    remainder: str
    turn: int


@dataclass(frozen=True, kw_only=True, eq=False)
class CutTables:
    """The cost of every range [start, stop) of a chain of n elements on every pipeline rank.

    kind: int64 [ranks], row of the tables. load: float64 [kinds, n + 1, n + 1], seconds that add
    up, and the largest counts. peak: float64 [kinds, n + 1, n + 1], seconds; the largest counts
    alone. row: int64 [ranks], fits: bool [rows, n + 1, n + 1], whether memory holds it. least:
    int64 [ranks], elements that a rank has at least. weight: of the slowest rank in the formula.
    sample: starts and stops of ranges that have all loads and peaks there are; None: all ranges.
    work, forward: float64 [kinds, n + 1, n + 1], both passes of a micro-batch through one virtual
    stage on average, and the forward one, without sends. sends: float64 [ranks], to the next rank
    and back. micro_batches, virtual: of the schedule. spread: needed if virtual > 1.
    """

    kind: NDArray[np.int64]
    load: NDArray[np.float64]
    peak: NDArray[np.float64]
    row: NDArray[np.int64]
    fits: NDArray[np.bool_]
    least: NDArray[np.int64]
    weight: float
    work: NDArray[np.float64]
    forward: NDArray[np.float64]
    sends: NDArray[np.float64]
    micro_batches: int
    virtual: int
    sample: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None
    spread: Spread | None = None


@dataclass(frozen=True, slots=True)
class Cut:
    """The ends of ranks, from 0 to n, and seconds."""

    ends: tuple[int, ...]
    value: float


@dataclass(frozen=True, slots=True)
class CutSearch:
    """The fastest cut below the cutoff, None without one. bound: lower bound of cuts in seconds."""

    cut: Cut | None
    bound: float


def best_cut(
    tables: CutTables, cutoff: float = INFINITE, goon: Callable[[], bool] = lambda: True
) -> CutSearch:
    """Return the fastest cut by the formula below `cutoff` seconds, and a bound on all: the cutoff,
    if nothing is below it."""
    sweep, weight = _Sweep(tables), tables.weight
    free = sweep.least(INFINITE, INFINITE)
    if free >= INFINITE:
        return CutSearch(None, INFINITE)
    loads, peaks = sweep.values()
    lowest_peak = peaks[
        _first(peaks.size - 1, lambda k: sweep.least(loads[-1], peaks[k]) < INFINITE)
    ]
    begin = _first(loads.size - 1, lambda k: sweep.least(loads[k], peaks[-1]) < INFINITE)
    best: Cut | None = None
    for place in range(begin if weight > 0 else loads.size - 1, loads.size):
        floor = weight * loads[place] + free + lowest_peak
        if floor >= cutoff:
            break
        if not goon():
            return CutSearch(best, min(floor, cutoff))
        limit = peaks[-1]
        settled = False
        while True:
            total = sweep.least(loads[place], limit)
            if total >= INFINITE or weight * loads[place] + total + lowest_peak >= cutoff:
                break
            cut = sweep.trace()
            if cut.value < cutoff:
                best, cutoff = cut, cut.value
            reached = sweep.peak_of(cut.ends)
            if total <= free and reached <= lowest_peak:
                settled = True  # a larger limit on the slowest rank improves nothing
                break
            below = int(np.searchsorted(peaks, reached)) - 1
            if below < 0:
                break
            limit = peaks[below]
        if settled:
            break
    return CutSearch(best, cutoff)


def least_peak(tables: CutTables) -> float:
    """Return the least of the largest synchronisations of all cuts; INFINITE without a cut."""
    sweep = _Sweep(tables)
    if sweep.least(INFINITE, INFINITE) >= INFINITE:
        return INFINITE
    _, peaks = sweep.values()
    found = _first(peaks.size - 1, lambda k: sweep.least(INFINITE, peaks[k]) < INFINITE)
    return float(peaks[found])


class _Sweep:
    """Least sums under limits, and the path of the last one asked for."""

    def __init__(self, tables: CutTables) -> None:
        self.tables = tables
        count = tables.load.shape[1]
        ranks = tables.kind.size
        self.value = np.empty((ranks + 1, count))
        self.start = np.empty((ranks + 1, count), np.int64)

    def values(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return all loads and all peaks, ascending."""
        t = self.tables
        start, stop = np.triu_indices(t.load.shape[1], 1) if t.sample is None else t.sample
        return np.unique(t.load[:, start, stop]), np.unique(t.peak[:, start, stop])

    def least(self, load: float, peak: float) -> float:
        """Return the least sum with no rank above the limits; INFINITE if there is no path."""
        t = self.tables
        found: float = _least_sum(
            t.kind, t.load, t.peak, t.row, t.fits, t.least, load, peak, self.value, self.start
        )
        return found

    def trace(self) -> Cut:
        """Return the path of the last `least`."""
        ranks = self.tables.kind.size
        ends = [self.value.shape[1] - 1]
        for rank in range(ranks, 0, -1):
            ends.append(int(self.start[rank, ends[-1]]))
        ends.reverse()
        rows = self.tables.kind
        loads = self.tables.load[rows, ends[:-1], ends[1:]]
        value = self.tables.weight * loads.max() + loads.sum() + self.peak_of(tuple(ends))
        return Cut(tuple(ends), float(value))

    def peak_of(self, ends: tuple[int, ...]) -> float:
        """Return the largest synchronisation of a cut."""
        return float(self.tables.peak[self.tables.kind, list(ends[:-1]), list(ends[1:])].max())


def _first(last: int, possible: Callable[[int], bool]) -> int:
    """Return the first number that is possible, as all above it are; the last one is."""
    return bisect_left(range(last), True, key=possible)


@kernel
def _least_sum(  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    kind, load, peak, row, fits, least, most_load, most_peak, value, begin
):
    ranks, count = kind.size, load.shape[1]
    value[:] = INFINITE
    value[0, 0] = 0.0
    after = 0
    for r in range(ranks):
        after += least[r]
    before = 0
    for r in range(ranks):
        k, m = kind[r], row[r]
        after -= least[r]
        low = before + least[r]
        high = count - 1 - after
        if r == ranks - 1:
            low = high
        for stop in range(low, high + 1):
            best = INFINITE
            at = -1
            for start in range(stop - least[r], before - 1, -1):
                if load[k, start, stop] > most_load or peak[k, start, stop] > most_peak:
                    break
                if not fits[m, start, stop]:
                    continue
                total = value[r, start] + load[k, start, stop]
                if total < best:
                    best = total
                    at = start
            value[r + 1, stop] = best
            begin[r + 1, stop] = at
        before += least[r]
    return value[ranks, count - 1]

"""Cuts between groups in a row, from the last layer to the first: as many layers for each as memory
and a slowest stage allow, for the best slowest stage found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ilp_planner.base.kernels import inner, kernel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ilp_planner.costs.groups import OptionTables

WIDER = 1.02  # from one slowest stage to the next
HALVINGS, WIDENINGS = 40, 60


class Stages(NamedTuple):
    """Costs of kinds of groups: float64 or int64 [kinds, ...] of `OptionTables`; and seconds of
    sending to a group of a class, float64 [kinds, classes, L + 1]. own: class of each kind.

    Stages with recomputation: of [start, stop) they are again_first[kind, start, stop] ..
    again_first[kind, start, stop + 1], int64 [kinds, L, L + 2], the fastest first; again_time:
    float64, again_peaks: float64 [stages, K], again_held: int64.
    """

    time: NDArray[np.float64]
    extra: NDArray[np.float64]
    peaks: NDArray[np.float64]
    held: NDArray[np.int64]
    send_time: NDArray[np.float64]
    send_extra: NDArray[np.float64]
    own: NDArray[np.int64]
    again_first: NDArray[np.int64]
    again_time: NDArray[np.float64]
    again_peaks: NDArray[np.float64]
    again_held: NDArray[np.int64]


NOT_AGAIN, NEVER = -1, -2


@inner
def _fastest(stages, n, start, stop, need):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return the number of the fastest stage that holds so many micro-batches among recomputing
    ones, `NOT_AGAIN` for the one without, `NEVER` if none does."""
    if stages.held[n, start, stop] >= need:
        return NOT_AGAIN
    for e in range(stages.again_first[n, start, stop], stages.again_first[n, start, stop + 1]):
        if stages.again_held[e] >= need:
            return e
    return NEVER


@inner
def _time(stages, n, start, stop, need):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return the seconds of the fastest stage that holds so many micro-batches, inf without."""
    e = _fastest(stages, n, start, stop, need)
    if e == NEVER:
        return np.inf
    return stages.time[n, start, stop] if e == NOT_AGAIN else stages.again_time[e]


@inner
def _walk(layers, stages, groups, needs, slowest, kinds, starts):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Give layers to groups, from the last layer on; return the number of stages, 0 if some layers
    are left. Groups that can take none are passed over."""
    stop, count = layers, 0
    for n in groups:
        if count == needs.size:
            break
        least = slowest
        if count:
            least -= stages.send_time[n, stages.own[kinds[count - 1]], stop]
        start = stop
        while start > 0 and _time(stages, n, start - 1, stop, needs[count]) <= least:
            start -= 1
        if start == stop:
            continue
        kinds[count], starts[count] = n, start
        count += 1
        stop = start
        if stop == 0:
            return count
    return 0


@inner
def _seconds(layers, stages, needs, kinds, starts, count, weight):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return the time of a pipeline on the best links."""
    slowest, total, stop = 0.0, 0.0, layers
    peak = np.zeros(stages.peaks.shape[1])
    for s in range(count):
        n, start = kinds[s], starts[s]
        time = _time(stages, n, start, stop, needs[s])
        again = _fastest(stages, n, start, stop, needs[s])
        if s:
            to = stages.own[kinds[s - 1]]
            time += stages.send_time[n, to, stop]
            total += stages.send_extra[n, to, stop]
        slowest = max(slowest, time)
        total += time + stages.extra[n, start, stop]
        for k in range(peak.size):
            own = stages.peaks[n, k, start, stop] if again < 0 else stages.again_peaks[again, k]
            peak[k] = max(peak[k], own)
        stop = start
    for k in range(peak.size):
        total += peak[k]
    return weight * slowest + total


@kernel
def cheapest_cuts(layers, stages, groups, needs, weight):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return the seconds of the best cuts found, and kind and first layer of each stage, from the
    last one on; none if memory allows no cuts.

    groups: int64, the kind of each group, from the last one on. needs: int64, micro-batches in
    flight with 0, 1 ... downstream stages, as many as there may be stages.
    """
    kinds, starts = np.empty(needs.size, np.int64), np.empty(needs.size, np.int64)
    best_kinds, best_starts = kinds.copy(), starts.copy()
    best, length = np.inf, 0
    high = 0.0
    if _walk(layers, stages, groups, needs, np.inf, kinds, starts) == 0:
        return best, best_kinds[:0], best_starts[:0]
    for n in groups:
        for start in range(layers):
            if _fastest(stages, n, start, layers, 1) != NEVER:
                high = max(high, _time(stages, n, start, layers, 1))
    while _walk(layers, stages, groups, needs, high, kinds, starts) == 0:
        high = max(2.0 * high, 1e-9)
    low = 0.0
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        if _walk(layers, stages, groups, needs, middle, kinds, starts):
            high = middle
        else:
            low = middle
    for _ in range(WIDENINGS):
        count = _walk(layers, stages, groups, needs, high, kinds, starts)
        if count:
            value = _seconds(layers, stages, needs, kinds, starts, count, weight)
            if value < best:
                best, length = value, count
                best_kinds[:] = kinds
                best_starts[:] = starts
        high *= WIDER
    return best, best_kinds[:length], best_starts[:length]


def again_columns(tables: Sequence[OptionTables]) -> dict[str, NDArray[Any]]:
    """Return the columns of `Stages` for stages with recomputation, by name."""
    layers, kinds = tables[0].time.shape[0], len(tables[0].peaks)
    first = np.zeros((len(tables), layers, layers + 2), np.int64)
    time, peaks, held = [np.zeros(0)], [np.zeros((0, kinds))], [np.zeros(0, np.int64)]
    total = 0
    for n, table in enumerate(tables):
        counts = np.zeros((layers, layers + 2), np.int64)
        again = table.recomputed
        if again is not None:
            order = np.lexsort((again.time, again.stop, again.start))
            time.append(again.time[order])
            peaks.append(again.peaks.T[order])
            held.append(again.in_flight[order])
            np.add.at(counts, (again.start, again.stop), 1)
        ends = total + np.cumsum(counts).reshape(counts.shape)
        first[n] = ends - counts
        total = int(ends[-1, -1])
    return {
        "again_first": first,
        "again_time": np.concatenate(time),
        "again_peaks": np.concatenate(peaks),
        "again_held": np.concatenate(held),
    }

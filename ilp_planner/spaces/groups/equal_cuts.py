"""Cuts between groups in a row, from the last layer to the first: as many layers for each as memory
and a slowest stage allow, for the best slowest stage found."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ilp_planner.kernels import inner, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

WIDER = 1.02  # from one slowest stage to the next
HALVINGS, WIDENINGS = 40, 60


class Stages(NamedTuple):
    """What kinds of groups take: float64 or int64 [kinds, ...] of `OptionTables`; and seconds of
    sending to a group of a class, float64 [kinds, classes, L + 1]. own: class of each kind."""

    time: NDArray[np.float64]
    extra: NDArray[np.float64]
    peaks: NDArray[np.float64]
    held: NDArray[np.int64]
    send_time: NDArray[np.float64]
    send_extra: NDArray[np.float64]
    own: NDArray[np.int64]


@inner
def _walk(layers, stages, groups, needs, slowest, kinds, starts):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Give layers to groups, from the last layer on; return the number of stages, 0 where some
    layers are left. Groups that can take none are passed over."""
    stop, count = layers, 0
    for n in groups:
        if count == needs.size:
            break
        least = slowest
        if count:
            least -= stages.send_time[n, stages.own[kinds[count - 1]], stop]
        start = stop
        while (
            start > 0
            and stages.time[n, start - 1, stop] <= least
            and stages.held[n, start - 1, stop] >= needs[count]
        ):
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
def _seconds(layers, stages, kinds, starts, count, weight):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return what a pipeline takes on the best links."""
    slowest, total, stop = 0.0, 0.0, layers
    peak = np.zeros(stages.peaks.shape[1])
    for s in range(count):
        n, start = kinds[s], starts[s]
        time = stages.time[n, start, stop]
        if s:
            to = stages.own[kinds[s - 1]]
            time += stages.send_time[n, to, stop]
            total += stages.send_extra[n, to, stop]
        slowest = max(slowest, time)
        total += time + stages.extra[n, start, stop]
        for k in range(peak.size):
            peak[k] = max(peak[k], stages.peaks[n, k, start, stop])
        stop = start
    for k in range(peak.size):
        total += peak[k]
    return weight * slowest + total


@kernel
def cheapest_cuts(layers, stages, groups, needs, weight):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return the seconds of the best cuts found, and kind and first layer of each stage, from the
    last one on; none where memory allows no cuts.

    groups: int64, the kind of each group, from the last one on. needs: int64, micro-batches in
    flight with 0, 1 ... stages behind, as many as there may be stages.
    """
    kinds, starts = np.empty(needs.size, np.int64), np.empty(needs.size, np.int64)
    best_kinds, best_starts = kinds.copy(), starts.copy()
    best, length = np.inf, 0
    high = 0.0
    if _walk(layers, stages, groups, needs, np.inf, kinds, starts) == 0:
        return best, best_kinds[:0], best_starts[:0]
    for n in groups:
        for start in range(layers):
            if stages.held[n, start, layers] > 0:
                high = max(high, stages.time[n, start, layers])
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
            value = _seconds(layers, stages, kinds, starts, count, weight)
            if value < best:
                best, length = value, count
                best_kinds[:] = kinds
                best_starts[:] = starts
        high *= WIDER
    return best, best_kinds[:length], best_starts[:length]

"""One step of the chain program over pipelines: from suffix states to states with one stage more.

All functions are compiled. Stage times are kept as `bounds.rows` shares them: row i owns its
stages longer than `common[i]`, at `base[i]`, and finds shorter ones in row `above[i]`. States are
arrays over the first operator, [n + 1].
"""

from __future__ import annotations

import numpy as np

from ilp_planner.base.kernels import inner, kernel
from ilp_planner.optimize.bounds.arrays import INFINITE, longer_rows


@inner
def _span(values):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    low = 0
    high = values.size - 1
    while low <= high and values[low] >= INFINITE:
        low += 1
    while high >= low and values[high] >= INFINITE:
        high -= 1
    return low, high


@kernel
def reach(times, rows, size, slowest):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return for each start the longest stage within `slowest` ([n])."""
    common, above, length, base = rows.common, rows.above, size.length, size.base
    n = length.size
    own = np.zeros(n, np.int64)
    reach = np.zeros(n, np.int64)
    for i in range(n):
        offset = base[i] - common[i] - 1
        d = length[i]
        while d > common[i] and times[offset + d] > slowest:
            d -= 1
        own[i] = d if d > common[i] else 0
        owner = i
        most = length[i]
        while most > 0:
            if common[owner] < own[owner] <= most:
                reach[i] = own[owner]
                break
            if own[owner] > most:  # some of the owner's stages are longer than what is shared
                offset = base[owner] - common[owner] - 1
                d = most
                while d > common[owner] and times[offset + d] > slowest:
                    d -= 1
                if d > common[owner]:
                    reach[i] = d
                    break
            most = min(most, common[owner])
            owner = above[owner]
    return reach


@kernel
def relax_back(  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    target, source, times, rows, base, reach, slowest, first, last, sums
):
    """Lower target[i] to the least stage (i, j) plus source[j]; without `sums`, to any."""
    common, above = rows.common, rows.above
    low, high = _span(source)
    for i in range(first, min(high, reach.size, last + 1)):
        best = target[i]
        if not sums and best < INFINITE:
            continue
        owner = i
        top = min(reach[i], high - i)
        while top > 0:
            offset = base[owner] - common[owner] - 1
            bottom = max(common[owner] + 1, low - i)
            for d in range(top, bottom - 1, -1):
                f = source[i + d]
                if f < INFINITE:
                    t = times[offset + d]
                    if t <= slowest and t + f < best:
                        best = t + f
                        if not sums:
                            break
            if not sums and best < INFINITE:
                break
            top = min(top, common[owner])
            owner = above[owner]
        target[i] = best


@kernel
def relax_ahead(target, source, suffix, times, rows, base, length, slowest):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Lower target[j] to the least source[i] plus stage (i, j), if `suffix` can go on from j."""
    common, above = rows.common, rows.above
    low, high = _span(suffix)
    for i in range(length.size):
        before = source[i]
        if before >= INFINITE:
            continue
        owner = i
        top = min(length[i], high - i)
        while top > 0:
            offset = base[owner] - common[owner] - 1
            for d in range(max(common[owner] + 1, low - i), top + 1):
                if suffix[i + d] < INFINITE:
                    t = times[offset + d]
                    if t <= slowest and t + before < target[i + d]:
                        target[i + d] = t + before
            top = min(top, common[owner])
            owner = above[owner]


@kernel
def open_arcs(ahead, back, times, rows, base, length, weight, slowest, floor, cutoff):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return start, stop and entry of every stage that may be part of a pipeline below `cutoff`
    (int64 [arcs, 3])."""
    common, above = rows.common, rows.above
    low, high = _span(back)
    arcs = np.empty((1024, 3), np.int64)
    count = 0
    for i in range(length.size):
        before = ahead[i]
        if before >= INFINITE:
            continue
        owner = i
        top = min(length[i], high - i)
        while top > 0:
            offset = base[owner] - common[owner] - 1
            for d in range(max(common[owner] + 1, low - i), top + 1):
                f = back[i + d]
                if f >= INFINITE:
                    continue
                t = times[offset + d]
                if t <= slowest and weight * max(t, floor) + before + t + f < cutoff:
                    if count == arcs.shape[0]:
                        arcs = longer_rows(arcs, arcs.shape[0])
                    arcs[count, 0], arcs[count, 1], arcs[count, 2] = i, i + d, offset + d
                    count += 1
            top = min(top, common[owner])
            owner = above[owner]
    return arcs[:count]

"""The compiled passes over suffixes that are told apart by their devices (`fewest`).

Bounds of stages are kept as `bounds.rows` shares them, for all places in one array.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ilp_planner.base.kernels import inner, kernel
from ilp_planner.optimize.bounds.arrays import INFINITE, longer_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Shape(NamedTuple):
    """The devices and their possible stages; D devices, G sizes of groups.

    groups: int64 [G]. before: int64 [D + 1], fewest stages on the first so many devices.
    """

    devices: int
    per_node: int
    max_stages: int
    groups: NDArray[np.int64]
    before: NDArray[np.int64]


class Times(NamedTuple):
    """Bounds on the times of stages, in seconds; n operators, K classes by micro-batches in flight.

    flat: float64, all tables. offset: int64 [G, K, 2], the start of a group's, a class's and an
    entry's table, -1: nowhere yet; stages that leave the node come `entries` later. entries: int64
    [G]. kind: int64 [max_stages], the class by the downstream stages. common, above: int64 [n], as
    in `Rows`. base: int64 [G, n + 1], as in `Extent`.
    """

    flat: NDArray[np.float64]
    offset: NDArray[np.int64]
    entries: NDArray[np.int64]
    kind: NDArray[np.int64]
    common: NDArray[np.int64]
    above: NDArray[np.int64]
    base: NDArray[np.int64]


@kernel
def windows(length, shape):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return [D + 1, 2]: the first and last operator of a suffix on so many devices.

    Relaxed: from every operator on, each group takes its longest stage, wherever it stands.
    """
    groups, n, total = shape.groups, length.shape[1], shape.devices
    ends = np.zeros((groups.size, n), np.int64)
    for x in range(groups.size):
        most = 0
        for i in range(n):
            most = max(most, i + length[x, i])
            ends[x, i] = most
    ahead, window = np.zeros(total + 1, np.int64), np.zeros((total + 1, 2), np.int64)
    window[0, 0] = n
    for u in range(1, total + 1):
        window[u, 0] = n
        for x in range(groups.size):
            if groups[x] > u:
                continue
            ahead[u] = max(ahead[u], ends[x, min(ahead[u - groups[x]], n - 1)])
            low, high = 0, n  # the first operator whose stages reach what is known
            while low < high:
                middle = (low + high) // 2
                if ends[x, middle] < window[u - groups[x], 0]:
                    low = middle + 1
                else:
                    high = middle
            window[u, 0] = min(window[u, 0], low)
    for u in range(total + 1):
        window[u, 1] = min(ahead[total - u], n)
    return window


@inner
def _straddles(start, group, per_node):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    whole = start % per_node == 0 and group % per_node == 0
    return start < 0 or (start // per_node != (start + group - 1) // per_node and not whole)


@kernel
def suffixes(first, end, shape, times, length, slowest, window, total, behind):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Fill the states with `first` to `end` - 1 devices; return the place to go on, negative if a
    table is missing there."""
    flat, offset, entries, kind, common, above, base = times
    for u in range(first, end):
        start = shape.devices - u
        enters = 1 if start > 0 and start % shape.per_node == 0 else 0
        for x in range(shape.groups.size):
            g = shape.groups[x]
            v = u - g
            if v < 0 or _straddles(start, g, shape.per_node):
                continue
            leaves = entries[x] if (start + g) % shape.per_node == 0 else 0
            for i in range(window[u, 0], min(window[u, 1] + 1, length.shape[1])):
                least, fewest = total[u, i], behind[u, i]
                owner = i
                top = min(length[x, i], window[v, 1] - i)
                while top > 0:
                    where = leaves + base[x, owner] - common[owner] - 1
                    for d in range(top, max(common[owner] + 1, window[v, 0] - i) - 1, -1):
                        rest = total[v, i + d]
                        if rest >= INFINITE:
                            continue
                        k = behind[v, i + d]
                        if k + 1 + shape.before[start] > shape.max_stages:
                            continue
                        table = offset[x, kind[k], enters]
                        if table < 0:
                            total[u, :] = INFINITE
                            return -u
                        time = flat[table + where + d]
                        if time > slowest:
                            continue
                        if least >= INFINITE or k + 1 < fewest:
                            fewest = k + 1
                        least = min(least, time + rest)
                    top = min(top, common[owner])
                    owner = above[owner]
                total[u, i], behind[u, i] = least, fewest
    return end


@kernel
def prefixes(shape, times, known, slowest, ahead):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Lower `ahead` [D + 1, n + 1] to the least sum of stages from the beginning to each state."""
    flat, offset, entries, kind, common, above, base = times
    total, behind, window, length = known
    for u in range(shape.devices, 0, -1):
        start = shape.devices - u
        enters = 1 if start > 0 and start % shape.per_node == 0 else 0
        for x in range(shape.groups.size):
            g = shape.groups[x]
            v = u - g
            if v < 0 or _straddles(start, g, shape.per_node):
                continue
            leaves = entries[x] if (start + g) % shape.per_node == 0 else 0
            for i in range(window[u, 0], min(window[u, 1] + 1, length.shape[1])):
                before = ahead[u, i]
                if before >= INFINITE:
                    continue
                owner = i
                top = min(length[x, i], window[v, 1] - i)
                while top > 0:
                    where = leaves + base[x, owner] - common[owner] - 1
                    for d in range(max(common[owner] + 1, window[v, 0] - i), top + 1):
                        if total[v, i + d] >= INFINITE:
                            continue
                        k = behind[v, i + d]
                        if k + 1 + shape.before[start] > shape.max_stages:
                            continue
                        time = flat[offset[x, kind[k], enters] + where + d]
                        if time <= slowest and before + time < ahead[v, i + d]:
                            ahead[v, i + d] = before + time
                    top = min(top, common[owner])
                    owner = above[owner]


@kernel
def open_between(shape, times, known, ahead, weight, slowest, floor, cutoff):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return the stages that may be part of a pipeline below `cutoff` seconds (int64 [arcs, 6]):
    the states before and after, start, stop, number of the place, and entry in its table."""
    flat, offset, entries, kind, common, above, base = times
    total, behind, window, length = known
    wide = total.shape[1]
    arcs = np.empty((1024, 6), np.int64)
    count = 0
    for u in range(shape.devices, 0, -1):
        start = shape.devices - u
        enters = 1 if start > 0 and start % shape.per_node == 0 else 0
        for x in range(shape.groups.size):
            g = shape.groups[x]
            v = u - g
            if v < 0 or _straddles(start, g, shape.per_node):
                continue
            leaves = 1 if (start + g) % shape.per_node == 0 else 0
            for i in range(window[u, 0], min(window[u, 1] + 1, length.shape[1])):
                before = ahead[u, i]
                if before >= INFINITE:
                    continue
                owner = i
                top = min(length[x, i], window[v, 1] - i)
                while top > 0:
                    where = base[x, owner] - common[owner] - 1
                    for d in range(max(common[owner] + 1, window[v, 0] - i), top + 1):
                        rest = total[v, i + d]
                        if rest >= INFINITE:
                            continue
                        k = behind[v, i + d]
                        if k + 1 + shape.before[start] > shape.max_stages:
                            continue
                        own = kind[k]
                        time = flat[offset[x, own, enters] + leaves * entries[x] + where + d]
                        if time > slowest:
                            continue
                        if weight * max(time, floor) + before + time + rest >= cutoff:
                            continue
                        if count == arcs.shape[0]:
                            arcs = longer_rows(arcs, count)
                        new = arcs[count]
                        new[0], new[1], new[2], new[3] = u * wide + i, v * wide + i + d, i, i + d
                        new[4] = ((x * offset.shape[1] + own) * 2 + enters) * 2 + leaves
                        new[5] = where + d
                        count += 1
                    top = min(top, common[owner])
                    owner = above[owner]
    return arcs[:count]

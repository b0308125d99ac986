"""Lower bounds on paths from a source to a node of a stage graph, with multipliers on devices.

No plan within the capacities undercuts it: every interval of the slowest stage has its multipliers
(`resource_prices`), and remaining capacities are counted coarsely.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ilp_planner.base.kernels import kernel
from ilp_planner.optimize.bounds.arrays import INFINITE

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Arcs(NamedTuple):
    """Arcs sorted by tail: arcs of node v are first[v] .. first[v + 1].

    first: int64 [nodes + 1]. head: int64 [arcs]. time, total: float64 [arcs], seconds, without and
    with extras. peaks: float64 [arcs, K], seconds. use: int64 [arcs, types], devices. family: int64
    [arcs].
    """

    first: NDArray[np.int64]
    head: NDArray[np.int64]
    time: NDArray[np.float64]
    total: NDArray[np.float64]
    peaks: NDArray[np.float64]
    use: NDArray[np.int64]
    family: NDArray[np.int64]


class Nodes(NamedTuple):
    """order: int64 [nodes], arcs go from earlier to later ones. sources: bool [nodes]. place: int64
    [nodes], labels of one place may dominate each other."""

    order: NDArray[np.int64]
    sources: NDArray[np.bool_]
    place: NDArray[np.int64]


class Pricing(NamedTuple):
    """Intervals of the slowest stage, and the capacities counted coarsely.

    low, high: float64 [Q], seconds, by high. price: float64 [Q, types], seconds per device.
    sizes, units, strides: int64 [4], levels of the coarse capacity of the first four types, the
    devices of one level, and how many combinations it is from one level to the next.
    """

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    price: NDArray[np.float64]
    sizes: NDArray[np.int64]
    units: NDArray[np.int64]
    strides: NDArray[np.int64]


class Reach(NamedTuple):
    """Least of any path from a source to each node: slowest: float64 [nodes]; peaks: float64
    [nodes, K]; priced: float64 [nodes, Q, levels], the sum with multipliers, for every coarse
    capacity."""

    slowest: NDArray[np.float64]
    peaks: NDArray[np.float64]
    priced: NDArray[np.float64]


def coarse(capacity: tuple[int, ...], most: float) -> tuple[NDArray[np.int64], ...]:
    """Return `sizes`, `units` and `strides` of the coarse capacity, of at most `most` combinations
    (see `Pricing`)."""
    types = capacity[:4]
    sizes, units = np.ones(4, np.int64), np.ones(4, np.int64)
    each = max(int(most ** (1 / max(len(types), 1)) + 1e-9), 1)
    for d, devices in enumerate(types):
        unit = 1
        while devices // unit + 1 > each:
            unit *= 2
        sizes[d], units[d] = devices // unit + 1, unit
    return sizes, units, np.append(np.cumprod(sizes[:0:-1])[::-1], 1)


def reach(arcs: Arcs, nodes: Nodes, pricing: Pricing) -> Reach:
    """Return the least of any path to each node.

    A path that uses n devices in groups of n_1, n_2 ... uses sum(n_i // unit) levels, at most (sum
    n_i) // unit: the remaining capacity never allows less than it should.
    """
    count = arcs.first.size - 1
    reached = Reach(
        slowest=np.full(count, INFINITE),
        peaks=np.full((count, arcs.peaks.shape[1]), INFINITE),
        priced=np.full((count, pricing.low.size, pricing.sizes.prod()), INFINITE),
    )
    for least in reached:
        least[nodes.sources] = 0.0
    _spread(arcs, nodes.order, pricing, reached)
    return reached


@kernel
def _spread(arcs, order, pricing, reached):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Lower the value at every node to the least over the arcs into it."""
    slowest, peaks, priced = reached
    first, head, time, total, use = arcs.first, arcs.head, arcs.time, arcs.total, arcs.use
    high, price, sizes, units = pricing.high, pricing.price, pricing.sizes, pricing.units
    kinds, rows, types = peaks.shape[1], price.shape[0], use.shape[1]
    s1, s2, s3 = pricing.strides[0], pricing.strides[1], pricing.strides[2]
    k = np.zeros(4, np.int64)
    for v in order:
        if slowest[v] >= INFINITE:
            continue
        for a in range(first[v], first[v + 1]):
            w = head[a]
            slowest[w] = min(slowest[w], max(slowest[v], time[a]))
            for n in range(kinds):
                peaks[w, n] = min(peaks[w, n], max(peaks[v, n], arcs.peaks[a, n]))
            for d in range(min(types, 4)):
                k[d] = use[a, d] // units[d] if sizes[d] > 1 else 0
            offset = k[0] * s1 + k[1] * s2 + k[2] * s3 + k[3]
            for q in range(rows):
                if time[a] > high[q]:
                    continue
                cost = total[a]
                for d in range(types):
                    cost += price[q, d] * use[a, d]
                old, new = priced[v, q], priced[w, q]
                for c0 in range(k[0], sizes[0]):
                    for c1 in range(k[1], sizes[1]):
                        for c2 in range(k[2], sizes[2]):
                            begin = c0 * s1 + c1 * s2 + c2 * s3
                            for c in range(begin + k[3], begin + sizes[3]):
                                value = old[c - offset] + cost
                                if value < new[c]:
                                    new[c] = value

"""Best path of a stage graph with arcs that share devices, add extras and have peaks.

The cost of an arc may depend on the arc after it (sending to another kind of group), and the number
of later arcs may be limited (memory for micro-batches in flight). `Context` has these, and the
graph itself the best case of both.

Labels (slowest stage, sum, peaks, devices used) grow from the end of the chain to its beginning. A
label is dropped if another one at its node dominates it, or if its completion bound is not below
the cutoff. That bound is, for every interval of the slowest stage, the least sum of a path to its
node with the interval's multipliers on devices (`resource_prices`) and with the remaining
capacities, counted coarsely: no plan within the capacities undercuts it.

If `width` labels per node are too few, the others are dropped and their least completion is kept as
a bound: the search then gives a good path and a valid bound, and a larger width closes the gap
between them.

Lower bounds on paths from a source to a node of a stage graph, with multipliers on devices.

No plan within the capacities undercuts it: every interval of the slowest stage has its multipliers
(`resource_prices`), and remaining capacities are counted coarsely.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ilp_planner.base.kernels import kernel
from ilp_planner.optimize.bounds.arrays import INFINITE
from ilp_planner.optimize.bounds.context import Context, no_context
from ilp_planner.optimize.bounds.resource_labels import (
    Costs,
    Effort,
    at_the_sink,
    no_candidates,
    search,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ilp_planner.optimize.bounds.resource_prices import Interval
    from ilp_planner.optimize.graph import StageGraph


# ---- resource reach ------------------------------------------------------------------------------


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


# ---- resource paths ------------------------------------------------------------------------------


MOST_LEVELS = 1100  # combinations of coarse capacities
QUICK_WIDTH, QUICK_UPDATES, MOST_UPDATES = 1000, 3e4, 3e9  # a second is about 1e9
UPDATES_OF_EFFORT = 1.0  # coarse capacities may take a tenth of the time of the labels


class Reached(NamedTuple):
    """Completion bounds of every node, with these intervals and coarse capacities."""

    pricing: Pricing
    least: Reach


@dataclass(frozen=True, slots=True, kw_only=True)
class PathSearch:
    """The shortest path found and its time, () and inf without one; `bound`: seconds, proved for
    every path (never above the cutoff that was given). exact: nothing was dropped for lack of
    width. reached: for another search of the same graph. others: with families, the shortest path
    of every family below the cutoff, the shortest first."""

    path: tuple[int, ...]
    value: float
    bound: float
    exact: bool
    reached: Reached | None = field(default=None, repr=False, compare=False)
    others: tuple[tuple[float, tuple[int, ...]], ...] = ()


def search_resource_paths(
    graph: StageGraph,
    context: Context | None = None,
    *,
    cutoff: float = np.inf,
    width: int = 2**62,
    intervals: Sequence[Interval] | None = None,
    families: NDArray[np.int64] | None = None,
    most_labels: int = 30_000_000,
    effort: float = np.inf,
    reached: Reached | None = None,
) -> PathSearch:
    """Return the shortest path below `cutoff` seconds, and a bound on all paths.

    With `families`, the cheapest path below the cutoff of every family: paths are of one family
    when their arcs' numbers are the same, one after the other. (Told apart by hashes of 64 bits.)

    Parameters
    ----------
    width: labels to keep per node. intervals: all that the slowest arc of a path below the cutoff
    may be in, with multipliers; any time, without multipliers, when None.
    families: int64 [arcs], a number for each arc.
    most_labels: of all nodes together; beyond, as if the width were reached. effort: comparisons of
    labels, beyond which only a few labels per node are kept.
    reached: by an earlier search of the same graph, taken if it counts alike.
    """
    if graph.arcs == 0:
        return PathSearch(path=(), value=np.inf, bound=cutoff, exact=True)
    order, arcs = _by_tail(graph, families)
    c = no_context(graph) if context is None else context
    gap = np.maximum(c.send_time[:, :, None] - c.send_time[:, None, :], 0).max(axis=0)
    gap += np.maximum(c.send_extra[:, :, None] - c.send_extra[:, None, :], 0).max(axis=0)
    position = graph.positions
    # from the end: fewer arcs after first, so that labels with more are dominated by them
    sequence = np.lexsort((-c.level, position)).astype(np.int64)
    pricing = _pricing(graph, intervals, width, effort, sends=context is not None)
    if pricing is None:
        return PathSearch(path=(), value=np.inf, bound=cutoff, exact=True)
    # Levels of one position may dominate each other; nodes of a graph without context may not.
    group = np.arange(graph.nodes) if context is None else position
    # compiled once, whatever the layout of the tables
    sent = c.only(order)._replace(
        send_time=np.ascontiguousarray(c.send_time), send_extra=np.ascontiguousarray(c.send_extra)
    )
    costs = Costs(
        weight=graph.weight,
        cutoff=float(min(cutoff, INFINITE)),
        low=float(pricing.low.min()),
        capacity=np.array(graph.capacity, np.int64),
        sending=sent.send_time + sent.send_extra,
        equal=gap == 0,
        many=families is not None,
    )
    nodes = Nodes(order=sequence, sources=graph.begins, place=group)
    if reached is None or not all(map(np.array_equal, reached.pricing, pricing)):
        reached = Reached(pricing, reach(arcs, nodes, pricing))
    paths, lengths, values, bound, exact = search(
        arcs,
        nodes,
        sent,
        pricing,
        reached.least,
        graph.sink,
        costs,
        Effort(width=width, most=most_labels, effort=float(effort)),
        at_the_sink(arcs.peaks.shape[1], arcs.use.shape[1], costs.low),
        no_candidates(),
    )
    ends = np.cumsum(lengths)
    found = []
    for value, begin, end in zip(values, ends - lengths, ends, strict=True):
        path = tuple(order[paths[begin:end]].tolist())
        found.append((graph.path_time(path) if context is None else float(value), path))
    if not found:
        return PathSearch(
            path=(),
            value=np.inf,
            bound=min(float(bound), cutoff),
            exact=bool(exact),
            reached=reached,
        )
    found.sort()
    time, best = found[0]
    return PathSearch(
        path=best,
        value=time,
        bound=min(float(bound), time),
        exact=bool(exact),
        reached=reached,
        others=tuple(found) if families is not None else (),
    )


def _by_tail(
    graph: StageGraph, families: NDArray[np.int64] | None
) -> tuple[NDArray[np.int64], Arcs]:
    """Return the order of arcs by tail, and the arcs in it."""
    order, first = graph.by_tail()
    return order, Arcs(
        first=first,
        head=graph.head[order],
        time=graph.time[order],
        total=(graph.time + graph.extra)[order],
        peaks=np.ascontiguousarray(graph.peaks[:, order].T),
        use=np.ascontiguousarray(graph.use[order]),
        family=np.zeros(graph.arcs, np.int64) if families is None else families[order],
    )


def _pricing(
    graph: StageGraph,
    intervals: Sequence[Interval] | None,
    width: int,
    effort: float,
    *,
    sends: bool,
) -> Pricing | None:
    """Return the multipliers of intervals, and the coarse capacities; None when there is no
    interval.

    Parameters
    ----------
    sends: whether sending may make the slowest stage slower than any arc of the graph.
    """
    if intervals is None:
        low, high, price = np.zeros(1), np.full(1, INFINITE), np.zeros((1, len(graph.capacity)))
    elif not intervals:
        return None
    else:
        known = sorted(intervals, key=lambda i: i.high)
        low, high = np.array([i.low for i in known]), np.array([i.high for i in known])
        price = np.array([i.prices.price for i in known]).reshape(len(known), -1)
        if sends:  # close gaps between intervals, and let the last one have no end
            low[1:] = np.minimum(low[1:], high[:-1])
            high[-1] = INFINITE
    # Coarse capacities pay where many labels are to be completed.
    updates = QUICK_UPDATES * width if width <= QUICK_WIDTH else MOST_UPDATES
    updates = min(updates, UPDATES_OF_EFFORT * effort)
    levels = min(MOST_LEVELS, updates / (graph.arcs * low.size))
    return Pricing(low, high, price, *coarse(graph.capacity, levels))

"""Lagrange multipliers of shared devices: a lower bound on every path of a stage graph within its
capacities.

Let F(tau) be the least sum of (time + extra) over paths of arcs of at most tau. With one Lagrange
multiplier per device type, the shortest path including multipliers, less the cost of all devices,
is a lower bound on F(tau) (Lagrangian relaxation); the best multipliers are found by cutting planes
within a trust region. A path with the slowest stage above a and at most b seconds then costs at
least

    weight * (least arc time above a) + F(b) + (least possible peaks),

and splitting the range of the slowest stage at the lowest value gives the bound.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.base.kernels import kernel
from ilp_planner.optimize.bounds.arrays import INFINITE
from ilp_planner.optimize.bounds.cutting_planes import best_prices

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ilp_planner.optimize.graph import StageGraph

SPLITS = 12
NARROW = 1e-3  # relative width of an interval that is not split again


@dataclass(frozen=True, kw_only=True, eq=False)
class Prices:
    """price: float64 [D], seconds per device. slowest: seconds, slower arcs do not count.

    value: seconds, proved lower bound on the sum of a path of these arcs; INFINITE if there is
    none.
    """

    price: NDArray[np.float64]
    slowest: float
    value: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Interval:
    """Paths with the slowest arc from `low` to `high` seconds cost at least `bound` seconds."""

    low: float
    high: float
    bound: float
    prices: Prices


class PricedGraph:
    """A stage graph, prepared for many vectors of multipliers."""

    def __init__(self, graph: StageGraph) -> None:
        self.graph = graph
        self.order, self.first = graph.by_tail()
        self.head = graph.head[self.order]
        self.time = graph.time[self.order]
        self.sum = self.time + graph.extra[self.order]
        self.use = graph.use[self.order].astype(np.float64)
        self.capacity = np.array(graph.capacity, np.float64)
        self.topological = graph.topological()
        self.sources = graph.begins
        self.weight = graph.weight
        self.times = np.unique(graph.time)
        self.path: tuple[int, ...] = ()  # the cheapest path met on the way that fits
        self.value = np.inf

    def shortest(
        self, price: NDArray[np.float64], slowest: float
    ) -> tuple[float, NDArray[np.int64]]:
        """Return the least priced sum less the cost of all devices, and its path (arcs by tail)."""
        least, path, _ = _cheapest(
            self.head, self.time, self.sum, self.use, price, slowest, self.first,
            self.topological, self.sources, self.graph.sink,
        )  # fmt: skip
        if least >= INFINITE:
            return INFINITE, path
        self._offer(path)
        return least - float(price @ self.capacity), path

    def _offer(self, arcs: NDArray[np.int64]) -> None:
        """Keep a path that fits, if it is the shortest so far."""
        if (self.use[arcs].sum(axis=0) <= self.capacity).all():
            path = tuple(int(a) for a in self.order[arcs])
            value = self.graph.path_time(path)
            if value < self.value:
                self.path, self.value = path, value

    def prices(
        self, slowest: float, enough: float, start: NDArray[np.float64] | None = None
    ) -> Prices:
        """Return good multipliers for arcs of at most `slowest` seconds, or ones that prove
        `enough`."""

        def priced(price: NDArray[np.float64]) -> tuple[float, float, NDArray[np.float64] | None]:
            value, path = self.shortest(price, slowest)
            if not path.size:
                return value, value, None
            return value, float(self.sum[path].sum()), self.use[path].sum(axis=0)

        price, value = best_prices(priced, self.capacity, enough, start)
        return Prices(price=price, slowest=slowest, value=value)

    def least_peaks(self, slowest: float) -> float:
        """Return a lower bound on the sum of peaks of every path of these arcs."""
        graph = self.graph
        usable = graph.time <= slowest
        keys, of = np.unique(
            graph.start[usable] * (graph.operators + 1) + graph.stop[usable], return_inverse=True
        )
        ranges = [divmod(key, graph.operators + 1) for key in keys.tolist()]
        total = 0.0
        for peaks in graph.peaks:
            each = np.full(keys.size, np.inf)
            np.minimum.at(each, of, peaks[usable])
            cover = np.full(graph.operators, np.inf)
            for (begin, stop), peak in zip(ranges, each.tolist(), strict=True):
                cover[begin:stop] = np.minimum(cover[begin:stop], peak)
            least = cover.max()
            total += float(least) if np.isfinite(least) else 0.0
        return total

    def above(self, slowest: float) -> float:
        """Return the least arc time above `slowest` seconds, INFINITE without one."""
        place = int(np.searchsorted(self.times, slowest, side="right"))
        return float(self.times[place]) if place < self.times.size else INFINITE

    def sweep(
        self, cutoff: float, splits: int = SPLITS, goon: Callable[[], bool] = lambda: True
    ) -> list[Interval]:
        """Return intervals that hold every path below `cutoff` seconds; the least of their bounds
        is a bound on these paths. Empty: there is none."""
        if not self.times.size:
            return []
        peaks = self.least_peaks(np.inf)
        floor = self._least_bottleneck()
        high = float(self.times[-1])
        if self.weight > 0 and cutoff < INFINITE:
            sums, _ = self.shortest(np.zeros(self.capacity.size), np.inf)
            high = min(high, (cutoff - peaks - sums) / self.weight)
        number = count()
        heap: list[tuple[float, int, Interval]] = []

        def add(low: float, high: float, start: Prices | None) -> None:
            if low > high:
                return
            prices = start
            if prices is None or prices.slowest != high:  # the same arcs have the same multipliers
                enough = cutoff - self.weight * low - peaks
                prices = self.prices(high, enough, None if start is None else start.price)
            bound = self.weight * low + prices.value + peaks
            if bound < min(cutoff, INFINITE):
                interval = Interval(low=low, high=high, bound=bound, prices=prices)
                heapq.heappush(heap, (bound, next(number), interval))

        add(floor, high, None)
        closed: list[Interval] = []
        for _ in range(splits):
            if not heap or not goon():
                break
            _, _, interval = heapq.heappop(heap)
            middle = (interval.low * interval.high) ** 0.5
            low, upper = interval.low, interval.high
            if self.weight == 0 or upper <= low * (1 + NARROW) or self.above(middle) > upper:
                closed.append(interval)
                if len(closed) > splits:
                    break
                continue
            add(low, middle, interval.prices)
            add(self.above(middle), upper, interval.prices)
        return sorted([*closed, *(entry[2] for entry in heap)], key=lambda i: i.bound)

    def _least_bottleneck(self) -> float:
        """Return seconds; the slowest arc of every path takes at least that, devices left aside."""
        zero = np.zeros(self.capacity.size)

        def passes(time: float) -> bool:
            return self.shortest(zero, time)[0] < INFINITE

        times: list[float] = self.times.tolist()
        return times[bisect_left(times, True, hi=len(times) - 1, key=passes)]

    def open_arcs(self, intervals: list[Interval], cutoff: float) -> NDArray[np.int64]:
        """Return the arcs of the graph that a path below `cutoff` seconds may use."""
        least = np.full(self.time.size, np.inf)
        tails = np.repeat(np.arange(self.graph.nodes), np.diff(self.first))
        for interval in intervals:
            price = interval.prices.price
            arcs = self.head, self.time, self.sum, self.use, price, interval.high, self.first
            _, _, backward = _cheapest(*arcs, self.topological, self.sources, self.graph.sink)
            forward = _prefixes(*arcs, self.topological, self.sources)
            through = forward[tails] + self.sum + self.use @ price + backward[self.head]
            through -= price @ self.capacity
            bound = self.weight * np.maximum(interval.low, self.time) + through
            bound += interval.bound - self.weight * interval.low - interval.prices.value  # peaks
            bound[self.time > interval.high] = np.inf
            least = np.minimum(least, bound)
        return np.sort(self.order[np.flatnonzero(least < cutoff)])


@kernel
def _cheapest(head, time, total, use, price, slowest, first, order, sources, sink):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return the least priced sum from a source to the sink, its arcs, and that from each node."""
    nodes, types = first.size - 1, price.size
    least = np.full(nodes, INFINITE)
    chosen = np.full(nodes, -1, np.int64)
    least[sink] = 0.0
    best, node = INFINITE, -1
    for x in range(nodes - 1, -1, -1):
        v = order[x]
        for a in range(first[v], first[v + 1]):
            if time[a] > slowest or least[head[a]] >= INFINITE:
                continue
            value = total[a] + least[head[a]]
            for d in range(types):
                value += price[d] * use[a, d]
            if value < least[v]:
                least[v] = value
                chosen[v] = a
        if sources[v] and least[v] < best:
            best, node = least[v], v
    path = np.empty(nodes, np.int64)
    length = 0
    while node >= 0 and node != sink:
        path[length] = chosen[node]
        node = head[chosen[node]]
        length += 1
    return best, path[:length].copy(), least


@kernel
def _prefixes(head, time, total, use, price, slowest, first, order, sources):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return the least priced sums from a source to each node."""
    nodes, types = first.size - 1, price.size
    forward = np.full(nodes, INFINITE)
    for x in range(nodes):
        v = order[x]
        if sources[v]:
            forward[v] = 0.0
        if forward[v] >= INFINITE:
            continue
        for a in range(first[v], first[v + 1]):
            if time[a] <= slowest:
                value = forward[v] + total[a]
                for d in range(types):
                    value += price[d] * use[a, d]
                forward[head[a]] = min(forward[head[a]], value)
    return forward

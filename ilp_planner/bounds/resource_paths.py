"""Best path of a stage graph whose arcs share devices, add extras and have peaks.

What an arc costs may depend on the arc after it (sending to another kind of group), and how many
arcs may follow it may be limited (memory for micro-batches in flight): `Context` says so, and the
graph itself then holds the best case of both.

Labels (slowest stage, sum, peaks, devices used) grow from the end of the chain to its beginning. A
label is dropped when another one at its node is at least as good in everything, and when no way to
reach its node completes it below the cutoff: for every interval that the slowest stage may be in,
the least sum of such a way with the interval's prices on devices (`resource_prices`) and with what
is left of the capacities, counted coarsely: no plan within the capacities undercuts it.

Where `width` labels per node are too few, the others are dropped and the least completion among
them is kept as a bound: the search then gives a good path and a valid bound, and a larger width
closes what is between them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numba
import numpy as np

from ilp_planner.bounds.paths import by_tail, node_positions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ilp_planner.bounds.resource_prices import Interval
    from ilp_planner.graph import StageGraph

INFINITE = 1e30
MOST_LEVELS = 1100  # combinations of coarse capacities
QUICK_WIDTH, QUICK_UPDATES, MOST_UPDATES = 1000, 3e8, 3e9  # a second is about 1e9
FEW = 10  # labels per node once the effort is spent


@dataclass(frozen=True, kw_only=True, eq=False)
class Context:
    """What an arc of a graph may cost beyond its best case, and where it may stand.

    behind: int64 [arcs], most arcs after it. level: int64 [nodes], level_of: int64 [depths]: an arc
    with d arcs after it leaves a node of level level_of[d]. kind: int64 [arcs], class of an arc, as
    the arc before it sees it. row: int64 [arcs], its row in send_time and send_extra: float64
    [rows, classes], seconds added to time and extra when an arc of that class follows.

    Where devices are taken node by node (`after` is not empty): demand: int64 [arcs, types], row of
    `after` and `near`; after: int64 [rows, types, devices + 1], how many devices of a type are
    taken once the arc has its own, -1 where they do not fit; near: bool, likewise, whether these
    are in one node with the last one taken before. rest: int64 [types, devices + 1], devices left
    in that node. single: int64 [arcs], the type of an arc in one node, -1 for others. apart: int64
    [classes], the class that stands for a follower of this class in another node.
    """

    behind: NDArray[np.int64]
    level: NDArray[np.int64]
    level_of: NDArray[np.int64]
    kind: NDArray[np.int64]
    row: NDArray[np.int64]
    send_time: NDArray[np.float64]
    send_extra: NDArray[np.float64]
    demand: NDArray[np.int64]
    single: NDArray[np.int64]
    after: NDArray[np.int64]
    near: NDArray[np.bool_]
    rest: NDArray[np.int64]
    apart: NDArray[np.int64]

    def only(self, arcs: NDArray[np.int64]) -> Context:
        """Return the context of some of the arcs."""
        return replace(
            self,
            behind=self.behind[arcs],
            kind=self.kind[arcs],
            row=self.row[arcs],
            demand=self.demand[arcs],
            single=self.single[arcs],
        )


def no_context(graph: StageGraph) -> Context:
    """Return the context of a graph whose arcs cost what it says, wherever they stand."""
    none = np.zeros(graph.arcs, np.int64)
    depths = np.zeros(graph.operators + 1, np.int64)
    return Context(
        behind=none + graph.operators,
        level=np.zeros(graph.nodes, np.int64),
        level_of=depths,
        kind=none,
        row=none,
        send_time=np.zeros((1, 1)),
        send_extra=np.zeros((1, 1)),
        **no_seats(graph.arcs),
    )


def no_seats(arcs: int) -> dict[str, NDArray[Any]]:
    """Return the fields of a `Context` in which devices are counted, not seated."""
    return {
        "demand": np.zeros((arcs, 0), np.int64),
        "single": np.full(arcs, -1),
        "after": np.zeros((0, 0, 0), np.int64),
        "near": np.zeros((0, 0, 0), np.bool_),
        "rest": np.zeros((0, 0), np.int64),
        "apart": np.zeros(1, np.int64),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class PathSearch:
    """The cheapest path found and its time, () and inf without one; `bound`: seconds, proved for
    every path (never above the cutoff that was given). exact: nothing was dropped for lack of
    width. others: with families, the cheapest path of every family below the cutoff, the cheapest
    first."""

    path: tuple[int, ...]
    value: float
    bound: float
    exact: bool
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
) -> PathSearch:
    """Return the cheapest path below `cutoff` seconds, and a bound on all paths.

    With `families`, the cheapest path below the cutoff of every family: paths are of one family
    when their arcs' numbers are the same, one after the other. (Told apart by hashes of 64 bits.)

    Parameters
    ----------
    width: labels to keep per node. intervals: all that the slowest arc of a path below the cutoff
    may be in, with prices; any time, without prices, when None.
    families: int64 [arcs], a number for each arc.
    most_labels: of all nodes together; beyond, as if the width were reached. effort: comparisons of
    labels, beyond which only a few labels per node are kept.
    """
    if graph.arcs == 0:
        return PathSearch(path=(), value=np.inf, bound=cutoff, exact=True)
    order, first = by_tail(graph)
    sources = np.zeros(graph.nodes, np.bool_)
    sources[list(graph.sources)] = True
    c = no_context(graph) if context is None else context
    gap = np.maximum(c.send_time[:, :, None] - c.send_time[:, None, :], 0).max(axis=0)
    gap += np.maximum(c.send_extra[:, :, None] - c.send_extra[:, None, :], 0).max(axis=0)
    position = node_positions(graph)
    # from the end: fewer arcs after first, so that labels with more are dominated by them
    sequence = np.lexsort((-c.level, position)).astype(np.int64)
    if intervals is None:
        low, high, price = np.zeros(1), np.full(1, INFINITE), np.zeros((1, len(graph.capacity)))
    else:
        known = sorted(intervals, key=lambda i: i.high)
        low, high = np.array([i.low for i in known]), np.array([i.high for i in known])
        price = np.array([i.prices.price for i in known]).reshape(len(known), -1)
        if not known:
            return PathSearch(path=(), value=np.inf, bound=cutoff, exact=True)
        # Sending may make the slowest stage slower than any arc of the graph: close gaps between
        # intervals, and let the last one have no end.
        if context is not None:
            low[1:] = np.minimum(low[1:], high[:-1])
            high[-1] = INFINITE
    # Coarse capacities pay where many labels are to be completed.
    updates = QUICK_UPDATES if width <= QUICK_WIDTH else MOST_UPDATES
    levels = min(MOST_LEVELS, updates / (graph.arcs * low.size))
    # Levels of one position may dominate each other; nodes of a graph without context may not.
    group = np.arange(graph.nodes) if context is None else position
    family = np.zeros(graph.arcs, np.int64) if families is None else families
    paths, lengths, values, bound, exact = _search(
        graph.head[order], graph.time[order], (graph.time + graph.extra)[order],
        np.ascontiguousarray(graph.peaks[:, order].T), np.ascontiguousarray(graph.use[order]),
        first, sequence, sources, graph.sink, float(graph.micro_batches - 1),
        np.array(graph.capacity, np.int64), min(cutoff, INFINITE), width,
        low, high, price, *coarse(graph.capacity, levels), most_labels, effort, group,
        family[order], families is not None,
        c.behind[order], c.level, c.level_of, c.kind[order], c.row[order],
        c.send_time, c.send_time + c.send_extra, gap == 0,
        c.demand[order], c.single[order], c.after, c.near, c.rest, c.apart,
    )  # fmt: skip
    ends = np.cumsum(lengths)
    found = []
    for value, begin, end in zip(values, ends - lengths, ends, strict=True):
        arcs = tuple(order[paths[begin:end]].tolist())
        found.append((graph.path_time(arcs) if context is None else float(value), arcs))
    if not found:
        return PathSearch(path=(), value=np.inf, bound=min(float(bound), cutoff), exact=bool(exact))
    found.sort()
    time, best = found[0]
    return PathSearch(
        path=best,
        value=time,
        bound=min(float(bound), time),
        exact=bool(exact),
        others=tuple(found) if families is not None else (),
    )


def coarse(capacity: tuple[int, ...], most: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the levels that the capacity of each of the first four kinds of devices is told apart
    by,
    and the devices of one level: together at most `most` combinations."""
    kinds = capacity[:4]
    sizes, units = np.ones(4, np.int64), np.ones(4, np.int64)
    each = max(int(most ** (1 / max(len(kinds), 1)) + 1e-9), 1)
    for d, devices in enumerate(kinds):
        unit = 1
        while devices // unit + 1 > each:
            unit *= 2
        sizes[d], units[d] = devices // unit + 1, unit
    return sizes, units


@numba.njit(cache=True, nogil=True)
def _reach(  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    head, time, total, peaks, use, first, order, sources, price, high, sizes, units
):
    """Least bottleneck, peaks and, for every interval and coarse capacity, priced sum of a way from
    a source to each node.

    sizes, units: int64 [4], levels of the coarse capacity of the first four kinds of devices, and
    the devices of one level. A way that uses n devices in groups of n_1, n_2 ... uses sum(n_i //
    unit) levels, which is at most (sum n_i) // unit: what is left of the capacity never allows less
    than it should.
    """
    nodes, kinds, rows = first.size - 1, peaks.shape[1], price.shape[0]
    types = use.shape[1]
    s1, s2, s3 = sizes[1] * sizes[2] * sizes[3], sizes[2] * sizes[3], sizes[3]
    least_max = np.full(nodes, INFINITE)
    least_peak = np.full((nodes, kinds), INFINITE)
    priced = np.full((nodes, rows, sizes[0] * s1), INFINITE, np.float64)
    k = np.zeros(4, np.int64)
    for x in range(nodes):
        v = order[x]
        if sources[v]:
            least_max[v] = 0.0
            least_peak[v, :] = 0.0
            priced[v, :, :] = 0.0
        if least_max[v] >= INFINITE:
            continue
        for a in range(first[v], first[v + 1]):
            w = head[a]
            least_max[w] = min(least_max[w], max(least_max[v], time[a]))
            for n in range(kinds):
                least_peak[w, n] = min(least_peak[w, n], max(least_peak[v, n], peaks[a, n]))
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
    return least_max, least_peak, priced


@numba.njit(cache=True, nogil=True)
def _grow(array, need):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    wider = np.empty(max(2 * array.shape[0], need), array.dtype)
    wider[: array.shape[0]] = array
    return wider


@numba.njit(cache=True, nogil=True)
def _mixed(mark, number):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Hash of a family and one more arc (the mixing steps of SplitMix64, Steele et al. 2014)."""
    z = np.uint64(mark) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(number + 1)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.int64(z ^ (z >> np.uint64(31)))


@numba.njit(cache=True, nogil=True)
def _wider(array, need):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    wider = np.empty((max(2 * array.shape[0], need), array.shape[1]), array.dtype)
    wider[: array.shape[0]] = array
    return wider


@numba.njit(cache=True, nogil=True)
def _search(  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    head, time, total, peaks, use, first, order, sources, sink, weight, capacity, cutoff, width,
    low, high, price, sizes, units, most, effort, place, family, many, behind, level, level_of,
    kind, row, send_time, send_total, equal,
    demand, single, after_table, near_table, rest, apart,
):  # fmt: skip
    nodes, kinds, types, rows = first.size - 1, peaks.shape[1], use.shape[1], price.shape[0]
    least_max, least_peak, priced = _reach(
        head, time, total, peaks, use, first, order, sources, price, high, sizes, units
    )
    s1, s2, s3 = sizes[1] * sizes[2] * sizes[3], sizes[2] * sizes[3], sizes[3]
    strides = np.array([s1, s2, s3, 1])
    bottleneck = low.min()
    budget = np.zeros(rows)
    for q in range(rows):
        for d in range(types):
            budget[q] += price[q, d] * capacity[d]
    size = 1 << 12
    top, tot = np.empty(size), np.empty(size)
    pk, used = np.empty((size, kinds)), np.empty((size, types), np.int32)
    arc, follow = np.empty(size, np.int64), np.empty(size, np.int64)
    depth = np.empty(size, np.int32)  # arcs after the label's node
    mark = np.empty(size, np.int64)  # hash of the label's family
    ends = np.empty(64, np.int64)  # labels at sources
    ended = 0
    begin, end = np.zeros(nodes, np.int64), np.zeros(nodes, np.int64)
    top[0] = bottleneck
    tot[0] = 0.0
    pk[0, :] = 0.0
    used[0, :] = 0
    arc[0] = -1
    depth[0] = 0
    room = np.zeros(size, np.int64)
    mark[0] = 7
    follow[0] = -1
    end[sink] = 1
    count = 1
    best, lost = cutoff, INFINITE
    here, reached, spent = -1, 0, 0
    space = 1 << 12
    m_bound, m_top, m_tot = np.empty(space), np.empty(space), np.empty(space)
    m_arc, m_follow = np.empty(space, np.int64), np.empty(space, np.int64)
    taken = np.zeros(types, np.int64)
    seated = after_table.shape[1]
    for x in range(nodes - 1, -1, -1):
        v = order[x]
        if v == sink or least_max[v] >= INFINITE:
            continue
        made = 0
        for a in range(first[v], first[v + 1]):
            w = head[a]
            for label in range(begin[w], end[w]):
                after = depth[label]
                if after > behind[a] or level_of[after] != level[v]:
                    continue
                fits = True
                for d in range(types):
                    taken[d] = used[label, d] + use[a, d]
                    if d < seated:
                        taken[d] = after_table[demand[a, d], d, used[label, d]]
                    if taken[d] < 0 or taken[d] > capacity[d]:
                        fits = False
                        break
                if not fits:
                    continue
                m, s = time[a], total[a] + tot[label]
                if arc[label] >= 0:
                    follower = kind[arc[label]]
                    d = single[a]
                    same = d >= 0 and d == single[arc[label]]
                    if same and not near_table[demand[a, d], d, used[label, d]]:
                        follower = apart[follower]
                    m += send_time[row[a], follower]
                    s += send_total[row[a], follower]
                m = max(m, top[label])
                tail = 0.0
                for k in range(kinds):
                    tail += max(max(peaks[a, k], pk[label, k]), least_peak[v, k])
                slow = max(m, least_max[v])
                bound = INFINITE
                left = 0  # what is left of the capacities, coarsely
                for d in range(min(types, 4)):
                    if sizes[d] > 1:
                        left += strides[d] * ((capacity[d] - taken[d]) // units[d])
                for q in range(rows):
                    if high[q] < m:
                        continue
                    value = weight * max(slow, low[q]) + priced[v, q, left] - budget[q]
                    for d in range(types):
                        value += price[q, d] * taken[d]
                    bound = min(bound, value)
                bound += s
                bound += tail
                if bound >= best:
                    continue
                if made == space:
                    space *= 2
                    m_bound, m_top, m_tot = (
                        _grow(m_bound, space),
                        _grow(m_top, space),
                        _grow(m_tot, space),
                    )
                    m_arc, m_follow = _grow(m_arc, space), _grow(m_follow, space)
                m_bound[made] = bound
                m_top[made] = m
                m_tot[made] = s
                m_arc[made] = a
                m_follow[made] = label
                made += 1
        spent += made * rows
        if made == 0:
            continue
        ranked = np.argsort(m_bound[:made])
        if place[v] != here:
            here, reached = place[v], count
        begin[v] = count
        kept = 0
        for y in ranked:
            if m_bound[y] >= best:
                break
            if kept >= width or count >= most or (spent > effort and kept >= FEW):
                lost = min(lost, m_bound[y])
                break
            a, label = m_arc[y], m_follow[y]
            for d in range(types):
                taken[d] = used[label, d] + use[a, d]
                if d < seated:
                    taken[d] = after_table[demand[a, d], d, used[label, d]]
            own_room = 0  # devices beside the arc's own in its node: where the next one may be near
            if seated > 0 and single[a] >= 0:
                own_room = rest[single[a], taken[single[a]]]
            dominated = False
            spent += count - reached
            for z in range(reached, count):  # of this level and those with fewer arcs after
                if (
                    top[z] <= m_top[y]
                    and tot[z] <= m_tot[y]
                    and depth[z] <= depth[label] + 1
                    and equal[kind[arc[z]], kind[a]]
                    and room[z] >= own_room
                    and (not many or mark[z] == _mixed(mark[label], family[a]))
                ):
                    worse = True
                    for d in range(types):
                        if used[z, d] > taken[d]:
                            worse = False
                            break
                    if worse:
                        for k in range(kinds):
                            if pk[z, k] > max(peaks[a, k], pk[label, k]):
                                worse = False
                                break
                    if worse:
                        dominated = True
                        break
            if dominated:
                continue
            if count == top.size:
                need = 2 * count
                top, tot = _grow(top, need), _grow(tot, need)
                arc, follow = _grow(arc, need), _grow(follow, need)
                depth, mark, room = _grow(depth, need), _grow(mark, need), _grow(room, need)
                pk, used = _wider(pk, need), _wider(used, need)
            top[count] = m_top[y]
            tot[count] = m_tot[y]
            arc[count] = a
            follow[count] = label
            depth[count] = depth[label] + 1
            room[count] = own_room
            mark[count] = _mixed(mark[label], family[a])
            for d in range(types):
                used[count, d] = taken[d]
            value = weight * m_top[y] + m_tot[y]
            for k in range(kinds):
                pk[count, k] = max(peaks[a, k], pk[label, k])
                value += pk[count, k]
            if sources[v] and value < best:
                if many:
                    if ended == ends.size:
                        ends = _grow(ends, 2 * ended)
                    ends[ended] = count
                    ended += 1
                else:
                    best = value
                    ends[0] = count
                    ended = 1
            count += 1
            kept += 1
        end[v] = count
    lengths, values = np.zeros(ended, np.int64), np.empty(ended)
    for e in range(ended):
        lengths[e] = depth[ends[e]]
        values[e] = weight * top[ends[e]] + tot[ends[e]]
        for k in range(kinds):
            values[e] += pk[ends[e], k]
        best = min(best, values[e])
    paths = np.empty(lengths.sum(), np.int64)
    place_in = 0
    for e in range(ended):
        label = ends[e]
        while arc[label] >= 0:
            paths[place_in] = arc[label]
            place_in += 1
            label = follow[label]
    return paths, lengths, values, min(lost, best), lost >= (cutoff if many else best)

"""Best path of a stage graph, exactly: labels (slowest stage, sum of stages) at every node.

A label survives when no other one at its node is at least as good in both, and when the best path
to the node can be completed by it below the cutoff. A search that keeps a few labels at each node
comes first: its result is a cutoff for the one that keeps all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.base.kernels import kernel
from ilp_planner.base.numerics import ROUNDING
from ilp_planner.optimize.bounds.arrays import INFINITE, ascending, longer

if TYPE_CHECKING:
    from ilp_planner.optimize.graph import StageGraph

FEW = 8  # labels at each node of a first search


def best_path(graph: StageGraph, cutoff: float = np.inf) -> tuple[tuple[int, ...], float]:
    """Return the arcs and seconds of the shortest path below `cutoff` seconds, or ((), inf)."""
    path, value, _ = search_paths(graph, cutoff)
    return path, value


def search_paths(
    graph: StageGraph, cutoff: float = np.inf, most_labels: int = 2**62
) -> tuple[tuple[int, ...], float, float]:
    """Return the shortest path below `cutoff`, its time and a bound on all paths, in seconds.

    Without a path, () and inf. The bound is the path's time, or `cutoff` when there is none; a
    search that needs more than `most_labels` ends early, without a path and with a weaker bound.
    """
    order, first = graph.by_tail()
    known = (
        graph.head[order], graph.time[order], first, graph.topological(), graph.begins, graph.sink,
        graph.weight,
    )  # fmt: skip
    most = min(cutoff, INFINITE)
    _, near, _ = _labels(*known, most, FEW, most_labels)
    most = min(most, near * (1 + ROUNDING))  # a path that is just as fast is found again
    path, value, bound = _labels(*known, most, most_labels, most_labels)
    if value >= INFINITE:
        return (), np.inf, cutoff if bound >= INFINITE else min(float(bound), cutoff)
    arcs = tuple(int(order[a]) for a in path)
    time = graph.path_time(arcs)
    return arcs, time, time


@kernel
def _labels(head, time, first, topological, sources, sink, weight, cutoff, width, most):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    nodes = first.size - 1
    # least sum and least bottleneck of a way from a source to each node
    reach_sum = np.full(nodes, INFINITE)
    reach_max = np.full(nodes, INFINITE)
    for x in range(nodes):
        v = topological[x]
        if sources[v]:
            reach_sum[v] = 0.0
            reach_max[v] = 0.0
        for a in range(first[v], first[v + 1]):
            w = head[a]
            reach_sum[w] = min(reach_sum[w], reach_sum[v] + time[a])
            reach_max[w] = min(reach_max[w], max(reach_max[v], time[a]))
    size = 1 << 12
    top = np.zeros(size)
    total = np.zeros(size)
    arc = np.full(size, -1)
    follow = np.empty(size, np.int64)
    begin = np.zeros(nodes, np.int64)
    end = np.zeros(nodes, np.int64)
    # label 0 is at the sink, where nothing follows
    end[sink] = 1
    count = 1
    best = cutoff
    chosen = -1
    room = 256
    made_top = np.empty(room)
    made_total = np.empty(room)
    made_arc = np.empty(room, np.int64)
    made_follow = np.empty(room, np.int64)
    for x in range(nodes - 1, -1, -1):
        v = topological[x]
        if v == sink or reach_sum[v] >= INFINITE:
            continue
        made = 0
        for a in range(first[v], first[v + 1]):
            w = head[a]
            for label in range(begin[w], end[w]):
                m = max(time[a], top[label])
                s = time[a] + total[label]
                if weight * max(m, reach_max[v]) + s + reach_sum[v] >= best:
                    continue
                if made == room:
                    room *= 2
                    made_top, made_total = longer(made_top, room), longer(made_total, room)
                    made_arc, made_follow = longer(made_arc, room), longer(made_follow, room)
                made_top[made] = m
                made_total[made] = s
                made_arc[made] = a
                made_follow[made] = label
                made += 1
        if made == 0:
            continue
        # by sum first, so that among equal maxima the least sum comes first
        order = ascending(made_total[:made])
        tops = np.empty(made)
        for y in range(made):
            tops[y] = made_top[order[y]]
        if count + made > top.size:
            top, total = longer(top, count + made), longer(total, count + made)
            arc, follow = longer(arc, count + made), longer(follow, count + made)
        if count + made > most:
            weakest = weight * reach_max[sink] + reach_sum[sink]
            return np.empty(0, np.int64), INFINITE, min(weakest, cutoff)
        begin[v] = count
        least = INFINITE
        for z in ascending(tops):
            y = order[z]
            if made_total[y] < least:
                least = made_total[y]
                top[count] = made_top[y]
                total[count] = made_total[y]
                arc[count] = made_arc[y]
                follow[count] = made_follow[y]
                if sources[v]:
                    value = weight * made_top[y] + made_total[y]
                    if value < best:
                        best = value
                        chosen = count
                count += 1
        if count - begin[v] > width:
            kept = np.empty(count - begin[v])
            for z in range(kept.size):
                label = begin[v] + z
                kept[z] = weight * max(top[label], reach_max[v]) + total[label]
            chances = np.sort(ascending(kept)[:width]) + begin[v]
            for z in range(width):
                label = chances[z]
                if chosen == label:
                    chosen = begin[v] + z
                top[begin[v] + z] = top[label]
                total[begin[v] + z] = total[label]
                arc[begin[v] + z] = arc[label]
                follow[begin[v] + z] = follow[label]
            count = begin[v] + width
        end[v] = count
    path = np.empty(nodes, np.int64)
    length = 0
    if chosen < 0:
        return path[:0], INFINITE, cutoff
    while arc[chosen] >= 0:
        path[length] = arc[chosen]
        length += 1
        chosen = follow[chosen]
    return path[:length], best, best

"""Best path of a stage graph, exactly: labels (slowest stage, sum of stages) at every node.

A label survives when no other one at its node is at least as good in both, and when the best path
to the node can be completed by it below the cutoff. A search that keeps a few labels at each node
comes first: its result is a cutoff for the one that keeps all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ilp_planner.base.kernels import kernel
from ilp_planner.base.numerics import ROUNDING
from ilp_planner.optimize.bounds.arrays import INFINITE, ascending, longer

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ilp_planner.optimize.graph import StageGraph

FEW = 8  # labels at each node of a first search
FIRST = 1 << 12  # labels that there is room for at first
STEP = 1_000_000  # ways by arcs to labels between two looks at the clock, some 0.1 s


def best_path(graph: StageGraph, cutoff: float = np.inf) -> tuple[tuple[int, ...], float]:
    """Return the arcs and seconds of the shortest path below `cutoff` seconds, or ((), inf)."""
    path, value, _ = search_paths(graph, cutoff)
    return path, value


def search_paths(
    graph: StageGraph,
    cutoff: float = np.inf,
    most_labels: int = 2**62,
    goon: Callable[[], bool] = lambda: True,
) -> tuple[tuple[int, ...], float, float]:
    """Return the shortest path below `cutoff`, its time and a bound on all paths, in seconds.

    Without a path, () and inf. The bound is the path's time, or `cutoff` when there is none; a
    search that needs more than `most_labels`, or more time than `goon` gives, ends early, without
    a path and with a weaker bound.
    """
    order, first = graph.by_tail()
    arcs = graph.head[order], graph.time[order], first, graph.topological(), graph.begins
    reach = _reach(*arcs)
    weakest = float(graph.weight * reach[1][graph.sink] + reach[0][graph.sink])
    search = _Search(arcs, reach, graph.sink, graph.weight, most_labels, goon)
    most = min(cutoff, INFINITE)
    found = search.best(most, FEW)
    if found is not None:  # a path that is just as fast is found again
        found = search.best(min(most, found[1] * (1 + ROUNDING)), most_labels)
    if found is None:
        return (), np.inf, min(weakest, cutoff)
    path, value = found
    if value >= INFINITE:
        return (), np.inf, cutoff
    chosen = tuple(int(order[a]) for a in path)
    time = graph.path_time(chosen)
    return chosen, time, time


class _Search(NamedTuple):
    """What searches of a graph have in common.

    arcs: heads and seconds of the arcs by their tails, the place of each node's first arc, the
    nodes in order, and which of them are sources. reach: as `_reach` has it. most: labels.
    """

    arcs: tuple[NDArray[Any], ...]
    reach: tuple[NDArray[np.float64], NDArray[np.float64]]
    sink: int
    weight: float
    most: int
    goon: Callable[[], bool]

    def best(self, cutoff: float, width: int) -> tuple[list[int], float] | None:
        """Return the arcs and seconds of the best path below the cutoff with so many labels at each
        node, or no arcs and INFINITE; None if there were too many labels, or too little time."""
        nodes = self.arcs[2].size - 1
        ranges = np.zeros(nodes, np.int64), np.zeros(nodes, np.int64)
        ranges[1][self.sink] = 1  # label 0 is at the sink, where nothing follows
        labels = np.zeros(FIRST), np.zeros(FIRST), np.full(FIRST, -1), np.full(FIRST, -1)
        at, best = (nodes - 1, 1, -1), cutoff
        while at[0] >= 0:
            if not self.goon():
                return None
            labels, at, best = _advance(
                self.arcs, self.reach, self.sink, self.weight, (width, self.most, STEP),
                ranges, labels, at, best,
            )  # fmt: skip
            if at[1] < 0:
                return None
        (_, _, arc, follow), (_, _, chosen), path = labels, at, []
        while chosen >= 0 and arc[chosen] >= 0:
            path.append(int(arc[chosen]))
            chosen = follow[chosen]
        return path, best if path else INFINITE


@kernel
def _reach(head, time, first, topological, sources):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    # least sum and least bottleneck of a way from a source to each node
    nodes = first.size - 1
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
    return reach_sum, reach_max


@kernel
def _advance(arcs, reach, sink, weight, limits, ranges, labels, at, best):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    # Makes labels of nodes from a place in their order on, until some steps are done. limits:
    # labels of a node, of all, steps. ranges: of the labels of each node. labels: slowest stage,
    # sum, arc, and the label that follows. at: the place; labels so far, negative if they are too
    # many; the best one at a source, with its seconds `best`.
    head, time, first, topological, sources = arcs
    reach_sum, reach_max = reach
    width, most, step = limits
    begin, end = ranges
    top, total, arc, follow = labels
    place, count, chosen = at
    spent = 0
    room = 256
    made_top = np.empty(room)
    made_total = np.empty(room)
    made_arc = np.empty(room, np.int64)
    made_follow = np.empty(room, np.int64)
    while place >= 0 and spent < step:
        v = topological[place]
        place -= 1
        if v == sink or reach_sum[v] >= INFINITE:
            continue
        made = 0
        for a in range(first[v], first[v + 1]):
            w = head[a]
            spent += 1 + end[w] - begin[w]
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
            count = -1
            break
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
    return (top, total, arc, follow), (place, count, chosen), best

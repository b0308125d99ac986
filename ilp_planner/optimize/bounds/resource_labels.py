"""Labels of paths from the nodes of a stage graph to its end: the kernels of `resource_paths`.

Its steps are functions of their own: inlined, they would take twice as long to compile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ilp_planner.base.kernels import inner, kernel
from ilp_planner.optimize.bounds.arrays import INFINITE, ascending, longer, longer_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

FEW = 10  # labels per node once the effort is spent


class Costs(NamedTuple):
    """The cost of a path: slowest stage * weight + sum + peaks, below `cutoff` seconds.

    low: seconds, the slowest stage counts at least that. capacity: int64 [types], devices. sending:
    float64 [rows, classes], seconds added to a total when an arc of a class follows. equal: bool
    [classes, classes], whether an arc of the first class never costs more to send to than one of
    the second. many: whether the shortest path of every family is wanted.
    """

    weight: float
    cutoff: float
    low: float
    capacity: NDArray[np.int64]
    sending: NDArray[np.float64]
    equal: NDArray[np.bool_]
    many: bool


class Effort(NamedTuple):
    """width: labels per node. most: labels of all. effort: comparisons; beyond, few are kept."""

    width: int
    most: int
    effort: float


class Labels(NamedTuple):
    """Paths from a node to the sink, one an entry.

    top, total: float64, slowest stage and sum. peaks: float64 [., K]. used: int32 [., types]. arc:
    its first, -1 at the sink; follow: the label behind that. depth: arcs. room: devices left beside
    the first arc's own in its node. mark: hash of the family.
    """

    top: NDArray[np.float64]
    total: NDArray[np.float64]
    peaks: NDArray[np.float64]
    used: NDArray[np.int32]
    arc: NDArray[np.int64]
    follow: NDArray[np.int64]
    depth: NDArray[np.int32]
    room: NDArray[np.int64]
    mark: NDArray[np.int64]


class Candidates(NamedTuple):
    """Labels that a node could have: least time of a path by it, slowest stage, sum, first arc, the
    label behind."""

    bound: NDArray[np.float64]
    top: NDArray[np.float64]
    total: NDArray[np.float64]
    arc: NDArray[np.int64]
    follow: NDArray[np.int64]


def at_the_sink(kinds: int, types: int, low: float) -> Labels:
    """Return room for labels; the first one is the empty path."""
    size = 1 << 12
    labels = Labels(
        top=np.full(size, low),
        total=np.zeros(size),
        peaks=np.zeros((size, kinds)),
        used=np.zeros((size, types), np.int32),
        arc=np.full(size, -1, np.int64),
        follow=np.full(size, -1, np.int64),
        depth=np.zeros(size, np.int32),
        room=np.zeros(size, np.int64),
        mark=np.zeros(size, np.int64),
    )
    labels.mark[0] = 7
    return labels


def no_candidates() -> Candidates:
    """Return room for candidates."""
    size = 1 << 12
    seconds, numbers = np.empty((3, size)), np.empty((2, size), np.int64)
    return Candidates(*seconds, *numbers)


@kernel
def search(  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    arcs, nodes, context, pricing, reached, sink, costs, effort, labels, found
):
    """Return the paths found, arc by arc one after the other; the lengths of each; their seconds;
    the bound on all; whether nothing was dropped for lack of width or effort.

    labels: the first one is the empty path at the sink; it and `found` are to work in.
    """
    types, rows = arcs.use.shape[1], pricing.price.shape[0]
    budget = np.zeros(rows)  # what all devices cost
    for q in range(rows):
        for d in range(types):
            budget[q] += pricing.price[q, d] * costs.capacity[d]
    begin, end = np.zeros(nodes.order.size, np.int64), np.zeros(nodes.order.size, np.int64)
    end[sink] = 1
    ends, ended = np.empty(64, np.int64), 0  # labels at sources
    count = np.int64(1)  # no literal, for which the steps would be compiled twice
    best, lost, spent = costs.cutoff, INFINITE, 0
    here, since = -1, count  # the place, and its first label
    taken = np.zeros(types, np.int64)
    for x in range(nodes.order.size - 1, -1, -1):
        v = nodes.order[x]
        if v == sink or reached.slowest[v] >= INFINITE:
            continue
        found, made = _candidates(
            v, arcs, context, pricing, costs, reached, budget, labels, begin, end, best, found,
            taken,
        )  # fmt: skip
        spent += made * rows
        if made == 0:
            continue
        if nodes.place[v] != here:
            here, since = nodes.place[v], count
        begin[v] = count
        kept = 0
        for y in ascending(found.bound[:made]):
            if found.bound[y] >= best:
                break
            late = spent > effort.effort and kept >= FEW
            if kept >= effort.width or count >= effort.most or late:
                lost = min(lost, found.bound[y])
                break
            a, behind = found.arc[y], found.follow[y]
            _take(a, behind, arcs, context, costs, labels, taken)
            room = 0  # devices beside the arc's own in its node: where the next one may be near
            if context.after.shape[1] > 0 and context.single[a] >= 0:
                room = context.rest[context.single[a], taken[context.single[a]]]
            mark = _mixed(labels.mark[behind], arcs.family[a])
            spent += count - since
            if _dominated(y, found, arcs, context, costs, labels, since, count, taken, room, mark):
                continue
            if count == labels.top.size:
                labels = _longer(labels)
            value = _add(count, y, found, arcs, costs, labels, taken, room, mark)
            if nodes.sources[v] and value < best:
                if not costs.many:
                    best, ended = value, 0
                elif ended == ends.size:
                    ends = longer(ends, 2 * ended)
                ends[ended] = count
                ended += 1
            count += 1
            kept += 1
        end[v] = count
    paths, lengths, values = _ways(labels, ends[:ended], costs.weight)
    for value in values:
        best = min(best, value)
    return paths, lengths, values, min(lost, best), lost >= (costs.cutoff if costs.many else best)


@inner
def _longer(labels):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return the same labels with room for as many more."""
    need = 2 * labels.top.size
    return Labels(
        longer(labels.top, need), longer(labels.total, need), longer_rows(labels.peaks, need),
        longer_rows(labels.used, need), longer(labels.arc, need), longer(labels.follow, need),
        longer(labels.depth, need), longer(labels.room, need), longer(labels.mark, need),
    )  # fmt: skip


@inner
def _take(a, label, arcs, context, costs, labels, taken):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Count the devices taken by an arc before a label; tell whether there are so many."""
    for d in range(taken.size):
        used = labels.used[label, d]
        taken[d] = used + arcs.use[a, d]
        if d < context.after.shape[1]:
            taken[d] = context.after[context.demand[a, d], d, used]
        if taken[d] < 0 or taken[d] > costs.capacity[d]:
            return False
    return True


@inner
def _candidates(  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    v, arcs, context, pricing, costs, reached, budget, labels, begin, end, best, found, taken
):
    """Return the labels of a node that allow a path below `best` seconds, and their number."""
    kinds, types, made = arcs.peaks.shape[1], arcs.use.shape[1], 0
    # Out of the loops: what is taken from a tuple there is counted as a reference each time.
    behind, level_of, level, kind = context.behind, context.level_of, context.level[v], context.kind
    depth, total, top, first = labels.depth, labels.total, labels.top, labels.arc
    peaks, low, high, price = labels.peaks, pricing.low, pricing.high, pricing.price
    sizes, units, capacity, weight = pricing.sizes, pricing.units, costs.capacity, costs.weight
    priced, slowest, stride = reached.priced[v], reached.slowest[v], pricing.strides
    for a in range(arcs.first[v], arcs.first[v + 1]):
        w = arcs.head[a]
        for label in range(begin[w], end[w]):
            after = depth[label]
            if after > behind[a] or level_of[after] != level:
                continue
            if not _take(a, label, arcs, context, costs, labels, taken):
                continue
            m, s = arcs.time[a], arcs.total[a] + total[label]
            if first[label] >= 0:
                follower = kind[first[label]]
                d = context.single[a]
                same = d >= 0 and d == context.single[first[label]]
                if same and not context.near[context.demand[a, d], d, labels.used[label, d]]:
                    follower = context.apart[follower]
                m += context.send_time[context.row[a], follower]
                s += costs.sending[context.row[a], follower]
            m = max(m, top[label])
            tail = 0.0
            for k in range(kinds):
                tail += max(max(arcs.peaks[a, k], peaks[label, k]), reached.peaks[v, k])
            left = 0  # what is left of the capacities, coarsely
            for d in range(min(types, 4)):
                if sizes[d] > 1:
                    left += stride[d] * ((capacity[d] - taken[d]) // units[d])
            bound = INFINITE
            for q in range(high.size):
                if high[q] < m:
                    continue
                value = weight * max(m, slowest, low[q]) + priced[q, left] - budget[q]
                for d in range(types):
                    value += price[q, d] * taken[d]
                bound = min(bound, value)
            bound += s
            bound += tail
            if bound >= best:
                continue
            if made == found.bound.size:
                need = 2 * made
                found = Candidates(
                    longer(found.bound, need), longer(found.top, need), longer(found.total, need),
                    longer(found.arc, need), longer(found.follow, need),
                )  # fmt: skip
            found.bound[made], found.top[made], found.total[made] = bound, m, s
            found.arc[made], found.follow[made] = a, label
            made += 1
    return found, made


@inner
def _mixed(mark, number):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Hash of a family and one more arc (the mixing steps of SplitMix64, Steele et al. 2014)."""
    z = np.uint64(mark) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(number + 1)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.int64(z ^ (z >> np.uint64(31)))


@inner
def _dominated(y, found, arcs, context, costs, labels, since, count, taken, room, mark):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Tell whether a label of this level, or of one with fewer arcs after, is no worse."""
    a, behind = found.arc[y], found.follow[y]
    top, total, kind = found.top[y], found.total[y], context.kind[a]
    depth = labels.depth[behind] + 1
    tops, totals, peaks, used, arc, _, depths, rooms, marks = labels
    kinds, equal = context.kind, costs.equal
    for z in range(since, count):
        if (
            tops[z] <= top
            and totals[z] <= total
            and depths[z] <= depth
            and equal[kinds[arc[z]], kind]
            and rooms[z] >= room
            and (not costs.many or marks[z] == mark)
        ):
            worse = True
            for d in range(taken.size):
                if used[z, d] > taken[d]:
                    worse = False
                    break
            if worse:
                for k in range(arcs.peaks.shape[1]):
                    if peaks[z, k] > max(arcs.peaks[a, k], labels.peaks[behind, k]):
                        worse = False
                        break
            if worse:
                return True
    return False


@inner
def _add(n, y, found, arcs, costs, labels, taken, room, mark):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Make candidate y label n; return the seconds of its path."""
    a, behind = found.arc[y], found.follow[y]
    labels.top[n], labels.total[n] = found.top[y], found.total[y]
    labels.arc[n], labels.follow[n] = a, behind
    labels.depth[n] = labels.depth[behind] + 1
    labels.room[n], labels.mark[n] = room, mark
    for d in range(taken.size):
        labels.used[n, d] = taken[d]
    value = costs.weight * found.top[y] + found.total[y]
    for k in range(arcs.peaks.shape[1]):
        labels.peaks[n, k] = max(arcs.peaks[a, k], labels.peaks[behind, k])
        value += labels.peaks[n, k]
    return value


@inner
def _ways(labels, ends, weight):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return the arcs of labels, their lengths and their seconds."""
    lengths, values = np.zeros(ends.size, np.int64), np.empty(ends.size)
    for e in range(ends.size):
        lengths[e] = labels.depth[ends[e]]
        values[e] = weight * labels.top[ends[e]] + labels.total[ends[e]]
        for k in range(labels.peaks.shape[1]):
            values[e] += labels.peaks[ends[e], k]
    paths = np.empty(lengths.sum(), np.int64)
    place = 0
    for e in range(ends.size):
        label = ends[e]
        while labels.arc[label] >= 0:
            paths[place] = labels.arc[label]
            place += 1
            label = labels.follow[label]
    return paths, lengths, values

"""The compiled moves of simulated annealing that exchange the groups of devices of a path.

Where devices are limited, taking some from one stage means giving some to another, anywhere along
the path: two stages swap groups, share theirs anew, merge, or one is split. For the new groups, in
a row, the best cuts are found by dynamic programming over (stages so far, node), as AMP splits
layers for each placement that it tries. Groups that use the same devices are of one kind; the keys
of kinds add up as their devices do.
"""

from __future__ import annotations

from ilp_planner.base.kernels import inner, kernel
from ilp_planner.optimize.solvers.anneal_draws import INFINITE, between, chance

SWAP, SHARE, MERGE, SPLIT = 0.35, 0.6, 0.75, 0.9  # of these moves so many swap, share anew ...
TRIES = 8  # of finding groups with the same devices in all
HIGH, LOW = 1.1, 0.5  # of the present maxima: where the new cuts aim
NARROW = 1e-3


@inner
def _of_key(keys, key):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return the kind with this key, -1 without one. keys: ascending."""
    low, high = 0, keys.size
    while low < high:
        middle = (low + high) // 2
        if keys[middle] < key:
            low = middle + 1
        else:
            high = middle
    return low if low < keys.size and keys[low] == key else -1


@kernel
def regroup(state, keys, kinds, length):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Change the kinds of a few stages in place; return the new number of stages, 0 if no change
    was found. kinds: of the stages, with room for one more."""
    draw = chance(state)
    a = int(chance(state) * length)
    if draw < MERGE and length < 2:
        return 0
    b = a
    while b == a and draw < MERGE:
        b = int(chance(state) * length)
    if draw < SWAP:
        if kinds[a] == kinds[b]:
            return 0
        kinds[a], kinds[b] = kinds[b], kinds[a]
        return length
    if draw < SHARE:
        total = keys[kinds[a]] + keys[kinds[b]]
        for _ in range(TRIES):
            one = int(chance(state) * keys.size)
            other = _of_key(keys, total - keys[one])
            if other >= 0 and one != kinds[a] and one != kinds[b]:
                kinds[a], kinds[b] = one, other
                return length
        return 0
    if draw < MERGE:
        both = _of_key(keys, keys[kinds[a]] + keys[kinds[b]])
        if both < 0:
            return 0
        kinds[a] = both
        for place in range(b, length - 1):
            kinds[place] = kinds[place + 1]
        return length - 1
    if draw < SPLIT:
        if length + 1 >= kinds.size:
            return 0
        for _ in range(TRIES):
            one = int(chance(state) * keys.size)
            other = _of_key(keys, keys[kinds[a]] - keys[one])
            if other >= 0:
                place = int(chance(state) * (length + 1))
                kinds[a] = one
                for after in range(length, place, -1):
                    kinds[after] = kinds[after - 1]
                kinds[place] = other
                return length + 1
        return 0
    kinds[a] = int(chance(state) * keys.size)
    return length


@kernel
def recut(graph, groups, kinds, length, aim, room, found):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return the length of the shortest path with stages of these kinds (0 without one), and the
    number of examined arcs.

    aim: [1 + K], maxima that cost nothing. found: becomes the path.
    """
    head, tail, time, extra, peaks, _, _, first, sources, sink, weight = graph
    by_kind, kind, _ = groups
    value, stamp, into, active = room
    nodes = first.size - 1
    work = 0
    count = 0
    for node in range(nodes):
        if sources[node]:
            value[0, node] = 0.0
            active[0, count] = node
            count += 1
    for stage in range(length):
        now, after = stage % 2, 1 - stage % 2
        stamp[nodes] += 1
        made = 0
        wanted = kinds[stage]
        last = stage == length - 1
        for x in range(count):
            node = active[now, x]
            low, high = first[node], first[node + 1]
            while low < high:
                middle = (low + high) // 2
                if kind[by_kind[middle]] < wanted:
                    low = middle + 1
                else:
                    high = middle
            work += 4
            while low < first[node + 1] and kind[by_kind[low]] == wanted:
                arc = by_kind[low]
                low += 1
                work += 1
                to = head[arc]
                if last != (to == sink):
                    continue
                cost = value[now, node] + time[arc] + extra[arc]
                cost += weight * max(0.0, time[arc] - aim[0])
                for k in range(peaks.shape[0]):
                    cost += max(0.0, peaks[k, arc] - aim[1 + k])
                if stamp[to] != stamp[nodes]:
                    stamp[to] = stamp[nodes]
                    active[after, made] = to
                    made += 1
                    value[after, to] = INFINITE
                if cost < value[after, to]:
                    value[after, to] = cost
                    into[stage, to] = arc
        count = made
    if count == 0:
        return 0, work
    node = sink
    for stage in range(length - 1, -1, -1):
        found[stage] = into[stage, node]
        node = tail[found[stage]]
    return length, work


@inner
def aim_anew(state, now, aim):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Draw maxima to aim at, from a little above the present ones to half of them."""
    for k in range(now.size):
        aim[k] = now[k] * (HIGH - between(state, NARROW, HIGH - LOW))


@inner
def exchange(graph, groups, state, path, length, now, kinds, aim, room, trial):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Make a trial path with other groups; return its length (0: none) and the arcs looked at.

    now: [1 + K], maxima of the path. The others are as in `recut`.
    """
    for place in range(length):
        kinds[place] = groups.of[path[place]]
    count = regroup(state, groups.keys, kinds, length)
    if count == 0:
        return 0, 0
    aim_anew(state, now, aim)
    return recut(graph, groups, kinds, count, aim, room, trial)

"""The compiled part of simulated annealing: moves of one path through a stage graph.

A move takes out a few neighbouring stages and puts the shortest path in their place, at costs that
were shaken with the temperature: with one stage out, its group or strategy changes, or it is split;
with two, the cut between them moves, or they merge; with three, groups swap. Nodes are numbered so
that every arc goes to a higher number, arcs are sorted by tail and then by head.

The compiled moves of simulated annealing that exchange the groups of devices of a path.

Where devices are limited, taking some from one stage means giving some to another, anywhere along
the path: two stages swap groups, share theirs anew, merge, or one is split. For the new groups, in
a row, the best cuts are found by dynamic programming over (stages so far, node), as AMP splits
layers for each placement that it tries. Groups that use the same devices are of one kind; the keys
of kinds add up as their devices do.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ilp_planner.base.kernels import inner, kernel
from ilp_planner.optimize.solvers.anneal_graph import INFINITE, Room, between, chance

# ---- anneal groups -------------------------------------------------------------------------------


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


# ---- anneal moves --------------------------------------------------------------------------------


class Tuning(NamedTuple):
    """The tuning of the moves."""

    whole: float = 0.04  # of the moves take out everything
    front: float = 0.16  # take out everything up to a stage: it may then begin at another source
    longer: float = 0.55  # chance of one more stage each time
    narrowest: float = 1e-4  # relative: how far below the present maxima to aim
    widest: float = 0.4
    steady: float = 0.2  # of the ways through are at costs that are not shaken
    calm: float = 0.03  # how much the others are shaken, in temperatures
    wild: float = 3.0
    haggle: float = 10.0  # up to so many times a price, or that part of it, is asked of a way
    dearer: float = 1.05  # price of a device too many, with each move that has such
    cheaper: float = 0.9995  # and with each that has none
    dearest: float = 1e3  # of such prices, in costs of the path
    regroup: float = 0.5  # of the effort goes to exchanging groups, where devices are limited
    overhead: int = 60  # what a move takes besides, in arcs
    price_rounds: int = 10  # of a first path
    price_step: float = 2.0


TUNED = Tuning()  # compiled functions take it as constants


@inner
def maxima(time, peaks, path, first, last, found):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Raise found[0] to the slowest, found[1 + k] to the largest peak k of path[first:last]."""
    for place in range(first, last):
        arc = path[place]
        found[0] = max(found[0], time[arc])
        for k in range(peaks.shape[0]):
            found[1 + k] = max(found[1 + k], peaks[k, arc])


@kernel
def judge(graph, price, path, length, most):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return the cost of a path with its penalty, and its excess of devices.

    most: [1 + K], becomes its maxima.
    """
    _, _, time, extra, peaks, use, capacity, _, _, _, weight = graph
    most[:] = 0.0
    maxima(time, peaks, path, 0, length, most)
    total = weight * most[0]
    for k in range(peaks.shape[0]):
        total += most[1 + k]
    for place in range(length):
        total += time[path[place]] + extra[path[place]]
    over = 0
    for d in range(capacity.size):
        used = 0
        for place in range(length):
            used += use[path[place], d]
        if used > capacity[d]:
            over += used - capacity[d]
            total += price[d] * (used - capacity[d])
    return total, over


@inner
def way_through(graph, begin, end, aim, price, shake, state, value, into, found):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return the arcs from `begin` (-1: any source) to `end` that are shortest at shaken costs, and
    how many arcs were looked at.

    aim: [1 + K], maxima that cost nothing. price: [D], seconds per device. shake: seconds.
    value, into: [nodes], to work in. found: becomes the path; its length is returned first.
    """
    head, tail, time, extra, peaks, use, _, first, sources, _, weight = graph
    work = 0
    low = max(begin, 0)
    for node in range(low, end + 1):
        value[node] = 0.0 if begin < 0 and sources[node] else INFINITE
    if begin >= 0:
        value[begin] = 0.0
    for node in range(low, end):
        work += 1
        before = value[node]
        if before >= value[end]:
            continue
        for arc in range(first[node], first[node + 1]):
            to = head[arc]
            if to > end:
                break
            work += 1
            cost = before + time[arc] + extra[arc]
            if time[arc] > aim[0]:
                cost += weight * (time[arc] - aim[0])
            if cost >= value[to]:
                continue
            for k in range(peaks.shape[0]):
                cost += max(0.0, peaks[k, arc] - aim[1 + k])
            for d in range(price.size):
                cost += price[d] * use[arc, d]
            if shake > 0.0:
                cost += shake * chance(state)
            if cost < value[to]:
                value[to] = cost
                into[to] = arc
    if value[end] >= INFINITE:
        return 0, work
    length = 0
    node = end
    while node != begin and not (begin < 0 and sources[node]):
        found[length] = into[node]
        length += 1
        node = tail[into[node]]
    for place in range(length // 2):
        other = length - 1 - place
        found[place], found[other] = found[other], found[place]
    return length, work


@inner
def window(state, time, path, length):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Draw stages to take out: every other time the slowest one is among them."""
    draw = chance(state)
    if draw < TUNED.whole:
        return 0, length
    if draw < TUNED.whole + TUNED.front:
        return 0, 1 + int(chance(state) * length)
    size = 1
    while size < length and chance(state) < TUNED.longer:
        size += 1
    if chance(state) < 0.5:
        slowest = 0
        for place in range(length):
            if time[path[place]] > time[path[slowest]]:
                slowest = place
        start = slowest - int(chance(state) * size)
    else:
        start = int(chance(state) * (length - size + 1))
    start = min(max(start, 0), length - size)
    return start, start + size


@inner
def _replace(  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    graph, price, warm, state, path, length, now, aim, asked, value, into, found, trial
):
    """Make a trial path with a few stages replaced; return its length and the arcs looked at."""
    time, peaks = graph.time, graph.peaks
    low, high = window(state, time, path, length)
    begin = -1 if low == 0 else graph.tail[path[low]]
    aim[:] = 0.0
    maxima(time, peaks, path, 0, low, aim)
    maxima(time, peaks, path, high, length, aim)
    for k in range(aim.size):
        aim[k] = max(aim[k], now[k] * (1.0 - between(state, TUNED.narrowest, TUNED.widest)))
    shake = 0.0 if chance(state) < TUNED.steady else warm * between(state, TUNED.calm, TUNED.wild)
    for d in range(price.size):
        asked[d] = price[d] * between(state, 1.0 / TUNED.haggle, TUNED.haggle)
    end = graph.head[path[high - 1]]
    size, work = way_through(graph, begin, end, aim, asked, shake, state, value, into, found)
    count = low + size + length - high
    for place in range(low):
        trial[place] = path[place]
    for place in range(size):
        trial[low + place] = found[place]
    for place in range(low + size, count):
        trial[place] = path[place - size - low + high]
    return count, work


@inner
def _raise_prices(use, capacity, price, path, length, dearest):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Raise the multipliers of exceeded devices slowly, and lower the others more slowly."""
    for d in range(price.size):
        used = 0
        for place in range(length):
            used += use[path[place], d]
        step = TUNED.dearer if used > capacity[d] else TUNED.cheaper
        price[d] = min(price[d] * step, dearest)


@inner
def _copy(into, path, length):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    for place in range(length):
        into[place] = path[place]


@kernel
def anneal(graph, groups, effort, hot, cold, price, state, path, best, known):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Move a path until so many arcs were looked at, colder and colder.

    hot, cold: seconds, temperature at first and at last. price: [D], seconds per device too many;
    raised while there are. state: [1], of the generator. path: arcs, current, [-1] its length;
    best: the same of the best that fits. known: [1], seconds of the best.
    """
    nodes, maxima_count = graph.first.size - 1, 1 + graph.peaks.shape[0]
    value, into = np.empty(nodes), np.empty(nodes, np.int64)
    length = path[path.size - 1]
    found, trial = np.empty(path.size, np.int64), np.empty(path.size, np.int64)
    most, aim, now = np.empty(maxima_count), np.empty(maxima_count), np.empty(maxima_count)
    asked = np.empty(price.size)
    current, _ = judge(graph, price, path, length, now)
    exchanges = groups.keys.size > 1
    rows = nodes if exchanges else 0
    kinds = np.empty(path.size, np.int64)
    room = Room(
        np.empty((2, rows)), np.zeros(rows + 1, np.int64), np.empty((path.size, rows), np.int64),
        np.empty((2, rows), np.int64),
    )  # fmt: skip
    spent, exchanging = 0, 0
    while spent < effort:
        warm = hot * (cold / hot) ** (spent / effort)
        exchanged = exchanges and exchanging <= TUNED.regroup * spent
        if exchanged:
            count, work = exchange(graph, groups, state, path, length, now, kinds, aim, room, trial)
        else:
            count, work = _replace(
                graph, price, warm, state, path, length, now, aim, asked, value, into, found, trial
            )
        spent += work + TUNED.overhead + length
        if exchanged:
            exchanging += work + TUNED.overhead + length
        if count == 0:
            continue
        cost, excess = judge(graph, price, trial, count, most)
        if cost <= current or chance(state) < np.exp((current - cost) / warm):
            _copy(path, trial, count)
            length, current = count, cost
            now, most = most, now
        if excess == 0 and cost < known[0]:
            known[0] = cost
            _copy(best, trial, count)
            best[best.size - 1] = count
        if price.size:
            _raise_prices(graph.use, graph.capacity, price, path, length, TUNED.dearest * current)
            current, _ = judge(graph, price, path, length, now)
    path[path.size - 1] = length


@kernel
def begin(graph, aim, shake, price, state, path, best, known):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Find a first path, at multipliers that make it use about as many devices as there are.

    aim: [1 + K], maxima that cost nothing. shake: seconds. price: [D], seconds per device, to begin
    with; becomes the last ones. path, best, known: as in `anneal`.
    """
    nodes, use, capacity = graph.first.size - 1, graph.use, graph.capacity
    value, into = np.empty(nodes), np.empty(nodes, np.int64)
    most = np.empty(1 + graph.peaks.shape[0])
    rounds = TUNED.price_rounds if price.size else 1
    any_source = np.int64(-1)  # no literal, for which the way would be compiled twice
    for turn in range(rounds):
        length, _ = way_through(
            graph, any_source, graph.sink, aim, price, shake, state, value, into, path
        )
        path[path.size - 1] = length
        cost, over = judge(graph, price, path, length, most)
        if over == 0 and cost < known[0]:
            known[0] = cost
            _copy(best, path, path.size)
        step = TUNED.price_step * (1.0 - turn / rounds)
        for d in range(price.size):
            used = 0
            for place in range(length):
                used += use[path[place], d]
            share = (used - capacity[d]) / max(1, capacity[d])
            price[d] *= np.exp(step * min(max(share, -1.0), 1.0))
    if known[0] < INFINITE:
        _copy(path, best, path.size)


@kernel
def least_terms(graph):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return [2 + K + D]: the least sum of a path, its least slowest arc, least peaks and least
    use, each on its own; INFINITE without a path."""
    head, _, time, extra, peaks, use, _, first, sources, sink, _ = graph
    nodes, count = first.size - 1, 2 + peaks.shape[0] + use.shape[1]
    least = np.full((nodes, count), INFINITE)
    for node in range(nodes):
        if sources[node]:
            least[node] = 0.0
        if least[node, 0] >= INFINITE:
            continue
        for arc in range(first[node], first[node + 1]):
            to = head[arc]
            least[to, 0] = min(least[to, 0], least[node, 0] + time[arc] + extra[arc])
            least[to, 1] = min(least[to, 1], max(least[node, 1], time[arc]))
            for k in range(peaks.shape[0]):
                least[to, 2 + k] = min(least[to, 2 + k], max(least[node, 2 + k], peaks[k, arc]))
            for d in range(use.shape[1]):
                at = 2 + peaks.shape[0] + d
                least[to, at] = min(least[to, at], least[node, at] + use[arc, d])
    return least[sink]

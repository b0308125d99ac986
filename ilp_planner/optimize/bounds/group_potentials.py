"""Least sums of stages along a chain with multipliers on devices, by layer, stages after, state and
devices taken of a region.

`prefixes` gives sums of everything before a state, `through` of paths through a candidate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ilp_planner.base.kernels import inner, kernel
from ilp_planner.optimize.bounds.arrays import INFINITE
from ilp_planner.optimize.bounds.group_states import onwards, step

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ilp_planner.optimize.bounds.group_chain import GroupChain


class Potentials(NamedTuple):
    """Least priced sums of the stages before a state: `table`, float64 [layers, S, N + 1, levels],
    with N numbers for devices taken in a region.

    Entry n - 1 is for n stages after; the last two are for levels - 1 of them and more.
    price: float64 [D], seconds per device. slowest: seconds, slower stages do not count.
    priced: float64 [arcs], the candidates' totals with the cost of their devices. least: seconds,
    of all stages together, less the cost of all devices; INFINITE if there is no path. path: arcs
    of the shortest one; total: its seconds without multipliers.
    """

    table: NDArray[np.float64]
    price: NDArray[np.float64]
    slowest: float
    priced: NDArray[np.float64]
    least: float
    path: NDArray[np.int64]
    total: float


def prefixes(
    chain: GroupChain, price: NDArray[np.float64], slowest: float, levels: int
) -> Potentials:
    """Return least priced sums of stages that take at most `slowest` seconds."""
    priced = chain.stages.total + chain.stages.use @ price
    groups = (chain.stages, chain.sending, chain.states, chain.regions)
    table = _prefixes(chain.layers, levels, *groups, priced, slowest)
    least, path, sending = _cheapest(chain.layers, *groups, priced, slowest, table)
    none = least >= INFINITE
    return Potentials(
        table=table,
        price=price,
        slowest=float(slowest),
        priced=priced,
        least=INFINITE if none else float(least - price @ np.array(chain.capacity, np.float64)),
        path=path,
        total=INFINITE if none else float(chain.stages.total[path].sum() + sending),
    )


def through(chain: GroupChain, known: Potentials) -> NDArray[np.float64]:
    """Return the least priced sum of a path through each candidate, less the cost of devices."""
    least = _through(
        chain.layers, chain.stages, chain.sending, chain.states, chain.regions, known.priced,
        known.slowest, known.table,
    )  # fmt: skip
    found: NDArray[np.float64] = least - known.price @ np.array(chain.capacity, np.float64)
    return found


def plain(
    chain: GroupChain, price: NDArray[np.float64], slowest: float
) -> tuple[float, NDArray[np.int64]]:
    """Return the same least sum if sending costs the least and any stage may follow any other: at
    most the one of `prefixes`, much sooner; and the arcs of the shortest path."""
    priced = chain.stages.total + chain.stages.use @ price
    first, start, time = chain.stages[:3]
    least, path = _plain(chain.layers, first, start, time, priced, float(slowest))
    if least >= INFINITE:
        return INFINITE, path
    return float(least - price @ np.array(chain.capacity, np.float64)), path


@kernel
def _plain(layers, first, start, time, priced, slowest):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return the least priced sum of stages from the first layer to the last, and its arcs."""
    least, chosen = np.full(layers + 1, INFINITE), np.full(layers + 1, -1, np.int64)
    least[0] = 0.0
    for v in range(1, layers + 1):
        for a in range(first[v], first[v + 1]):
            if time[a] <= slowest and priced[a] + least[start[a]] < least[v]:
                least[v], chosen[v] = priced[a] + least[start[a]], a
    path = np.empty(layers, np.int64)
    length, v = 0, layers
    while v > 0 and chosen[v] >= 0:
        path[length] = chosen[v]
        length += 1
        v = start[chosen[v]]
    return least[layers], path[:length]


@inner
def _members(regions):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return the classes in each region, and then the complement of none and of each of them: int64
    [2 N + 1, classes + 1], with -1 after the last."""
    count, classes = regions.fits.shape[0], regions.of.size
    found = np.full((2 * count + 1, classes + 1), -1, np.int64)
    for row in range(2 * count + 1):
        length = 0
        for c in range(classes):
            inside = regions.of[c] == row if row < count else False
            outside = regions.of[c] != row - count - 1 if row > count else row == count
            if inside or outside:
                found[row, length] = c
                length += 1
    return found


@inner
def _lower(into, values, more):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Let no entry be above the other's, plus so much."""
    for k in range(into.size):
        y = values[k] + more
        into[k] = y if y < into[k] else into[k]


@kernel
def _prefixes(layers, levels, arcs, sending, states, regions, priced, slowest):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return least priced sums, by layer, state, number of its region and stages after, less one:
    an arc with n downstream stages precedes a state with n, and makes one with n + 1.

    Rows of the table beyond the last number are of all numbers. Entries are looped over one by one:
    slices of them would take as long to make as to use.
    """
    first, start, time, _, _, _, behind, row, own, state, seats, number = arcs
    counted, direct, parted, size, offset, group, taken, _ = states
    send_time, send_total, order = sending
    deepest, classes, count, columns = levels - 1, counted.size, group.size, send_time.shape[1]
    numbers, members = regions.fits.shape[2], _members(regions)
    # one level more, so that what is read is next to what is written
    table = np.full((layers, count, numbers + 1, levels), INFINITE)
    table[0] = 0.0
    most = 0
    for d in range(size.size):
        most = max(most, size[d])
    # by class of the group behind: whatever its node is, its node unknown, known and not joined
    either = np.empty((classes, numbers + 1, deepest))
    loose = np.empty((classes, numbers + 1, deepest))
    known = np.empty((classes, numbers + 1, deepest))
    # of the stages that may send to so many of the cheapest columns
    free = np.empty((columns + 1, deepest))
    joint = np.empty((most + 1, deepest))
    rank = np.empty(columns, np.int64)
    for v in range(1, layers):
        either[:] = INFINITE
        loose[:] = INFINITE
        known[:] = INFINITE
        begin, stop = first[v], first[v + 1]
        while begin < stop:
            r, end = row[begin], begin
            while end < stop and row[end] == r:
                end += 1
            for k in range(columns):
                rank[order[r, k]] = k + 1
            region, more_taken = regions.of[own[begin]], number[begin]
            d = counted[own[begin]]
            n = seats[begin, d] if d >= 0 else 0
            dearest = 0.0  # to a group of a class that the stages may join
            if n > 0:
                for c in range(classes):
                    if counted[c] == d:
                        dearest = max(dearest, send_time[r, direct[c]])
            # before groups elsewhere, whatever their number; then before those of the own region
            for to in range(-1, numbers if region >= 0 else 0):
                if to >= 0 and not regions.fits[region, to, more_taken]:
                    continue
                source, into = (more_taken, numbers) if to < 0 else (to + more_taken, to)
                some = regions.fits.shape[0] + 1 + region if to < 0 else region
                if n > 0:
                    joint[1 : size[d] - n + 1] = INFINITE
                widest, narrowest, reach = 0, columns + 1, 0
                for a in range(begin, end):
                    if time[a] > slowest:
                        continue
                    may = columns
                    while may > 0 and time[a] + send_time[r, order[r, may - 1]] > slowest:
                        may -= 1
                    deep = min(deepest, behind[a])
                    if may == 0 or deep == 0:
                        continue
                    reach = max(reach, deep)
                    if widest == 0:
                        widest, narrowest = may, may
                        free[may] = INFINITE
                    while may > widest:
                        widest += 1
                        free[widest] = INFINITE
                    while may < narrowest:
                        narrowest -= 1
                        free[narrowest] = INFINITE
                    u, s, price = start[a], state[a], priced[a]
                    for e in range(deep):
                        y = table[u, s, source, e + 1] + price
                        free[may, e] = y if y < free[may, e] else free[may, e]
                    if n > 0:
                        roomy = time[a] + dearest <= slowest
                        for t in range(1, size[d] - n + 1):
                            s = offset[own[a]] + t + n
                            if roomy:
                                for e in range(deep):
                                    y = table[u, s, source, e + 1] + price
                                    joint[t, e] = y if y < joint[t, e] else joint[t, e]
                                continue
                            for place in range(classes):
                                c = members[some, place]
                                if c < 0:
                                    break
                                k = direct[c]
                                if counted[c] == d and time[a] + send_time[r, k] <= slowest:
                                    more, to_s = price + send_total[r, k], offset[c] + t
                                    for e in range(deep):
                                        y = table[u, s, source, e + 1] + more
                                        if y < table[v, to_s, into, e]:
                                            table[v, to_s, into, e] = y
                if widest == 0:
                    continue
                for k in range(widest - 1, narrowest - 1, -1):
                    for e in range(reach):
                        y = free[k + 1, e]
                        free[k, e] = y if y < free[k, e] else free[k, e]
                for place in range(classes):
                    c = members[some, place]
                    if c < 0:
                        break
                    k = direct[c]
                    near, more = counted[c], send_total[r, k]
                    best = max(rank[k], narrowest)
                    if near < 0 or seats[begin, near] == 0:
                        if rank[k] <= widest:
                            for e in range(reach):
                                y = free[best, e] + more
                                either[c, into, e] = (
                                    y if y < either[c, into, e] else either[c, into, e]
                                )
                        continue
                    for t in range(1, size[near] - seats[begin, near] + 1):
                        s = offset[c] + t
                        if near == d:
                            for e in range(reach):
                                y = joint[t, e] + more
                                table[v, s, into, e] = (
                                    y if y < table[v, s, into, e] else table[v, s, into, e]
                                )
                        elif rank[k] <= widest:
                            for e in range(reach):
                                y = free[best, e] + more
                                table[v, s, into, e] = (
                                    y if y < table[v, s, into, e] else table[v, s, into, e]
                                )
                    if rank[k] <= widest:
                        for e in range(reach):
                            y = free[best, e] + more
                            loose[c, into, e] = y if y < loose[c, into, e] else loose[c, into, e]
                    k = parted[c]
                    if rank[k] <= widest:
                        best, more = max(rank[k], narrowest), send_total[r, k]
                        for e in range(reach):
                            y = free[best, e] + more
                            known[c, into, e] = y if y < known[c, into, e] else known[c, into, e]
            begin = end
        for s in range(count):
            c = group[s]
            for to in range(numbers, -1, -1):
                _lower(table[v, s, to, :deepest], either[c, to], 0.0)
                _lower(table[v, s, to, :deepest], (known if taken[s] > 0 else loose)[c, to], 0.0)
                if to < numbers:
                    _lower(table[v, s, to, :deepest], table[v, s, numbers, :deepest], 0.0)
                table[v, s, to, deepest] = table[v, s, to, deepest - 1]
    return table


@kernel
def _cheapest(layers, arcs, sending, states, regions, priced, slowest, table):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return the shortest path: least sum, arcs, addition of sending."""
    first, start, time, _, _, _, behind, row, own, state, _, number = arcs
    send_time, send_total, _ = sending
    top = table.shape[3] - 1
    path = np.empty(layers, np.int64)
    length, sent = 0, 0.0
    best, s = INFINITE, 0
    for a in range(first[layers], first[layers + 1]):
        if time[a] <= slowest:
            value = priced[a] + table[start[a], state[a], number[a], 0]
            if value < best:
                best, path[0] = value, a
    least = best
    if best >= INFINITE:
        return least, path[:0], 0.0
    length, after = 1, 1
    s, v, have = state[path[0]], start[path[0]], number[path[0]]
    while v > 0:
        best, chosen, cost, then, now = INFINITE, -1, 0.0, 0, 0
        for a in range(first[v], first[v + 1]):
            if behind[a] < min(after, top) or time[a] > slowest:
                continue
            r = row[a]
            many = onwards(own[a], states.group[s], number[a], have, regions)
            if many < 0:
                continue
            for mode in range(2):
                to, k = step(a, s, mode, arcs, states)
                if to < 0 or time[a] + send_time[r, k] > slowest:
                    continue
                value = priced[a] + table[start[a], to, many, min(after, top)] + send_total[r, k]
                if value < best:
                    best, chosen, cost, then, now = value, a, send_total[r, k], to, many
        path[length] = chosen
        length += 1
        after += 1
        sent += cost
        s, v, have = then, start[chosen], now
    ahead = np.empty(length, np.int64)
    for n in range(length):
        ahead[n] = path[length - 1 - n]
    return least, ahead, sent


@kernel
def _through(layers, arcs, sending, states, regions, priced, slowest, table):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return least priced sums through every candidate: suffixes grow from the end, and meet the
    prefixes. Entry n of a suffix is for n + 1 stages from it on, as in the prefixes."""
    first, start, time, _, _, _, behind, row, own, state, seats, number = arcs
    counted, direct, parted, size, offset, group, taken, _ = states
    send_time, send_total, order = sending
    levels, numbers, members = table.shape[3], regions.fits.shape[2], _members(regions)
    deepest, classes, count, columns = levels - 1, counted.size, group.size, send_time.shape[1]
    suffix = np.full((layers + 1, count, numbers + 1, levels), INFINITE)
    least = np.full(time.size, INFINITE)
    for a in range(first[layers], first[layers + 1]):
        if time[a] <= slowest:
            v, s, to = start[a], state[a], number[a]
            suffix[v, s, to, 0] = min(suffix[v, s, to, 0], priced[a])
            least[a] = priced[a] + table[v, s, to, 0]
    # by class of the group behind: whatever its node is, its node unknown, known and not joined
    either = np.empty((classes, numbers + 1, deepest))
    loose = np.empty((classes, numbers + 1, deepest))
    known = np.empty((classes, numbers + 1, deepest))
    # of the groups that are sent to by a column, and by so many of the cheapest ones
    sent, free = np.empty((columns, deepest)), np.empty((columns + 1, deepest))
    free[0] = INFINITE
    for v in range(layers - 1, 0, -1):
        loose[:] = INFINITE
        known[:] = INFINITE
        for s in range(count):
            c = group[s]
            for to in range(numbers):
                suffix[v, s, to, deepest - 1] = min(
                    suffix[v, s, to, deepest - 1], suffix[v, s, to, deepest]
                )
                _lower(suffix[v, s, numbers, :deepest], suffix[v, s, to, :deepest], 0.0)
            for to in range(numbers + 1):
                _lower((known if taken[s] > 0 else loose)[c, to], suffix[v, s, to, :deepest], 0.0)
        either[:] = np.minimum(loose, known)
        begin, stop = first[v], first[v + 1]
        while begin < stop:
            r, end = row[begin], begin
            while end < stop and row[end] == r:
                end += 1
            widest, reach = 0, 0  # columns that a stage of the row may send to, stages after one
            for a in range(begin, end):
                may = columns if time[a] <= slowest else 0
                while may > widest and time[a] + send_time[r, order[r, may - 1]] > slowest:
                    may -= 1
                widest = max(widest, may)
                reach = max(reach, min(deepest, behind[a]))
            region, more_taken = regions.of[own[begin]], number[begin]
            for to in range(-1, numbers if region >= 0 else 0):
                if to >= 0 and not regions.fits[region, to, more_taken]:
                    continue
                into, source = (more_taken, numbers) if to < 0 else (to + more_taken, to)
                some = regions.fits.shape[0] + 1 + region if to < 0 else region
                if widest == 0 or reach == 0:
                    break
                sent[:, :reach] = INFINITE
                for place in range(classes):
                    c = members[some, place]
                    if c < 0:
                        break
                    k, d = direct[c], counted[c]
                    more = send_total[r, k]
                    if d < 0 or seats[begin, d] == 0:
                        for e in range(reach):
                            y = either[c, source, e] + more
                            sent[k, e] = y if y < sent[k, e] else sent[k, e]
                        continue
                    for e in range(reach):
                        y = loose[c, source, e] + more
                        sent[k, e] = y if y < sent[k, e] else sent[k, e]
                    k = parted[c]
                    more = send_total[r, k]
                    for e in range(reach):
                        y = known[c, source, e] + more
                        sent[k, e] = y if y < sent[k, e] else sent[k, e]
                for k in range(widest):
                    column = order[r, k]
                    for e in range(reach):
                        y = sent[column, e]
                        free[k + 1, e] = y if y < free[k, e] else free[k, e]
                for a in range(begin, end):
                    may = columns if time[a] <= slowest else 0
                    while may > 0 and time[a] + send_time[r, order[r, may - 1]] > slowest:
                        may -= 1
                    u, deep = start[a], min(deepest, behind[a])
                    if may == 0 or deep == 0:
                        continue
                    s, price, best = state[a], priced[a], least[a]
                    for e in range(deep):
                        y = free[may, e] + price
                        z = suffix[u, s, into, e + 1]
                        suffix[u, s, into, e + 1] = y if y < z else z
                        y += table[u, s, into, e + 1]
                        best = y if y < best else best
                    for place in range(classes):
                        c = members[some, place]
                        if c < 0:
                            break
                        d = counted[c]
                        if d < 0 or seats[a, d] == 0:
                            continue
                        k, n = direct[c], seats[a, d]
                        if time[a] + send_time[r, k] > slowest:
                            continue
                        more = price + send_total[r, k]
                        for t in range(1, size[d] - n + 1):
                            s = offset[own[a]] + t + n if counted[own[a]] == d else state[a]
                            to_s = offset[c] + t
                            for e in range(deep):
                                y = suffix[v, to_s, source, e] + more
                                z = suffix[u, s, into, e + 1]
                                suffix[u, s, into, e + 1] = y if y < z else z
                                y += table[u, s, into, e + 1]
                                best = y if y < best else best
                    least[a] = best
            begin = end
    return least

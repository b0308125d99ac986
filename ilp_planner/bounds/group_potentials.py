"""Least sums of stages along a chain with prices on devices, by layer, stages after and state:
`prefixes` of everything before a state; `through` a candidate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numba
import numpy as np

from ilp_planner.bounds.arrays import INFINITE
from ilp_planner.bounds.group_states import step

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ilp_planner.bounds.group_chain import GroupChain


@dataclass(frozen=True, kw_only=True, eq=False)
class Potentials:
    """Least priced sums of the stages before a state: `table`, float64 [layers, S, levels].

    Entry n - 1 is for n stages after; the last two are for levels - 1 of them and more.
    price: float64 [D], seconds per device. slowest: seconds, slower stages do not count.
    priced: float64 [arcs], the candidates' totals with the price of their devices. least: seconds,
    of all stages together, less the price of all devices; INFINITE where there is no way. path:
    arcs of the cheapest one; total: its seconds without prices.
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
    s = chain.states
    priced = chain.total + chain.use @ price
    table = _prefixes(
        chain.layers, levels, chain.first, chain.start, chain.time, priced, chain.behind,
        chain.row, chain.group, chain.state, chain.seats, chain.send_time, chain.send_total,
        chain.order, s.counted, s.direct, s.parted, s.size, s.offset, s.group, s.taken, slowest,
    )  # fmt: skip
    least, path, sending = _cheapest(
        chain.layers, levels, chain.first, chain.start, chain.time, priced, chain.behind,
        chain.row, chain.group, chain.state, chain.seats, chain.send_time, chain.send_total,
        s.counted, s.direct, s.parted, s.size, s.offset, s.group, s.taken, slowest, table,
    )  # fmt: skip
    none = least >= INFINITE
    return Potentials(
        table=table,
        price=price,
        slowest=slowest,
        priced=priced,
        least=INFINITE if none else float(least - price @ np.array(chain.capacity, np.float64)),
        path=path,
        total=INFINITE if none else float(chain.total[path].sum() + sending),
    )


def through(chain: GroupChain, known: Potentials) -> NDArray[np.float64]:
    """Return the least priced sum of a way through each candidate, less the price of all
    devices."""
    s = chain.states
    least = _through(
        chain.layers, known.table.shape[2], chain.first, chain.start, chain.time, known.priced,
        chain.behind, chain.row, chain.group, chain.state, chain.seats, chain.send_time,
        chain.send_total, chain.order, s.counted, s.direct, s.parted, s.size, s.offset, s.group,
        s.taken, known.slowest, known.table,
    )  # fmt: skip
    found: NDArray[np.float64] = least - known.price @ np.array(chain.capacity, np.float64)
    return found


@numba.njit(cache=True, nogil=True)
def _columns(a, seats, counted, direct, parted, column):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Fill in what sending to a group of each class costs when its node is known, and not
    joined."""
    for c in range(counted.size):
        d = counted[c]
        column[c] = parted[c] if d >= 0 and seats[a, d] > 0 else direct[c]


@numba.njit(cache=True, nogil=True)
def _lower(into, values, more):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Let no entry be above the other's, plus so much."""
    for k in range(into.size):
        y = values[k] + more
        into[k] = y if y < into[k] else into[k]


@numba.njit(cache=True, nogil=True)
def _prefixes(  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    layers, levels, first, start, time, priced, behind, row, own, state, seats, send_time,
    send_total, order, counted, direct, parted, size, offset, group, taken, slowest,
):  # fmt: skip
    """Least priced sums, by layer, state and stages after, less one: an arc behind which there are
    n stages stands before a state with n, and makes one with n + 1."""
    deepest, classes, count, columns = levels - 1, counted.size, group.size, send_time.shape[1]
    # one level more, so that what is read is next to what is written
    table = np.full((layers, count, levels), INFINITE)
    table[0] = 0.0
    most = 0
    for d in range(size.size):
        most = max(most, size[d])
    # by class of the group behind: its node unknown, or known and not joined
    loose, known = np.empty((classes, deepest)), np.empty((classes, deepest))
    # of the stages that may send to so many of the cheapest columns
    free = np.empty((columns + 1, deepest))
    joint = np.empty((most + 1, deepest))
    column, rank = np.empty(classes, np.int64), np.empty(columns, np.int64)
    for v in range(1, layers):
        loose[:] = INFINITE
        known[:] = INFINITE
        begin, stop = first[v], first[v + 1]
        while begin < stop:
            r = row[begin]
            ranked = order[r]
            _columns(begin, seats, counted, direct, parted, column)
            for k in range(columns):
                rank[ranked[k]] = k + 1
            d = counted[own[begin]]
            n = seats[begin, d] if d >= 0 else 0
            dearest = 0.0  # to a group of a class that the stages may join
            if n > 0:
                for c in range(classes):
                    if counted[c] == d:
                        dearest = max(dearest, send_time[r, direct[c]])
                for t in range(1, size[d] - n + 1):
                    joint[t, :] = INFINITE
            widest, narrowest = 0, columns + 1
            end = begin
            while end < stop and row[end] == r:
                a = end
                end += 1
                if time[a] > slowest:
                    continue
                may = columns
                while may > 0 and time[a] + send_time[r, ranked[may - 1]] > slowest:
                    may -= 1
                deep = min(deepest, behind[a])
                if may == 0 or deep == 0:
                    continue
                if widest == 0:
                    widest, narrowest = may, may
                    free[may] = INFINITE
                while may > widest:
                    widest += 1
                    free[widest] = INFINITE
                while may < narrowest:
                    narrowest -= 1
                    free[narrowest] = INFINITE
                _lower(free[may, :deep], table[start[a], state[a], 1 : deep + 1], priced[a])
                if n > 0:
                    roomy = time[a] + dearest <= slowest
                    for t in range(1, size[d] - n + 1):
                        before = table[start[a], offset[own[a]] + t + n, 1 : deep + 1]
                        if roomy:
                            _lower(joint[t, :deep], before, priced[a])
                        else:
                            for c in range(classes):
                                k = direct[c]
                                if counted[c] == d and time[a] + send_time[r, k] <= slowest:
                                    more = priced[a] + send_total[r, k]
                                    _lower(table[v, offset[c] + t, :deep], before, more)
            begin_of = begin
            begin = end
            if widest == 0:
                continue
            for k in range(widest - 1, narrowest - 1, -1):
                _lower(free[k], free[k + 1], 0.0)
            for c in range(classes):
                k = direct[c]
                near = counted[c]
                if near >= 0 and seats[begin_of, near] > 0:
                    for t in range(1, size[near] - seats[begin_of, near] + 1):
                        s = offset[c] + t
                        if near == d:
                            _lower(table[v, s, :deepest], joint[t], send_total[r, k])
                        elif rank[k] <= widest:
                            source = free[max(rank[k], narrowest)]
                            _lower(table[v, s, :deepest], source, send_total[r, k])
                if rank[k] <= widest:
                    _lower(loose[c], free[max(rank[k], narrowest)], send_total[r, k])
                k = column[c]
                if rank[k] <= widest:
                    _lower(known[c], free[max(rank[k], narrowest)], send_total[r, k])
        for s in range(count):
            c = group[s]
            _lower(table[v, s, :deepest], known[c] if taken[s] > 0 else loose[c], 0.0)
            table[v, s, deepest] = table[v, s, deepest - 1]
    return table


@numba.njit(cache=True, nogil=True)
def _cheapest(  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    layers, levels, first, start, time, priced, behind, row, own, state, seats, send_time,
    send_total, counted, direct, parted, size, offset, group, taken, slowest, table,
):  # fmt: skip
    """The cheapest way: least sum, arcs, what sending adds."""
    top = levels - 1
    path = np.empty(layers, np.int64)
    length, sending = 0, 0.0
    best, s = INFINITE, 0
    for a in range(first[layers], first[layers + 1]):
        if time[a] <= slowest:
            value = priced[a] + table[start[a], state[a], 0]
            if value < best:
                best, path[0] = value, a
    least = best
    if best >= INFINITE:
        return least, path[:0].copy(), 0.0
    length, after = 1, 1
    s, v = state[path[0]], start[path[0]]
    while v > 0:
        best, chosen, cost, then = INFINITE, -1, 0.0, 0
        for a in range(first[v], first[v + 1]):
            if behind[a] < min(after, top) or time[a] > slowest:
                continue
            r = row[a]
            for mode in range(2):
                to, k = step(
                    a, s, mode, own, state, seats, counted, direct, parted, size, offset, group,
                    taken,
                )  # fmt: skip
                if to < 0 or time[a] + send_time[r, k] > slowest:
                    continue
                value = priced[a] + table[start[a], to, min(after, top)] + send_total[r, k]
                if value < best:
                    best, chosen, cost, then = value, a, send_total[r, k], to
        path[length] = chosen
        length += 1
        after += 1
        sending += cost
        s, v = then, start[chosen]
    return least, path[:length][::-1].copy(), sending


@numba.njit(cache=True, nogil=True)
def _meet(priced, values, before, into):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Let no suffix be above the value and price; return the least sum with the prefixes."""
    least = INFINITE
    for k in range(values.size):
        y = values[k] + priced
        into[k] = y if y < into[k] else into[k]
        z = y + before[k]
        least = z if z < least else least
    return least


@numba.njit(cache=True, nogil=True)
def _through(  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    layers, levels, first, start, time, priced, behind, row, own, state, seats, send_time,
    send_total, order, counted, direct, parted, size, offset, group, taken, slowest, table,
):  # fmt: skip
    """Least priced sums through every candidate: suffixes grow from the end, and meet the
    prefixes. Entry n of a suffix is for n + 1 stages from it on, as in the prefixes."""
    deepest, classes, count, columns = levels - 1, counted.size, group.size, send_time.shape[1]
    suffix = np.full((layers + 1, count, levels), INFINITE)
    least = np.full(time.size, INFINITE)
    for a in range(first[layers], first[layers + 1]):
        if time[a] <= slowest:
            v, s = start[a], state[a]
            suffix[v, s, 0] = min(suffix[v, s, 0], priced[a])
            least[a] = priced[a] + table[v, s, 0]
    loose, known = np.empty((classes, deepest)), np.empty((classes, deepest))
    free = np.empty((columns + 1, deepest))
    column = np.empty(classes, np.int64)
    for v in range(layers - 1, 0, -1):
        loose[:] = INFINITE
        known[:] = INFINITE
        for s in range(count):
            c = group[s]
            suffix[v, s, deepest - 1] = min(suffix[v, s, deepest - 1], suffix[v, s, deepest])
            if taken[s] > 0:
                _lower(known[c], suffix[v, s, :deepest], 0.0)
            else:
                _lower(loose[c], suffix[v, s, :deepest], 0.0)
        begin, stop = first[v], first[v + 1]
        while begin < stop:
            r = row[begin]
            _columns(begin, seats, counted, direct, parted, column)
            ranked = order[r]
            free[0] = INFINITE
            for k in range(1, columns + 1):
                free[k] = free[k - 1]
                for c in range(classes):
                    if direct[c] == ranked[k - 1]:
                        _lower(free[k], loose[c], send_total[r, direct[c]])
                    if column[c] == ranked[k - 1]:
                        _lower(free[k], known[c], send_total[r, column[c]])
            a = begin
            while a < stop and row[a] == r:
                may = columns if time[a] <= slowest else 0
                while may > 0 and time[a] + send_time[r, ranked[may - 1]] > slowest:
                    may -= 1
                u, deep = start[a], min(deepest, behind[a])
                if may > 0 and deep > 0:
                    s = state[a]
                    y = _meet(
                        priced[a], free[may, :deep], table[u, s, 1 : deep + 1],
                        suffix[u, s, 1 : deep + 1],
                    )  # fmt: skip
                    least[a] = min(least[a], y)
                    for c in range(classes):
                        d = counted[c]
                        if d < 0 or seats[a, d] == 0:
                            continue
                        k, n = direct[c], seats[a, d]
                        if time[a] + send_time[r, k] > slowest:
                            continue
                        for t in range(1, size[d] - n + 1):
                            s = offset[own[a]] + t + n if counted[own[a]] == d else state[a]
                            y = _meet(
                                priced[a] + send_total[r, k], suffix[v, offset[c] + t, :deep],
                                table[u, s, 1 : deep + 1], suffix[u, s, 1 : deep + 1],
                            )  # fmt: skip
                            least[a] = min(least[a], y)
                a += 1
            begin = a
    return least

"""Shortest chain of groups within the capacities, with its slowest stage and peaks in a box.

Labels (slowest stage, sum, peaks, devices used, stages, state of the first group) grow from the
last layer to the first. Below its box, the slowest stage and the peaks do not tell labels apart. A
label is completed by the prefixes' potentials, at the number of all devices that it uses of its
region; labels of a layer, state and number order upstream stages by their loss against the cheapest
one, so that only labels below the cutoff are examined.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ilp_planner.base.kernels import inlined, kernel
from ilp_planner.optimize.bounds.arrays import INFINITE, ascending, longer, longer_rows
from ilp_planner.optimize.bounds.group_states import onwards, step, taken_in

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ilp_planner.optimize.bounds.group_chain import GroupChain
    from ilp_planner.optimize.bounds.group_potentials import Potentials

FEW = 10  # labels per layer once the effort is spent
MOST = 5_000_000  # labels, as if the effort were spent: memory


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainSearch:
    """The result of a search of a box.

    path: arcs of the shortest path found, from the first layer on, () without one. value: its
    seconds. bound: seconds, proved for every path of the box, at most the cutoff. exact: whether
    nothing was left out. effort: comparisons and labels, a measure of time.
    """

    path: tuple[int, ...]
    value: float
    bound: float
    exact: bool
    effort: float


class Aim(NamedTuple):
    """The target: paths below `cutoff` seconds, with the slowest stage counted as at least `low`
    seconds and peaks as at least `peak_low`, float64 [K].

    capacity: int64 [types], devices. weight: of the slowest stage. width: labels per layer. effort:
    comparisons; beyond, few labels are kept.
    """

    capacity: NDArray[np.int64]
    weight: float
    low: float
    peak_low: NDArray[np.float64]
    cutoff: float
    width: int
    effort: float


class Rivals(NamedTuple):
    """States that dominate state s are number[first[s] : first[s + 1]]."""

    first: NDArray[np.int64]
    number: NDArray[np.int64]


def search_chain(
    chain: GroupChain,
    known: Potentials,
    *,
    low: float,
    peak_low: NDArray[np.float64],
    cutoff: float,
    width: int = 2**40,
    effort: float = np.inf,
) -> ChainSearch:
    """Return the shortest path below `cutoff` seconds.

    Parameters
    ----------
    known: of the same candidates; paths with stages slower than its `slowest` are pruned.
    low: seconds, the slowest stage counts at least that. peak_low: float64 [K], likewise.
    width: labels per layer. effort: comparisons; beyond, few labels are kept.
    """
    s = chain.states
    rank, rows = np.nonzero(s.better.T)  # by the state that is beaten
    first = np.searchsorted(rank, np.arange(s.group.size + 1))
    rivals = Rivals(first, np.ascontiguousarray(rows))
    aim = Aim(
        capacity=np.array(chain.capacity, np.int64),
        weight=chain.weight,
        low=float(low),
        peak_low=peak_low,
        cutoff=float(min(cutoff, INFINITE)),
        width=width,
        effort=float(effort),
    )
    path, value, bound, exact, spent = _search(
        chain.layers, chain.stages, chain.sending, s, chain.regions, rivals, known, aim
    )
    return ChainSearch(
        path=tuple(path.tolist()),
        value=float(value) if path.size else np.inf,
        bound=float(bound),
        exact=bool(exact),
        effort=float(spent),
    )


@kernel
def _search(layers, arcs, sending, states, regions, rivals, known, aim):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    first, start, time, total, peaks, use, behind, row, group, state, _, number = arcs
    send_time, send_total, _ = sending
    table, price, slowest, priced, _, _, _ = known
    capacity, weight, low, peak_low, cutoff, width, effort = aim
    levels, types, kinds, count = table.shape[3], use.shape[1], peaks.shape[1], states.group.size
    numbers = regions.fits.shape[2]
    top_level = levels - 1
    room = 1 << 14
    top, tot, rest = np.empty(room), np.empty(room), np.empty(room)
    bound_of = np.empty(room)
    pk, used = np.empty((room, kinds)), np.empty((room, types), np.int32)
    depth, of = np.empty(room, np.int32), np.empty(room, np.int32)
    taken = np.empty(room, np.int64)  # number of its region
    arc, follow, link = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int64)
    waiting = np.full(layers, -1, np.int64)
    made = 0
    budget = 0.0
    for d in range(types):
        budget += price[d] * capacity[d]
    best, lost, winner, spent = cutoff, INFINITE, -1, 0.0
    now = np.zeros(types, np.int64)
    peak = np.zeros(kinds)
    slots = 1 << 14
    e_loss, e_arc, e_to = np.empty(slots), np.empty(slots, np.int64), np.empty(slots, np.int64)
    e_column, e_order = np.empty(slots, np.int64), np.empty(slots, np.int64)
    e_begin = np.zeros((levels, count, numbers), np.int64)
    e_end = np.full((levels, count, numbers), -1, np.int64)
    kept_head = np.full(count, -1, np.int64)
    kept_next = np.empty(room, np.int64)
    for v in range(layers, 0, -1):
        members, ranked = _ranked(waiting[v] if v < layers else -1, link, bound_of)
        e_end[:] = -1
        filled = 0
        kept_head[:] = -1
        kept = 0
        for place in range(1 if v == layers else ranked.size):
            y = 0 if v == layers else members[ranked[place]]
            after, s, have, own = 0, 0, 0, 0.0
            if v < layers:
                own = bound_of[y]
                if own >= best:
                    break
                if kept >= width or ((spent > effort or made > MOST) and kept >= FEW):
                    lost = min(lost, own)
                    break
                s, have = of[y], taken[y]
                beaten, compared = _beaten(
                    y, rivals.first[s], rivals.first[s + 1], rivals.number, kept_head, kept_next,
                    top, tot, depth, used, pk, low, peak_low,
                )  # fmt: skip
                spent += compared
                if beaten:
                    continue
                kept_next[y] = kept_head[s]
                kept_head[s] = y
                kept += 1
                after = min(depth[y], top_level)
            if e_end[after, s, have] < 0:
                # what may stand before this state, and what it loses against the cheapest
                e_begin[after, s, have] = filled
                base = 0.0 if v == layers else table[v, s, have, after - 1]
                for a in range(first[v], first[v + 1]):
                    if time[a] > slowest or behind[a] < after:
                        continue
                    r, many = row[a], number[a]
                    if v < layers:
                        many = onwards(group[a], states.group[s], many, have, regions)
                        if many < 0:
                            continue
                    before = table[start[a], :, many, min(after, top_level)]
                    for mode in range(2):
                        to, k = state[a], 0
                        if v < layers:
                            to, k = step(a, s, mode, arcs, states)
                        if to < 0 or (mode == 1 and v == layers):
                            continue
                        loss = priced[a] + before[to] - base
                        if v < layers:
                            if time[a] + send_time[r, k] > slowest:
                                continue
                            loss += send_total[r, k]
                        if loss >= INFINITE or (own + loss >= best and v < layers):
                            continue
                        if filled == slots:
                            slots *= 2
                            e_loss = longer(e_loss, slots)
                            e_arc, e_to = longer(e_arc, slots), longer(e_to, slots)
                            e_column, e_order = longer(e_column, slots), longer(e_order, slots)
                        e_loss[filled], e_arc[filled] = loss, a
                        e_to[filled], e_column[filled] = to, k
                        filled += 1
                spent += first[v + 1] - first[v]
                e_end[after, s, have] = filled
                begin = e_begin[after, s, have]
                part = ascending(e_loss[begin:filled])
                for e in range(part.size):
                    e_order[begin + e] = begin + part[e]
            for nth in range(e_begin[after, s, have], e_end[after, s, have]):
                e = e_order[nth]
                spent += 1
                a, loss = e_arc[e], e_loss[e]
                if v < layers:
                    if own + loss >= best:
                        break
                    if behind[a] < depth[y]:
                        continue
                fits = True
                for d in range(types):
                    now[d] = use[a, d]
                    if v < layers:
                        now[d] += used[y, d]
                    if now[d] > capacity[d]:
                        fits = False
                        break
                if not fits:
                    continue
                to, k = e_to[e], e_column[e]
                m, t = time[a], total[a]
                remaining = loss - budget
                if v < layers:
                    m = max(m + send_time[row[a], k], top[y])
                    t += send_total[row[a], k] + tot[y]
                    remaining = rest[y] + loss
                # in a region to which the way comes back there is less left than the loss says
                u, many = start[a], taken_in(group[a], now, regions)
                if u > 0:
                    here = onwards(group[a], states.group[s], number[a], have, regions)
                    here = here if v < layers else number[a]
                    level = min(after, top_level)
                    further = table[u, to, many, level]
                    remaining += further - table[u, to, here, level]
                    if further >= INFINITE:
                        continue
                value = remaining + weight * max(m, low)
                for p in range(kinds):
                    peak[p] = peaks[a, p]
                    if v < layers:
                        peak[p] = max(peak[p], pk[y, p])
                    value += max(peak[p], peak_low[p])
                if u == 0:  # all devices are counted: none need be paid for
                    value = t + weight * max(m, low)
                    for p in range(kinds):
                        value += max(peak[p], peak_low[p])
                if value >= best:
                    continue
                if made == top.size:
                    need = 2 * made
                    top, tot, rest = longer(top, need), longer(tot, need), longer(rest, need)
                    bound_of = longer(bound_of, need)
                    depth, of, arc = longer(depth, need), longer(of, need), longer(arc, need)
                    taken = longer(taken, need)
                    follow, link = longer(follow, need), longer(link, need)
                    kept_next = longer(kept_next, need)
                    pk, used = longer_rows(pk, need), longer_rows(used, need)
                top[made], tot[made], rest[made], bound_of[made] = m, t, remaining, value
                depth[made] = 1 if v == layers else depth[y] + 1
                of[made], arc[made], taken[made] = to, a, many
                follow[made] = -1 if v == layers else y
                for d in range(types):
                    used[made, d] = now[d]
                for p in range(kinds):
                    pk[made, p] = peak[p]
                if u == 0:
                    best, winner = value, made
                else:
                    link[made] = waiting[u]
                    waiting[u] = made
                made += 1
    return _way(winner, arc, follow), best, min(lost, best), lost >= best, spent


@inlined
def _ranked(head, link, bound_of):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return the labels that wait at a layer, and their numbers by bound, the least first."""
    many, label = 0, head
    while label >= 0:
        many += 1
        label = link[label]
    members, values = np.empty(many, np.int64), np.empty(many)
    label = head
    for n in range(many):
        members[n], values[n] = label, bound_of[label]
        label = link[label]
    return members, ascending(values)


@inlined
def _beaten(  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    y, begin, end, beats, kept_head, kept_next, top, tot, depth, used, pk, low, peak_low
):
    """Tell whether a label that was kept is no worse in anything, and how many were compared."""
    compared = 0.0
    for x in range(begin, end):
        z = kept_head[beats[x]]
        while z >= 0:
            compared += 1
            if tot[z] <= tot[y] and depth[z] <= depth[y] and max(top[z], low) <= max(top[y], low):
                worse = True
                for d in range(used.shape[1]):
                    if used[z, d] > used[y, d]:
                        worse = False
                        break
                if worse:
                    for k in range(pk.shape[1]):
                        if max(pk[z, k], peak_low[k]) > max(pk[y, k], peak_low[k]):
                            worse = False
                            break
                if worse:
                    return True, compared
            z = kept_next[z]
    return False, compared


@inlined
def _way(winner, arc, follow):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return the arcs of a label, from the first layer on; none without one."""
    length, label = 0, winner
    while label >= 0:
        length += 1
        label = follow[label]
    path = np.empty(length, np.int64)
    label = winner
    for n in range(length):
        path[n] = arc[label]
        label = follow[label]
    return path

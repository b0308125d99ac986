"""The fastest legal way to run one stage: exact, by labels between a Lagrangian bound and an incumbent.

A label is a partial stage: its time, its additive memory, its weights, its open recompute run, its largest closed run
and its largest reserved memory. Labels die when another one in the same state is no worse in all of these, or when
time plus the Lagrangian bound of what is left (for several prices) reaches the best known time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numba
import numpy as np

from ilp_planner.bounds.sweep import INFINITE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ilp_planner.bounds.sweep import Chain

MEMORY_ROUNDING = 5e-10  # relative: what rounding to the grid may add up to
NEIGHBOURS = 14
BEAM = 200
CLASSES = 6
RUN_STEP, RUN_CLASSES = 1.2, 9
SMALLEST_CLASS = 0.02  # of the largest: below, a class would gain nothing


@dataclass(frozen=True, kw_only=True, eq=False)
class StageOptimum:
    """bound: seconds, no legal way is faster. time: seconds of the best way found (INFINITE: none below the cutoff).

    choices: option per operator; flags: recomputed?. exact: bound and time meet, or nothing below the cutoff exists.
    """

    bound: float
    time: float
    choices: NDArray[np.int64]
    flags: NDArray[np.bool_]
    exact: bool


def solve_stage(
    chain: Chain,
    start: int,
    stop: int,
    *,
    in_flight: int,
    limit: float,
    enters_node: bool,
    leaves_node: bool,
    cutoff: float,
    effort: int,
) -> StageOptimum:
    """Find the fastest way below `cutoff` seconds to run operators [start, stop) within `limit` bytes.

    effort caps the elementary label operations (some 1e8 a second); 0: prices only, no labels.
    With `exact` the answer is final: `bound` is the optimum, or at least `cutoff` when nothing faster exists.
    """
    tables = chain.tables
    part = slice(start, stop)
    room = limit * (1 + MEMORY_ROUNDING)
    choices = np.zeros(stop - start, np.int64)
    flags = np.zeros(stop - start, np.bool_)
    best, bound, spent, exact = INFINITE, INFINITE, 0, True
    operators = (
        chain.compute[part], chain.recompute[part], chain.activations[part], chain.weights[part],
        chain.input[start], chain.forward_reserved[part], chain.backward_reserved[part],
        chain.enter[int(enters_node), start],
    )  # fmt: skip
    memory = (float(in_flight), tables.state_factor, tables.weight_floor, room)
    jobs = []
    for degree in range(chain.leave.shape[3]):
        leave = np.ascontiguousarray(chain.leave[int(leaves_node), stop - 1, :, degree])
        ends = (leave, np.ascontiguousarray(tables.degree == degree))
        for most, least in _pair_classes(chain, start, stop):
            ways, rcs = np.zeros_like(choices), np.zeros_like(flags)
            time, price, root = _search_price(
                *operators, *ends, chain.reshard, tables.pair[part], chain.free, tables.saves[part],
                tables.closes[part], tables.shared[part], *memory, most, least, ways, rcs,
            )  # fmt: skip
            if time < best:
                best, choices, flags = time, ways, rcs
            if price == 0.0 and most == np.inf:  # memory does not bind: nothing is faster
                jobs = [job for job in jobs if job[1] is not ends]
                bound = min(bound, time)
            else:
                jobs.append((root, ends, most, least, price))
    for width in (BEAM, 0):
        for root, ends, most, least, price in sorted(jobs, key=lambda job: job[0]):
            ways, rcs = np.zeros_like(choices), np.zeros_like(flags)
            stop_at = min(best, cutoff)
            if root >= stop_at:
                continue
            if effort == 0:
                exact, bound = False, min(bound, root)
                continue
            time, low, complete, work = _grow(
                *operators, *ends, chain.reshard, tables.pair[part], chain.free, chain.alike[part],
                tables.saves[part], tables.closes[part], tables.shared[part], *memory, most, least,
                price, stop_at, effort - spent, width, ways, rcs,
            )  # fmt: skip
            if time < best:
                best, choices, flags = time, ways, rcs
            spent = min(spent + work, effort)
            if width == 0:
                exact &= complete
                bound = min(bound, low)
    if exact:  # every class was searched, or cannot hold anything below the cutoff
        bound = min(best, cutoff)
    return StageOptimum(
        bound=min(bound, best), time=best, choices=choices, flags=flags, exact=exact
    )


def _pair_classes(chain: Chain, start: int, stop: int) -> list[tuple[float, float]]:
    """Return (most, least) bytes that one recomputed pair keeps: every stage is in one of the classes."""
    if stop - start >= 2 and chain.tables.shared[stop - 2]:
        return [(np.inf, 0.0)]  # the last run of such a stage may be dropped, whatever its size
    usable = chain.compute[start : stop - 1] < INFINITE
    sizes = np.unique(chain.activations[start : stop - 1][usable])
    if sizes.size == 0:
        return [(np.inf, 0.0)]
    sizes = sizes[sizes >= sizes[-1] * SMALLEST_CLASS]
    edges = sizes if sizes.size <= CLASSES else sizes[np.linspace(0, sizes.size - 1, CLASSES).astype(int)]
    least = [0.0, *(float(sizes[sizes > edge][0]) for edge in edges[:-1])]
    runs = [float(edges[-1]) * RUN_STEP**x for x in range(1, RUN_CLASSES + 1)]
    most = [*(float(edge) for edge in edges), *runs[:-1], np.inf]
    return list(zip(most, [*least, float(edges[-1]), *runs[:-1]], strict=True))


@numba.njit(cache=True, nogil=True)
def _completion(  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    price, time_weight, compute, recompute, activations, weights, leave,
    reshard, pair, free, saves, in_flight, factor, pair_most, out,
):  # fmt: skip
    """Fill out[q, r, o]: least time_weight * time + price * memory of what follows operator q."""
    m, options = compute.shape
    for o in range(options):
        out[m - 1, 0, o] = time_weight * leave[o]
        out[m - 1, 1, o] = time_weight * leave[o]
    cost = np.empty(options)
    for q in range(m - 1, 0, -1):
        least0 = INFINITE
        least1 = INFINITE
        for o in range(options):
            cost[o] = time_weight * compute[q, o] + price * (
                factor * weights[q, o] + in_flight * activations[q, o]
            )
            least0 = min(least0, cost[o] + out[q, 0, o])
            least1 = min(least1, cost[o] + time_weight * recompute[q, o] + out[q, 1, o])
        for p in range(options):
            b0 = least0
            b1 = least1
            if not free[pair[q]]:
                b0 = INFINITE
                b1 = INFINITE
                for o in range(options):
                    r = time_weight * reshard[pair[q], p, o]
                    b0 = min(b0, cost[o] + out[q, 0, o] + r)
                    b1 = min(b1, cost[o] + time_weight * recompute[q, o] + out[q, 1, o] + r)
            out[q - 1, 0, p] = min(b0, b1)
            s = price * in_flight * activations[q - 1, p] if saves[q - 1] else 0.0
            out[q - 1, 1, p] = min(b0, b1 - s) if activations[q - 1, p] <= pair_most else b0


@numba.njit(cache=True, nogil=True)
def _follow(  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    price, compute, recompute, activations, weights, inputs, fwd, bwd, enter, leave, first,
    reshard, pair, saves, closes, shared, in_flight, factor, floor, pair_most, out, ways, rcs,
):  # fmt: skip
    """Walk the Lagrangian path for one price; return its true time and memory, and its Lagrangian value."""
    m, options = compute.shape
    best = INFINITE
    for o in range(options):
        if not first[o]:
            continue
        v = compute[0, o] + enter[o] + price * (
            factor * weights[0, o] + in_flight * (activations[0, o] + inputs[o])
        )
        for r in range(2):
            c = v + (recompute[0, o] if r else 0.0) + out[0, r, o]
            if c < best:
                best = c
                ways[0] = o
                rcs[0] = r
    if best >= INFINITE:
        return INFINITE, INFINITE, INFINITE
    value = best
    for q in range(1, m):
        p = ways[q - 1]
        best = INFINITE
        for o in range(options):
            v = compute[q, o] + reshard[pair[q], p, o] + price * (
                factor * weights[q, o] + in_flight * activations[q, o]
            )
            for r in range(2):
                if r and rcs[q - 1] and activations[q - 1, p] > pair_most:
                    continue
                c = v + (recompute[q, o] if r else 0.0) + out[q, r, o]
                if r and rcs[q - 1] and saves[q - 1]:
                    c -= price * in_flight * activations[q - 1, p]
                if c < best:
                    best = c
                    ways[q] = o
                    rcs[q] = r
    # true memory, and flags that serve nothing dropped
    for q in range(m):
        before = q > 0 and rcs[q - 1]
        if rcs[q] and not before and not (q + 1 < m and rcs[q + 1]):
            rcs[q] = False
    time, memory = _price_path(
        ways, rcs, compute, recompute, activations, weights, inputs, fwd, bwd, enter, leave,
        reshard, pair, saves, closes, shared, in_flight, factor, floor,
    )  # fmt: skip
    return time, memory, value


@numba.njit(cache=True, nogil=True)
def _price_path(  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    ways, rcs, compute, recompute, activations, weights, inputs, fwd, bwd, enter, leave,
    reshard, pair, saves, closes, shared, in_flight, factor, floor,
):  # fmt: skip
    m = ways.size
    time = enter[ways[0]] + leave[ways[m - 1]]
    live = inputs[ways[0]]
    total = 0.0
    peak = 0.0
    run = 0.0
    f = 0.0
    b = 0.0
    for q in range(m):
        o = ways[q]
        time += compute[q, o]
        if rcs[q]:
            time += recompute[q, o]
        total += weights[q, o]
        live += activations[q, o]
        if q > 0:
            time += reshard[pair[q], ways[q - 1], o]
        if q < m - 1:
            f = max(f, fwd[q, o])
            b = max(b, bwd[q, o])
            if rcs[q] and rcs[q + 1]:
                run += activations[q, o]
                if saves[q]:
                    live -= activations[q, o]
                if closes[q] or (not shared[q] and q + 2 == m):
                    peak = max(peak, run)
                    run = 0.0
            else:
                peak = max(peak, run)
                run = 0.0
    reserved = f + b
    if floor:
        reserved = max(reserved, total)
    return time, factor * total + in_flight * live + peak + reserved


@numba.njit(cache=True, nogil=True)
def _least_reserved(compute, fwd, bwd):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return what operators q .. m - 2 reserve at least ([m + 1] each); the last one does not count."""
    m, options = compute.shape
    rest_f = np.zeros(m + 1)
    rest_b = np.zeros(m + 1)
    for q in range(m - 2, -1, -1):
        f = INFINITE
        b = INFINITE
        for o in range(options):
            if compute[q, o] < INFINITE:
                f = min(f, fwd[q, o])
                b = min(b, bwd[q, o])
        rest_f[q] = max(rest_f[q + 1], f)
        rest_b[q] = max(rest_b[q + 1], b)
    return rest_f, rest_b


@numba.njit(cache=True, nogil=True)
def _search_price(  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    compute, recompute, activations, weights, inputs, fwd, bwd, enter, leave, first,
    reshard, pair, free, saves, closes, shared, in_flight, factor, floor, limit, pair_most,
    pair_least, best_ways, best_rcs,
):  # fmt: skip
    """Bisect for the least price of memory whose path fits.

    Returns (fastest time that fits, price, bound); the price is negative when none was found.
    """
    m, options = compute.shape
    ways = np.zeros(m, np.int64)
    rcs = np.zeros(m, np.bool_)
    work = np.empty((m, 2, options))
    best = INFINITE
    low_ways = np.zeros(m, np.int64)
    low_rcs = np.zeros(m, np.bool_)
    rest_f, rest_b = _least_reserved(compute, fwd, bwd)
    room = limit - pair_least - rest_f[0] - rest_b[0]
    bound = 0.0
    low = 0.0
    high = -1.0
    price = 0.0
    for step in range(64):
        _completion(price, 1.0, compute, recompute, activations, weights, leave, reshard, pair, free,
                    saves, in_flight, factor, pair_most, work)  # fmt: skip
        t, mem, value = _follow(price, compute, recompute, activations, weights, inputs, fwd, bwd, enter, leave,
                         first, reshard, pair, saves, closes, shared, in_flight, factor, floor, pair_most,
                         work, ways, rcs)  # fmt: skip
        bound = max(bound, value - price * room)
        if mem <= limit:
            high = price
            if t < best:
                best = t
                best_ways[:] = ways
                best_rcs[:] = rcs
            if step == 0:
                break
        else:
            low = price
            low_ways[:] = ways
            low_rcs[:] = rcs
        if high < 0.0:
            price = 1e-13 if price == 0.0 else 3.0 * price
            if price > 1e-4:
                break
        else:
            price = 0.5 * (low + high)
            if high - low < 1e-3 * high:
                break
    if high <= 0.0:
        return best, high, bound
    # Equal layers change their minds all at the same price. In between: one path up to an operator, then the other.
    high_ways = best_ways.copy()
    high_rcs = best_rcs.copy()
    for order in range(2):
        if order == 0:
            front_ways, front_rcs, rear_ways, rear_rcs = low_ways, low_rcs, high_ways, high_rcs
        else:
            front_ways, front_rcs, rear_ways, rear_rcs = high_ways, high_rcs, low_ways, low_rcs
        # bisection for the last switch that fits (order 0) or the first one (order 1), then its neighbours
        inside = 0
        outside = m
        around = -NEIGHBOURS
        while around <= NEIGHBOURS:
            bisecting = outside - inside > 1
            at = (inside + outside) // 2 if bisecting else inside + around
            if not bisecting:
                around += 1
                if at <= 0 or at >= m:
                    continue
            ways[:at] = front_ways[:at]
            rcs[:at] = front_rcs[:at]
            ways[at:] = rear_ways[at:]
            rcs[at:] = rear_rcs[at:]
            t, mem = _price_path(
                ways, rcs, compute, recompute, activations, weights, inputs, fwd, bwd, enter, leave,
                reshard, pair, saves, closes, shared, in_flight, factor, floor,
            )  # fmt: skip
            if mem <= limit and t < best:
                best = t
                best_ways[:] = ways
                best_rcs[:] = rcs
            if bisecting:
                if (mem <= limit) == (order == 0):
                    inside = at
                else:
                    outside = at
    return best, high, bound


@numba.njit(cache=True, nogil=True)
def _grow(  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    compute, recompute, activations, weights, inputs, fwd, bwd, enter, leave, first,
    reshard, pair, free, alike, saves, closes, shared, in_flight, factor, floor, limit,
    pair_most, pair_least, price, cutoff, effort, width, best_ways, best_rcs,
):  # fmt: skip
    """Grow labels operator by operator; the fastest path below `cutoff` is written to best_ways, best_rcs.

    Returns (time or INFINITE, bound, complete, work). width > 0: keep only so many labels per operator
    (a heuristic; the bound is then that of the root).
    """
    m, options = compute.shape
    # ---- completion bounds for prices around it, and least memory to go ----
    if price >= 0.0:
        prices = price * np.array([0.0, 0.25, 0.6, 0.85, 0.97, 1.001, 1.15, 1.6, 4.0])
    else:
        prices = np.array([0.0, 1e-13, 1e-12, 3e-12, 1e-11, 3e-11, 1e-10, 1e-9, 1e-8])
    ahead = np.empty((prices.size, m, 2, options))
    for x in range(prices.size):
        _completion(prices[x], 1.0, compute, recompute, activations, weights, leave, reshard, pair, free,
                    saves, in_flight, factor, pair_most, ahead[x])  # fmt: skip
    lightest = np.empty((m, 2, options))
    penalty = np.where(compute >= INFINITE, INFINITE, 0.0)
    blocked = np.where(reshard >= INFINITE, INFINITE, 0.0)
    _completion(1.0, 1.0, penalty, np.zeros_like(recompute), activations, weights, np.zeros_like(leave),
                blocked, pair, free, saves, in_flight, factor, pair_most, lightest)  # fmt: skip
    rest_f, rest_b = _least_reserved(compute, fwd, bwd)
    droppable = m >= 2 and shared[m - 2]
    # ---- labels: 0 time, 1 memory, 2 weights, 3 run, 4 peak, 5 forward, 6 backward ----
    size = 1 << 14
    value = np.empty((size, 7))
    parent = np.empty(size, np.int64)
    state = np.empty(size, np.int64)
    count = 0
    stop_at = cutoff
    root = INFINITE
    dropped = False
    work = 0
    begin = 0
    fresh = np.empty((4096, 7))
    fresh_parent = np.empty(4096, np.int64)
    fresh_state = np.empty(4096, np.int64)
    fresh_bound = np.empty(4096)
    frontier = INFINITE
    for q in range(m):
        made = 0
        end = count if q > 0 else begin + 1
        for l in range(begin, end):
            work += 8 * options
            p = state[l] >> 1 if q > 0 else 0
            rp = state[l] & 1 if q > 0 else 0
            for o in range(options):
                if q == 0:
                    if not first[o] or compute[0, o] >= INFINITE:
                        continue
                    step = compute[0, o] + enter[o]
                else:
                    step = compute[q, o] + reshard[pair[q], p, o]
                    if step >= INFINITE:
                        continue
                for r in range(2):
                    if q == 0:
                        time = step
                        add = factor * weights[0, o] + in_flight * (activations[0, o] + inputs[o])
                        total = weights[0, o]
                        run = 0.0
                        peak = pair_least
                        f = 0.0
                        b = 0.0
                    else:
                        time = value[l, 0] + step
                        add = value[l, 1] + factor * weights[q, o] + in_flight * activations[q, o]
                        total = value[l, 2] + weights[q, o]
                        run = value[l, 3]
                        peak = value[l, 4]
                        f = max(value[l, 5], fwd[q - 1, p])
                        b = max(value[l, 6], bwd[q - 1, p])
                        if rp == 1 and r == 1:
                            run += activations[q - 1, p]
                            if run > pair_most:
                                continue
                            if saves[q - 1]:
                                add -= in_flight * activations[q - 1, p]
                            if closes[q - 1] or (q == m - 1 and not shared[q - 1]):
                                peak = max(peak, run)
                                run = 0.0
                        else:
                            peak = max(peak, run)
                            run = 0.0
                    if r == 1:
                        time += recompute[q, o]
                    if time >= stop_at:
                        continue
                    f = max(f, rest_f[q])
                    b = max(b, rest_b[q])
                    fixed = peak if droppable else max(peak, run)
                    reserved = f + b
                    if floor:
                        reserved = max(reserved, total)
                    used = add + fixed + reserved
                    if used + lightest[q, r, o] > limit:
                        continue
                    bound = 0.0
                    for x in range(prices.size):
                        v = time + ahead[x, q, r, o] + prices[x] * (used - limit)
                        if v > bound:
                            bound = v
                    if bound >= stop_at:
                        continue
                    if made == fresh_bound.size:
                        fresh = np.concatenate((fresh, np.empty_like(fresh)))
                        fresh_parent = np.concatenate((fresh_parent, np.empty_like(fresh_parent)))
                        fresh_state = np.concatenate((fresh_state, np.empty_like(fresh_state)))
                        fresh_bound = np.concatenate((fresh_bound, np.empty_like(fresh_bound)))
                    fresh[made, 0] = time
                    fresh[made, 1] = add
                    fresh[made, 2] = total
                    fresh[made, 3] = run
                    fresh[made, 4] = peak
                    fresh[made, 5] = f
                    fresh[made, 6] = b
                    fresh_parent[made] = l
                    fresh_state[made] = 2 * o + r
                    fresh_bound[made] = bound
                    made += 1
        # keep what no other label of the same state dominates
        order = np.argsort(fresh[:made, 0], kind="mergesort")
        new_begin = count
        heads = np.full(2 * options, -1, np.int64)  # linked lists of kept labels by state
        link = np.empty(made, np.int64)
        kept_bound = np.empty(made)
        if count + made > value.shape[0]:
            grow = max(value.shape[0], made)
            value = np.concatenate((value, np.empty((grow, 7))))
            parent = np.concatenate((parent, np.empty(grow, np.int64)))
            state = np.concatenate((state, np.empty(grow, np.int64)))
        frontier = INFINITE
        for x in order:
            s = 2 * alike[q, fresh_state[x] >> 1] + (fresh_state[x] & 1)
            dominated = False
            y = heads[s]
            while y >= 0:
                work += 1
                k = new_begin + y
                if (
                    value[k, 1] <= fresh[x, 1]
                    and value[k, 4] <= fresh[x, 4]
                    and value[k, 3] <= fresh[x, 3]
                    and value[k, 5] <= fresh[x, 5]
                    and value[k, 6] <= fresh[x, 6]
                    and (not floor or value[k, 2] <= fresh[x, 2])
                ):
                    dominated = True
                    break
                y = link[y]
            if dominated:
                continue
            value[count] = fresh[x]
            parent[count] = fresh_parent[x]
            state[count] = fresh_state[x]
            link[count - new_begin] = heads[s]
            heads[s] = count - new_begin
            kept_bound[count - new_begin] = fresh_bound[x]
            frontier = min(frontier, fresh_bound[x])
            count += 1
        begin = new_begin
        if q == 0:
            root = frontier
        if count == begin:  # nothing is left below the cutoff
            return INFINITE, root if dropped else cutoff, not dropped, work
        if width > 0 and count - begin > width:
            dropped = True
            keep = np.sort(np.argsort(kept_bound[: count - begin], kind="mergesort")[:width])
            for x in range(width):
                value[begin + x] = value[begin + keep[x]]
                parent[begin + x] = parent[begin + keep[x]]
                state[begin + x] = state[begin + keep[x]]
            count = begin + width
        work += 8 * made
        if work > effort:
            return INFINITE, min(frontier, cutoff), False, work
    # ---- the best finished label ----
    chosen = -1
    for l in range(begin, count):
        o = state[l] >> 1
        reserved = value[l, 5] + value[l, 6]
        if floor:
            reserved = max(reserved, value[l, 2])
        if value[l, 1] + value[l, 4] + reserved > limit:
            continue
        t = value[l, 0] + leave[o]
        if t < stop_at:
            stop_at = t
            chosen = l
    if chosen < 0:
        return INFINITE, root if dropped else cutoff, not dropped, work
    l = chosen
    for q in range(m - 1, -1, -1):
        best_ways[q] = state[l] >> 1
        best_rcs[q] = state[l] & 1 == 1
        l = parent[l]
    return stop_at, root if dropped else stop_at, not dropped, work

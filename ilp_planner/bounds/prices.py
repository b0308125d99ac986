"""Pricing the memory of one stage: Lagrangian completions, the paths they lead to, and the best
price.

All functions are compiled. Arrays are cut to the operators of the stage: [m, O] per operator and
option, [m] per operator;
m operators, O options. A state is (recomputed?, option). Seconds and bytes.
"""

from __future__ import annotations

import numba
import numpy as np

from ilp_planner.bounds.sweep import INFINITE

NEIGHBOURS = (
    14  # operators on either side of the switch between two paths that are tried too: a layer
)


@numba.njit(cache=True, nogil=True)
def completion(  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
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
def follow(  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    price, compute, recompute, activations, weights, inputs, fwd, bwd, enter, leave, first,
    reshard, pair, saves, closes, shared, in_flight, factor, floor, pair_most, out, ways, rcs,
):  # fmt: skip
    """Walk the Lagrangian path for one price; return its true time and memory, and its Lagrangian
    value."""
    m, options = compute.shape
    best = INFINITE
    for o in range(options):
        if not first[o]:
            continue
        v = (
            compute[0, o]
            + enter[o]
            + price * (factor * weights[0, o] + in_flight * (activations[0, o] + inputs[o]))
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
            v = (
                compute[q, o]
                + reshard[pair[q], p, o]
                + price * (factor * weights[q, o] + in_flight * activations[q, o])
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
    time, memory = price_path(
        ways, rcs, compute, recompute, activations, weights, inputs, fwd, bwd, enter, leave,
        reshard, pair, saves, closes, shared, in_flight, factor, floor,
    )  # fmt: skip
    return time, memory, value


@numba.njit(cache=True, nogil=True)
def price_path(  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    ways, rcs, compute, recompute, activations, weights, inputs, fwd, bwd, enter, leave,
    reshard, pair, saves, closes, shared, in_flight, factor, floor,
):  # fmt: skip
    """Return the time and the memory of one stage whose every choice is made."""
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
def least_reserved(compute, fwd, bwd):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return what operators q .. m - 2 reserve at least ([m + 1] each); the last one does not
    count."""
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
def search_price(  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
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
    rest_f, rest_b = least_reserved(compute, fwd, bwd)
    room = limit - pair_least - rest_f[0] - rest_b[0]
    bound = 0.0
    low = 0.0
    high = -1.0
    price = 0.0
    for step in range(64):
        completion(price, 1.0, compute, recompute, activations, weights, leave, reshard, pair, free,
                    saves, in_flight, factor, pair_most, work)  # fmt: skip
        t, mem, value = follow(price, compute, recompute, activations, weights, inputs, fwd, bwd,
        enter, leave,
                         first, reshard, pair, saves, closes, shared, in_flight, factor, floor,
                         pair_most,
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
    # Equal layers change their minds all at the same price. In between: one path up to an
    # operator, then the other.
    high_ways = best_ways.copy()
    high_rcs = best_rcs.copy()
    for order in range(2):
        if order == 0:
            front_ways, front_rcs, rear_ways, rear_rcs = low_ways, low_rcs, high_ways, high_rcs
        else:
            front_ways, front_rcs, rear_ways, rear_rcs = high_ways, high_rcs, low_ways, low_rcs
        # bisection for the last switch that fits (order 0) or the first one (order 1), then its
        # neighbours
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
            t, mem = price_path(
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

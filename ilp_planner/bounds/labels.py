"""Growing one stage operator by operator: exact labels between a Lagrangian bound and an incumbent.

A label is a partial stage: its time, its additive memory, its weights, its open recompute run, its
largest closed run
and its largest reserved memory. Labels die when another one in the same state is no worse in all
of these, or when
time plus the Lagrangian bound of what is left (for several prices) reaches the best known time.
"""

from __future__ import annotations

import numba
import numpy as np

from ilp_planner.bounds.prices import completion, least_reserved
from ilp_planner.bounds.sweep import INFINITE

TIME, MEMORY, WEIGHTS, RUN, PEAK, FORWARD, BACKWARD = range(7)


@numba.njit(cache=True, nogil=True)
def grow(  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    compute, recompute, activations, weights, inputs, fwd, bwd, enter, leave, first,
    reshard, pair, free, alike, saves, closes, shared, in_flight, factor, floor, limit,
    pair_most, pair_least, price, cutoff, effort, width, best_ways, best_rcs,
):  # fmt: skip
    """Grow labels operator by operator; the fastest path below `cutoff` is written to best_ways,
    best_rcs.

    Returns (time or INFINITE, bound, complete, work). width > 0: keep only so many labels per
    operator
    (a heuristic; the bound is then that of the root).
    """
    m, options = compute.shape
    prices, ahead, lightest = _ahead(
        price, compute, recompute, activations, weights, leave, reshard, pair, free, saves,
        in_flight, factor, pair_most,
    )  # fmt: skip
    rest_f, rest_b = least_reserved(compute, fwd, bwd)
    droppable = m >= 2 and shared[m - 2]
    size = 1 << 14
    value = np.empty((size, 7))
    parent = np.empty(size, np.int64)
    state = np.empty(size, np.int64)
    count = np.int64(0)  # no literal, for which the steps below would be compiled twice
    stop_at = cutoff
    root = INFINITE
    dropped = False
    work = 0
    begin = np.int64(0)
    fresh = np.empty((4096, 7))
    fresh_parent = np.empty(4096, np.int64)
    fresh_state = np.empty(4096, np.int64)
    fresh_bound = np.empty(4096)
    kept_bound = np.empty(4096)
    frontier = INFINITE
    for q in range(m):
        made = 0
        end = count if q > 0 else begin + 1
        for label in range(begin, end):
            work += 8 * options
            p = state[label] >> 1 if q > 0 else 0
            rp = state[label] & 1 if q > 0 else 0
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
                        time = value[label, TIME] + step
                        add = (
                            value[label, MEMORY]
                            + factor * weights[q, o]
                            + in_flight * activations[q, o]
                        )
                        total = value[label, WEIGHTS] + weights[q, o]
                        run = value[label, RUN]
                        peak = value[label, PEAK]
                        f = max(value[label, FORWARD], fwd[q - 1, p])
                        b = max(value[label, BACKWARD], bwd[q - 1, p])
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
                        kept_bound = np.empty_like(fresh_bound)
                    fresh[made, TIME] = time
                    fresh[made, MEMORY] = add
                    fresh[made, WEIGHTS] = total
                    fresh[made, RUN] = run
                    fresh[made, PEAK] = peak
                    fresh[made, FORWARD] = f
                    fresh[made, BACKWARD] = b
                    fresh_parent[made] = label
                    fresh_state[made] = 2 * o + r
                    fresh_bound[made] = bound
                    made += 1
        if count + made > value.shape[0]:
            larger = max(value.shape[0], made)
            value = np.concatenate((value, np.empty((larger, 7))))
            parent = np.concatenate((parent, np.empty(larger, np.int64)))
            state = np.concatenate((state, np.empty(larger, np.int64)))
        new_begin = count
        count, frontier, compared = _keep(
            fresh[:made], fresh_parent, fresh_state, fresh_bound, alike[q], floor, value, parent,
            state, kept_bound, count,
        )  # fmt: skip
        work += compared + 8 * made
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
        if work > effort:
            return INFINITE, min(frontier, cutoff), False, work
    chosen, stop_at = _finished(value, state, begin, count, leave, floor, limit, stop_at)
    if chosen < 0:
        return INFINITE, root if dropped else cutoff, not dropped, work
    for q in range(m - 1, -1, -1):
        best_ways[q] = state[chosen] >> 1
        best_rcs[q] = state[chosen] & 1 == 1
        chosen = parent[chosen]
    return stop_at, root if dropped else stop_at, not dropped, work


@numba.njit(cache=True, nogil=True)
def _ahead(  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    price, compute, recompute, activations, weights, leave, reshard, pair, free, saves,
    in_flight, factor, pair_most,
):  # fmt: skip
    """Return prices around `price`, their completions [prices, m, 2, O], and the least bytes to go
    [m, 2, O]."""
    m, options = compute.shape
    if price >= 0.0:
        prices = price * np.array([0.0, 0.25, 0.6, 0.85, 0.97, 1.001, 1.15, 1.6, 4.0])
    else:
        prices = np.array([0.0, 1e-13, 1e-12, 3e-12, 1e-11, 3e-11, 1e-10, 1e-9, 1e-8])
    ahead = np.empty((prices.size, m, 2, options))
    for x in range(prices.size):
        completion(prices[x], 1.0, compute, recompute, activations, weights, leave, reshard, pair,
        free,
                    saves, in_flight, factor, pair_most, ahead[x])  # fmt: skip
    lightest = np.empty((m, 2, options))
    penalty = np.where(compute >= INFINITE, INFINITE, 0.0)
    blocked = np.where(reshard >= INFINITE, INFINITE, 0.0)
    completion(1.0, 1.0, penalty, np.zeros_like(recompute), activations, weights,
    np.zeros_like(leave),
                blocked, pair, free, saves, in_flight, factor, pair_most, lightest)  # fmt: skip
    return prices, ahead, lightest


@numba.njit(cache=True, nogil=True)
def _keep(  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    fresh,
    fresh_parent,
    fresh_state,
    fresh_bound,
    alike,
    floor,
    value,
    parent,
    state,
    kept_bound,
    count,
):
    """Append the labels that no other one of the same state dominates.

    Returns (labels, least bound among them, comparisons).
    """
    made = fresh.shape[0]
    begin = count
    frontier = INFINITE
    work = 0
    heads = np.full(2 * alike.size, -1, np.int64)  # linked lists of kept labels by state
    link = np.empty(made, np.int64)
    for x in np.argsort(fresh[:, TIME], kind="mergesort"):
        s = 2 * alike[fresh_state[x] >> 1] + (fresh_state[x] & 1)
        dominated = False
        y = heads[s]
        while y >= 0:
            work += 1
            k = begin + y
            if (
                value[k, MEMORY] <= fresh[x, MEMORY]
                and value[k, PEAK] <= fresh[x, PEAK]
                and value[k, RUN] <= fresh[x, RUN]
                and value[k, FORWARD] <= fresh[x, FORWARD]
                and value[k, BACKWARD] <= fresh[x, BACKWARD]
                and (not floor or value[k, WEIGHTS] <= fresh[x, WEIGHTS])
            ):
                dominated = True
                break
            y = link[y]
        if dominated:
            continue
        value[count] = fresh[x]
        parent[count] = fresh_parent[x]
        state[count] = fresh_state[x]
        link[count - begin] = heads[s]
        heads[s] = count - begin
        kept_bound[count - begin] = fresh_bound[x]
        frontier = min(frontier, fresh_bound[x])
        count += 1
    return count, frontier, work


@numba.njit(cache=True, nogil=True)
def _finished(value, state, begin, count, leave, floor, limit, stop_at):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return the fastest complete label that fits and is below `stop_at`, and its time; -1 without
    one."""
    chosen = -1
    for x in range(begin, count):
        reserved = value[x, FORWARD] + value[x, BACKWARD]
        if floor:
            reserved = max(reserved, value[x, WEIGHTS])
        if value[x, MEMORY] + value[x, PEAK] + reserved > limit:
            continue
        time = value[x, TIME] + leave[state[x] >> 1]
        if time < stop_at:
            stop_at = time
            chosen = x
    return chosen, stop_at

"""Lagrangian relaxation of one stage's memory: completions, the paths they lead to, the best
multiplier.

All functions are compiled. Arrays are cut to the operators of the stage: [m, O] per operator and
option, [m] per operator; m operators, O options. Seconds and bytes. A state is 2 * option + 1 if an
operator is recomputed, 2 * option elsewhere; a path is one state per operator, int64 [m].
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ilp_planner.base.kernels import inner, kernel
from ilp_planner.optimize.bounds.arrays import INFINITE

if TYPE_CHECKING:
    from numpy.typing import NDArray

NEIGHBOURS = 14  # operators on either side of a switch between paths that are tried too: a layer


class Ends(NamedTuple):
    """Further costs of a stage's first and last operator, by option.

    inputs: float64 [O], kept bytes of the input. enter, leave: float64 [O], seconds.
    first: bool [O], whether the stage may begin with an option.
    """

    inputs: NDArray[np.float64]
    enter: NDArray[np.float64]
    leave: NDArray[np.float64]
    first: NDArray[np.bool_]


@kernel
def completion(price, operators, leave, memory, pair_most, out):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Fill out[q, r, o]: least time + multiplier * memory after operator q."""
    compute, recompute, activations, weights, _, _, pair, reshard, free, saves, _, _ = operators
    in_flight, factor, _, _ = memory
    m, options = compute.shape
    for o in range(options):
        out[m - 1, 0, o] = leave[o]
        out[m - 1, 1, o] = leave[o]
    cost = np.empty(options)
    for q in range(m - 1, 0, -1):
        least0 = INFINITE
        least1 = INFINITE
        for o in range(options):
            cost[o] = compute[q, o] + price * (
                factor * weights[q, o] + in_flight * activations[q, o]
            )
            least0 = min(least0, cost[o] + out[q, 0, o])
            least1 = min(least1, cost[o] + recompute[q, o] + out[q, 1, o])
        for p in range(options):
            b0 = least0
            b1 = least1
            if not free[pair[q]]:
                b0 = INFINITE
                b1 = INFINITE
                for o in range(options):
                    r = reshard[pair[q], p, o]
                    b0 = min(b0, cost[o] + out[q, 0, o] + r)
                    b1 = min(b1, cost[o] + recompute[q, o] + out[q, 1, o] + r)
            out[q - 1, 0, p] = min(b0, b1)
            s = price * in_flight * activations[q - 1, p] if saves[q - 1] else 0.0
            out[q - 1, 1, p] = min(b0, b1 - s) if activations[q - 1, p] <= pair_most else b0


@inner
def _follow(price, operators, ends, memory, pair_most, out, path):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Walk the Lagrangian path for one multiplier; return its Lagrangian value, INFINITE without
    one."""
    compute, recompute, activations, weights, _, _, pair, reshard, _, saves, _, _ = operators
    in_flight, factor, _, _ = memory
    m, options = compute.shape
    value = 0.0
    for q in range(m):
        before = path[q - 1] if q > 0 else 0
        p, recomputed = before >> 1, q > 0 and before & 1 == 1
        best = INFINITE
        for o in range(options):
            live = activations[q, o]
            v = compute[q, o]
            if q == 0:
                if not ends.first[o]:
                    continue
                v += ends.enter[o]
                live += ends.inputs[o]
            else:
                v += reshard[pair[q], p, o]
            v += price * (factor * weights[q, o] + in_flight * live)
            for r in range(2):
                if r and recomputed and activations[q - 1, p] > pair_most:
                    continue
                c = v + (recompute[q, o] if r else 0.0) + out[q, r, o]
                if r and recomputed and saves[q - 1]:
                    c -= price * in_flight * activations[q - 1, p]
                if c < best:
                    best = c
                    path[q] = 2 * o + r
        if q == 0:
            value = best
            if best >= INFINITE:
                return value
    for q in range(m):  # flags that serve nothing are dropped
        before = q > 0 and path[q - 1] & 1 == 1
        if path[q] & 1 and not before and not (q + 1 < m and path[q + 1] & 1 == 1):
            path[q] -= 1
    return value


@inner
def _price_path(path, operators, ends, memory):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return the time and the memory of one stage with all choices made."""
    compute, recompute, activations, weights, fwd, bwd, pair, reshard = operators[:8]
    saves, closes, shared = operators[9:]
    m = path.size
    time = ends.enter[path[0] >> 1] + ends.leave[path[m - 1] >> 1]
    live = ends.inputs[path[0] >> 1]
    total = 0.0
    peak = 0.0
    run = 0.0
    f = 0.0
    b = 0.0
    for q in range(m):
        o = path[q] >> 1
        time += compute[q, o]
        if path[q] & 1:
            time += recompute[q, o]
        total += weights[q, o]
        live += activations[q, o]
        if q > 0:
            time += reshard[pair[q], path[q - 1] >> 1, o]
        if q < m - 1:
            f = max(f, fwd[q, o])
            b = max(b, bwd[q, o])
            ends_run = True
            if path[q] & path[q + 1] & 1:
                run += activations[q, o]
                if saves[q]:
                    live -= activations[q, o]
                ends_run = closes[q] or (not shared[q] and q + 2 == m)
            if ends_run:
                peak = max(peak, run)
                run = 0.0
    reserved = f + b
    if memory.floor:
        reserved = max(reserved, total)
    return time, memory.factor * total + memory.in_flight * live + peak + reserved


@inner
def _join(into, front, rear, at):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Follow one path up to an operator, then another."""
    for q in range(into.size):
        into[q] = front[q] if q < at else rear[q]


@kernel
def search_price(  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    operators, ends, memory, pair_most, room, best_path
):
    """Bisect for the least multiplier of memory with a path that fits; the best path is written to
    best_path.

    room: bytes below the limit, in the Lagrangian term. Returns (fastest time that fits,
    multiplier, bound); the multiplier is negative when none was found.
    """
    m, options = operators.compute.shape
    limit = memory.limit
    path, low_path = np.zeros(m, np.int64), np.zeros(m, np.int64)
    work = np.empty((m, 2, options))
    best = INFINITE
    bound = 0.0
    low = 0.0
    high = -1.0
    price = 0.0
    for step in range(64):
        completion(price, operators, ends.leave, memory, pair_most, work)
        value = _follow(price, operators, ends, memory, pair_most, work, path)
        t, mem = INFINITE, INFINITE
        if value < INFINITE:
            t, mem = _price_path(path, operators, ends, memory)
        bound = max(bound, value - price * room)
        if mem <= limit:
            high = price
            if t < best:
                best = t
                _join(best_path, path, path, m)
            if step == 0:
                break
        else:
            low = price
            _join(low_path, path, path, m)
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
    high_path = best_path.copy()
    for order in range(2):
        front, rear = (low_path, high_path) if order == 0 else (high_path, low_path)
        # Bisection for the last switch that fits (order 0) or the first one (order 1), then its
        # neighbours.
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
            _join(path, front, rear, at)
            t, mem = _price_path(path, operators, ends, memory)
            if mem <= limit and t < best:
                best = t
                _join(best_path, path, path, m)
            if bisecting:
                if (mem <= limit) == (order == 0):
                    inside = at
                else:
                    outside = at
    return best, high, bound

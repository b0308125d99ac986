"""Growing one stage operator by operator: exact labels between a Lagrangian bound and an incumbent.

A label is a partial stage: its time, its additive memory, its weights, its open recompute run, its
largest closed run and its largest reserved memory. A label is dropped if another one in the same
state dominates it, or if its time plus the Lagrangian completion bound (for several multipliers)
reaches the best known time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ilp_planner.base.kernels import inner, kernel
from ilp_planner.optimize.bounds.arrays import INFINITE, ascending, longer_rows
from ilp_planner.optimize.bounds.prices import completion

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ilp_planner.optimize.bounds.sweep import Memory, Operators

# Columns of labels; the last three: the label before, the state as in `prices`, and a bound on the
# seconds of every stage that the label may become.
TIME, MEMORY, WEIGHTS, RUN, PEAK, FORWARD, BACKWARD, PARENT, STATE, BOUND = range(10)
COLUMNS = 10
ROOM = 1 << 14
AROUND = np.array([0.0, 0.25, 0.6, 0.85, 0.97, 1.001, 1.15, 1.6, 4.0])  # of the best price
ANY = np.array([0.0, 1e-13, 1e-12, 3e-12, 1e-11, 3e-11, 1e-10, 1e-9, 1e-8])  # where none is known


class Ahead(NamedTuple):
    """The rest of a stage after an operator; m operators, O options.

    prices: float64 [X], seconds per byte. seconds: float64 [X, m, 2, O], least time + multiplier *
    memory. memory: float64 [m, 2, O], least bytes. reserved: float64 [2, m + 1], least bytes that
    operators reserve forward and backward.
    """

    prices: NDArray[np.float64]
    seconds: NDArray[np.float64]
    memory: NDArray[np.float64]
    reserved: NDArray[np.float64]


class Search(NamedTuple):
    """The target: stages below `cutoff` seconds, with at most `effort` label operations.

    width: labels kept per operator, 0 for all.
    """

    cutoff: float
    effort: int
    width: int


def look_ahead(
    operators: Operators,
    leave: NDArray[np.float64],
    memory: Memory,
    pair_most: float,
    price: float,
    reserved: NDArray[np.float64],
) -> Ahead:
    """Complete stages at multipliers around `price`, in seconds per byte; negative: none is
    known."""
    prices = price * AROUND if price >= 0.0 else ANY
    shape = (*operators.compute.shape[:1], 2, *operators.compute.shape[1:])
    seconds, lightest = np.empty((prices.size, *shape)), np.empty(shape)
    for x, each in enumerate(prices.tolist()):
        completion(each, operators, leave, memory, pair_most, seconds[x])
    completion(1.0, operators.untimed(), np.zeros_like(leave), memory, pair_most, lightest)
    return Ahead(prices, seconds, lightest, reserved)


def least_reserved(operators: Operators) -> NDArray[np.float64]:
    """Return what operators q .. m - 2 reserve at least, forward and backward, in bytes [2, m + 1];
    the last one does not count."""
    both = np.stack([operators.forward, operators.backward])
    least = np.zeros((2, len(operators.compute) + 1))
    least[:, :-2] = np.where(operators.compute < INFINITE, both, INFINITE).min(axis=2)[:, :-1]
    return np.ascontiguousarray(np.maximum.accumulate(least[:, ::-1], axis=1)[:, ::-1])


@kernel
def grow(  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    operators, ends, memory, ceilings, alike, ahead, search, best_path
):
    """Grow labels operator by operator; the fastest path below the cutoff is written to best_path.

    Returns (time or INFINITE, bound, complete, work). With a width the search is a heuristic with
    the bound of the root.
    """
    compute, recompute, activations, weights, fwd, bwd, pair, reshard = operators[:8]
    saves, closes, shared = operators[9:]
    in_flight, factor, floor, limit = memory
    pair_most, pair_least = ceilings.pair_most, ceilings.pair_least
    prices, seconds, lightest, rest = ahead
    stop_at, effort, width = search
    cutoff = stop_at
    m, options = compute.shape
    droppable = m >= 2 and shared[m - 2]
    value, fresh = np.empty((ROOM, COLUMNS)), np.empty((ROOM, COLUMNS))
    root = INFINITE
    dropped = False
    work = 0
    begin = count = np.int64(0)  # no literal, for which the steps below would be compiled twice
    for q in range(m):
        made = 0
        for label in range(begin, count if q > 0 else 1):
            work += 8 * options
            state = int(value[label, STATE]) if q > 0 else 0
            p, rp = state >> 1, state & 1
            for o in range(options):
                if q == 0:
                    if not ends.first[o] or compute[0, o] >= INFINITE:
                        continue
                    step = compute[0, o] + ends.enter[o]
                else:
                    step = compute[q, o] + reshard[pair[q], p, o]
                    if step >= INFINITE:
                        continue
                for r in range(2):
                    time = step
                    run, f, b = 0.0, rest[0, q], rest[1, q]
                    if q == 0:
                        add = factor * weights[0, o] + in_flight * (
                            activations[0, o] + ends.inputs[o]
                        )
                        total = weights[0, o]
                        peak = pair_least
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
                        f = max(f, value[label, FORWARD], fwd[q - 1, p])
                        b = max(b, value[label, BACKWARD], bwd[q - 1, p])
                        closing = True
                        if rp == 1 and r == 1:
                            run += activations[q - 1, p]
                            if run > pair_most:
                                continue
                            if saves[q - 1]:
                                add -= in_flight * activations[q - 1, p]
                            closing = closes[q - 1] or (q == m - 1 and not shared[q - 1])
                        if closing:
                            peak = max(peak, run)
                            run = 0.0
                    if r == 1:
                        time += recompute[q, o]
                    if time >= stop_at:
                        continue
                    reserved = f + b
                    if floor:
                        reserved = max(reserved, total)
                    used = add + (peak if droppable else max(peak, run)) + reserved
                    if used + lightest[q, r, o] > limit:
                        continue
                    bound = 0.0
                    for x in range(prices.size):
                        bound = max(bound, time + seconds[x, q, r, o] + prices[x] * (used - limit))
                    if bound >= stop_at:
                        continue
                    if made == fresh.shape[0]:
                        fresh = longer_rows(fresh, fresh.shape[0])
                    new = fresh[made]
                    new[TIME], new[MEMORY], new[WEIGHTS], new[RUN], new[PEAK] = (
                        time, add, total, run, peak,
                    )  # fmt: skip
                    new[FORWARD], new[BACKWARD], new[PARENT], new[STATE], new[BOUND] = (
                        f, b, label, 2 * o + r, bound,
                    )  # fmt: skip
                    made += 1
        if count + made > value.shape[0]:
            value = longer_rows(value, count + made)
        begin = count
        count, frontier, compared = _keep(fresh[:made], alike[q], floor, value, count)
        work += compared + 8 * made
        if q == 0:
            root = frontier
        if count == begin:  # nothing is left below the cutoff
            return INFINITE, root if dropped else cutoff, not dropped, work
        if width > 0 and count - begin > width:
            dropped = True
            count = _narrow(value, begin, count, width)
        if work > effort:
            return INFINITE, min(frontier, cutoff), False, work
    chosen, stop_at = _finished(value, begin, count, ends.leave, floor, limit, stop_at)
    if chosen < 0:
        return INFINITE, root if dropped else cutoff, not dropped, work
    for q in range(m - 1, -1, -1):
        best_path[q] = int(value[chosen, STATE])
        chosen = int(value[chosen, PARENT])
    return stop_at, root if dropped else stop_at, not dropped, work


@inner
def _keep(fresh, alike, floor, value, count):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Append the labels that no other one of the same state dominates.

    Returns (labels, least bound among them, comparisons).
    """
    made, begin = fresh.shape[0], count
    frontier = INFINITE
    work = 0
    heads = np.empty(2 * alike.size, np.int64)  # linked lists of kept labels by state
    heads[:] = -1
    link = np.empty(made, np.int64)
    times = np.empty(made)
    for x in range(made):
        times[x] = fresh[x, TIME]
    for x in ascending(times):
        state = int(fresh[x, STATE])
        s = 2 * alike[state >> 1] + (state & 1)
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
        for column in range(COLUMNS):
            value[count, column] = fresh[x, column]
        link[count - begin] = heads[s]
        heads[s] = count - begin
        frontier = min(frontier, fresh[x, BOUND])
        count += 1
    return count, frontier, work


@inner
def _narrow(value, begin, count, width):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Keep the labels of least bounds, as many as `width`, in their order; return their end."""
    bounds = np.empty(count - begin)
    for x in range(count - begin):
        bounds[x] = value[begin + x, BOUND]
    rank = np.empty(count - begin, np.int64)
    for x, y in enumerate(ascending(bounds)):
        rank[y] = x
    end = begin
    for x in range(count - begin):
        if rank[x] < width:
            for column in range(COLUMNS):
                value[end, column] = value[begin + x, column]
            end += 1
    return end


@inner
def _finished(value, begin, count, leave, floor, limit, stop_at):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return the fastest complete label that fits below `stop_at`, and its time; -1 without one."""
    chosen = -1
    for x in range(begin, count):
        reserved = value[x, FORWARD] + value[x, BACKWARD]
        if floor:
            reserved = max(reserved, value[x, WEIGHTS])
        if value[x, MEMORY] + value[x, PEAK] + reserved > limit:
            continue
        time = value[x, TIME] + leave[int(value[x, STATE]) >> 1]
        if time < stop_at:
            stop_at = time
            chosen = x
    return chosen, stop_at

"""Lagrangian lower bounds on the time of every stage at once.

The memory limit of a stage is relaxed with a Lagrange multiplier (seconds per byte). For one
multiplier the best stage (i, j) is then a shortest path over its operators, state (option,
recomputed?), and one sweep from i serves every end j. Each multiplier gives a valid bound, so their
maximum does.

Relaxed besides: the tensor degree that decides the size of messages, the memory of recompute runs,
and all but the largest parts of the reserved memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ilp_planner.base.kernels import inner, kernel
from ilp_planner.optimize.bounds.arrays import INFINITE
from ilp_planner.optimize.bounds.rows import first_copy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ilp_planner.costs.operators import StageTables
    from ilp_planner.optimize.bounds.rows import Rows

LIMIT_ROUNDING = 1e-9  # relative: no stage is ruled out for what rounding may have added
# Sums over a fixed binary grid are exact in any order, so that equal stages compare equal. The grid
# is far finer than what the numbers mean: under 1e-14 s and 1e-3 bytes.
TIME_GRID = 2.0**48
MEMORY_GRID = 2.0**12


class Operators(NamedTuple):
    """Costs of the operators of a chain or of one stage; n operators, O options, P kinds of pairs.

    compute, recompute: float64 [n, O], seconds. activations, weights, forward, backward: float64
    [n, O], bytes; the last two are reserved while operators run. pair: int64 [n], kind of pair that
    an operator makes with the one before; reshard: float64 [P, O, O], seconds of a change of
    layout; free: bool [P], whether none costs anything. saves, closes, shared: bool [n], as in
    `StageTables`.
    """

    compute: NDArray[np.float64]
    recompute: NDArray[np.float64]
    activations: NDArray[np.float64]
    weights: NDArray[np.float64]
    forward: NDArray[np.float64]
    backward: NDArray[np.float64]
    pair: NDArray[np.int64]
    reshard: NDArray[np.float64]
    free: NDArray[np.bool_]
    saves: NDArray[np.bool_]
    closes: NDArray[np.bool_]
    shared: NDArray[np.bool_]

    def only(self, part: slice) -> Operators:
        """Return the operators of one stage."""
        own = [name for name in Operators._fields if name not in {"reshard", "free"}]
        return self._replace(**{name: getattr(self, name)[part] for name in own})

    def untimed(self) -> Operators:
        """Return the operators if every possible option takes no time."""
        return self._replace(
            compute=np.where(self.compute >= INFINITE, INFINITE, 0.0),
            recompute=np.zeros_like(self.recompute),
            reshard=np.where(self.reshard >= INFINITE, INFINITE, 0.0),
        )


class Memory(NamedTuple):
    """The part of the memory rule that is the same for all stages of a place.

    in_flight: micro-batches with kept activations. factor: bytes of a weight's state, per byte of
    the weight. floor: whether at least as much as the weights is reserved. limit: bytes.
    """

    in_flight: float
    factor: float
    floor: bool
    limit: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Chain:
    """The tables of one device group, spread over the operators of the chain.

    enter: float64 [2, n, O], leave: float64 [2, n, O, T], least_leave: float64 [2, n, O], seconds.
    input: float64 [n, O], bytes. alike: int64 [n, O], first option that no later operator can tell
    from this one.
    """

    tables: StageTables
    operators: Operators
    input: NDArray[np.float64]
    enter: NDArray[np.float64]
    leave: NDArray[np.float64]
    least_leave: NDArray[np.float64]
    alike: NDArray[np.int64]


def spread(tables: StageTables) -> Chain:
    """Index the tables by operator, on fixed grids; forbidden options take for ever."""
    kind = tables.kind

    def seconds(table: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.ascontiguousarray(np.round(table * TIME_GRID)[kind] / TIME_GRID)

    def size(table: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.ascontiguousarray(np.round(table * MEMORY_GRID)[kind] / MEMORY_GRID)

    allowed = tables.allowed & ~_dominated(tables)
    compute = np.where(allowed[kind], seconds(tables.compute), INFINITE)
    leave = np.minimum(tables.leave[:, kind], INFINITE)
    operators = Operators(
        compute=compute,
        recompute=seconds(tables.recompute),
        activations=size(tables.activations),
        weights=size(tables.weights),
        forward=size(tables.forward_reserved),
        backward=size(tables.backward_reserved),
        pair=tables.pair,
        reshard=np.minimum(np.round(tables.reshard * TIME_GRID) / TIME_GRID, INFINITE),
        free=np.array([not matrix.any() for matrix in tables.reshard]),
        saves=tables.saves,
        closes=tables.closes,
        shared=tables.shared,
    )
    return Chain(
        tables=tables,
        operators=operators,
        input=size(tables.input),
        enter=np.ascontiguousarray(tables.enter[:, kind]),
        leave=np.ascontiguousarray(leave),
        least_leave=np.ascontiguousarray(leave.min(axis=3)),
        alike=np.ascontiguousarray(_alike(tables)[kind]),
    )


def _futures(tables: StageTables) -> NDArray[np.float64]:
    """Return [U, O, x]: all that later operators see of an option."""
    kinds, options = tables.allowed.shape
    return np.concatenate(
        [
            np.stack(
                [tables.activations, tables.forward_reserved, tables.backward_reserved], axis=2
            ),
            np.moveaxis(tables.leave, 0, 2).reshape(kinds, options, -1),
            _moves(tables, onward=True),
        ],
        axis=2,
    )


def _moves(tables: StageTables, *, onward: bool) -> NDArray[np.float64]:
    """Return [U, O, x]: the changes of layout to the operators after a kind, or from the ones
    before."""
    kinds, options = tables.allowed.shape
    changes: list[list[NDArray[np.float64]]] = [[] for _ in range(kinds)]
    for i in {pair: i for i, pair in enumerate(tables.pair.tolist()) if i > 0}.values():
        matrix = tables.reshard[tables.pair[i]]
        changes[tables.kind[i - onward]].append(matrix if onward else matrix.T)
    width = options * max((len(matrices) for matrices in changes), default=0)
    moves = np.zeros((kinds, options, width))
    for u, matrices in enumerate(changes):
        if matrices:
            moves[u, :, : options * len(matrices)] = np.concatenate(matrices, axis=1)
    return moves


def _alike(tables: StageTables) -> NDArray[np.int64]:
    futures = _futures(tables)
    same = (futures[:, :, None, :] == futures[:, None, :, :]).all(axis=3)
    first: NDArray[np.int64] = same.argmax(axis=2).astype(np.int64)
    return first


def _dominated(tables: StageTables) -> NDArray[np.bool_]:
    """Tell the options that another one of the same tensor degree dominates.

    Returns bool [U, O].
    """
    kinds, options = tables.allowed.shape
    costs = np.concatenate(
        [
            np.stack([tables.compute, tables.recompute, tables.weights, tables.input], axis=2),
            np.moveaxis(tables.enter, 0, 2),
            _moves(tables, onward=False),
            _futures(tables),
        ],
        axis=2,
    )
    dominated = np.zeros((kinds, options), np.bool_)
    for o in range(options):
        for p in range(options):
            if o == p or tables.degree[o] != tables.degree[p]:
                continue
            better = (
                tables.allowed[:, p] & ~dominated[:, p] & (costs[:, p] <= costs[:, o]).all(axis=1)
            )
            dominated[:, o] |= better
    return dominated


class Extent(NamedTuple):
    """The number of examined stages of each row, and each row's position.

    length: int64 [n], longest stage per start. base: int64 [n + 1], offsets of the rows' own
    entries.
    """

    length: NDArray[np.int64]
    base: NDArray[np.int64]

    @property
    def entries(self) -> int:
        """How many times are kept."""
        return int(self.base[-1])


def extent(chain: Chain, rows: Rows, longest_time: float) -> Extent:
    """Find for every start the longest stage of operators within `longest_time` s."""
    length = np.zeros(rows.common.size, np.int64)
    _lengths(rows, chain.operators, longest_time, length)
    own = np.maximum(0, length - rows.common)
    return Extent(length=length, base=np.concatenate([[0], np.cumsum(own)]).astype(np.int64))


@kernel
def _lengths(rows, operators, longest, length):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    common, above, children, child_start = rows
    compute, _, _, _, _, _, pair, reshard, free, _, _, _ = operators
    n, options = compute.shape
    kept = np.empty((n, options))
    now = np.empty(options)
    after = np.empty(options)
    for i in range(n):
        d = common[i]
        if d > 0 and length[above[i]] < d:
            length[i] = length[above[i]]
            continue
        source = kept if d > 0 else compute
        least = INFINITE
        for o in range(options):
            now[o] = source[i, o]
            least = min(least, now[o])
        if d == 0:
            if least > longest:
                continue
            d = 1
        child = child_start[i]
        while True:
            while child < child_start[i + 1] and common[children[child]] < d:
                child += 1
            while child < child_start[i + 1] and common[children[child]] == d:
                for o in range(options):
                    kept[children[child], o] = now[o]
                child += 1
            length[i] = d
            q = i + d
            if q == n:
                break
            fastest = INFINITE
            for o in range(options):
                best = INFINITE
                if free[pair[q]]:
                    best = least
                else:
                    for p in range(options):
                        best = min(best, now[p] + reshard[pair[q], p, o])
                after[o] = best + compute[q, o]
                fastest = min(fastest, after[o])
            now, after = after, now
            least = fastest
            if least > longest:
                break
            d += 1


def stage_bounds(
    chain: Chain,
    rows: Rows,
    size: Extent,
    *,
    prices: NDArray[np.float64],
    in_flight: int,
    limit: float,
    enters_node: bool,
) -> NDArray[np.float64]:
    """Return bounds in seconds [2, entries]: leaving inside a node, and to another."""
    tables = chain.tables
    out = np.full((2, size.entries), -INFINITE)
    variants = [(tables.state_factor, True)]
    if tables.weight_floor:
        variants.append((tables.state_factor + 1.0, False))
    for factor, reserves in variants:
        memory = Memory(float(in_flight), float(factor), tables.weight_floor, float(limit))
        _sweep(
            rows, size, chain.operators, chain.input, chain.enter[int(enters_node)],
            chain.least_leave, memory, prices, reserves, out,
        )  # fmt: skip
    return out


@inner
def _copy(into, values):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    for m in range(values.shape[0]):
        for r in range(2):
            for o in range(values.shape[2]):
                into[m, r, o] = values[m, r, o]


@kernel
def _sweep(  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    rows, size, operators, inputs, enter, leave, memory, prices, reserves, out
):
    """Raise out[0 or 1, entries] to the bounds of stages that leave inside a node or to another
    one; reserves: count reserved memory of running operators."""
    common, _, children, child_start = rows
    length, base = size
    compute, recompute, activations, weights, fwd, bwd, pair, reshard, free, saves, _, _ = operators
    in_flight, factor, _, limit = memory
    n, options = compute.shape
    number = prices.size
    kept = np.empty((n if children.size else 1, number, 2, options))
    kept_reserved = np.zeros((n, 2))
    now = np.empty((number, 2, options))
    after = np.empty((number, 2, options))
    plain = np.empty(options)
    paired = np.empty(options)
    for i in range(n):
        if length[i] <= common[i]:
            continue
        forward = 0.0
        backward = 0.0
        d = common[i]
        if d > 0:
            _copy(now, kept[i])
            forward = kept_reserved[i, 0]
            backward = kept_reserved[i, 1]
        child = child_start[i]
        while d < length[i]:
            q = i + d
            if d == 0:
                for m in range(number):
                    for o in range(options):
                        v = compute[i, o] + enter[i, o]
                        v += prices[m] * (
                            factor * weights[i, o] + in_flight * (activations[i, o] + inputs[i, o])
                        )
                        now[m, 0, o] = v
                        now[m, 1, o] = v + recompute[i, o]
            else:
                # operator q - 1 is not the last one any more: its reserved memory counts
                least_f = INFINITE
                least_b = INFINITE
                for o in range(options):
                    if compute[q - 1, o] < INFINITE:
                        least_f = min(least_f, fwd[q - 1, o])
                        least_b = min(least_b, bwd[q - 1, o])
                forward = max(forward, least_f)
                backward = max(backward, least_b)
                for m in range(number):
                    price = prices[m]
                    least_plain = INFINITE
                    least_paired = INFINITE
                    for p in range(options):
                        plain[p] = min(now[m, 0, p], now[m, 1, p])
                        v = now[m, 1, p]
                        if saves[q - 1]:
                            v -= price * in_flight * activations[q - 1, p]
                        paired[p] = min(now[m, 0, p], v)
                        least_plain = min(least_plain, plain[p])
                        least_paired = min(least_paired, paired[p])
                    for o in range(options):
                        b0 = INFINITE
                        b1 = INFINITE
                        if free[pair[q]]:
                            b0 = least_plain
                            b1 = least_paired
                        else:
                            for p in range(options):
                                r = reshard[pair[q], p, o]
                                b0 = min(b0, plain[p] + r)
                                b1 = min(b1, paired[p] + r)
                        v = compute[q, o] + price * (
                            factor * weights[q, o] + in_flight * activations[q, o]
                        )
                        after[m, 0, o] = b0 + v
                        after[m, 1, o] = b1 + v + recompute[q, o]
                now, after = after, now
            d += 1
            while child < child_start[i + 1] and common[children[child]] < d:
                child += 1
            while child < child_start[i + 1] and common[children[child]] == d:
                c = children[child]
                _copy(kept[c], now)
                kept_reserved[c, 0] = forward
                kept_reserved[c, 1] = backward
                child += 1
            if d <= common[i]:
                continue
            room = limit - (forward + backward) if reserves else limit
            e = base[i] + d - common[i] - 1
            slack = LIMIT_ROUNDING * abs(limit)
            for cross in range(2):
                best = out[cross, e]
                for m in range(number):
                    v = INFINITE
                    for o in range(options):
                        v = min(v, min(now[m, 0, o], now[m, 1, o]) + leave[cross, q, o])
                    v -= prices[m] * (room + slack)
                    best = max(best, v)
                out[cross, e] = min(best, INFINITE)


def entry_of(start: int, operators: int, rows: Rows, size: Extent) -> int:
    """Return the position of the stage of so many operators, -1 when it is too long to matter."""
    if operators > size.length[start]:
        return -1
    start, _ = first_copy(start, operators, rows)
    return int(size.base[start] + operators - rows.common[start] - 1)

"""The price of a stage's memory, against all ways to run it, and by hand."""

from dataclasses import replace

import numpy as np
import pytest

from ilp_planner.optimize.bounds.arrays import INFINITE
from ilp_planner.optimize.bounds.prices import (
    NEIGHBOURS,
    Ends,
    _follow,
    _join,
    _price_path,
    completion,
    search_price,
)
from ilp_planner.optimize.bounds.sweep import Memory, Operators
from tests.examples import for_each
from tests.optimize.bounds.random_stage import BYTE, SECOND, Stage, random_stage
from tests.optimize.bounds.test_arrays import plain

SEEDS = range(60)
PRICE = SECOND / BYTE / 4  # a quarter of a unit of time for a unit of memory: sums are exact


def pair_limits(seed: int, stage: Stage) -> list[float]:
    """Return what a recomputed pair may keep at most: anything, nothing, and what some keep."""
    some = np.random.default_rng(seed).choice(stage.operators.activations.ravel())
    return [np.inf, 0.0, float(some)]


def completed(stage: Stage, price: float, pair_most: float) -> np.ndarray:
    out = np.empty((stage.size, 2, stage.options))
    completion(price, stage.operators, stage.ends.leave, stage.memory, pair_most, out)
    return out


def least_after(stage: Stage, price: float, pair_most: float) -> np.ndarray:
    """Return the least time and price * memory of what follows each operator in each state, way by
    way."""
    ops, least = stage.operators, np.full((stage.size, 2, stage.options), INFINITE)
    factor, in_flight = stage.memory.factor, stage.memory.in_flight
    for q in range(stage.size):
        for path in stage.paths(stage.size - q):
            own, flag = [state >> 1 for state in path], [state & 1 for state in path]
            cost = stage.ends.leave[own[-1]]
            for x in range(1, len(path)):
                at, o, p = q + x, own[x], own[x - 1]
                cost += ops.compute[at, o] + flag[x] * ops.recompute[at, o]
                cost += ops.reshard[ops.pair[at], p, o]
                kept = in_flight * ops.activations[at, o]
                if flag[x] and flag[x - 1]:
                    before = ops.activations[at - 1, p]
                    cost += INFINITE if before > pair_most else 0.0
                    kept -= in_flight * before * ops.saves[at - 1]
                cost += price * (factor * ops.weights[at, o] + kept)
            least[q, flag[0], own[0]] = min(least[q, flag[0], own[0]], cost)
    return least


@for_each("price", [0.0, PRICE, 3 * PRICE])
def test_what_follows_an_operator_costs_the_least_of_all_ways(price: float) -> None:
    for seed in SEEDS:
        stage = random_stage(seed)
        for pair_most in pair_limits(seed, stage):
            found = completed(stage, price, pair_most)
            assert (np.minimum(found, INFINITE) == least_after(stage, price, pair_most)).all()


def test_a_way_takes_its_time_and_its_memory() -> None:
    for seed in SEEDS:
        stage = random_stage(seed)
        for way in stage.ways[:: 1 + len(stage.ways) // 40]:
            found = plain(_price_path)(
                np.array(way.path), stage.operators, stage.ends, stage.memory
            )
            assert found == (way.time, way.bytes)


@for_each("price", [0.0, PRICE, 3 * PRICE])
def test_the_cheapest_way_at_a_price_is_followed(price: float) -> None:
    """And nothing is recomputed alone."""
    for seed in SEEDS:
        stage = random_stage(seed)
        for pair_most in pair_limits(seed, stage):
            path = np.zeros(stage.size, np.int64)
            value = plain(_follow)(
                price, stage.operators, stage.ends, stage.memory, pair_most,
                completed(stage, price, pair_most), path,
            )  # fmt: skip
            sums = [way.time + price * way.memory for way in stage.ways if way.pair <= pair_most]
            if not sums:
                assert value >= INFINITE
                continue
            assert value == min(sums)
            way = stage.way(tuple(path.tolist()))
            assert stage.ends.first[path[0] >> 1]
            assert way.time + price * way.memory == value
            assert way.pair <= pair_most
            flags = [0, *(path & 1).tolist(), 0]
            for before, own, after in zip(flags, flags[1:], flags[2:], strict=False):
                assert not own or before or after


@for_each(
    ("wished", "kept"),
    [
        ([1, 0, 1, 1], [0, 0, 1, 1]),
        ([1, 1, 0, 1], [1, 1, 0, 0]),
        ([0, 1, 0, 0], [0, 0, 0, 0]),
        ([1, 1, 1, 1], [1, 1, 1, 1]),
    ],
)
def test_what_would_be_recomputed_alone_is_not(wished: list[int], kept: list[int]) -> None:
    """Even where what follows, as rounding may have it, is cheaper with it."""
    stage = equal_layers(4, 4)
    out = np.full((4, 2, 2), 50.0)
    out[range(4), wished, 0] = 0.0
    path = np.zeros(4, np.int64)
    plain(_follow)(0.0, stage.operators, stage.ends, stage.memory, np.inf, out, path)
    assert path.tolist() == kept


def test_two_ways_are_joined_at_an_operator() -> None:
    into = np.zeros(3, np.int64)
    for at, expected in ((0, [4, 5, 6]), (1, [1, 5, 6]), (3, [1, 2, 3])):
        plain(_join)(into, np.array([1, 2, 3]), np.array([4, 5, 6]), at)
        assert into.tolist() == expected


def searched(
    stage: Stage, pair_most: float, room: float
) -> tuple[float, float, float, tuple[int, ...]]:
    """Return the best time, its price, the bound, and the way."""
    path = np.zeros(stage.size, np.int64)
    best, price, bound = search_price(
        stage.operators, stage.ends, stage.memory, pair_most, room, path
    )
    return best, price, bound, tuple(path.tolist())


@for_each("share", [-0.1, 0.0, 0.2, 0.5, 0.8, 1.0])
def test_prices_bound_all_ways_and_find_one_that_fits(share: float) -> None:
    """The bound is the best one that any price gives, where paths and prices are about the same
    memory; and never above a way."""
    for seed in SEEDS:
        stage = random_stage(seed)
        if not stage.ways:
            best, price, bound, _ = searched(stage.limited(1e9 * BYTE), np.inf, 1e9 * BYTE)
            assert min(best, bound) >= INFINITE
            assert price < 0.0
            continue
        least = min(way.bytes for way in stage.ways)
        fastest = min(stage.ways, key=lambda way: (way.time, way.bytes))
        limit = least + share * (fastest.bytes - least) if share >= 0 else least - BYTE
        stage = replace(stage, memory=stage.memory._replace(limit=limit))
        for pair_most in pair_limits(seed, stage):
            ways = [way for way in stage.ways if way.pair <= pair_most]
            best, price, bound, path = searched(stage, pair_most, limit)
            fits = [way.time for way in ways if way.memory <= limit]
            assert bound <= min(fits, default=INFINITE) * (1 + 1e-12)
            if best < INFINITE:
                way = stage.way(path)
                assert (way.time, way.pair <= pair_most) == (best, True)
                assert way.bytes <= limit
                assert stage.ends.first[path[0] >> 1]
                assert price >= 0.0
            else:
                assert price < 0.0
            if price == 0.0:
                assert best == bound == min(way.time for way in ways)
            if price > 0.0 and all(way.bytes == way.memory for way in ways):
                values = [(way.time, way.memory - limit) for way in ways]
                prices = {
                    (s - t) / (a - b) for s, a in values for t, b in values if (s - t) * (b - a) > 0
                }
                dual = max(min(t + abs(p) * m for t, m in values) for p in prices)
                most = max(abs(m) for _, m in values)
                assert bound >= dual - 2e-3 * price * most


def equal_layers(count: int, heavy: int, costly: set[int] = frozenset()) -> Stage:
    """Return layers with two options, of 1 unit of time and 3 of memory and of 2 and 1, where so
    many can be of the first kind; a change of options before a costly layer takes 50 units."""
    compute, sizes = np.tile([1.0, 2.0], (count, 1)), np.tile([3.0, 1.0], (count, 1))
    none, flags = np.zeros((count, 2)), np.zeros(count, np.bool_)
    operators = Operators(
        compute * SECOND, none + SECOND, none, sizes * BYTE, none, none,
        pair=np.array([int(q in costly) for q in range(count)]),
        reshard=np.array([np.zeros((2, 2)), 50 * SECOND * (1 - np.eye(2))]),
        free=np.array([True, False]), saves=flags, closes=flags, shared=flags,
    )  # fmt: skip
    ends = Ends(np.zeros(2), np.zeros(2), np.zeros(2), np.ones(2, np.bool_))
    memory = Memory(1.0, 1.0, floor=False, limit=(count + 2 * heavy) * BYTE)
    return Stage(operators, ends, memory)


@pytest.mark.parametrize("count", [5, 40])
def test_of_equal_layers_as_many_are_fast_as_fit(count: int) -> None:
    """They change their minds all at the same price, of one unit of time for two of memory."""
    for heavy in range(0, count + 1, 1 + count // 6):
        stage = equal_layers(count, heavy)
        best, price, bound, path = searched(stage, np.inf, stage.memory.limit)
        assert best == (2 * count - heavy) * SECOND
        assert bound == pytest.approx(best, rel=1e-3)
        assert path.count(0) == heavy
        assert price == pytest.approx(SECOND / BYTE / 2 if heavy < count else 0.0, rel=1e-3)


@for_each("layers", [61, 64])
@for_each("away", [0, 1, 7, NEIGHBOURS])
@for_each("fast_first", [True, False])
def test_ways_change_where_it_costs_nothing_up_to_a_layer_away(
    layers: int, away: int, *, fast_first: bool
) -> None:
    """30 layers may be fast; changes are free before one layer alone: fewer are fast then,
    those before it or those from it on. Either is so far from the last one that does not fit."""
    heavy = 30 - away if fast_first else 31 - max(1, away)
    change = heavy if fast_first else layers - heavy
    stage = equal_layers(layers, 30, set(range(layers)) - {change})
    best, _, _, path = searched(stage, np.inf, stage.memory.limit)
    assert best == (2 * layers - heavy) * SECOND
    fast, slow = (0,) * heavy, (2,) * (layers - heavy)
    assert path == (fast + slow if fast_first else slow + fast)

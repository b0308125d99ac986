"""Least sums along chains of groups with prices on devices, against all ways one by one."""

from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from ilp_planner.optimize.bounds.arrays import INFINITE
from ilp_planner.optimize.bounds.group_chain import GroupChain
from ilp_planner.optimize.bounds.group_potentials import Potentials, plain, prefixes, through
from tests.examples import for_each
from tests.optimize.bounds.random_chain import Way, before, every_way, random_chain

SEEDS = range(120)
SLOWEST = [5.0, 8.0, np.inf]


def prices(seed: int, chain: GroupChain) -> NDArray[np.float64]:
    return np.random.default_rng(seed).integers(0, 4, len(chain.capacity)).astype(np.float64)


def cases(slowest: float) -> Iterator[tuple[GroupChain, Potentials, int]]:
    """Yield chains, what is known of them, and how many stages after are counted."""
    for seed in SEEDS:
        chain, levels = random_chain(seed), 2 + seed % 4
        yield chain, prefixes(chain, prices(seed, chain), slowest, levels), levels


def paid(chain: GroupChain, known: Potentials, way: Way) -> float:
    """Return the sum of a way with the price of its devices, less that of all devices."""
    use = chain.stages.use[list(way.arcs)].sum(axis=0) - np.array(chain.capacity)
    return float(sum(way.totals) + use @ known.price)


def numbered_states(chain: GroupChain) -> Iterator[tuple[int, int]]:
    """Yield all states, with every number that there is in the region of each."""
    for s, c in enumerate(chain.states.group.tolist()):
        region = int(chain.regions.of[c])
        for number in range(chain.regions.most if region >= 0 else 1):
            if region < 0 or chain.regions.fits[region, 0, number]:
                yield s, number


@pytest.mark.slow
@for_each("slowest", SLOWEST)
def test_what_stands_before_a_state_costs_the_least_of_all(slowest: float) -> None:
    for chain, known, levels in cases(slowest):
        stages = chain.stages

        @cache
        def least(
            v: int, s: int, number: int, after: int, chain: GroupChain = chain,
            known: Potentials = known, levels: int = levels,
        ) -> float:  # fmt: skip
            if v == 0:
                return 0.0
            found = INFINITE
            for a in np.flatnonzero(chain.stop == v).tolist():
                if chain.stages.behind[a] >= after:
                    for then, now, time, total in before(chain, a, s, number):
                        if time <= slowest:
                            more = total + float(chain.stages.use[a] @ known.price)
                            u = int(chain.stages.start[a])
                            rest = least(u, then, now, min(after + 1, levels - 1))
                            found = min(found, more + rest)
            return found

        for v in range(chain.layers):
            for s, number in numbered_states(chain):
                expected = [least(v, s, number, min(n, levels - 1)) for n in range(1, levels + 1)]
                assert known.table[v, s, number].tolist() == expected
        assert (known.priced == stages.total + stages.use @ known.price).all()


@for_each("slowest", SLOWEST)
def test_the_cheapest_way_is_the_one_of_all(slowest: float) -> None:
    """And what is known of each candidate is the cheapest way through it."""
    some = 0
    for chain, known, levels in cases(slowest):
        ways = list(every_way(chain, slowest, levels))
        sums = [paid(chain, known, way) for way in ways]
        least = min(sums, default=INFINITE)
        assert known.least == least
        each = np.full(chain.arcs, INFINITE)
        for way, value in zip(ways, sums, strict=True):
            each[list(way.arcs)] = np.minimum(each[list(way.arcs)], value)
        assert np.minimum(through(chain, known), INFINITE).tolist() == each.tolist()
        best = [way for way, value in zip(ways, sums, strict=True) if value == least]
        if not best:
            assert known.path.size == 0
            assert known.total == INFINITE
            continue
        some += 1
        named = [way for way in best if way.arcs == tuple(known.path.tolist())]
        assert known.total in {sum(way.totals) for way in named}
    assert some > 20


@for_each("slowest", SLOWEST)
def test_without_sending_and_its_states_the_least_sum_is_that_of_any_stages(slowest: float) -> None:
    for seed in SEEDS:
        chain = random_chain(seed)
        price, stages = prices(seed, chain), chain.stages
        priced = stages.total + stages.use @ price

        def ways(v: int, chain: GroupChain = chain) -> Iterator[tuple[int, ...]]:
            if v == 0:
                yield ()
            for a in np.flatnonzero((chain.stop == v) & (chain.stages.time <= slowest)).tolist():
                yield from ((a, *rest) for rest in ways(int(chain.stages.start[a])))

        sums = {way: float(priced[list(way)].sum()) for way in ways(chain.layers)}
        least, path = plain(chain, price, slowest)
        if not sums:
            assert least == INFINITE
            continue
        assert sums[tuple(path.tolist())] == min(sums.values())
        assert least == min(sums.values()) - price @ np.array(chain.capacity)

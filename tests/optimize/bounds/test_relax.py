"""One step over pipelines, against all stages one by one, at limits that stages meet exactly."""

from dataclasses import dataclass

import numpy as np

from ilp_planner.optimize.bounds.arrays import INFINITE
from ilp_planner.optimize.bounds.relax import open_arcs, reach, relax_ahead, relax_back
from tests.examples import for_each
from tests.optimize.bounds.random_rows import Shared, shared

SEEDS = range(40)


@dataclass(frozen=True)
class Table:
    """The seconds of all stages of a chain, whole ones."""

    chain: Shared
    times: np.ndarray

    @property
    def n(self) -> int:
        return self.chain.n

    def time(self, start: int, stop: int) -> float:
        """Return the seconds of a stage, INFINITE where it is too long."""
        if stop - start > self.chain.size.length[start]:
            return INFINITE
        return float(self.times[self.chain.entry(start, stop)])


def table(random: np.random.Generator, n: int, most: float, few: int = 2) -> Table:
    chain = shared(random, random.integers(0, few, n), most)
    return Table(chain, random.integers(1, 9, chain.size.entries).astype(np.float64))


def states(random: np.random.Generator, n: int) -> np.ndarray:
    """Draw what is known of the states, of some nothing."""
    known = random.integers(0, 9, n + 1).astype(np.float64)
    known[random.random(n + 1) < random.choice([0.0, 0.4, 0.9])] = INFINITE
    return known


def drawn(seed: int) -> tuple[np.random.Generator, Table]:
    random = np.random.default_rng(seed)
    return random, table(random, int(random.integers(1, 9)), float(random.integers(2, 16)))


@for_each("slowest", [0.5, 3.0, 5.0, 8.0])
def test_the_longest_stage_within_a_time_is_that_of_all(slowest: float) -> None:
    """Not only as far as all shorter ones are within it: bounds need not grow with the stage. In
    rows that share with rows that share, too."""
    for seed in SEEDS:
        random = np.random.default_rng(seed)
        known = table(random, int(random.integers(1, 16)), float(random.integers(2, 40)))
        expected = [
            max(
                (d for d in range(1, known.n - i + 1) if known.time(i, i + d) <= slowest), default=0
            )
            for i in range(known.n)
        ]
        assert reach(known.times, known.chain.rows, known.chain.size, slowest).tolist() == expected


def test_a_state_is_reached_by_the_cheapest_stage_that_leads_on() -> None:
    for seed in SEEDS:
        random, known = drawn(seed)
        source, before = states(random, known.n), states(random, known.n)
        slowest = float(random.integers(1, 9))
        chain = known.chain
        first, last = sorted(random.integers(0, known.n + 1, 2).tolist())
        most = reach(known.times, known.chain.rows, known.chain.size, slowest)
        ways = [
            [
                known.time(i, j) + source[j]
                for j in range(i + 1, known.n + 1)
                if known.time(i, j) <= slowest and source[j] < INFINITE
            ]
            for i in range(known.n)
        ]
        for sums in (True, False):
            found = before.copy()
            relax_back(
                found, source, known.times, chain.rows, chain.size.base, most, slowest, first,
                last, sums,
            )  # fmt: skip
            for i in range(known.n + 1):
                some = ways[i] if first <= i <= last and i < known.n else []
                if sums:
                    assert found[i] == min([before[i], *some])
                elif before[i] < INFINITE or not some:
                    assert found[i] == before[i]
                else:
                    assert found[i] in some


def test_what_comes_before_grows_only_where_something_can_follow() -> None:
    for seed in SEEDS:
        random, known = drawn(seed)
        source, after, target = (states(random, known.n) for _ in range(3))
        slowest = float(random.integers(1, 9))
        chain, expected = known.chain, target.copy()
        for i in range(known.n):
            for j in range(i + 1, known.n + 1):
                if source[i] < INFINITE and after[j] < INFINITE and known.time(i, j) <= slowest:
                    expected[j] = min(expected[j], source[i] + known.time(i, j))
        relax_ahead(
            target, source, after, known.times, chain.rows, chain.size.base, chain.size.length,
            slowest,
        )  # fmt: skip
        assert target.tolist() == expected.tolist()


def opened(
    known: Table, ahead: np.ndarray, back: np.ndarray, slowest: float, floor: float, cutoff: float
) -> tuple[list[list[int]], list[list[int]]]:
    """Return what is open of a table, sorted, and what should be; the slowest counts three times
    more."""
    chain = known.chain
    found = open_arcs(
        ahead, back, known.times, chain.rows, chain.size.base, chain.size.length, 3.0, slowest,
        floor, cutoff,
    )  # fmt: skip
    expected = [
        [i, j, chain.entry(i, j)]
        for i in range(known.n)
        for j in range(i + 1, known.n + 1)
        if (t := known.time(i, j)) <= slowest
        and max(ahead[i], back[j]) < INFINITE
        and 3.0 * max(t, floor) + ahead[i] + t + back[j] < cutoff
    ]
    return sorted(found.tolist()), expected


def test_a_stage_is_open_that_may_be_part_of_a_pipeline_below_the_cutoff() -> None:
    some = 0
    for seed in SEEDS:
        random, known = drawn(seed)
        ahead, back = states(random, known.n), states(random, known.n)
        slowest, floor = random.integers(1, 9, 2).astype(float)
        for cutoff in (20.0, 30.0, 40.0):
            found, expected = opened(known, ahead, back, slowest, floor, cutoff)
            assert found == expected
            some += len(found)
    assert some > 100


def test_more_stages_may_be_open_than_were_thought() -> None:
    """The room for 1024 is doubled."""
    known = table(np.random.default_rng(0), 60, 1e9, few=4)
    none = np.zeros(61)
    found, expected = opened(known, none, none, 8.0, 0.0, 1e9)
    assert found == expected
    assert len(found) == 60 * 61 // 2

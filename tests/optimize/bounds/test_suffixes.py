"""Suffixes told apart by their devices: every state by its definition, at limits met exactly."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from ilp_planner.optimize.bounds.arrays import INFINITE
from ilp_planner.optimize.bounds.fewest import (
    Shape,
    Suffixes,
    Times,
    open_between,
    prefixes,
    suffixes,
    windows,
)
from ilp_planner.optimize.bounds.pipelines import fewest_before
from tests.optimize.bounds.random_rows import Shared, shared
from tests.tiny import stands

SHAPES = [(1, 1), (1, 3), (1, 4), (2, 2), (3, 1), (2, 3)]
NOWHERE = (INFINITE, 0)


@dataclass(frozen=True)
class Case:
    """Groups of devices in nodes, and the seconds of all stages on them.

    chains: by size of group. window: first and last operator by the devices of a suffix.
    """

    shape: Shape
    times: Times
    chains: list[Shared]
    window: NDArray[np.int64]
    slowest: float

    @property
    def n(self) -> int:
        return self.chains[0].n

    @property
    def length(self) -> NDArray[np.int64]:
        return np.array([chain.size.length for chain in self.chains])

    def seconds(self, x: int, kind: int, start: int, i: int, j: int) -> float:
        """Return the seconds of a stage on the group x from a device on."""
        enters, leaves = self.crosses(x, start)
        begin = int(self.times.offset[x, kind, enters])
        return float(
            self.times.flat[begin + leaves * int(self.times.entries[x]) + self.entry(x, i, j)]
        )

    def crosses(self, x: int, start: int) -> tuple[int, int]:
        """Return whether a stage is entered from another node, and left to one."""
        per_node, stop = self.shape.per_node, start + int(self.shape.groups[x])
        return int(start > 0 and start % per_node == 0), int(stop % per_node == 0)

    def entry(self, x: int, i: int, j: int) -> int:
        return self.chains[x].entry(i, j)

    def stages(self, u: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield the group, the devices after it and the operators of the first stages of suffixes
        on u devices."""
        start = self.shape.devices - u
        for x, g in enumerate(self.shape.groups.tolist()):
            if g <= u and stands(start, g, self.shape.per_node):
                for i, j in self.chains[x].stages():
                    (a, b), (c, d) = self.window[[u, u - g]].tolist()
                    if a <= i <= b and c <= j <= d:
                        yield x, u - g, i, j

    def best(self) -> dict[tuple[int, int], tuple[float, int]]:
        """Return the least sum and the fewest stages of the suffixes that end within `slowest`, by
        devices and first operator."""

        @cache
        def of(u: int, i: int) -> tuple[float, int]:
            if u == 0:
                return (0.0, 0) if i == self.n else NOWHERE
            sums, counts = [], []
            for x, v, at, j in self.stages(u):
                rest, behind = of(v, j)
                if at == i and rest < INFINITE and self.may(u, behind):
                    time = self.seconds(x, int(self.times.kind[behind]), self.before(u), i, j)
                    if time <= self.slowest:
                        sums.append(time + rest)
                        counts.append(behind + 1)
            return (min(sums), min(counts)) if sums else NOWHERE

        return {(u, i): of(u, i) for u in range(self.shape.devices + 1) for i in range(self.n + 1)}

    def before(self, u: int) -> int:
        return self.shape.devices - u

    def may(self, u: int, behind: int) -> bool:
        """Tell whether a stage with so many behind it leaves as many as there have to be before."""
        return behind + 1 + self.shape.before[self.before(u)] <= self.shape.max_stages

    def found(self) -> tuple[NDArray[np.float64], NDArray[np.int64], int]:
        """Return the same as `best`, as arrays, and where it ended."""
        wide = (self.shape.devices + 1, self.n + 1)
        total, behind = np.full(wide, INFINITE), np.zeros(wide, np.int64)
        total[0, self.n] = 0.0
        end = suffixes(
            1, wide[0], self.shape, self.times, self.length, self.slowest, self.window, total,
            behind,
        )  # fmt: skip
        return total, behind, end

    def between(self) -> Iterator[tuple[int, int, int, int, int, float, float]]:
        """Yield the stages that lead from a suffix to another one that ends: devices, group,
        devices after, operators, their seconds and those after."""
        best = self.best()
        for u in range(self.shape.devices, 0, -1):
            for x, v, i, j in self.stages(u):
                rest, behind = best[v, j]
                if rest < INFINITE and self.may(u, behind):
                    kind = int(self.times.kind[behind])
                    time = self.seconds(x, kind, self.before(u), i, j)
                    if time <= self.slowest:
                        yield u, x, v, i, j, time, rest


def case(seed: int) -> Case:
    """Draw whole seconds, so that stages meet limits exactly."""
    random = np.random.default_rng(seed)
    nodes, per_node = SHAPES[seed % len(SHAPES)]
    devices, n = nodes * per_node, int(random.integers(2, 7))
    sizes = [g for g in (1, 2, 3, 4) if g <= devices and random.random() < 0.7] or [1]
    most = int(random.integers(2, devices + 1)) if devices > 1 else 1
    kinds = random.integers(0, 2, n)
    chains = [shared(random, kinds, float(random.integers(2, 14))) for _ in sizes]
    kind = np.sort(random.integers(0, 3, most))
    entries = np.array([chain.size.entries for chain in chains])
    offset = np.zeros((len(sizes), 3, 2), np.int64)
    end = 0
    for x, k, enters in np.ndindex(*offset.shape):
        offset[x, k, enters], end = end, end + 2 * int(entries[x])
    times = Times(
        flat=random.integers(1, 9, end).astype(np.float64),
        offset=offset,
        entries=entries,
        kind=kind,
        common=chains[0].rows.common,
        above=chains[0].rows.above,
        base=np.array([chain.size.base for chain in chains]),
    )
    groups = np.array(sizes, np.int64)
    shape = Shape(devices, per_node, most, groups, fewest_before(devices, per_node, tuple(sizes)))
    window = np.tile(np.array([0, n]), (devices + 1, 1))
    if random.random() < 0.5:
        window[1:] = np.sort(random.integers(0, n + 1, (devices, 2)), axis=1)
    return Case(shape, times, chains, window, float(random.integers(3, 9)))


CASES = [case(seed) for seed in range(60)]


def test_states_are_what_the_best_of_all_stages_leads_to() -> None:
    reached = 0
    for one in CASES:
        total, behind, end = one.found()
        assert end == one.shape.devices + 1
        for state, (seconds, fewest) in one.best().items():
            assert total[state] == seconds
            assert seconds >= INFINITE or behind[state] == fewest
        reached += total[-1, 0] < INFINITE
    assert reached > 10


def test_where_a_table_is_missing_the_pass_stops_and_goes_on_there() -> None:
    """What was found of that state is forgotten."""
    stopped = 0
    for one in CASES:
        whole, fewest, _ = one.found()
        offset = one.times.offset.copy()
        offset[:, one.times.kind[-1] :] = -1
        partly = replace(one, times=one.times._replace(offset=offset))
        total, behind, at = partly.found()
        if at > 0:
            assert (total == whole).all()
            continue
        stopped += 1
        assert (total[:-at] == whole[:-at]).all()
        assert (total[-at] == INFINITE).all()
        end = suffixes(
            -at, one.shape.devices + 1, one.shape, one.times, one.length, one.slowest, one.window,
            total, behind,
        )  # fmt: skip
        assert end == one.shape.devices + 1
        assert (total == whole).all()
        assert (behind[total < INFINITE] == fewest[total < INFINITE]).all()
    assert stopped > 5


def forward(one: Case) -> NDArray[np.float64]:
    """Return the least sums from the beginning to each state, [D + 1, n + 1]."""
    ahead = np.full((one.shape.devices + 1, one.n + 1), INFINITE)
    ahead[-1, 0] = 0.0
    for u, _, v, i, j, time, _ in one.between():
        if ahead[u, i] < INFINITE:
            ahead[v, j] = min(ahead[v, j], ahead[u, i] + time)
    return ahead


def test_what_comes_before_a_state_is_the_cheapest_of_all_that_lead_there() -> None:
    reached = 0
    for one in CASES:
        total, behind, _ = one.found()
        ahead = np.full_like(total, INFINITE)
        ahead[-1, 0] = 0.0
        known = Suffixes(total, behind, one.window, one.length)
        prefixes(one.shape, one.times, known, one.slowest, ahead)
        assert (ahead == forward(one)).all()
        reached += ahead[0, one.n] < INFINITE
    assert reached > 10


def test_stages_are_open_that_may_be_part_of_a_pipeline_below_the_cutoff() -> None:
    """The slowest counts twice more, and never less than 4 seconds."""
    some = 0
    for one in CASES:
        total, behind, _ = one.found()
        known = Suffixes(total, behind, one.window, one.length)
        ahead, every, wide = forward(one), list(one.between()), one.n + 1
        for cutoff, dtype in itertools.product((15.0, 25.0, 40.0), (np.int32, np.int64)):
            found = open_between(
                one.shape, one.times, known, ahead, 2.0, one.slowest, 4.0, cutoff,
                np.empty((4, 6), dtype),
            )  # fmt: skip
            expected = []
            for u, x, v, i, j, time, rest in every:
                if ahead[u, i] + rest + time + 2.0 * max(time, 4.0) < cutoff:
                    place = (x, int(one.times.kind[behind[v, j]]), *one.crosses(x, one.before(u)))
                    number = np.ravel_multi_index(place, (9, 3, 2, 2))
                    states = u * wide + i, v * wide + j
                    expected.append([*states, i, j, number, one.entry(x, i, j)])
            assert sorted(found.tolist()) == sorted(expected)
            some += len(expected)
    assert some > 100


def test_more_stages_may_be_open_than_were_thought() -> None:
    """The room for 1024 is doubled: stages of 46 operators on three devices."""
    n = 46
    chain = shared(np.random.default_rng(0), np.arange(n), 1e9)
    entries = np.array([chain.size.entries])
    times = Times(
        np.ones(2 * 2 * int(entries[0])), np.array([[[0, 2 * int(entries[0])]]]), entries,
        np.zeros(3, np.int64), chain.rows.common, chain.rows.above, chain.size.base[None],
    )  # fmt: skip
    shape = Shape(3, 3, 3, np.array([1]), fewest_before(3, 3, (1,)))
    window = np.array([[n, n], [0, n], [0, n], [0, n]])
    one = Case(shape, times, [chain], window, 1.0)
    total, behind, _ = one.found()
    known = Suffixes(total, behind, window, one.length)
    ahead = np.full_like(total, INFINITE)
    ahead[-1, 0] = 0.0
    prefixes(shape, times, known, 1.0, ahead)
    room = np.empty((1024, 6), np.int32)
    found = open_between(shape, times, known, ahead, 0.0, 1.0, 0.0, 9.0, room)
    assert len(set(map(tuple, found.tolist()))) == len(found)
    # the first stages stop at 1 .. n - 2, from where two can go on
    assert len(found) == (n - 2) + (n - 1) * (n - 2) // 2 + (n - 2)


def test_windows_are_how_far_devices_reach_wherever_groups_stand() -> None:
    """From an operator on each group takes the stage that ends last, of those that begin there or
    before; all devices need not be used."""
    random = np.random.default_rng(0)
    for _ in range(60):
        n, devices = int(random.integers(1, 6)), int(random.integers(1, 6))
        sizes = [g for g in (1, 2, 3) if random.random() < 0.6] or [2]
        length = random.integers(0, 4, (len(sizes), n))
        length = np.minimum(length, n - np.arange(n))
        shape = Shape(devices, devices, devices, np.array(sizes), np.zeros(devices + 1, np.int64))

        def last(i: int, some: tuple[int, ...], length: NDArray[np.int64] = length) -> int:
            for x in some:
                row = length[x].tolist()
                i = i if i >= len(row) else max(at + row[at] for at in range(i + 1))
            return i

        for u, (first, end) in enumerate(windows(length, shape).tolist()):
            ends, begins = [0], [n]
            for count in range(1, devices + 1):
                for some in itertools.product(range(len(sizes)), repeat=count):
                    used = sum(sizes[x] for x in some)
                    if used <= devices - u:
                        ends.append(last(0, some))
                    if used <= u:
                        begins += [i for i in range(n) if last(i, some) >= n]
            assert (first, end) == (min(begins), max(ends))

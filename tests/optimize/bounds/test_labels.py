"""Stages grown by labels: the fastest of all ways, one by one, and the steps by hand."""

import numpy as np
import pytest
from numpy.typing import NDArray

from ilp_planner.optimize.bounds import labels
from ilp_planner.optimize.bounds.arrays import INFINITE, ascending
from ilp_planner.optimize.bounds.exact_stage import Ceilings
from ilp_planner.optimize.bounds.labels import (
    BACKWARD,
    BOUND,
    COLUMNS,
    FORWARD,
    MEMORY,
    PEAK,
    RUN,
    STATE,
    TIME,
    WEIGHTS,
    Ahead,
    Search,
    grow,
    least_reserved,
    look_ahead,
)
from tests.examples import for_each
from tests.optimize.bounds.random_stage import BYTE, SECOND, Stage, Way, random_stage
from tests.optimize.bounds.test_arrays import plain

SEEDS = range(60)
ENOUGH = 10**9
PRICE = SECOND / BYTE / 2


def ahead_of(stage: Stage, pair_most: float = np.inf, price: float = PRICE) -> Ahead:
    reserved = least_reserved(stage.operators)
    return look_ahead(stage.operators, stage.ends.leave, stage.memory, pair_most, price, reserved)


def grown(
    stage: Stage,
    ceilings: Ceilings = Ceilings(),  # noqa: B008 - a tuple
    *,
    cutoff: float = INFINITE,
    effort: int = ENOUGH,
    width: int = 0,
    alike: NDArray[np.int64] | None = None,
) -> tuple[float, float, bool, int, tuple[int, ...]]:
    """Return time, bound, whether that is all, the work, and the way."""
    if alike is None:
        alike = np.tile(np.arange(stage.options), (stage.size, 1))
    way = np.zeros(stage.size, np.int64)
    found = grow(
        stage.operators, stage.ends, stage.memory, ceilings, alike,
        ahead_of(stage, ceilings.pair_most), Search(cutoff, effort, width), way,
    )  # fmt: skip
    return *found, tuple(way.tolist())


def fits(way: Way, stage: Stage, ceilings: Ceilings) -> bool:
    """Tell whether a way is one of a class, in which runs are charged the least of it."""
    need = way.memory + max(way.peak, ceilings.pair_least) + way.reserved
    return way.run <= ceilings.pair_most and need <= stage.memory.limit


def cases() -> list[tuple[Stage, Ceilings, list[Way]]]:
    """Return stages with the ways that fit into some memory, between the least and any, and with
    runs in a class."""
    found = []
    for seed in SEEDS:
        stage, random = random_stage(seed), np.random.default_rng(seed)
        sizes = sorted(way.bytes for way in stage.ways)
        runs = sorted({way.run for way in stage.ways})
        if not sizes:
            continue
        most, least = (float(random.choice(runs)) for _ in range(2))
        for limit in (
            sizes[0] - BYTE,
            sizes[0],
            float(random.choice(sizes[: len(sizes) // 4 + 1])),
        ):
            for ceilings in (Ceilings(), Ceilings(most, min(least, most))):
                limited = stage.limited(limit)
                some = [way for way in stage.ways if fits(way, limited, ceilings)]
                found.append((limited, ceilings, some))
    return found


CASES = cases()


@for_each("factor", [None, 1.0, 1.5])
def test_labels_find_the_fastest_of_all_ways(factor: float | None) -> None:
    """factor: what is found is to be below that times it."""
    for stage, ceilings, ways in CASES:
        best = min((way.time for way in ways), default=INFINITE)
        cutoff = INFINITE if factor is None else min(max(factor * best, SECOND), INFINITE)
        time, bound, complete, _, path = grown(stage, ceilings, cutoff=cutoff)
        assert complete
        if best >= cutoff:
            assert (time, bound) == (INFINITE, cutoff)
            continue
        assert time == bound == best
        way = stage.way(path)
        assert way.time == best
        assert fits(way, stage, ceilings)


def test_options_that_nobody_tells_apart_later_beat_each_other() -> None:
    """The second has the first's activations, reserves as much and is left at the same costs."""
    for stage, ceilings, _ in cases()[::3]:
        ops = stage.operators
        if stage.options == 1:
            continue
        for table in (ops.activations, ops.forward, ops.backward):
            table[:, 1] = table[:, 0]
        ops.reshard[:, 1, :] = ops.reshard[:, 0, :]
        stage.ends.leave[1] = stage.ends.leave[0]
        ops.free[:] = [not matrix.any() for matrix in ops.reshard]
        stage.__dict__.pop("ways", None)
        ways = [way for way in stage.ways if fits(way, stage, ceilings)]
        alike = np.tile([0, 0, 2][: stage.options], (stage.size, 1))
        best = min((way.time for way in ways), default=INFINITE)
        time, *_ = grown(stage, ceilings, alike=alike)
        assert time == best


@for_each("width", [1, 2, 5])
def test_few_labels_give_a_way_and_the_bound_of_the_first_operator(width: int) -> None:
    dropped = 0
    for stage, ceilings, ways in CASES:
        best = min((way.time for way in ways), default=INFINITE)
        _, root, *_ = grown(stage, ceilings, effort=0)
        time, bound, complete, _, path = grown(stage, ceilings, width=width)
        assert time >= best
        if complete:
            assert (time, bound) == (best, best)
        else:
            dropped += 1
            assert bound == root <= best * (1 + 1e-12)
        if time < INFINITE:
            assert stage.way(path).time == time
            assert fits(stage.way(path), stage, ceilings)
    assert dropped > 10


def test_as_many_labels_as_there_may_be_are_all_of_them() -> None:
    for stage, ceilings, ways in CASES[::5]:
        best = min((way.time for way in ways), default=INFINITE)
        assert grown(stage, ceilings, width=ENOUGH)[:3] == (best, best, True)


@pytest.mark.parametrize("options", [1, 3])
def test_effort_is_counted_and_ends_a_search_with_its_bound(options: int) -> None:
    """8 for every option at the beginning, though one alone can be, and 8 for either label of the
    first operator; 8 for every option to go on from each, 8 for each of four that are made, and one
    comparison in each of two states."""
    stage = random_stage(0)
    one, flags = np.ones((2, options)), np.zeros(2, np.bool_)
    operators = stage.operators._replace(
        compute=np.where(np.arange(options) == 0, one * SECOND, INFINITE),
        recompute=one * SECOND, activations=one * BYTE, weights=one * BYTE, forward=one,
        backward=one, pair=np.zeros(2, np.int64), reshard=np.zeros((1, options, options)),
        free=np.ones(1, np.bool_), saves=flags, closes=flags, shared=flags,
    )  # fmt: skip
    ends = stage.ends._replace(
        inputs=one[0], enter=0 * one[0], leave=SECOND * one[0], first=np.ones(options, np.bool_)
    )
    stage = Stage(operators, ends, stage.memory._replace(limit=INFINITE))
    first = 8 * options + 16
    every = first + 2 * 8 * options + 2 + 32
    time, bound, complete, work, path = grown(stage)
    assert (time, bound, complete, path) == (3 * SECOND, 3 * SECOND, True, (0, 0))
    assert work == every
    assert grown(stage, effort=every)[:3] == (3 * SECOND, 3 * SECOND, True)
    for effort in (0, first - 1, first, every - 1):
        time, bound, complete, work, _ = grown(stage, effort=effort)
        assert (time, complete, work) == (INFINITE, False, first if effort < first else every)
        assert bound == 3 * SECOND
    ended = grown(stage, effort=0, cutoff=2.5 * SECOND)
    assert ended[:4] == (INFINITE, 2.5 * SECOND, True, 8 * options)


def test_what_operators_reserve_at_least_is_that_of_their_leanest_options() -> None:
    """Of those that can be, the most of any operator but the last."""
    for seed in SEEDS:
        ops = random_stage(seed).operators
        found = least_reserved(ops)
        m = len(ops.compute)
        assert found.shape == (2, m + 1)
        for row, table in zip(found, (ops.forward, ops.backward), strict=True):
            each = [
                min([INFINITE, *table[q][ops.compute[q] < INFINITE].tolist()]) for q in range(m - 1)
            ]
            assert row.tolist() == [max(each[q:], default=0.0) for q in range(m + 1)]


def test_what_is_ahead_is_priced_around_the_best_price() -> None:
    stage = random_stage(1)
    around = ahead_of(stage)
    assert around.prices.min() < PRICE < around.prices.max()
    assert (ahead_of(stage, price=2 * PRICE).prices == 2 * around.prices).all()
    assert not ahead_of(stage, price=0.0).prices.any()
    unknown = ahead_of(stage, price=-1.0)
    assert (unknown.prices >= 0.0).all()
    assert unknown.prices.any()
    assert unknown.seconds.shape == (unknown.prices.size, stage.size, 2, stage.options)
    assert (unknown.reserved == least_reserved(stage.operators)).all()
    ops = stage.operators  # the last operator but one, and the least that follows it
    after = ops.weights[-1] * stage.memory.factor + ops.activations[-1] * stage.memory.in_flight
    usable = ops.compute[-1] < INFINITE
    assert unknown.memory[-1].tolist() == [[0.0] * stage.options] * 2
    moves = ops.reshard[ops.pair[-1]][:, usable] < INFINITE
    least = [min(after[usable][row], default=INFINITE) for row in moves]
    assert np.minimum(unknown.memory[-2, 0], INFINITE).tolist() == least


# ---- steps, as plain Python ---------------------------------------------------------------------


def drawn(seed: int, made: int) -> NDArray[np.float64]:
    """Return labels whose columns are whole numbers, few of them each."""
    random = np.random.default_rng(seed)
    fresh = random.integers(0, 3, (made, COLUMNS)).astype(np.float64)
    fresh[:, STATE] = random.integers(0, 6, made)
    return fresh


@pytest.mark.parametrize("floor", [True, False])
def test_labels_are_kept_that_none_of_the_same_state_dominates(
    monkeypatch: pytest.MonkeyPatch, *, floor: bool
) -> None:
    """Options 0 and 1 are alike. Weights count only where they are reserved."""
    monkeypatch.setattr(labels, "ascending", plain(ascending))
    alike, columns = np.array([0, 0, 2]), [MEMORY, PEAK, RUN, FORWARD, BACKWARD]
    columns += [WEIGHTS] * floor
    for seed in SEEDS:
        fresh, value = drawn(seed, 25), np.full((40, COLUMNS), -1.0)
        kept: list[NDArray[np.float64]] = []
        work = 0
        for label in sorted(fresh, key=lambda row: row[TIME]):
            own = [int(alike[int(label[STATE]) >> 1]), int(label[STATE]) & 1]
            for other in reversed(kept):
                if [int(alike[int(other[STATE]) >> 1]), int(other[STATE]) & 1] == own:
                    work += 1
                    if (other[columns] <= label[columns]).all():
                        break
            else:
                kept.append(label)
        found = plain(labels._keep)(fresh, alike, floor, value, 7)
        assert found == (7 + len(kept), min(row[BOUND] for row in kept), work)
        assert (value[7 : found[0]] == kept).all()
        assert (value[:7] == -1.0).all()


def test_labels_of_least_bounds_are_kept_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labels, "ascending", plain(ascending))
    value = drawn(0, 9)
    value[:, BOUND] = [0, 0, 5, 3, 4, 3, 9, 1, 3]
    value[:, TIME] = range(9)
    before = value.copy()
    assert plain(labels._narrow)(value, 2, 9, 4) == 6
    assert (value[:6] == before[[0, 1, 3, 5, 7, 8]]).all()


def test_the_fastest_label_that_fits_is_the_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time and leaving, within 10 bytes: memory, the peak, and what is reserved, or the weights."""
    value = np.zeros((5, COLUMNS))
    value[:, TIME] = [1, 6, 4, 5, 5]
    value[:, STATE] = [0, 3, 3, 0, 2]  # options 0, 1, 1, 0, 1
    value[:, MEMORY] = [0, 4, 5, 4, 4]
    value[:, [PEAK, FORWARD, BACKWARD]] = 2.0
    value[:, WEIGHTS] = [0, 4, 4, 4, 5]
    finished, leave = plain(labels._finished), np.array([3.0, 1.0])
    assert finished(value, 1, 5, leave, False, 10.0, 99.0) == (4, 6.0)
    assert finished(value, 1, 5, leave, True, 10.0, 99.0) == (1, 7.0)
    assert finished(value, 1, 5, leave, True, 11.0, 99.0) == (2, 5.0)
    assert finished(value, 1, 5, leave, False, 10.0, 6.0) == (-1, 6.0)
    assert finished(value, 1, 5, leave, False, 9.0, 99.0) == (-1, 99.0)

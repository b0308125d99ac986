"""Statistics of steps: the parts add up to the mean, and each injected one is found."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.analysis.doctor.statistics import Steps, analysed

SEEDS = st.integers(0, 2**32 - 1)


def steps(seconds: np.ndarray, weights: np.ndarray | None = None) -> Steps:
    each = np.ones(len(seconds)) if weights is None else weights
    return analysed(np.cumsum(each).astype(np.int64), seconds, each)


def even(seed: int, count: int = 200, noise: float = 0.01) -> np.ndarray:
    return np.exp(np.random.default_rng(seed).normal(0, noise, count))


@given(st.lists(st.floats(0.1, 10), min_size=2, max_size=80))
def test_any_steps_are_analysed(values: list[float]) -> None:
    found = steps(np.array(values))
    assert found.mean == pytest.approx(np.mean(values))
    assert found.low <= found.high
    parts = (found.warming, found.rhythmic, found.random)
    assert all(np.isfinite(part) for part in parts)
    assert found.rhythmic >= 0
    assert found.random >= 0


@given(SEEDS, st.floats(0.001, 0.02))
def test_even_steps_have_no_parts(seed: int, noise: float) -> None:
    found = steps(even(seed, noise=noise))
    lost = found.warming + found.rhythmic + found.random + found.raised
    assert abs(lost) < 0.02 * found.mean
    assert noise / 2 < found.noise < 2 * noise  # of the nearest quarter of 199 differences


@given(SEEDS, st.integers(3, 50), st.floats(0.5, 5))
def test_a_rhythm_is_heard_through_noise_and_single_slow_steps(
    seed: int, every: int, stall: float
) -> None:
    seconds = even(seed)
    seconds[every - 1 :: every] += stall
    seconds[np.random.default_rng(seed).integers(10, 190)] += 0.3
    found = steps(seconds)
    assert found.rhythm is not None
    assert found.rhythm.every == pytest.approx(every, rel=0.02)
    assert found.rhythm.seconds == pytest.approx(stall, rel=0.2)
    one = stall / 200  # of the mean: the single slow step may be one of the rhythm
    assert found.rhythmic == pytest.approx(one * (200 // every), rel=0.2, abs=1.1 * one)


@given(SEEDS)
def test_slow_steps_at_random_keep_no_rhythm(seed: int) -> None:
    seconds = even(seed)
    draw = np.random.default_rng(seed)
    slow = draw.choice(np.arange(5, 200), 30, replace=False)
    seconds[slow] += 1.0
    found = steps(seconds)
    assert found.rhythm is None or found.random > found.rhythmic
    assert found.random + found.rhythmic + found.warming == pytest.approx(0.15, rel=0.2)


@given(SEEDS, st.integers(1, 6))
def test_slow_first_steps_are_warm_up(seed: int, count: int) -> None:
    seconds = even(seed, 60)
    seconds[:count] *= 5
    found = steps(seconds)
    assert found.warm == count
    assert found.warming == pytest.approx(4 * count / 60, rel=0.1)
    assert found.steady == pytest.approx(1.0, rel=0.02)


@given(SEEDS, st.integers(40, 160), st.floats(0.06, 0.4))
def test_steps_that_become_slower_for_good(seed: int, cut: int, more: float) -> None:
    seconds = even(seed)
    seconds[cut:] *= 1 + more
    found = steps(seconds)
    assert found.level is not None
    assert abs(found.level.step - cut) <= 6
    assert found.level.sudden
    assert found.level.seconds == pytest.approx(more, rel=0.2)
    assert found.steady == pytest.approx(1.0, rel=0.02)
    assert found.raised == pytest.approx(more * (200 - cut) / 200, rel=0.25)


def test_steps_that_become_slower_little_by_little() -> None:
    found = steps(even(1) * np.linspace(1, 1.4, 200))
    assert found.level is not None
    assert not found.level.sudden


@given(SEEDS)
def test_means_of_ten_steps_tell_a_stall_of_one(seed: int) -> None:
    seconds = even(seed, 100, 0.003)
    seconds[9::10] += 0.4  # 4 s in one of the ten steps, every hundred
    found = steps(seconds, np.full(100, 10.0))
    assert found.rhythm is not None
    assert found.rhythm.every == pytest.approx(100, rel=0.02)
    assert found.rhythm.seconds == pytest.approx(4.0, rel=0.1)
    assert found.count == 1000

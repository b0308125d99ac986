"""Successive halving: who goes on, how far, and that nothing good is lost."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ilp_planner.optimize.solvers.halving import Rung, best, rungs, successive_halving
from tests.examples import for_each


class Race:
    """Scores fall with every step, towards a value of each start's own; written down."""

    def __init__(self, ends: Sequence[float]) -> None:
        self.ends = np.array(ends)
        self.steps = np.zeros(self.ends.size, np.int64)
        self.calls: list[tuple[int, int]] = []

    def __call__(self, members: NDArray[np.int64], steps: int) -> NDArray[np.float64]:
        self.steps[members] += steps
        self.calls.append((members.size, steps))
        return self.ends[members] + 1.0 / self.steps[members]


def test_every_rung_costs_about_the_same() -> None:
    assert rungs(8, 3) == (Rung(8, 3), Rung(4, 6), Rung(2, 12), Rung(1, 24))
    assert rungs(10, 1, last=4) == (Rung(10, 1), Rung(5, 2), Rung(4, 4))
    assert rungs(1, 5) == (Rung(1, 5),)
    assert rungs(3, 5, last=4) == (Rung(3, 5),)


@given(starts=st.integers(1, 300), steps=st.integers(1, 20), last=st.integers(1, 8))
def test_rungs_halve_and_double(starts: int, steps: int, last: int) -> None:
    found = rungs(starts, steps, last=last)
    assert found[0] == Rung(starts, steps)
    assert found[-1].starts == min(starts, last)
    for before, after in pairwise(found):
        assert after.steps == 2 * before.steps
        assert before.starts / 2 <= max(after.starts, last)
        assert after.starts < before.starts


@for_each("wrong", [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_nothing_to_do_is_refused(wrong: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="must be >= 1, found"):
        rungs(wrong[0], wrong[1], last=wrong[2])


@given(st.lists(st.integers(0, 20), min_size=1, max_size=80))
def test_the_best_start_wins(ends: list[int]) -> None:
    """All are equally far at every rung, so the order of their ends is that of their scores."""
    race = Race(ends)
    last = successive_halving(len(ends), race, steps=2)
    assert ends[last[0]] == min(ends)
    assert race.calls == [(rung.starts, rung.steps) for rung in rungs(len(ends), 2)]


def test_the_last_come_best_first_and_equals_in_their_order() -> None:
    race = Race([3.0, 1.0, 2.0, 1.0, 5.0, 4.0])
    assert successive_halving(6, race, steps=1, last=3).tolist() == [1, 3, 2]
    assert best(np.arange(3), np.array([np.inf, 1.0, np.inf]), 3).tolist() == [1, 0, 2]


def test_without_time_the_first_rung_still_counts() -> None:
    race = Race([3.0, 1.0, 2.0, 4.0])
    last = successive_halving(4, race, steps=1, goon=lambda: False)
    assert last.tolist() == [1, 2, 0, 3]
    assert race.calls == [(4, 1)]


def test_a_score_for_each_start_is_expected() -> None:
    with pytest.raises(ValueError, match="4 scores expected, found 1"):
        successive_halving(4, lambda members, steps: np.zeros(1), steps=1)

"""Bounds of all stages: what they are counted by, kept in, and sharpened with."""

from __future__ import annotations

import numpy as np
import pytest

from ilp_planner.bounds.arrays import INFINITE
from ilp_planner.bounds.operator_part import OperatorPart
from ilp_planner.bounds.pipelines import Place
from ilp_planner.bounds.stages import ALIKE_PRICES, PRICE_COUNT, StageBounds
from tests.tiny import fixed_problem


def bounds() -> StageBounds:
    """Return those of stages on one device of sixteen micro-batches."""
    problem = fixed_problem()
    return OperatorPart(problem, problem.micro_batch_sizes[0]).stages


def place(behind: int = 0, *, leaves: bool = False) -> Place:
    return Place(devices=1, behind=behind, enters_node=False, leaves_node=leaves)


@pytest.mark.parametrize(
    ("digits", "counts"),
    [
        (64, [1, 2, 3, 4, 5, 6, 7, 8, 9]),
        (2, [1, 2, 3, 4, 4, 6, 6, 8, 8]),
        (1, [1, 2, 2, 4, 4, 4, 4, 8, 8]),
    ],
)
def test_micro_batches_in_flight_are_rounded_down_to_some_digits(
    digits: int, counts: list[int]
) -> None:
    """One more than the stages behind."""
    stages = bounds()
    stages.set_longest(INFINITE, digits=digits)
    assert [stages.in_flight(behind) for behind in range(9)] == counts


def test_stages_that_stay_in_the_node_come_before_those_that_leave_it() -> None:
    stages = bounds()
    both = stages.both_times(place())
    apart = [stages.times(place(leaves=leaves)) for leaves in (False, True)]
    assert both.tolist() == np.concatenate(apart).tolist()
    own = both + 1.0
    stages.keep(place(), own)
    assert stages.times(place(leaves=True)).tolist() == (apart[1] + 1.0).tolist()
    stages.times(place())[0] = 77.0
    assert own[0] == 77.0


def test_prices_that_were_met_are_used_after_sixteen_answers_and_then_twice_as_many() -> None:
    stages = bounds()
    before = stages.times(place()).copy()
    for count, left in ((16, 32), (32, 64)):
        stages._met = {(1, 1): [1e-9 * 1.1**k for k in range(count - 1)]}
        assert stages.sharpen(1) is False
        stages._met[1, 1].append(1e-7 * count)
        assert stages.sharpen(1) is True
        assert stages._left == left
        assert stages._met == {}
    assert len(stages.prices[1, 1]) > PRICE_COUNT
    assert (stages.times(place()) >= before).all()
    stages._met = {(9, 9): [1e-9] * 64}  # of stages that no table is of
    assert stages.sharpen(1) is False


def test_prices_that_are_unlike_those_in_use_and_each_other_are_taken() -> None:
    stages = bounds()
    stages.prices[1, 1] = [1.0]
    near = 1 + ALIKE_PRICES / 3
    met = [near, 2.0, 2.0 * near, 0.5, 1 / near]
    assert stages._unlike((1, 1), met).tolist() == [0.5, 2.0]
    assert stages._unlike((1, 2), met).tolist() == [0.5, 1 / near, 2.0]
    assert stages._unlike((1, 1), []).size == 0
    twelve = [2.0**k for k in range(1, PRICE_COUNT + 1)]
    assert stages._unlike((1, 1), twelve).tolist() == twelve
    many = stages._unlike((1, 1), [2.0**k for k in range(1, 40)])
    assert many.size == PRICE_COUNT
    assert (many[0], many[-1]) == (2.0, 2.0**39)

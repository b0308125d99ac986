from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.simulation.bound import least_seconds
from ilp_planner.simulation.engine import simulate
from ilp_planner.simulation.orders import placed, places
from ilp_planner.simulation.schedules import schedule_orders
from tests.simulation.pipelines import equal_times, pipelines


@given(pipelines(), st.booleans())
def test_no_schedule_is_faster(case: tuple[Any, Any], blocking: bool) -> None:
    orders, times = case
    least = least_seconds(times, placed(orders), orders.shape.micro_batches, split=orders.split)
    try:
        assert least <= simulate(orders, times, blocking=blocking).seconds
    except ValueError:
        assert blocking


@given(pipelines(), st.integers(1, 10**6))
def test_no_schedule_is_faster_when_sums_are_rounded(case: tuple[Any, Any], part: int) -> None:
    orders, whole = case
    times = type(whole)(*(row / part for row in whole))
    least = least_seconds(times, placed(orders), orders.shape.micro_batches, split=orders.split)
    assert least <= simulate(orders, times).seconds


@pytest.mark.parametrize("ranks", [1, 2, 5])
@pytest.mark.parametrize("micro_batches", [1, 7])
def test_1f1b_of_equal_stages_takes_no_longer(ranks: int, micro_batches: int) -> None:
    times = equal_times(ranks)
    least = least_seconds(times, places(ranks, 1), micro_batches, split=False)
    found = simulate(schedule_orders("1f1b", ranks, micro_batches), times)
    assert least == pytest.approx(found.seconds)


def test_splitting_the_backward_pass_allows_more() -> None:
    times = equal_times(3)
    whole, split = (least_seconds(times, places(3, 1), 4, split=s) for s in (False, True))
    assert whole == pytest.approx(3 * 4 + 2 * 3)
    # the last rank's work, after the forward passes before it
    assert split == pytest.approx(2 + 3 * 4)


def test_messages_count() -> None:
    times = equal_times(2)._replace(send_forward=np.array([0.5]), send_backward=np.array([0.25]))
    least = least_seconds(times, places(2, 1), 4, split=False)
    assert least == pytest.approx(1 + 0.5 + 4 * 3 + 0.25 + 2)

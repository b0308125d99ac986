from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.numerics import ROUNDING
from ilp_planner.schedule.bound import least_seconds
from ilp_planner.schedule.engine import StageTimes, simulate
from ilp_planner.schedule.formulas import OneForwardOneBackward
from ilp_planner.schedule.orders import placed, places
from ilp_planner.schedule.schedules import schedule_orders
from tests.schedule.pipelines import SECONDS, equal_times, pipelines, stage_times


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


def test_one_micro_batch_goes_through_all_virtual_stages_and_back() -> None:
    """There and back over three links between two ranks with two stages each."""
    times = equal_times(4)._replace(send_forward=np.full(3, 0.5), send_backward=np.full(3, 0.25))
    least = least_seconds(times, places(2, 2), 1, split=False)
    assert least == pytest.approx(4 * 3 + 3 * 0.75)


def test_two_parts_of_a_backward_pass_may_take_less_than_the_whole() -> None:
    """Forward passes of 1 s, and 1 + 0.5 s instead of 2 s backward."""
    times = equal_times(2)._replace(weight=np.full(2, 0.5))
    whole, split = (least_seconds(times, places(2, 1), 4, split=s) for s in (False, True))
    assert whole == pytest.approx(4 * 3 + 3)
    assert split == pytest.approx(1 + 4 * 2.5)


def test_a_bound_leaves_out_what_rounding_can_add() -> None:
    """Of 3 numbers for each micro-batch and stage of a rank, and 4 for each stage: two roundings of
    2^-53 each at most."""
    least = least_seconds(equal_times(4), places(2, 2), 4, split=False)
    exact = 4 * 2 * 3 + 3  # the second rank's work, after the first stage and before it
    assert least == exact * (1 - 2 * (3 * 4 * 2 + 4 * 4) * 2.0**-53)
    assert least < exact


@given(st.data(), st.integers(1, 7), st.integers(1, 20), st.floats(0, 1))
def test_the_formula_is_never_below_1f1b_where_all_stages_have_one_share_of_forward_passes(
    data: st.DataObject, ranks: int, micro_batches: int, share: float
) -> None:
    loads = np.array(data.draw(st.lists(SECONDS, min_size=ranks, max_size=ranks)))
    seconds = simulate(*one_forward_one_backward(share * loads, loads, micro_batches)).seconds
    formula = OneForwardOneBackward(micro_batches).iteration_time(loads.tolist())
    assert seconds <= formula * (1 + ROUNDING)


@given(st.data(), st.integers(1, 7), st.integers(0, 20))
def test_the_formula_is_above_1f1b_by_what_stages_behind_the_slowest_have_in_hand(
    data: st.DataObject, ranks: int, more: int
) -> None:
    micro_batches, times = ranks + more, data.draw(stage_times(ranks))
    loads = (times.forward + times.backward).tolist()
    orders, times = one_forward_one_backward(times.forward, np.array(loads), micro_batches)
    formula = OneForwardOneBackward(micro_batches).iteration_time(loads)
    behind = loads[loads.index(max(loads)) + 1 :]
    in_hand = sum(max(loads) - load for load in behind)
    assert simulate(orders, times).seconds >= formula - in_hand


def one_forward_one_backward(forward: Any, loads: Any, micro_batches: int) -> tuple[Any, Any]:
    """Return the order and the times of stages without messages."""
    half, nothing = (loads - forward) / 2, np.zeros(len(loads) - 1)
    times = StageTimes(forward, loads - forward, half, half, nothing, nothing)
    return schedule_orders("1f1b", len(loads), micro_batches), times

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.numerics import ROUNDING
from ilp_planner.schedule import engine
from ilp_planner.schedule.engine import (
    StageTimes,
    critical_path,
    held_memory,
    least_seconds,
    peak_memory,
    peak_micro_batches,
    simulate,
)
from ilp_planner.schedule.formulas import OneForwardOneBackward
from ilp_planner.schedule.orders import BACKWARD, FORWARD, Operations, Orders, Shape, placed, places
from ilp_planner.schedule.schedules import schedule_orders
from tests.schedule.pipelines import SECONDS, SlowSimulator, equal_times, pipelines, stage_times

MEGATRON = ("1f1b", "gpipe", "interleaved")


def assert_as_slow(orders: Orders, times: StageTimes, *, blocking: bool) -> None:
    slow = SlowSimulator(orders, times, blocking=blocking)
    count = len(orders.needs)
    if len(slow.ends) < count:
        with pytest.raises(ValueError, match="never run to its end"):
            simulate(orders, times, blocking=blocking)
        return
    found = simulate(orders, times, blocking=blocking)
    ranks = range(orders.shape.ranks)
    ops = [op for rank in ranks for op in orders.of_rank(rank)]
    assert found.end.tolist() == [slow.ends[op] for op in ops]
    seconds = [float(times["FBIW".index(kind)][stage]) for kind, stage, _ in ops]
    assert (found.end - found.start).tolist() == seconds
    assert found.seconds == slow.seconds
    assert found.busy.sum() == pytest.approx(sum(seconds))


@given(pipelines())
def test_overlapped_messages_are_as_a_queue_of_events_has_them(case: tuple[Any, Any]) -> None:
    assert_as_slow(*case, blocking=False)


@given(pipelines())
def test_blocking_messages_are_as_a_queue_of_events_has_them(case: tuple[Any, Any]) -> None:
    assert_as_slow(*case, blocking=True)


@given(pipelines(), st.booleans())
def test_python_finds_what_compiled_code_finds(case: tuple[Any, Any], blocking: bool) -> None:
    orders, times = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "modules", {k: v for k, v in sys.modules.items() if k != "numba"})
        patch.setattr(engine, "_compiled", None)
        try:
            slow = simulate(orders, times, blocking=blocking)
        except ValueError as error:
            assert "never" in str(error)  # noqa: PT017
            return
    fast = simulate(orders, times, blocking=blocking)
    assert fast.end.tolist() == slow.end.tolist()
    assert fast.finish.tolist() == slow.finish.tolist()


@given(pipelines("1f1b", "gpipe"))
def test_blocking_messages_that_take_no_time_are_never_faster(case: tuple[Any, Any]) -> None:
    orders, times = case
    nothing = np.zeros(orders.shape.stages - 1)
    free = times._replace(send_forward=nothing, send_backward=nothing)
    assert simulate(orders, free).seconds <= simulate(orders, free, blocking=True).seconds


@given(st.integers(1, 9), st.integers(1, 30), st.sampled_from([0.5, 1, 3]))
def test_1f1b_of_equal_stages_is_the_closed_formula(
    ranks: int, micro_batches: int, backward: float
) -> None:
    times = equal_times(ranks, input=backward / 2, weight=backward / 2)
    orders = schedule_orders("1f1b", ranks, micro_batches)
    seconds = (micro_batches - 1 + ranks) * (1 + backward)
    for blocking in (False, True):
        found = simulate(orders, times, blocking=blocking)
        assert found.seconds == pytest.approx(seconds)
        assert found.bubble == pytest.approx((ranks - 1) / (micro_batches + ranks - 1))
    assert peak_micro_batches(orders).tolist() == [
        min(ranks - rank, micro_batches) for rank in range(ranks)
    ]


@given(st.integers(1, 6), st.integers(1, 5), st.integers(2, 4))
def test_interleaving_equal_stages_divides_the_bubble(
    ranks: int, rounds: int, virtual: int
) -> None:
    orders = schedule_orders("interleaved", ranks, rounds * ranks, virtual)
    found = simulate(orders, equal_times(ranks * virtual))
    assert found.seconds == 3 * (rounds * ranks * virtual + ranks - 1)


def test_messages_that_block_cost_a_rank_time_and_others_do_not() -> None:
    orders = schedule_orders("gpipe", 2, 3)
    times = equal_times(2)._replace(send_forward=np.array([0.5]), send_backward=np.array([0.25]))
    assert simulate(orders, times).seconds == 1 + 0.5 + 3 + 3 * 2 + 0.25 + 2
    blocked = simulate(orders, times, blocking=True)
    assert blocked.start[:3].tolist() == [0, 1.5, 3]  # the first rank sends before it goes on


@given(pipelines("gpipe", "1f1b", "interleaved"), st.data())
def test_the_critical_path_takes_as_long_and_no_longer_with_other_times(
    case: tuple[Any, Any], data: st.DataObject
) -> None:
    orders, times = case
    path, seconds = critical_path(simulate(orders, times), times)
    own = np.concatenate(times[:4])[orders.places[path]].sum()
    assert own + seconds == simulate(orders, times).seconds
    other = data.draw(stage_times(orders.shape.stages))
    other = other._replace(send_forward=times.send_forward, send_backward=times.send_backward)
    own = np.concatenate(other[:4])[orders.places[path]].sum()
    assert own + seconds <= simulate(orders, other).seconds


def small(*ranks: str) -> Orders:
    """Return orders of two stages, as "F0.0 B0.0": kind, stage and micro-batch."""
    words = [row.split() for row in ranks]
    ops = [word for row in words for word in row]
    starts = np.cumsum([0, *(len(row) for row in words)])
    like = schedule_orders("1f1b", 2, 1 + max(int(op.split(".")[1]) for op in ops))
    kinds = np.array(["FBIW".index(op[0]) for op in ops], np.int8)
    stages, micro_batches = (
        np.array([op[1:].split(".")[part] for op in ops], np.int32) for part in (0, 1)
    )
    operations = Operations(kinds, stages, micro_batches, starts)
    return replace(like, operations=operations, joined=np.zeros(len(ops), np.bool_))


def test_an_order_that_waits_for_itself_is_refused() -> None:
    orders = small("F0.0 B0.0 F0.1 B0.1", "F1.0 F1.1 B1.0 B1.1")
    with pytest.raises(ValueError, match=r"rank 0, the backward of stage 0, micro-batch 0 waits"):
        simulate(orders, equal_times(2))


@pytest.mark.parametrize(
    ("first", "says"),
    [
        ("F0.0 F0.1 B0.0", "every stage must run every micro-batch"),
        ("F0.0 F0.1 F0.1 B0.0 B0.1", "twice"),
        ("F0.0 B0.0 B0.1 F0.1", "forward, then backward"),
        ("F0.0 W0.0 I0.0 F0.1 B0.1", "weights at the end"),
    ],
)
def test_orders_that_are_no_iteration_are_refused(first: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        small(first, "F1.0 B1.0 F1.1 B1.1")


def test_times_of_another_pipeline_are_refused() -> None:
    with pytest.raises(ValueError, match="2 stages need as many times"):
        simulate(schedule_orders("1f1b", 2, 2), equal_times(3))


def test_memory_is_held_from_forward_to_backward() -> None:
    orders = schedule_orders("1f1b", 2, 3)
    activations = np.array([10, 7])
    assert held_memory(orders, activations)[:6].tolist() == [10, 20, 20, 20, 20, 10]
    assert peak_memory(orders, activations).tolist() == [20, 7]


def test_memory_for_weight_gradients_is_held_longer() -> None:
    orders = small("F0.0 F0.1 I0.0 I0.1 W0.0 W0.1", "F1.0 I1.0 F1.1 I1.1 W1.0 W1.1")
    held = held_memory(orders, np.array([10, 10]), np.array([4, 4]))
    assert held[:6].tolist() == [10, 20, 20, 14, 8, 4]
    assert peak_memory(orders, np.array([10, 10])).tolist() == [20, 20]
    assert peak_micro_batches(orders).tolist() == [2, 2]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("name", "ranks", "virtual"), [("1f1b", 150, 1), ("interleaved-zb", 10, 16), ("zb-v", 70, 2)]
)
def test_pipelines_of_many_stages(name: str, ranks: int, virtual: int) -> None:
    """Every operation takes the seconds of its kind and stage, however many stages there are."""
    orders = schedule_orders(name, ranks, 2 * ranks * virtual, virtual)
    each = np.arange(ranks * virtual) / 7
    times = StageTimes(each + 1, each + 300, each + 600, each + 900, each[1:] / 5, each[1:] / 3)
    found = simulate(orders, times)
    ops = orders.operations
    start = np.array([1, 300, 600, 900])[ops.kinds]
    assert found.end - found.start == pytest.approx(start + each[ops.stages])


def one_rank(*kinds_and_stages: tuple[int, int]) -> Orders:
    """Return the order of a rank with two stages that runs one micro-batch so."""
    kinds, stages = (np.array(column) for column in zip(*kinds_and_stages, strict=True))
    nothing = np.zeros(len(kinds), np.int32)
    starts = np.array([0, len(kinds)])
    operations = Operations(kinds.astype(np.int8), stages.astype(np.int32), nothing, starts)
    joined = np.zeros(len(kinds), np.bool_)
    return Orders(Shape(1, 1, 2, 1), np.zeros(2, np.int32), operations, joined)


@pytest.mark.parametrize("blocking", [False, True])
def test_a_rank_that_waits_for_itself_never_runs_to_its_end(blocking: bool) -> None:
    """The second stage's forward pass comes before the first one's."""
    orders = one_rank((FORWARD, 1), (FORWARD, 0), (BACKWARD, 1), (BACKWARD, 0))
    with pytest.raises(ValueError, match="never run to its end"):
        simulate(orders, equal_times(2), blocking=blocking)


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("forward", [0.0, 0.125])
def test_passes_of_one_rank_that_take_no_or_little_time_are_through(
    forward: float, blocking: bool
) -> None:
    orders = one_rank((FORWARD, 0), (FORWARD, 1), (BACKWARD, 1), (BACKWARD, 0))
    times = equal_times(2, forward=forward, input=0.25, weight=0.25)
    assert simulate(orders, times, blocking=blocking).seconds == 2 * forward + 1


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("forward", [0.0, 0.125])
def test_ranks_that_wait_for_each_other_at_once_are_found(forward: float, blocking: bool) -> None:
    """Within the first second: the first rank goes back before the second micro-batch, which the
    second rank takes before it goes back."""
    kinds = np.array([FORWARD, BACKWARD, FORWARD, BACKWARD, FORWARD, FORWARD, BACKWARD, BACKWARD])
    batches = np.array([0, 0, 1, 1, 0, 1, 0, 1], np.int32)
    stages = np.repeat(np.arange(2, dtype=np.int32), 4)
    operations = Operations(kinds.astype(np.int8), stages, batches, np.array([0, 4, 8]))
    ranks, joined = np.arange(2, dtype=np.int32), np.zeros(8, np.bool_)
    orders = Orders(Shape(2, 2, 1, 1), ranks, operations, joined)
    times = equal_times(2, forward=forward, input=0.125, weight=0.125)
    with pytest.raises(ValueError, match="never run to its end") as refused:
        simulate(orders, times, blocking=blocking)
    assert str(refused.value).endswith(
        ": on rank 0, the backward of stage 0, micro-batch 0 waits for the backward of stage 1, "
        "micro-batch 0"
    )


def test_an_iteration_of_no_time_has_no_bubble() -> None:
    timeline = simulate(schedule_orders("1f1b", 2, 2), equal_times(2, forward=0, input=0, weight=0))
    assert (timeline.seconds, timeline.bubble) == (0.0, 0.0)


@pytest.mark.parametrize("name", StageTimes._fields)
@pytest.mark.parametrize("more", [-1, 1])
def test_every_row_of_times_is_of_all_stages_or_of_what_is_between(name: str, more: int) -> None:
    times = equal_times(3)
    wrong = np.zeros(len(getattr(times, name)) + more)
    with pytest.raises(ValueError, match="3 stages need as many times, and one less of messages"):
        simulate(schedule_orders("1f1b", 3, 4), times._replace(**{name: wrong}))


def test_a_rank_that_nobody_listens_to_waits_until_its_message_is_taken() -> None:
    """Two micro-batches go to a rank that wants the second one first: with messages that travel by
    themselves it may, but not where both ends have to be there."""
    kinds = np.array([FORWARD, FORWARD, BACKWARD, BACKWARD] * 2)
    batches = np.array([0, 1, 1, 0, 1, 0, 1, 0], np.int32)
    stages = np.repeat(np.arange(2, dtype=np.int32), 4)
    operations = Operations(kinds.astype(np.int8), stages, batches, np.array([0, 4, 8]))
    ranks, joined = np.arange(2, dtype=np.int32), np.zeros(8, np.bool_)
    orders = Orders(Shape(2, 2, 1, 1), ranks, operations, joined)
    times = equal_times(2, forward=0.125, input=0.125, weight=0.125)
    assert simulate(orders, times).seconds > 0
    with pytest.raises(ValueError, match="never run to its end") as refused:
        simulate(orders, times, blocking=True)
    assert str(refused.value).endswith(
        ": on rank 0, the forward of stage 0, micro-batch 1 waits until a message is taken"
    )


@pytest.mark.parametrize("blocking", [False, True])
def test_the_first_rank_that_is_left_behind_is_named_with_what_it_waits_for(blocking: bool) -> None:
    """Rank 0, of the last two of four stages, is through; rank 1 goes back in the wrong order."""
    kinds = np.array([FORWARD, FORWARD, BACKWARD, BACKWARD] * 2, np.int8)
    stages = np.array([2, 3, 3, 2, 0, 1, 0, 1], np.int32)
    nothing, joined = np.zeros(8, np.int32), np.zeros(8, np.bool_)
    operations = Operations(kinds, stages, nothing, np.array([0, 4, 8]))
    orders = Orders(Shape(2, 1, 2, 1), np.array([1, 1, 0, 0], np.int32), operations, joined)
    with pytest.raises(ValueError, match="never run to its end") as refused:
        simulate(orders, equal_times(4), blocking=blocking)
    assert str(refused.value).endswith(
        ": on rank 1, the backward of stage 0, micro-batch 0 waits for the backward of stage 1, "
        "micro-batch 0"
    )


@pytest.mark.parametrize("forward", [0.0, 0.125])
def test_a_rank_that_has_all_it_needs_may_wait_until_its_message_is_taken(forward: float) -> None:
    """Rank 0 has the second of three stages. What it needs of the first one is there, but the third
    one wants its second micro-batch first."""
    kinds = np.array([FORWARD, FORWARD, BACKWARD, BACKWARD] * 3, np.int8)
    batches = np.array([0, 1, 1, 0, 0, 1, 1, 0, 1, 0, 1, 0], np.int32)
    stages = np.repeat(np.array([1, 0, 2], np.int32), 4)
    operations = Operations(kinds, stages, batches, np.array([0, 4, 8, 12]))
    ranks, joined = np.array([1, 0, 2], np.int32), np.zeros(12, np.bool_)
    orders = Orders(Shape(3, 2, 1, 1), ranks, operations, joined)
    with pytest.raises(ValueError, match="never run to its end") as refused:
        simulate(orders, equal_times(3, forward=forward), blocking=True)
    assert str(refused.value).endswith(
        ": on rank 0, the forward of stage 1, micro-batch 1 waits until a message is taken"
    )


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

"""What the script draws are the operations that the engine has run."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.analysis.simulated import Simulated
from ilp_planner.faces.page.picture import MOST_SHOWN, packed, sends_of, timeline_data, windows
from ilp_planner.schedule.engine import StageTimes, Timeline, simulate
from ilp_planner.schedule.orders import Orders
from ilp_planner.schedule.schedules import schedule_orders
from tests.examples import examples
from tests.faces.page.pages import unpacked
from tests.schedule.pipelines import equal_times, pipelines

SMALL = st.integers(-(2**31), 2**31 - 1)


def run(timeline: Timeline, outside: float = 0.0) -> Simulated:
    """Return an iteration as the page is given it."""
    return Simulated(
        schedule="", timeline=timeline, outside=outside, judged=0, by_formula=False, least=0
    )


@given(st.lists(SMALL), st.lists(SMALL))
def test_numbers_are_read_back(first: list[int], second: list[int]) -> None:
    text = packed(np.array(first, np.int64), np.array(second, np.int64))
    assert unpacked(text, 1)[0].tolist() == first + second


def test_a_number_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="at most 32 bits"):
        packed(np.array([2**31]))


@examples(40)
@given(pipelines(), st.booleans())
def test_operations_begin_and_end_where_the_engine_has_them(
    drawn: tuple[Orders, StageTimes], more: bool
) -> None:
    timeline = simulate(*drawn)
    orders, ops = timeline.orders, timeline.orders.operations
    data = timeline_data(run(timeline, 3.0 * more), sends_of(timeline, drawn[1]))
    codes, micro_batches, gaps = unpacked(data["packed"], 3)
    codes, micro_batches = codes.cumsum(), micro_batches.cumsum()
    assert codes.tolist() == (4 * ops.stages.astype(int) + ops.kinds).tolist()
    assert micro_batches.tolist() == ops.micro_batches.tolist()
    lasting = np.array([data["durations"][code] for code in codes.tolist()])
    for rank in range(orders.shape.ranks):
        here = slice(data["starts"][rank], data["starts"][rank + 1])
        begins = gaps[here].cumsum() + np.concatenate([[0], lasting[here][:-1].cumsum()])
        assert begins / data["ticks"] == pytest.approx(timeline.start[here], abs=1e-4)
        ends = (begins + lasting[here]) / data["ticks"]
        assert ends == pytest.approx(timeline.end[here], abs=1e-4)
    whole = timeline.seconds + 3.0 * more
    assert data["whole"] / data["ticks"] == pytest.approx(whole)


@examples(40)
@given(pipelines(), st.floats(0, 3))
def test_a_picture_opens_on_the_fill_and_ends_with_the_drain(
    drawn: tuple[Orders, StageTimes], more: float
) -> None:
    """Windows do not overlap, the first has every rank at work, the last every rank at its end."""
    timeline = simulate(*drawn)
    spans = windows(timeline, timeline.seconds + more)
    ops = timeline.orders.operations
    assert spans[0][0] == 0
    assert spans[-1][1] == timeline.seconds + more
    assert all(begin <= end for begin, end in spans)
    if len(spans) > 1 and timeline.seconds:
        assert spans[0][1] <= spans[1][0]
        assert sum(end - begin for begin, end in spans) <= MOST_SHOWN * spans[-1][1]
        assert (timeline.start[ops.starts[:-1]] < spans[0][1]).all()
        assert (timeline.end[ops.starts[1:] - 1] > spans[1][0]).all()


@examples(40)
@given(pipelines(), st.booleans())
def test_messages_are_hidden_for_no_longer_than_they_travel(
    drawn: tuple[Orders, StageTimes], blocking: bool
) -> None:
    orders, times = drawn
    try:
        timeline = simulate(orders, times, blocking=blocking)
    except ValueError:  # an order that blocking sends never end
        return
    travelling, hidden = sends_of(timeline, times)
    assert -1e-9 <= hidden <= travelling + 1e-9
    idle = timeline.finish.sum() - timeline.busy.sum()
    assert travelling - hidden <= idle + 1e-9


def test_messages_of_a_pipeline_by_hand() -> None:
    """Two stages, one micro-batch: both messages are waited for. Of more micro-batches that a
    slower second stage takes, only the first comes late."""
    orders = schedule_orders("gpipe", 2, 1)
    late = equal_times(2)._replace(send_forward=np.array([0.5]), send_backward=np.array([0.25]))
    assert sends_of(simulate(orders, late), late) == (0.75, 0.0)
    orders = schedule_orders("gpipe", 2, 3)
    slow = equal_times(2)._replace(
        forward=np.array([1.0, 4.0]), send_forward=np.array([0.5]), send_backward=np.array([0.0])
    )
    assert sends_of(simulate(orders, slow), slow) == (1.5, 1.0)

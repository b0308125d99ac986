"""By what senders tell groups apart: classes, and devices of a node that are taken."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from ilp_planner.optimize.bounds import group_states
from ilp_planner.optimize.bounds.group_states import States, states
from tests.examples import for_each
from tests.optimize.bounds.test_arrays import plain


def two_classes() -> States:
    """Return the states of two classes: of one type with two devices in a node, which costs 1 s
    near and 3 s apart, and of a class in which nothing is counted, for 2 s."""
    time = np.array([[1.0, 2.0, 3.0]])
    return states(
        time,
        2 * time,
        counted=np.array([0, -1]),
        direct=np.array([0, 1]),
        parted=np.array([2, 1]),
        size=np.array([2]),
    )


def test_a_class_has_a_state_for_every_number_of_devices_that_are_taken() -> None:
    """None that is known, one, or both; and one where none are counted."""
    found = two_classes()
    assert found.group.tolist() == [0, 0, 0, 1]
    assert found.taken.tolist() == [0, 1, 2, 0]
    assert found.offset.tolist() == [0, 3]
    assert states(
        np.ones((1, 1)),
        np.ones((1, 1)),
        *(np.array([x]) for x in (-1, 0, 0)),
        size=np.zeros(0, np.int64),
    ).group.tolist() == [0]


def test_a_state_is_better_where_sending_never_costs_more() -> None:
    """Of the first class the fewer are taken the better. With none known it costs 1 s, never more
    than the other class; with some 1 s or 3 s, so that neither is better."""
    assert two_classes().better.tolist() == [
        [True, True, True, True],
        [False, True, True, False],
        [False, False, True, False],
        [False, False, False, True],
    ]


def test_classes_that_cost_as_much_are_as_good_as_each_other() -> None:
    """And of three costs, the less is the better."""
    none, columns = np.full(3, -1), np.arange(3)
    for seconds, better in (
        ([[1.0, 1.0, 1.0]], [[True] * 3] * 3),
        ([[1.0, 2.0, 3.0]], [[True, True, True], [False, True, True], [False, False, True]]),
    ):
        costs = np.array(seconds)
        found = states(costs, costs, none, columns, columns, np.zeros(0, np.int64))
        assert found.better.tolist() == better


def test_both_seconds_count() -> None:
    """What costs less of one micro-batch may cost more of all."""
    found = states(
        np.array([[1.0, 2.0]]),
        np.array([[2.0, 1.0]]),
        counted=np.array([-1, -1]),
        direct=np.array([0, 1]),
        parted=np.array([0, 1]),
        size=np.zeros(0, np.int64),
    )
    assert found.better.tolist() == [[True, False], [False, True]]
    every_row = states(
        np.array([[1.0, 2.0], [2.0, 1.0]]),
        np.ones((2, 2)),
        counted=np.array([-1, -1]),
        direct=np.array([0, 1]),
        parted=np.array([0, 1]),
        size=np.zeros(0, np.int64),
    )
    assert every_row.better.tolist() == [[True, False], [False, True]]


@for_each(
    ("arc", "state", "mode", "expected"),
    [
        (0, 1, 1, (2, 0)),  # one joins one: both are taken, sent to as near as can be
        (0, 2, 1, (-1, -1)),  # no room
        (0, 0, 1, (-1, -1)),  # nobody knows of a node
        (0, 1, 0, (1, 2)),  # in another node
        (0, 2, 0, (1, 2)),
        (0, 0, 0, (1, 0)),
        (1, 1, 0, (0, 0)),  # without a device of that type in one node
        (1, 1, 1, (-1, -1)),
        (0, 3, 0, (1, 1)),  # to a group in which none are counted
        (0, 3, 1, (-1, -1)),
        (2, 1, 1, (3, 0)),  # of a class in which none are counted: its own state
    ],
)
def test_a_candidate_stands_in_the_same_node_or_in_another_one(
    arc: int, state: int, mode: int, expected: tuple[int, int]
) -> None:
    """Candidates: one device of the first class, two nodes of it, and one of the second class."""
    arcs: Any = SimpleNamespace(
        group=np.array([0, 0, 1]), state=np.array([1, 0, 3]), seats=np.array([[1], [0], [1]])
    )
    assert plain(group_states.step)(arc, state, mode, arcs, two_classes()) == expected

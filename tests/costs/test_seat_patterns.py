"""Packed, spread evenly, and pairs: by hand, and by what both patterns say of themselves."""

import itertools

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ilp_planner.costs.group_network import shared_rings, stage_ring, stage_transfer
from ilp_planner.costs.groups import GroupOption
from ilp_planner.costs.seat_patterns import are_pairs, is_packed, seats_of, spread_over
from tests.costs.mixed_instances import Floor, cluster_of, clusters, options, pack, stage_of
from tests.examples import examples, for_each

MB = 1e6
FOUR = cluster_of([("fast", 4)] * 3 + [("slow", 4)], within=100, across=5)


def on(*seats: tuple[int, ...], start: int = 0):
    return stage_of(start, start + 1, seats, [1] * len(seats))


@for_each(
    ("stage", "packed", "over"),
    [
        (on((0,)), True, ()),
        (on((0,), (1,)), True, ()),
        (on((0,), (4,)), False, (0, 1)),
        (on((0,), (1,), (4,)), False, ()),
        (on((0,), (1,), (2,), (3,), (4,)), True, ()),
        (on((0, 1), (2, 3), (4, 5), (6, 7)), True, (0, 1)),  # fills both: both at once
        (on((0, 1), (4, 5), (8, 9)), False, (0, 1, 2)),
        (on((0,), (12,)), True, ()),  # of two types
        (on((0, 1, 2), (4, 5, 6)), True, (0, 1)),  # what is left holds no other one
        (on((0,), (4, 5)), False, ()),  # of two degrees
        (on((3, 4)), False, ()),  # a replica on two nodes
    ],
)
def test_patterns(stage, packed: bool, over: tuple[int, ...]) -> None:
    assert is_packed(stage, FOUR) == packed
    assert spread_over(stage, FOUR) == frozenset(over)


def test_seats_are_counted_by_node() -> None:
    assert seats_of(on((0,), (1,), (4,)), FOUR) == {0: 2, 1: 1}
    assert seats_of(on((3, 4)), FOUR) is None


def test_pairs_send_inside_their_nodes() -> None:
    """Two samples of each replica on a tensor rank's own link, in both nodes at once."""
    first, second = on((0, 1), (4, 5)), on((2,), (3,), (6,), (7,), start=1)
    assert are_pairs(first, second, FOUR)
    assert stage_transfer(first, second, FOUR).seconds(8 * MB) == pytest.approx(
        2 * (10e-6 + 8 * MB / 2 / 100e9)
    )
    elsewhere = on((8,), (9,), (6,), (7,), start=1)
    assert not are_pairs(first, elsewhere, FOUR)
    assert stage_transfer(first, elsewhere, FOUR).seconds(8 * MB) == pytest.approx(
        2 * (30e-6 + 8 * MB / 5e9)
    )
    uneven = on((2,), (6,), (7,), start=1)  # the same nodes, not as many in each
    assert not are_pairs(first, uneven, FOUR)
    assert stage_transfer(first, uneven, FOUR) == stage_transfer(first, elsewhere, FOUR)


def test_rings_of_spread_stages_share_the_cards_of_their_nodes() -> None:
    stages = [on((0,), (4,)), on((1,), (5,), start=1), on((6,), (10,), start=2), on((12,))]
    seconds = [1.0, 2.0, 4.0, 0.0]
    # node 1 carries all three rings, node 0 two of them, node 2 one
    assert shared_rings(stages, seconds, FOUR) == [7.0, 7.0, 7.0, 0.0]
    apart = [on((0,), (4,)), on((8,), (9,), (10,), (11,), (12,), (13,))]
    assert shared_rings(apart, [1.0, 2.0], FOUR) == [1.0, 2.0]
    # a packed stage that reaches into a node of a spread one waits, one inside a node does not
    packed = [on((0,), (4,)), on((8,), (9,), (10,), (11,), (5,)), on((6,), (7,))]
    assert shared_rings(packed, [1.0, 2.0, 4.0], FOUR) == [3.0, 3.0, 4.0]


def packed_stages(draw: st.DataObject, cluster, count: int):
    floor, stages = Floor(cluster), []
    for number in range(count):
        assume(any(floor.free.values()))
        option = options(draw.draw, floor)
        seats = pack(floor, option, lambda n: draw.draw(st.integers(0, n - 1)))
        assume(seats is not None)
        shares = [draw.draw(st.integers(1, 4)) for _ in seats]
        stages.append(stage_of(number, number + 1, seats, shares))
    return stages


@examples(150)
@given(data=st.data())
def test_packed_plans_cost_what_they_did(data: st.DataObject) -> None:
    """No two packed stages are pairs, and their rings wait for none."""
    cluster = data.draw(clusters())
    stages = packed_stages(data, cluster, 3)
    assert all(is_packed(stage, cluster) for stage in stages)
    for first, second in itertools.permutations(stages, 2):
        assert not are_pairs(first, second, cluster)
    seconds = [stage_ring(stage, cluster).seconds(MB) for stage in stages]
    assert shared_rings(stages, seconds, cluster) == seconds


def test_replicas_of_a_spread_group_take_nodes_in_turn() -> None:
    """Five samples more than one each: pairs with them on the same nodes."""
    option = GroupOption(1, (6, 0), (), 3)
    assert option.each == 2
    assert option.in_turn([4, 5, 7]) == [4, 5, 7, 4, 5, 7]

"""Options of groups of devices, and what is read of their tables."""

import numpy as np

from ilp_planner.costs.groups import GroupOption, OptionTables, RecomputedStages, option_of
from tests.examples import for_each


def test_types_of_an_option_may_differ_in_their_degree() -> None:
    even = GroupOption(4, (2, 0, 1))
    assert [even.degree(kind) for kind in range(3)] == [4, 4, 4]
    assert (even.pieces, even.use) == (4, (8, 0, 4))
    uneven = GroupOption(6, (2, 1, 0), (4, 6, 6))
    assert [uneven.degree(kind) for kind in range(3)] == [4, 6, 6]
    assert (uneven.pieces, uneven.use) == (12, (8, 6, 0))


@for_each(
    ("degrees", "replicas", "option"),
    [
        ((2, 2), (1, 3), GroupOption(2, (1, 3))),
        ((2, 4), (1, 3), GroupOption(4, (1, 3), (2, 4))),
        ((4, 2), (1, 3), GroupOption(4, (1, 3), (4, 2))),
        ((8, 2), (0, 3), GroupOption(2, (0, 3))),  # of a type that it has not, any
        ((1, 2), (0, 3), GroupOption(2, (0, 3))),
        ((2, 8, 1), (1, 0, 1), GroupOption(2, (1, 0, 1), (2, 2, 1))),
    ],
)
def test_an_option_says_degrees_only_where_they_differ(
    degrees: tuple[int, ...], replicas: tuple[int, ...], option: GroupOption
) -> None:
    assert option_of(degrees, replicas) == option


def stages() -> RecomputedStages:
    """Return stages of layers [0, 2) in three ways and of [1, 2) in one, with two peaks."""
    return RecomputedStages(
        start=np.array([0, 0, 0, 1, 0]),
        stop=np.array([2, 2, 2, 2, 2]),
        way=np.array([1, 2, 1, 3, 4]),
        time=np.array([5.0, 4.0, 4.5, 9.0, 7.0]),
        peaks=np.arange(10.0).reshape(2, 5),
        in_flight=np.array([2, 1, 3, 1, 3]),
    )


def tables(recomputed: RecomputedStages | None) -> OptionTables:
    """Return those of two layers, of which one, two or none of them fit [0, 1), [1, 2), [0, 2)."""
    in_flight = np.array([[0, 1, 2], [0, 0, 0]])
    return OptionTables(
        time=np.array([[0.0, 1.0, 3.0], [0.0, 0.0, 2.0]]),
        extra=np.zeros((2, 3)),
        peaks=np.zeros((0, 2, 3)),
        in_flight=in_flight,
        samples=(1,),
        recomputed=recomputed,
    )


def test_some_of_the_stages_keep_all_their_columns() -> None:
    some = stages().only(np.array([True, False, False, True, False]))
    assert some.way.tolist() == [1, 3]
    assert some.time.tolist() == [5.0, 9.0]
    assert some.peaks.tolist() == [[0.0, 3.0], [5.0, 8.0]]
    assert stages().of(0, 2).tolist() == [0, 1, 2, 4]
    assert stages().of(1, 2).tolist() == [3]
    assert stages().of(0, 1).tolist() == []


def test_ranges_fit_computed_again_or_not() -> None:
    plain = tables(None)
    assert plain.possible.tolist() == [[False, True, True], [False, False, False]]
    assert tables(stages()).possible.tolist() == [[False, True, True], [False, False, True]]


def test_a_stage_takes_the_least_of_the_ways_with_its_number() -> None:
    found = tables(stages())
    assert found.seconds(0, 2, 0) == 3.0
    assert found.seconds(0, 2, 1) == 4.5
    assert found.seconds(0, 2, 2) == 4.0
    assert found.seconds(1, 2, 3) == 9.0
    assert tables(None).seconds(0, 2, 1) == 3.0


def test_the_fastest_way_holds_as_many_micro_batches() -> None:
    """Without recomputation where that is enough."""
    found = tables(stages())
    assert [found.fastest(0, 2, held) for held in (1, 2, 3)] == [0, 0, 1]
    assert found.fastest(1, 2, 1) == 3
    assert tables(None).fastest(0, 2, 9) == 0
    fewer = tables(stages())
    fewer.in_flight[0, 2] = 0
    assert [fewer.fastest(0, 2, held) for held in (1, 2, 3)] == [2, 1, 1]

"""What is better than what, by time, by price and by both."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.errors import UsageError
from ilp_planner.base.numerics import NEVER
from ilp_planner.spaces.objectives.objective import (
    BOTH,
    OBJECTIVES,
    PRICE,
    TIME,
    Point,
    objective_named,
)
from tests.examples import for_each

# Whole numbers: what is as good as something else is exactly as good.
POINTS = st.lists(st.builds(Point, st.integers(1, 20), st.integers(1, 8)), min_size=1, max_size=8)


def beaten(objective: str, one: Point, other: Point) -> bool:
    """Tell whether a plan is no better than another one, by the definition."""
    figures = {"time": [0], "price": [1], "both": [0, 1]}[objective]
    had, known = ((p.seconds, p.seconds * p.hourly) for p in (one, other))
    return all(had[figure] >= known[figure] for figure in figures)


@given(points=POINTS, new=st.builds(Point, st.integers(1, 20), st.integers(1, 8)))
def test_a_plan_is_of_interest_below_the_cutoff_alone(points: list[Point], new: Point) -> None:
    for name, objective in OBJECTIVES.items():
        cutoff = objective.cutoff(points, new.hourly)
        of_interest = not any(beaten(name, new, point) for point in points)
        assert of_interest == (new.seconds < cutoff * (1 - 1e-12))


@given(points=POINTS)
def test_the_best_are_those_that_none_beats_and_beat_all_others(points: list[Point]) -> None:
    for name, objective in OBJECTIVES.items():
        best = objective.best(points)
        assert best
        for point in points:
            assert any(beaten(name, point, one) for one in best)
        for one in best:
            assert not any(beaten(name, one, other) for other in best if other is not one)
        assert [p.seconds for p in best] == sorted(p.seconds for p in best)
        if len(objective.figures) == 1:
            assert len(best) == 1


def test_nothing_found_leaves_everything_of_interest() -> None:
    assert {objective.cutoff([], 3.0) for objective in OBJECTIVES.values()} == {NEVER}
    assert BOTH.best([]) == []


def test_a_price_is_that_of_the_hours() -> None:
    assert Point(1800.0, 10.0).price == 5.0
    assert PRICE.values(Point(1800.0, 10.0)) == (5.0,)
    assert TIME.seconds_to_beat(Point(4.0, 1.0), 9.0) == 4.0
    assert PRICE.seconds_to_beat(Point(4.0, 9.0), 1.0) == 36.0


def test_an_unknown_objective_is_refused() -> None:
    with pytest.raises(UsageError, match="objective: found 'fame', expected time, price, or b"):
        objective_named("fame")


@for_each("sets", [0, 1, 5, 8, 20])
def test_every_set_has_one_first_turn(sets: int) -> None:
    for objective in OBJECTIVES.values():
        assert sorted(objective.turns(sets)) == list(range(sets))
    assert PRICE.turns(8) == [7, 3, 5, 1, 6, 4, 2, 0]
    assert TIME.turns(3) == [2, 1, 0]


@for_each("said", ["both", "time,price", "price, time"])
def test_both_objectives_have_one_spelling_and_the_older_word(said: str) -> None:
    assert objective_named(said) is BOTH


def test_every_objective_is_said_by_its_parts() -> None:
    for objective in OBJECTIVES.values():
        assert objective_named(",".join(objective.parts)) is objective

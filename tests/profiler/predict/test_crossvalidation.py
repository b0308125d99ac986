"""Errors are those of rows that a prediction has not seen."""

import numpy as np
import pytest

from ilp_planner.profiler.predict.crossvalidation import Protocol, Trials, expected_error
from ilp_planner.profiler.predict.features import Quantity
from ilp_planner.profiler.predict.law import fit_law
from tests.examples import for_each

GRID = np.array([[tp, n, 1.0, 1.0] for tp in (1, 2, 4) for n in (1, 2, 4, 8)], dtype=float)


def law_of(times):
    return fit_law(GRID, times, Quantity.TIME)


def exact():
    return 1e-3 + 5e-3 * GRID[:, 1] / GRID[:, 0]


def test_rows_are_sorted_by_what_surrounds_them():
    tested = Trials(law_of(exact()))
    corners = {(1, 1), (1, 8), (4, 1), (4, 8)}
    assert {(tp, n) for tp, n, *_ in tested.edge.points} == corners
    assert len(tested.between.points) == len(GRID) - len(corners)
    assert tested.between.protocol is Protocol.BETWEEN


def test_the_outermost_rows_are_left_out_together():
    left = Trials(law_of(exact())).beyond(0, 1)
    assert left is not None
    assert set(left.points[:, 0]) == {4}
    assert len(left.points) == 4
    assert left.step == 1.0
    assert Trials(law_of(exact())).beyond(2, 1) is None  # never varied


@for_each("row", range(len(GRID)))
def test_a_row_does_not_predict_itself(row):
    """A single row that is far off is predicted as if it were not there."""
    times = exact()
    times[row] *= 10
    tested = Trials(law_of(times))
    part = next(p for p in (tested.between, tested.edge) if (p.points == GRID[row]).all(1).any())
    place = int(np.flatnonzero((part.points == GRID[row]).all(axis=1))[0])
    assert part.predicted[place] == pytest.approx(exact()[row], rel=0.5)


def test_expected_errors_follow_the_noise():
    rng = np.random.default_rng(2)
    points = np.array([[2.0, 3.0, 1, 1], [8.0, 3.0, 1, 1], [32.0, 64.0, 1, 1]])
    found = []
    for noise in (0.0, 0.05, 0.3):
        law = law_of(exact() * np.exp(rng.uniform(-noise, noise, len(GRID))))
        found.append([expected_error(Trials(law), (), law, point) for point in points])
    assert found[0] == pytest.approx([0, 0, 0], abs=1e-3)
    assert all(a < b for a, b in zip(found[0], found[1], strict=True))
    assert all(a < b for a, b in zip(found[1], found[2], strict=True))
    assert all(row == sorted(row) for row in found[1:])


def test_other_series_tell_where_a_series_has_too_few_rows():
    rng = np.random.default_rng(3)
    rich = law_of(exact() * np.exp(rng.uniform(-0.1, 0.1, len(GRID))))
    poor = fit_law(GRID[:3], exact()[:3], Quantity.TIME)
    inside = np.array([1.0, 3.0, 1.0, 1.0])
    own = expected_error(Trials(poor), (), poor, inside)
    helped = expected_error(Trials(poor), [Trials(rich)], poor, inside)
    assert own == pytest.approx(0, abs=1e-3)
    assert helped is not None
    assert helped > 0.005
    one = fit_law(GRID[:1], exact()[:1], Quantity.TIME)
    beyond = np.array([1.0, 2.0, 1.0, 1.0])
    assert expected_error(Trials(one), (), one, beyond) is None
    told = expected_error(Trials(one), [Trials(rich)], one, beyond)
    alone = Trials(rich).beyond(1, 1, alone=True)
    assert alone is not None
    assert told == pytest.approx(alone.errors.mean())


def test_errors_beyond_hold_on_tables_of_any_noise():
    """They are neither much too small nor too large, for steps in one dimension and in both."""
    rng = np.random.default_rng(4)
    points = np.array([[8.0, 4.0, 1, 1], [2.0, 16.0, 1, 1], [8.0, 16.0, 1, 1]])
    truth = 1e-3 + 5e-3 * points[:, 1] / points[:, 0]
    for noise in (0.02, 0.1):
        laws = [law_of(exact() * np.exp(rng.normal(0, noise, len(GRID)))) for _ in range(12)]
        tests = [Trials(law) for law in laws]
        errors = np.array([np.abs(law.at(points) / truth - 1) for law in laws])
        claims = np.array(
            [
                [
                    expected_error(own, [t for t in tests if t is not own], own.law, point)
                    for point in points
                ]
                for own in tests
            ]
        )
        assert (errors <= 2 * claims).mean() > 0.85
        assert errors.mean() / 1.5 < claims.mean() < 4 * errors.mean()


def test_not_to_be_split_is_a_step_of_its_own():
    rng = np.random.default_rng(5)
    split = GRID[:, 0] > 1
    law = fit_law(GRID[split], exact()[split] * rng.uniform(0.9, 1.1, split.sum()), Quantity.TIME)
    whole, less = (np.array([tp, 4.0, 1.0, 1.0]) for tp in (1.0, 8.0))
    own = Trials(law)
    back = own.beyond(0, -1)
    assert back is not None
    assert expected_error(own, (), law, whole) == pytest.approx(
        2 * (back.errors.mean() + own.edge.errors.mean()) / 2
    )
    assert expected_error(own, (), law, less) > 0

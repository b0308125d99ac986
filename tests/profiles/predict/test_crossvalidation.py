"""Errors are those of rows that a prediction has not seen."""

import numpy as np
import pytest

from ilp_planner.profiles.predict.crossvalidation import Protocol, Trials, expected_error
from ilp_planner.profiles.predict.features import Quantity
from ilp_planner.profiles.predict.law import fit_law

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


@pytest.mark.parametrize("row", range(len(GRID)))
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
    two = fit_law(GRID[:2], exact()[:2], Quantity.TIME)
    assert expected_error(Trials(two), (), two, np.array([1.0, 8.0, 1.0, 1.0])) is None

"""The fitted prior, what rows say beyond it, and where a point lies."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.profiler.predict.crossvalidation import (
    is_inside,
    never_varied,
    octaves_beyond,
    row_at,
)
from ilp_planner.profiler.predict.features import QUANTITIES, TERMS, Quantity, distinct_terms, terms
from ilp_planner.profiler.predict.law import residual_at, solve_residuals
from ilp_planner.profiler.predict.roofline import fit_prior
from tests.examples import examples, for_each

GRID = np.array([[tp, n, 1.0, 1.0] for tp in (1, 2, 4, 8) for n in (1, 2, 4, 8)], dtype=float)


def test_a_floor_is_told_from_a_launch():
    """Small kernels that the host holds back take the same time, whatever they do."""
    busy = 40e-6 * GRID[:, 1] / GRID[:, 0]
    floored = fit_prior(GRID, np.maximum(busy, 100e-6), Quantity.TIME)
    assert floored.floor == pytest.approx(100e-6, rel=0.05)
    added = fit_prior(GRID, busy + 100e-6, Quantity.TIME)
    assert added.floor == 0
    beyond = np.array([[1.0, 64.0, 1.0, 1.0]])
    assert floored.at(beyond)[0] == pytest.approx(64 * 40e-6, rel=0.05)
    assert added.at(beyond)[0] == pytest.approx(64 * 40e-6 + 100e-6, rel=0.01)


@for_each("row", [0, 5, 15])
def test_one_odd_row_bends_nothing(row):
    times = 1e-4 + 1e-3 * GRID[:, 1] / GRID[:, 0]
    odd = times.copy()
    odd[row] *= 6
    found = fit_prior(GRID, odd, Quantity.TIME).at(GRID)
    others = np.arange(len(GRID)) != row
    assert found[others] == pytest.approx(times[others], rel=0.05)


@examples(25)
@given(
    point=st.tuples(*(st.integers(1, 4096) for _ in range(4))),
    more=st.integers(2, 16),
    quantity=st.sampled_from(list(Quantity)),
)
def test_every_term_grows_with_samples_and_sequence(point, more, quantity):
    here = np.array([point], dtype=float)
    for dimension in (1, 2):
        there = here.copy()
        there[0, dimension] *= more
        assert (terms(there, quantity) >= terms(here, quantity)).all()
        assert (terms(here, quantity) >= 0).all()


def test_terms_that_rows_cannot_tell_apart_count_once():
    design = terms(GRID, Quantity.TIME)
    kept = [TERMS[Quantity.TIME][i] for i in distinct_terms(design)]
    assert kept == ["nhh/tp", "1", "nh", "hh/tp", "par", "par nh"]


def test_every_column_has_a_law():
    assert set(QUANTITIES.values()) <= set(TERMS)


def test_residuals_are_kept_at_rows_and_fade_outside():
    rows = GRID[:4]
    residuals = np.array([0.1, 0.1, 0.1, 0.1])
    weights = solve_residuals(rows, residuals)
    near, far = (
        residual_at(rows, weights, np.array([[1.0, n, 1.0, 1.0]]))[0] for n in (3, 8 * 2**16)
    )
    assert near == pytest.approx(0.1, rel=0.05)
    assert 0 < far < 0.05


def test_an_odd_residual_is_not_believed_by_its_neighbours():
    residuals = np.full(len(GRID), 0.01)
    residuals[5] = 2.0
    weights = solve_residuals(GRID, residuals)
    assert residual_at(GRID, weights, np.array([[2.0, 3.0, 1.0, 1.0]]))[0] < 0.2


def test_where_points_lie():
    cross = GRID[(GRID[:, 0] == 1) | (GRID[:, 1] == 1)]
    inside, corner, out = (
        np.array([*xy, 1.0, 1.0]) for xy in ((2.0, 2.0), (8.0, 8.0), (16.0, 2.0))
    )
    assert is_inside(cross, inside)
    assert not is_inside(cross, corner)
    assert octaves_beyond(cross, corner) == 0
    assert octaves_beyond(cross, out) == 1
    assert row_at(cross, np.array([1.0, 8.0, 1.0, 1.0])) is not None
    assert row_at(cross, inside) is None
    assert list(never_varied(cross, np.array([1.0, 1.0, 2.0, 1.0]))) == [False, False, True, False]

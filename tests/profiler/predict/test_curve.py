"""Curves of time against bytes: what they go through, and that they never fall."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.profiler.predict.curve import curve_of, end_error, left_out_error, monotone
from tests.examples import examples

SIZES = 2.0 ** np.arange(4, 30, 2)


def exact(sizes):
    return 2e-5 + np.asarray(sizes) / 3e9


row = st.tuples(st.floats(1, 1e12), st.floats(1e-9, 1e6))


@examples(100)
@given(st.lists(row, min_size=1, max_size=20), st.lists(row, min_size=1, max_size=5))
def test_monotone_and_positive_whatever_the_rows(rows, others) -> None:
    sibling = curve_of(*zip(*others, strict=True))
    curve = curve_of(*zip(*rows, strict=True), [sibling], alike=[sibling])
    asked = np.sort(np.concatenate([[0.0], curve.sizes, np.geomspace(1e-3, 1e16, 200)]))
    found = curve(asked)
    assert np.isfinite(found).all()
    assert (found > 0).all()
    assert (np.diff(found) >= -1e-12 * found[1:]).all()


def test_a_latency_and_a_bandwidth_are_found_exactly() -> None:
    curve = curve_of(SIZES, exact(SIZES))
    asked = np.array([0, 1, 100, 3e5, 2e9, 1e12])
    assert curve(asked) == pytest.approx(exact(asked), rel=1e-9)
    assert left_out_error(SIZES, exact(SIZES)) == pytest.approx(0, abs=1e-9)
    assert end_error(SIZES, exact(SIZES), 3) == pytest.approx(0, abs=1e-9)
    assert end_error(SIZES, exact(SIZES), -3) == pytest.approx(0, abs=1e-9)


def test_rows_that_rise_are_kept_as_they_are() -> None:
    times = np.array([1.0, 2.0, 2.5, 9.0])
    assert monotone(times) == pytest.approx(times)


def test_one_row_far_off_moves_nothing_else() -> None:
    times = exact(SIZES)
    noisy = times.copy()
    noisy[6] *= 50
    curve = curve_of(SIZES, noisy)
    assert curve(SIZES[:6]) == pytest.approx(times[:6])
    assert curve(SIZES[-2:]) == pytest.approx(times[-2:])


def test_rows_of_other_numbers_say_how_it_rises_between_two_rows() -> None:
    def bent(sizes):
        return np.maximum(2e-5, np.asarray(sizes) / 3e9)

    rows = SIZES[::4]
    alone = curve_of(rows, bent(rows))
    helped = curve_of(rows, bent(rows), alike=[curve_of(SIZES, 3 * bent(SIZES))])
    assert helped(rows) == pytest.approx(bent(rows))
    off, less = (np.abs(c(SIZES) / bent(SIZES) - 1).max() for c in (alone, helped))
    assert less < off / 2
    # None of it says anything beyond the rows, or where it has none between them.
    assert helped(4 * rows[-1]) == pytest.approx(alone(4 * rows[-1]))
    same = curve_of(rows, bent(rows), alike=[curve_of(rows, bent(rows))])
    assert same(SIZES) == pytest.approx(alone(SIZES))


def test_repeated_sizes_count_once() -> None:
    curve = curve_of([8, 64, 64, 64, 512], [1.0, 2.0, 2.2, 90.0, 3.0])
    assert curve.sizes.tolist() == [8, 64, 512]
    assert float(curve(64)) == pytest.approx(2.2)


def test_one_row_and_two_rows() -> None:
    one = curve_of([1000], [1e-3])
    assert float(one(0)) == float(one(10)) == pytest.approx(1e-3)
    assert float(one(4000)) == pytest.approx(4e-3)
    two = curve_of([1000, 3000], [2e-3, 4e-3])
    assert two([0, 2000, 7000]) == pytest.approx([1e-3, 3e-3, 8e-3])
    assert left_out_error([1000, 3000], [2e-3, 4e-3]) is None
    assert end_error([1000, 2000, 3000], [1, 2, 3], 1) is None


def test_rows_in_proportion_leave_some_latency() -> None:
    curve = curve_of(SIZES, SIZES / 1e9)
    assert 0 < float(curve(0)) < SIZES[0] / 1e9


def test_the_slope_beyond_is_shared_with_siblings() -> None:
    sizes, times = SIZES, exact(SIZES)
    noisy = times.copy()
    noisy[-1] *= 1.2
    alone = curve_of(sizes, noisy)
    helped = curve_of(sizes, noisy, [curve_of(sizes, times)] * 2)
    asked = 4 * sizes[-1]
    assert abs(float(helped(asked)) / exact(asked) - 1) < abs(
        float(alone(asked)) / exact(asked) - 1
    )

"""What compiled searches share, run as plain Python."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.optimize.bounds import arrays
from tests.examples import for_each


def plain(function: Any) -> Any:
    """Return a kernel that only kernels call as the Python that it is made of."""
    return getattr(function, "py_func", function)


@for_each(("need", "length"), [(1, 6), (6, 6), (7, 7), (20, 20)])
def test_arrays_grow_to_twice_their_length_or_to_what_is_needed(need: int, length: int) -> None:
    before = np.array([5, 7, 9])
    after = plain(arrays.longer)(before, need)
    assert after.shape == (length,)
    assert after.dtype == before.dtype
    assert after[:3].tolist() == [5, 7, 9]
    rows = np.arange(6.0).reshape(3, 2)
    wider = plain(arrays.longer_rows)(rows, need)
    assert wider.shape == (length, 2)
    assert wider[:3].tolist() == rows.tolist()


@given(st.lists(st.integers(0, 9), max_size=200))
def test_indices_sort_values_and_equal_ones_keep_their_order(values: list[int]) -> None:
    """Runs of 16 by insertion, then merged."""
    found = plain(arrays.ascending)(np.array(values, np.int64))
    assert found.tolist() == sorted(range(len(values)), key=values.__getitem__)


@for_each("count", [15, 16, 17, 31, 32, 33, 64, 65])
def test_values_in_order_stay_and_those_that_descend_are_turned_round(count: int) -> None:
    found = plain(arrays.ascending)(np.arange(float(count)))
    assert found.tolist() == list(range(count))
    found = plain(arrays.ascending)(np.arange(count, 0.0, -1.0))
    assert found.tolist() == list(range(count))[::-1]

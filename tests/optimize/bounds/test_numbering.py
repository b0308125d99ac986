"""Values are numbered as by sorting them, dense or not."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.optimize.bounds.pipelines import SPARSE, numbered
from tests.examples import examples

COLUMNS = st.lists(st.lists(st.integers(0, 40), max_size=12), min_size=1, max_size=3)


@examples(100)
@given(COLUMNS, st.sampled_from([1, 10**9]))
def test_values_are_numbered_as_sorted(lists: list[list[int]], factor: int) -> None:
    columns = [np.array(values, np.int64) * factor for values in lists]
    values, places = numbered(*columns)
    assert values.tolist() == sorted({value for column in columns for value in column.tolist()})
    for column, place in zip(columns, places, strict=True):
        assert (values[place] == column).all()
        assert (place.size, place.dtype) == (column.size, np.int64)


@pytest.mark.parametrize("most", [SPARSE * 3, SPARSE * 3 + 1])
def test_the_largest_value_that_is_dense(most: int) -> None:
    values, (place, other) = numbered(np.array([most, 0]), np.array([most]))
    assert (values.tolist(), place.tolist(), other.tolist()) == ([0, most], [1, 0], [1])

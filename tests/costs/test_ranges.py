import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.costs.layer_rows import range_maxima, range_sums


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=8))
def test_every_range(values: list[float]) -> None:
    array = np.array(values)
    sums, maxima = range_sums(array), range_maxima(array)
    assert sums.shape == maxima.shape == (array.size, array.size + 1)
    for i in range(array.size):
        for j in range(array.size + 1):
            inside = array[i:j]
            assert np.isclose(sums[i, j], inside.sum(), rtol=1e-9, atol=1e-6)
            assert maxima[i, j] == inside.max(initial=0.0)

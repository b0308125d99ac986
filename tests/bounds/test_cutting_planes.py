"""The best prices are found from wherever one begins, however far they are."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.bounds.cutting_planes import best_prices
from tests.examples import examples


@examples(40)
@given(seed=st.integers(0, 2**32 - 1), scale=st.sampled_from([0.01, 1.0, 50.0]))
def test_prices_are_the_best_of_all(seed: int, scale: float) -> None:
    """A few ways with sums and devices each: the best prices are at a corner of their planes."""
    random = np.random.default_rng(seed)
    capacity = random.integers(4, 40, 2).astype(float)
    sums = random.uniform(1, 2, 6)
    uses = random.integers(0, 60, (6, 2)).astype(float)
    uses[0] = 0.5 * capacity  # one way fits, so the best prices are finite

    def priced(price):
        values = sums + uses @ price
        way = int(np.argmin(values))
        return values[way] - price @ capacity, float(sums[way]), uses[way]

    # corners: where two planes, or a plane and an axis, leave nothing free
    slopes = uses - capacity
    corners = [np.zeros(2)]
    planes = [(np.append(s, -1.0), -t) for s, t in zip(slopes, sums, strict=True)]
    planes += [(np.array([1.0, 0.0, 0.0]), 0.0), (np.array([0.0, 1.0, 0.0]), 0.0)]
    for three in itertools.combinations(planes, 3):
        rows = np.array([row for row, _ in three])
        if abs(np.linalg.det(rows)) > 1e-9:
            corners.append(np.linalg.solve(rows, [right for _, right in three])[:2])
    best = max(priced(corner)[0] for corner in corners if (corner >= -1e-12).all())
    start = scale * random.uniform(0, 1, 2)
    price, value = best_prices(priced, capacity, np.inf, start)
    assert (price >= 0).all()
    assert value == pytest.approx(priced(price)[0])
    assert best * (1 - 2e-3) <= value <= best * (1 + 1e-9)

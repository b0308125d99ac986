"""How wrong times may be."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.analysis.why.robust import guarantee, survived, turned

ERRORS = st.floats(0, 0.9)
SECONDS = st.lists(st.floats(0.1, 10), min_size=1, max_size=6)


@given(SECONDS, st.floats(0.5, 1), ERRORS, st.randoms(use_true_random=False))
def test_no_true_times_break_the_guarantee(
    seconds: list[float], share: float, error: float, draw: random.Random
) -> None:
    """Whichever plan is chosen and whatever times truly are, it is as good as is guaranteed."""
    bound = share * min(seconds)
    true = [s * (1 + draw.choice((-error, error, draw.uniform(-error, error)))) for s in seconds]
    for chosen, taken in zip(seconds, true, strict=True):
        assert taken <= guarantee(chosen / bound, 1 - error, 1 + error) * min(true) * (1 + 1e-12)


@given(st.floats(1, 3), st.floats(0.001, 5))
def test_the_survived_error_is_the_largest(ratio: float, within: float) -> None:
    error = survived(ratio, within)
    if ratio > 1 + within:
        assert error == 0
        return
    assert guarantee(ratio, 1 - error, 1 + error) == pytest.approx(1 + within)
    more = error * 1.01 + 1e-6
    assert guarantee(ratio, 1 - more, 1 + more) > 1 + within


@given(st.floats(0.1, 10), st.floats(0.1, 10))
def test_two_plans_turn_at_the_least_error_of_both(one: float, other: float) -> None:
    low, high = sorted((one, other))
    error = turned(one, other)
    assert low * (1 + error) == pytest.approx(high * (1 - error))

"""Changes of unit that can be undone to the last digit."""

import math

from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.peers.units import to_milliseconds, to_seconds, undo

TIMES = st.floats(min_value=1e-9, max_value=1e9, allow_nan=False)


@given(TIMES)
def test_milliseconds_come_back_exactly(milliseconds: float) -> None:
    seconds, original = to_seconds(milliseconds)
    assert seconds == milliseconds / 1e3
    assert to_milliseconds(seconds, original) == milliseconds


def test_a_time_that_seconds_cannot_hold_is_kept_as_it_is() -> None:
    """Two neighbouring numbers of milliseconds with the same seconds: one of them needs the
    text."""
    first = 1.99
    second = math.nextafter(first, 2)
    assert first / 1e3 == second / 1e3
    texts = [to_seconds(value)[1] for value in (first, second)]
    assert any(texts)
    for value, text in zip((first, second), texts, strict=True):
        assert to_milliseconds(value / 1e3, text) == value


def test_a_text_of_another_time_does_not_count() -> None:
    assert to_milliseconds(0.5, "3.0 ms") == 500
    assert to_milliseconds(0.5, "nonsense ms") == 500
    assert to_milliseconds(0.5, "500.0 us") == 500


@given(st.floats(min_value=1e-3, max_value=1e8))
def test_a_product_is_undone(number: float) -> None:
    value = number * 1e-6
    found = undo(value, lambda x: x * 1e-6, value / 1e-6)
    assert found * 1e-6 == value
    assert len(repr(found)) <= len(repr(number))


def test_what_cannot_be_undone_is_the_guess() -> None:
    assert undo(2.0, lambda x: 0.0, 7.0) == 7.0

"""Of a test that is marked `few(n)`, the first n cases are fast, those that are slow aside."""

import pytest


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "case", [pytest.param(0, marks=pytest.mark.slow), *range(1, 6)], ids="case {}".format
)
def test_no_case_beyond_is_fast(request: pytest.FixtureRequest, case: int) -> None:
    slow = request.node.get_closest_marker("slow") is not None
    assert slow == (case not in (1, 2))


def test_every_mark_leaves_a_case(request: pytest.FixtureRequest) -> None:
    marks = (item.get_closest_marker("few") for item in request.session.items)
    counts = [mark.args[0] for mark in marks if mark is not None]
    assert counts
    assert min(counts) >= 1

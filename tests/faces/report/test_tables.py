"""Words and numbers that tables and lines share."""

import math

from ilp_planner.faces.report.tables import describe_gap, span, summary


def test_span() -> None:
    assert span([2, 2]) == "2"
    assert span([1, 4, 2]) == "1-4"


def test_a_gap_that_does_not_exist_is_a_dash() -> None:
    assert describe_gap(math.inf) == "-"


def test_summary_shows_names_with_brackets_as_they_are() -> None:
    assert summary([("a", "[red]x[/red]"), ("long", ":smile:")]) == (
        "a     [red]x[/red]\nlong  :smile:"
    )

"""The manual shows how long first solves took, and what a time was asked of was in time."""

import json

from tests.benchmarks import first_solve
from tests.benchmarks.table import shown_table

ROWS = json.loads(first_solve.RESULTS.read_text())["rows"]


def test_the_manual_shows_the_results() -> None:
    assert shown_table("first") == first_solve.table(ROWS)


def test_what_was_asked_is_met() -> None:
    assert [row["case"] for row in ROWS] == [name for name, _, _ in first_solve.CASES]
    asked = [row for row in ROWS if row["asked_s"] is not None]
    assert asked
    assert all(row["again_s"] < row["first_s"] <= row["asked_s"] for row in asked)

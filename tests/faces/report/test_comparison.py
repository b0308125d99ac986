"""Plans and solvers side by side."""

from pathlib import Path

import pytest

from ilp_planner.analysis.compare.entry import Entry
from ilp_planner.faces.report.comparison import (
    comparison_lines,
    comparison_object,
    comparison_table,
)
from ilp_planner.faces.report.lines import problem_lines
from tests.faces.report.texts import text_of
from tests.small import make_problem


@pytest.fixture
def entries() -> list[Entry]:
    return [
        Entry(name="theirs", time=2.0, memory=2**30, stages=2, micro_batch=4),
        Entry(name="ours", time=1.0, memory=2**30, bound=1.0, wall=3.0),
        Entry(name="other", remark="another problem: model is x, not tiny"),
    ]


def test_comparison_measures_against_the_best_bound(tmp_path: Path, entries: list[Entry]) -> None:
    problem = make_problem(tmp_path)
    rows = text_of(comparison_table(entries)).splitlines()
    assert "50.00 %" in rows[1]
    assert "0 % (proved optimal)" in rows[2]
    assert "another problem" in rows[3]
    assert "optimal" not in rows[3]
    lines = comparison_lines(problem_lines(problem), ["a remark"], entries)
    assert dict(lines)["best bound"] == "1.000 s, proved by ours"
    assert ("note", "a remark") in lines
    assert comparison_object(problem, entries)["bound_s"] == 1.0


def test_comparison_without_a_bound_shows_no_gap(tmp_path: Path, entries: list[Entry]) -> None:
    assert "%" not in text_of(comparison_table([entries[0], entries[2]]))
    assert comparison_object(make_problem(tmp_path), entries[:1])["entries"][0]["gap"] is None

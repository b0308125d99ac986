"""Tables and lines say what is meant, and nothing that is not proved."""

import dataclasses
import math
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from ilp_planner.evaluate import evaluate
from ilp_planner.plan import OperatorStage, Plan, Strategy
from ilp_planner.report.comparison import (
    Entry,
    comparison_lines,
    comparison_object,
    comparison_table,
)
from ilp_planner.report.json_report import problem_object
from ilp_planner.report.tables import (
    describe_gap,
    problem_lines,
    result_lines,
    span,
    stage_table,
    summary,
)
from ilp_planner.result import Result, Status, Stop
from tests.small import make_plan, make_problem, make_result


def text_of(table: Table, width: int = 200) -> str:
    console = Console(width=width)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def lines_of(result: Result, folder: Path) -> dict[str, str]:
    return dict(result_lines(make_problem(folder), result))


def test_a_row_per_stage(tmp_path: Path) -> None:
    problem = make_problem(tmp_path)
    plan = make_plan(problem)
    evaluation = evaluate(problem, plan)
    text = text_of(stage_table(problem, plan, evaluation))
    rows = text.splitlines()
    assert "micro-batch (ms)" in text
    assert "device (GiB)" in text
    assert "split" not in text
    assert rows[2].split() == [
        "0", "0-14", "1,", "part", "of", "2", "0", "1", "1", "3", "of", "15",
        f"{1e3 * evaluation.stages[0].time:.3f}",
        f"{evaluation.stages[0].memory / 2**30:.2f}", "of", "8.00",
    ]  # fmt: skip
    assert rows[3].startswith("    1  15-28")


def test_mixed_strategies_are_shown_as_a_span(tmp_path: Path) -> None:
    problem = make_problem(tmp_path)
    count = len(problem.costs.chain)
    strategies = [Strategy(tp=2, split=1)] * 5 + [Strategy(dp=2)] * (count - 5)
    stage = OperatorStage(
        start=0, stop=count, first_device=0, device_count=2, strategies=tuple(strategies)
    )
    plan = Plan(model="tiny", global_batch=64, micro_batch=4, stages=(stage,))
    text = text_of(stage_table(problem, plan, evaluate(problem, plan)))
    assert "split" in text
    assert text.splitlines()[2].split()[3:7] == ["0-1", "1-2", "1-2", "0-1"]


def test_no_cell_is_cut_on_a_narrow_terminal(tmp_path: Path) -> None:
    problem = make_problem(tmp_path)
    plan = make_plan(problem)
    text = text_of(stage_table(problem, plan, evaluate(problem, plan)), width=60)
    assert "…" not in text


def test_span() -> None:
    assert span([2, 2]) == "2"
    assert span([1, 4, 2]) == "1-4"


def test_proved_optimal_only_at_gap_zero(tmp_path: Path) -> None:
    problem = make_problem(tmp_path)
    plan = make_plan(problem)
    assert "proved optimal" in lines_of(make_result(problem, plan), tmp_path)["gap"]
    for gap in (1e-12, 1e-6, 0.01, 0.5):
        lines = lines_of(make_result(problem, plan, gap=gap), tmp_path)
        assert not any("optimal" in text for text in lines.values())
        assert not lines["gap"].startswith("0 ")
        assert not lines["gap"].startswith("0.00 ")
    assert describe_gap(math.inf) == "-"


def test_says_which_bound_why_it_stopped_and_what_is_estimated(tmp_path: Path) -> None:
    problem = make_problem(tmp_path)
    lines = lines_of(make_result(problem, make_plan(problem), gap=0.01), tmp_path)
    assert "proved by chain-dp" in lines["bound"]
    assert lines["stopped by"] == "time limit, after 1.25 s"
    assert "analytic" in lines["costs"]
    assert lines["note"] == "a remark"
    assert lines["gap"] == "1.00 %"


def test_every_reason_to_stop_has_words(tmp_path: Path) -> None:
    problem = make_problem(tmp_path)
    result = make_result(problem, make_plan(problem))
    words = {
        lines_of(dataclasses.replace(result, stopped_by=stop), tmp_path)["stopped by"]
        for stop in Stop
    }
    assert len(words) == len(Stop)


def test_a_broken_rule_is_said(tmp_path: Path) -> None:
    problem = make_problem(tmp_path)
    tight = dataclasses.replace(problem, memory_limit=1.0)
    lines = result_lines(tight, make_result(tight, make_plan(tight)))
    assert sum(name == "BROKEN RULE" for name, _ in lines) == 2


def test_no_plan(tmp_path: Path) -> None:
    result = make_result(make_problem(tmp_path), None)
    lines = lines_of(result, tmp_path)
    assert lines["no plan"] == "none found"
    assert lines["bound"] == "500 ms, proved by work"
    reason = dataclasses.replace(
        result, status=Status.INFEASIBLE, reason="operator 3 needs 2 GiB more", bound=math.inf
    )
    lines = lines_of(reason, tmp_path)
    assert lines["no plan"] == "proved infeasible: operator 3 needs 2 GiB more"
    assert lines["bound"].startswith("no plan exists")


def test_summary_shows_names_with_brackets_as_they_are() -> None:
    assert summary([("a", "[red]x[/red]"), ("long", ":smile:")]).plain == (
        "a     [red]x[/red]\nlong  :smile:"
    )


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
    assert comparison_object(problem_object(problem), entries)["bound_s"] == 1.0


def test_comparison_without_a_bound_shows_no_gap(entries: list[Entry]) -> None:
    assert "%" not in text_of(comparison_table([entries[0], entries[2]]))
    assert comparison_object({}, entries[:1])["entries"][0]["gap"] is None

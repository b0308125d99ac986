"""Lines of problems, plans and results say what is meant, and nothing that is not proved."""

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ilp_planner.evaluate import evaluate
from ilp_planner.faces.report.json_report import result_object
from ilp_planner.faces.report.lines import evaluation_lines, result_lines
from ilp_planner.inputs.problem import Problem
from ilp_planner.optimize.result import Result, Status, Stop
from tests.faces.report.texts import A100_ONLY
from tests.mixed_cases import room_plan, room_problem, room_result
from tests.small import make_plan, make_problem, make_result


@pytest.fixture
def room() -> Problem[Any]:
    return room_problem()


def lines_of(result: Result, folder: Path) -> dict[str, str]:
    return dict(result_lines(make_problem(folder), result))


def priced(problem: Problem[Any]) -> Problem[Any]:
    types = problem.cluster.device_types
    dear = {name: replace(device, price=2.0) for name, device in types.items()}
    return replace(problem, cluster=replace(problem.cluster, device_types=dear))


# ---- of operators -------------------------------------------------------------------------------


def test_proved_optimal_only_at_gap_zero(tmp_path: Path) -> None:
    problem = make_problem(tmp_path)
    plan = make_plan(problem)
    assert "proved optimal" in lines_of(make_result(problem, plan), tmp_path)["gap"]
    for gap in (1e-12, 1e-6, 0.01, 0.5):
        lines = lines_of(make_result(problem, plan, gap=gap), tmp_path)
        assert not any("optimal" in text for text in lines.values())
        assert not lines["gap"].startswith("0 ")
        assert not lines["gap"].startswith("0.00 ")


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
    words = {lines_of(replace(result, stopped_by=stop), tmp_path)["stopped by"] for stop in Stop}
    assert len(words) == len(Stop)


def test_a_broken_rule_is_said(tmp_path: Path) -> None:
    problem = make_problem(tmp_path)
    tight = replace(problem, memory_limits=dict.fromkeys(problem.memory_limits, 1.0))
    lines = result_lines(tight, make_result(tight, make_plan(tight)))
    assert sum(name == "BROKEN RULE" for name, _ in lines) == 2


def test_no_plan_of_operators(tmp_path: Path) -> None:
    result = make_result(make_problem(tmp_path), None)
    lines = lines_of(result, tmp_path)
    assert lines["no plan"] == "none found"
    assert lines["bound"] == "500 ms, proved by work"
    reason = replace(
        result, status=Status.INFEASIBLE, reason="operator 3 needs 2 GiB more", bound=math.inf
    )
    lines = lines_of(reason, tmp_path)
    assert lines["no plan"] == "proved infeasible: operator 3 needs 2 GiB more"
    assert lines["bound"].startswith("no plan exists")


# ---- of layers ----------------------------------------------------------------------------------


def test_lines_of_a_proved_result(room: Problem[Any]) -> None:
    lines = dict(result_lines(room, room_result(room, room_plan(room))))
    assert lines["model"] == "made-up, 6 layers"
    assert (
        "1 node of 2 x T4, 2 nodes of 2 x A100 (T4 15.00 GiB, A100 80.00 GiB)" in (lines["cluster"])
    )
    assert lines["costs"] == "native, profile metis:made-up"
    assert "slowest stage" in lines["of which"]
    assert re.fullmatch(r"[0-9.]+ % measured, [0-9.]+ % analytic", lines["time rests on"])
    assert lines["gap"] == "0 % (proved optimal)"
    assert lines["note"] == "a remark"
    assert "idle" not in lines
    assert "price" not in lines


def test_idle_devices_are_no_use_only_when_that_is_proved(room: Problem[Any]) -> None:
    result = room_result(room, room_plan(room, A100_ONLY))
    proved = dict(result_lines(room, result))["idle"]
    assert proved == "2 x T4 (devices 0-1): using them is not faster"
    open_ = replace(result, status=Status.FEASIBLE, bound=result.bound / 2)
    assert dict(result_lines(room, open_))["idle"] == "2 x T4 (devices 0-1)"


def test_terms_of_nothing_are_left_out(room: Problem[Any]) -> None:
    """One micro-batch repeats nothing."""
    plan = room_plan(room, [(0, 6, 2, (2, 3, 4, 5))], micro_batches=1)
    lines = dict(result_lines(room, room_result(room, plan)))
    assert lines["iteration time"].endswith("for 16 samples in 1 micro-batch of 16")
    assert "slowest stage" not in lines["of which"]


def test_prices_count_the_nodes_in_use(room: Problem[Any]) -> None:
    result = room_result(room, room_plan(room, A100_ONLY))
    line = dict(result_lines(priced(room), result))["price"]
    assert line.startswith("8.00 per hour for 2 nodes, ")
    value = result_object(priced(room), result)
    assert value["price_per_hour"] == 8.0


def test_what_is_broken_is_said(room: Problem[Any]) -> None:
    plan = room_plan(room, [(0, 5, 1, (2, 3))])
    lines = evaluation_lines(room, plan, evaluate(room, plan))
    assert ("plan", "breaks 1 rules") in lines
    assert any(name == "BROKEN RULE" and "layers covered once" in text for name, text in lines)


def test_no_plan_of_layers(room: Problem[Any]) -> None:
    lines = dict(result_lines(room, room_result(room, None)))
    assert lines["no plan"] == "none found"
    result = room_result(room, None, status=Status.INFEASIBLE, reason="1 GiB is missing")
    lines = dict(result_lines(room, result))
    assert lines["no plan"] == "proved infeasible: 1 GiB is missing"
    assert result_object(room, result)["stages"] == []


def test_what_nobody_proved_is_proved_by_nobody(room: Problem[Any]) -> None:
    result = room_result(room, None, status=Status.INFEASIBLE, bound=math.inf, bound_source="")
    assert dict(result_lines(room, result))["bound"] == "no plan exists"

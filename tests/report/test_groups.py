"""Tables and lines of layer-level plans say what is meant, and nothing that is not proved."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from ilp_planner.report.groups import (
    describe_samples,
    describe_stages,
    group_evaluation_lines,
    group_result_lines,
    group_table,
    ranking_table,
)
from ilp_planner.report.groups_json import group_result_object

from ilp_planner.evaluate import evaluate
from ilp_planner.files import to_json
from ilp_planner.result import Ranked, Status
from tests.mixed_cases import room_plan, room_problem, room_result
from tests.report.test_tables import text_of

if TYPE_CHECKING:
    from ilp_planner.problem import Problem

A100_ONLY = [(0, 6, 1, (2, 3, 4, 5))]


@pytest.fixture
def problem() -> Problem:
    return room_problem()


def priced(problem: Problem) -> Problem:
    types = problem.cluster.device_types
    dear = {name: replace(device, price=2.0) for name, device in types.items()}
    return replace(problem, cluster=replace(problem.cluster, device_types=dear))


def test_a_row_per_stage(problem: Problem) -> None:
    plan = room_plan(problem)
    rows = text_of(group_table(problem, plan, evaluate(problem, plan))).splitlines()
    assert rows[2].split()[:5] == ["0", "0:", "embedding", "node", "0:"]
    assert "0: embedding" in rows[2]
    assert "node 0: T4 0-1" in rows[2]
    assert "of 15.00" in rows[2]
    assert "1-5: layer 1 to head" in rows[3]
    assert "nodes 1-2: A100 2-5" in rows[3]
    assert " 2,2 " in rows[3]
    assert "of 80.00" in rows[3]
    assert len(rows) == 4


@pytest.mark.parametrize(
    ("samples", "text"),
    [((4, 4, 4, 1), "4,4,4,1"), ((2,), "2"), ((4,) * 9 + (1,) * 3, "9 x 4, 3 x 1")],
)
def test_samples_of_the_replicas(samples: tuple[int, ...], text: str) -> None:
    assert describe_samples(samples) == text


def test_lines_of_a_proved_result(problem: Problem) -> None:
    lines = dict(group_result_lines(problem, room_result(problem, room_plan(problem))))
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


def test_idle_devices_are_no_use_only_when_that_is_proved(problem: Problem) -> None:
    result = room_result(problem, room_plan(problem, A100_ONLY))
    proved = dict(group_result_lines(problem, result))["idle"]
    assert proved == "2 x T4 (devices 0-1): using them is not faster"
    open_ = replace(result, status=Status.FEASIBLE, bound=result.bound / 2)
    assert dict(group_result_lines(problem, open_))["idle"] == "2 x T4 (devices 0-1)"


def test_terms_of_nothing_are_left_out(problem: Problem) -> None:
    """One micro-batch repeats nothing."""
    plan = room_plan(problem, [(0, 6, 2, (2, 3, 4, 5))], micro_batches=1)
    lines = dict(group_result_lines(problem, room_result(problem, plan)))
    assert lines["iteration time"].endswith("for 16 samples in 1 micro-batch of 16")
    assert "slowest stage" not in lines["of which"]


def test_prices_count_the_devices_in_use(problem: Problem) -> None:
    result = room_result(problem, room_plan(problem, A100_ONLY))
    line = dict(group_result_lines(priced(problem), result))["price"]
    assert line.startswith("8.00 per hour for 4 devices, ")
    value = group_result_object(priced(problem), result)
    assert value["price_per_hour"] == 8.0


def test_what_is_broken_is_said(problem: Problem) -> None:
    plan = room_plan(problem, [(0, 5, 1, (2, 3))])
    lines = group_evaluation_lines(problem, plan, evaluate(problem, plan))
    assert ("plan", "breaks 1 rules") in lines
    assert any(name == "BROKEN RULE" and "layers covered once" in text for name, text in lines)


def test_no_plan(problem: Problem) -> None:
    lines = dict(group_result_lines(problem, room_result(problem, None)))
    assert lines["no plan"] == "none found"
    result = room_result(problem, None, status=Status.INFEASIBLE, reason="1 GiB is missing")
    lines = dict(group_result_lines(problem, result))
    assert lines["no plan"] == "proved infeasible: 1 GiB is missing"
    assert group_result_object(problem, result)["stages"] == []


def test_what_nobody_proved_is_proved_by_nobody(problem: Problem) -> None:
    result = room_result(problem, None, status=Status.INFEASIBLE, bound=math.inf, bound_source="")
    assert dict(group_result_lines(problem, result))["bound"] == "no plan exists"


def test_equal_stages_in_a_row_are_told_once(problem: Problem) -> None:
    alike = room_plan(problem, [(0, 2, 1, (2, 3)), (2, 4, 1, (4, 5)), (4, 6, 1, (0, 1))])
    assert describe_stages(problem, alike) == "2 of (2 x A100 tp1 dp2) | 2 x T4 tp1 dp2"


def test_a_ranking_has_the_gap_of_each_to_its_own_bound(problem: Problem) -> None:
    plans = [room_plan(problem), room_plan(problem, A100_ONLY)]
    judged = [evaluate(problem, plan) for plan in plans]
    ranking = [
        Ranked(plan=plan, evaluation=found, bound=found.iteration_time * share)
        for plan, found, share in zip(plans, judged, (1.0, 0.9), strict=True)
    ]
    rows = text_of(ranking_table(problem, ranking)).splitlines()
    assert "2 x T4 tp1 dp2 | 4 x A100 tp2 dp2" in rows[1]
    assert "0 % (proved)" in rows[1]
    assert rows[1].rstrip().endswith("1 5")
    assert "10.00 %" in rows[2]
    result = replace(room_result(problem, plans[0]), ranking=tuple(ranking))
    value = group_result_object(problem, result)["ranking"]
    assert [entry["gap"] for entry in value] == [0, pytest.approx(0.1)]


def test_json_has_what_the_tables_have(problem: Problem) -> None:
    value = group_result_object(problem, room_result(problem, room_plan(problem, A100_ONLY)))
    value = json.loads(to_json(value))
    assert value["idle"] == [0, 1]
    assert set(value["provenance"]) == {"measured", "analytic"}
    assert sum(value["provenance"].values()) == pytest.approx(1)
    assert value["provenance_error"] == {}
    assert value["predicted_error"] is None
    assert sum(value["terms_s"].values()) == pytest.approx(value["objective_s"])
    (stage,) = value["stages"]
    assert (stage["tp"], stage["dp"]) == (1, 4)
    assert stage["memory_limit_bytes"] == 80 * 2**30
    assert sum(stage["memory_terms_bytes"].values()) == pytest.approx(stage["memory_bytes"])
    assert stage["replicas"][0]["types"] == ["A100"]
    assert [replica["nodes"] for replica in stage["replicas"]] == [[1], [1], [2], [2]]

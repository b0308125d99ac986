"""What `--json` prints."""

import json
from pathlib import Path

import pytest

from ilp_planner.base.files import to_json
from ilp_planner.faces.report.json_report import result_object
from tests.faces.report.texts import A100_ONLY
from tests.mixed_cases import room_plan, room_problem, room_result
from tests.small import make_plan, make_problem, make_result

PROMISED = {
    "status", "stopped_by", "objective_s", "bound_s", "gap", "bound_source", "confirmed_by",
    "wall_s", "solver", "seed", "stages",
}  # fmt: skip


def test_a_result_has_all_that_is_promised(tmp_path: Path) -> None:
    problem = make_problem(tmp_path)
    plan = make_plan(problem)
    result = make_result(problem, plan, gap=0.25)
    value = json.loads(to_json(result_object(problem, result)))
    assert value.keys() >= PROMISED
    assert value["status"] == "feasible"
    assert value["stopped_by"] == "time"
    assert value["objective_s"] == result.objective
    assert abs(value["gap"] - 0.25) < 1e-12
    assert value["profile"] == "analytic"
    assert [s["devices"] for s in value["stages"]] == [1, 1]
    assert value["stages"][0]["recompute"] == 3
    assert value["stages"][0]["time_s"] == result.evaluation.stages[0].time  # type: ignore[union-attr]


def test_without_a_plan_numbers_are_null(tmp_path: Path) -> None:
    problem = make_problem(tmp_path)
    value = json.loads(to_json(result_object(problem, make_result(problem, None))))
    assert value.keys() >= PROMISED
    assert value["objective_s"] is None
    assert value["gap"] is None
    assert value["stages"] == []
    assert value["bound_s"] == 0.5


def test_json_has_what_the_tables_have() -> None:
    room = room_problem()
    value = result_object(room, room_result(room, room_plan(room, A100_ONLY)))
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

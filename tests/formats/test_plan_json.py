"""The saved plan: what is written is read back, and everything else is refused in one line."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.errors import PlanError
from ilp_planner.files import to_json
from ilp_planner.formats.plan_json import encode, encode_plan, read_plan, write_plan
from ilp_planner.formats.saved_plan import Claim, Inputs, Reference, SavedPlan, claim_of, verdict_of
from ilp_planner.plan import OperatorStage, Plan, Strategy
from ilp_planner.result import Status, Stop
from tests.small import make_plan, make_problem, make_result

INPUTS = Inputs(
    model=Reference(name="models/tiny.toml", sha256="ab12"),
    cluster=Reference(name="pair", sha256="cd34"),
    profile=Reference(name="analytic"),
    cost_model="native",
    global_batch=64,
    memory_limit=8.0 * 2**30,
    micro_batches=(1, 2, 4, 8),
    max_stages=2,
)


@pytest.fixture
def saved(tmp_path: Path) -> SavedPlan:
    problem = make_problem(tmp_path)
    result = make_result(problem, make_plan(problem), gap=0.01)
    assert result.plan is not None
    assert result.evaluation is not None
    return SavedPlan(
        plan=result.plan,
        inputs=INPUTS,
        claim=claim_of(result, {"python": "3.11"}),
        verdict=verdict_of(result.evaluation),
        certificate=result.certificate,
    )


def test_reads_back_what_was_written(tmp_path: Path, saved: SavedPlan) -> None:
    path = tmp_path / "plan.json"
    write_plan(path, saved)
    assert read_plan(path) == saved


def test_a_file_of_the_first_version_is_read(tmp_path: Path, saved: SavedPlan) -> None:
    data = encode(saved)
    data["result"].update(data.pop("run"))
    data["version"] = 1
    path = tmp_path / "plan.json"
    path.write_text(to_json(data))
    assert read_plan(path) == saved


def test_what_differs_from_run_to_run_comes_last_and_may_be_missing(
    tmp_path: Path, saved: SavedPlan
) -> None:
    path = tmp_path / "plan.json"
    data = encode(saved)
    assert list(data)[-1] == "run"
    del data["run"]
    path.write_text(to_json(data))
    assert saved.claim is not None
    assert read_plan(path) == replace(saved, claim=replace(saved.claim, run=None))


def test_a_plan_without_claim_reads_back(tmp_path: Path, saved: SavedPlan) -> None:
    path = tmp_path / "plan.json"
    bare = SavedPlan(plan=saved.plan, inputs=saved.inputs)
    write_plan(path, bare)
    assert read_plan(path) == bare


def test_numbers_that_do_not_exist_are_null(tmp_path: Path, saved: SavedPlan) -> None:
    path = tmp_path / "plan.json"
    claim = Claim(
        status=Status.UNKNOWN,
        stopped_by=Stop.TIME,
        objective=math.inf,
        bound=0.0,
        gap=math.inf,
        bound_source="",
        solver="auto",
        seed=0,
    )
    write_plan(path, SavedPlan(plan=saved.plan, inputs=saved.inputs, claim=claim))
    assert json.loads(path.read_text())["result"]["objective_s"] is None
    assert read_plan(path).claim == claim


def test_equal_strategies_are_one_run(saved: SavedPlan) -> None:
    first = encode_plan(saved.plan)["stages"][0]["strategies"]
    assert [run["count"] for run in first] == [3, 12]
    assert [run["recompute"] for run in first] == [True, False]


STRATEGIES = st.builds(
    Strategy,
    tp=st.integers(1, 8),
    dp=st.integers(1, 8),
    split=st.integers(0, 1),
    recompute=st.booleans(),
)


@given(st.lists(st.lists(STRATEGIES, min_size=1, max_size=20), min_size=1, max_size=4))
def test_any_plan_reads_back(tmp_path_factory: pytest.TempPathFactory, stages: Any) -> None:
    start, made = 0, []
    for s, strategies in enumerate(stages):
        stop = start + len(strategies)
        stage = OperatorStage(
            start=start, stop=stop, first_device=s, device_count=1, strategies=tuple(strategies)
        )
        made.append(stage)
        start = stop
    plan = Plan(model="any", global_batch=8, micro_batch=2, stages=tuple(made))
    path = tmp_path_factory.mktemp("any") / "plan.json"
    write_plan(path, SavedPlan(plan=plan, inputs=INPUTS))
    assert read_plan(path).plan == plan


def stage(data: dict[str, Any]) -> dict[str, Any]:
    first: dict[str, Any] = data["plan"]["stages"][0]
    return first


BAD: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda d: d.pop("schema"), "schema: found nothing, expected one of ilp-planner plan"),
    (lambda d: d.update(version=0), "version: found 0, expected 1 or 2$"),
    (lambda d: d.update(version=True), "version: found true, expected 1 or 2$"),
    (
        lambda d: (d.update(version=3), d["run"]["versions"].update({"ilp-planner": "9.1"})),
        "version: found 3, expected 1 or 2; ilp-planner 9.1 reads it$",
    ),
    (lambda d: d.update(version=3), "expected 1 or 2; a newer ilp-planner reads it$"),
    (lambda d: d.update(version=3, run=[]), "expected 1 or 2; a newer ilp-planner reads it$"),
    (lambda d: d.pop("plan"), "plan: found nothing, expected an object"),
    (lambda d: d.update(plam={}), "plam: found an unknown key, expected 'plan'"),
    (lambda d: d.pop("result"), "result: found nothing, expected a value or null"),
    (lambda d: d.update(certificate=3), "certificate: found 3, expected an object"),
    (lambda d: d["plan"].update(stages=[]), "plan.stages: found a list of 0, expected at least"),
    (lambda d: d["plan"].update(model=7), "plan.model: found 7, expected a text"),
    (lambda d: d["plan"].update(micro_batch=0), "plan.micro_batch_size: found 0, expected a whole"),
    (lambda d: d["plan"].update(global_batch=-4), "plan.global_batch: found -4, expected a whole"),
    (lambda d: d["plan"].update(global_batch=True), "plan.global_batch: found true, expected"),
    (lambda d: stage(d).update(stop=0), r"plan.stages\[0\].stop: found 0, expected a whole"),
    (lambda d: stage(d).update(stop=99), r"strategies: found 15 operators, expected 99"),
    (lambda d: stage(d).update(devices=1.5), r"stages\[0\].devices: found 1.5, expected a whole"),
    (lambda d: stage(d).update(device=1), r"stages\[0\].device: found an unknown key"),
    (lambda d: d["plan"].update(stages=[3]), r"plan.stages\[0\]: found 3, expected an object"),
    (
        lambda d: stage(d)["strategies"][0].update(count=10**18),
        r"strategies\[0\].count: found 1000000000000000000, expected at most 15",
    ),
    (lambda d: stage(d)["strategies"][0].update(tp="2"), r"strategies\[0\].tp: found '2'"),
    (lambda d: stage(d)["strategies"][0].update(recompute=1), r"recompute: found 1, expected true"),
    (lambda d: d["inputs"].pop("cluster"), "inputs.cluster: found nothing, expected an object"),
    (lambda d: d["inputs"]["model"].update(name=""), "inputs.model.name: found '', expected"),
    (lambda d: d["inputs"].update(memory_limit_bytes=None), "memory_limit_bytes: found null"),
    (lambda d: d["inputs"].update(memory_limit_bytes=-1), "memory_limit_bytes: found -1, expected"),
    (lambda d: d["inputs"].update(micro_batches=[1, 0]), r"micro_batches\[1\]: found 0, expected"),
    (lambda d: d["inputs"].update(micro_batches=4), "micro_batches: found 4, expected a list"),
    (lambda d: d["result"].update(status="good"), "result.status: found 'good', expected one of"),
    (lambda d: d["result"].update(status=[]), "result.status: found a list of 0, expected one of"),
    (lambda d: d["result"].update(bound_s="1"), "result.bound_s: found '1', expected a number"),
    (lambda d: d["run"].update(versions={"a": 1}), "run.versions.a: found 1, expected a text"),
    (lambda d: d["result"].update(wall_s=1.0), "result.wall_s: found an unknown key"),
    (lambda d: d["result"].update(notes=[1]), r"result.notes\[0\]: found 1, expected a text"),
    (lambda d: d["evaluation"].update(legal="yes"), "evaluation.legal: found 'yes', expected true"),
    (lambda d: d["evaluation"].update(stages={}), "evaluation.stages: found an object, expected"),
]


@pytest.mark.parametrize(("damage", "message"), BAD, ids=[message for _, message in BAD])
def test_refuses_in_one_line(
    tmp_path: Path, saved: SavedPlan, damage: Callable[[dict[str, Any]], object], message: str
) -> None:
    data = encode(saved)
    damage(data)
    path = tmp_path / "bad.json"
    path.write_text(to_json(data))
    with pytest.raises(PlanError, match=message) as caught:
        read_plan(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", ["[]", "3", '"plan"', "null"])
def test_refuses_what_is_no_object(tmp_path: Path, content: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(content)
    with pytest.raises(PlanError, match=r"file: found .*, expected an object"):
        read_plan(path)


def test_every_missing_field_is_named(tmp_path: Path, saved: SavedPlan) -> None:
    path = tmp_path / "bad.json"

    def each_object(value: Any) -> list[dict[str, Any]]:
        if isinstance(value, dict):
            return [value, *(o for v in value.values() for o in each_object(v))]
        return [o for v in value for o in each_object(v)] if isinstance(value, list) else []

    data = encode(saved)
    data["certificate"] = None
    data["run"]["versions"] = {}
    for fields in each_object(data):
        for key in sorted(fields.keys() - {"run"}):
            value = fields.pop(key)
            path.write_text(to_json(data))
            with pytest.raises(PlanError, match=rf"{key}: found nothing, expected "):
                read_plan(path)
            fields[key] = value


def test_who_confirmed_a_proof_is_kept_where_somebody_did(tmp_path: Path, saved: SavedPlan) -> None:
    assert saved.claim is not None
    assert "confirmed_by" not in encode(saved)["result"]  # as in files from before
    confirmed = replace(saved, claim=replace(saved.claim, confirmed_by="cp-sat"))
    write_plan(tmp_path / "plan.json", confirmed)
    assert read_plan(tmp_path / "plan.json") == confirmed

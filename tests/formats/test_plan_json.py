"""The decision as JSON: what is written is read back, and everything else is refused in one
line."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from ilp_planner.base.errors import PlanError
from ilp_planner.base.files import to_json
from ilp_planner.formats.json_fields import Fields
from ilp_planner.formats.plan_json import decode_plan, encode_plan
from ilp_planner.optimize.solve import solve
from ilp_planner.plan import GroupStage, Plan
from tests.formats.saved_cases import plans
from tests.megatron_cases import small_cluster, small_problem
from tests.mixed_cases import room_plan, room_problem
from tests.small import make_plan, make_problem


@pytest.fixture
def operators(tmp_path: Path) -> Plan[Any]:
    return make_plan(make_problem(tmp_path))


@pytest.fixture
def layers() -> Plan[Any]:
    return room_plan(room_problem())


@pytest.fixture(scope="module")
def runtime() -> Plan[Any]:
    """A plan with settings of a runtime."""
    plan = solve(small_problem(small_cluster(2, 1), batch=8)).plan
    assert plan is not None
    assert plan.settings is not None
    return plan


def written(plan: Plan[Any]) -> dict[str, Any]:
    """Return what a file holds of a plan."""
    value: dict[str, Any] = json.loads(to_json(encode_plan(plan)))
    return value


def read(value: dict[str, Any]) -> Plan[Any]:
    return decode_plan(Fields(value, file="plan.json", where="plan"))


@given(plan=plans())
def test_any_plan_reads_back(plan: Plan[Any]) -> None:
    assert read(written(plan)) == plan


def test_equal_strategies_are_one_run(operators: Plan[Any]) -> None:
    first = encode_plan(operators)["stages"][0]["strategies"]
    assert [run["count"] for run in first] == [3, 12]
    assert [run["recompute"] for run in first] == [True, False]


def test_both_kinds_say_how_many_micro_batches_there_are(
    operators: Plan[Any], layers: Plan[Any]
) -> None:
    for plan in (operators, layers):
        assert written(plan)["micro_batches"] == plan.micro_batches
        assert "micro_batch" not in written(plan)


def test_the_size_of_a_micro_batch_is_read_instead_of_their_number(operators: Plan[Any]) -> None:
    value = written(operators)
    del value["micro_batches"]
    value["micro_batch"] = operators.micro_batch_size
    assert read(value) == operators


def test_a_plan_without_settings_says_none(layers: Plan[Any]) -> None:
    assert written(layers).keys() == {"model", "global_batch", "micro_batches", "stages"}


def test_a_plan_of_a_runtime_reads_back(runtime: Plan[Any]) -> None:
    assert read(written(runtime)) == runtime


def test_a_plan_of_a_runtime_without_its_settings_is_read(runtime: Plan[Any]) -> None:
    plain = replace(runtime, settings=None, virtual=1, stages=runtime.stages[: runtime.ranks])
    value = written(plain)
    assert not {"settings", "virtual"} & value.keys()
    assert read(value) == plain
    assert read({**value, "settings": None}) == plain


@given(plan=plans())
def test_equal_replicas_are_the_same_objects(plan: Plan[Any]) -> None:
    """Judges compare virtual stages with those of their rank, of thousands of devices."""
    stages = [stage for stage in read(written(plan)).stages if isinstance(stage, GroupStage)]
    known = {stage.replicas: stage.replicas for stage in stages}
    assert all(stage.replicas is known[stage.replicas] for stage in stages)


def test_a_wrong_number_of_virtual_stages_is_named(runtime: Plan[Any]) -> None:
    value = written(runtime)
    value["virtual"] = len(runtime.stages) + 1
    with pytest.raises(PlanError, match=r"plan.virtual: found .*, expected a divisor of the"):
        read(value)


Damage = list[tuple["Callable[[dict[str, Any]], object]", str]]


def first(value: dict[str, Any]) -> dict[str, Any]:
    stage: dict[str, Any] = value["stages"][0]
    return stage


def second(value: dict[str, Any]) -> dict[str, Any]:
    stage: dict[str, Any] = value["stages"][1]
    return stage


BAD_OPERATORS: Damage = [
    (lambda d: d.update(stages=[]), "plan.stages: found a list of 0, expected at least"),
    (lambda d: d.update(stages=[3]), r"plan.stages\[0\]: found 3, expected an object"),
    (lambda d: d.update(model=7), "plan.model: found 7, expected a text"),
    (lambda d: d.update(micro_batch=1), "plan.micro_batches: found an unknown key, .*micro_batch"),
    (lambda d: d.update(micro_batches=0), "plan.micro_batches: found 0, expected a whole"),
    (lambda d: d.update(global_batch=-4), "plan.global_batch: found -4, expected a whole"),
    (lambda d: d.update(global_batch=True), "plan.global_batch: found true, expected"),
    (lambda d: d.update(micro_batch=d.pop("micro_batches") * 0),
     "plan.micro_batch: found 0, expected a whole"),
    (lambda d: (d.pop("micro_batches"), d.update(micro_batch=3)),
     "plan.micro_batch: found 3, expected a divisor of 64"),
    (lambda d: first(d).update(stop=0), r"plan.stages\[0\].stop: found 0, expected a whole"),
    (lambda d: first(d).update(stop=99), r"strategies: found 15 operators, expected 99"),
    (lambda d: first(d).update(devices=1.5), r"stages\[0\].devices: found 1.5, expected a whole"),
    (lambda d: first(d).update(devices=10**12),
     r"stages\[0\].devices: found 1000000000000, expected a whole number from 1 to 65536"),
    (lambda d: first(d).update(device=1), r"stages\[0\].device: found an unknown key"),
    (lambda d: first(d)["strategies"][0].update(count=10**18),
     r"strategies\[0\].count: found 1000000000000000000, expected at most 15"),
    (lambda d: first(d)["strategies"][0].update(tp="2"), r"strategies\[0\].tp: found '2'"),
    (lambda d: first(d)["strategies"][0].update(recompute=1), r"recompute: found 1, expected true"),
    (lambda d: d["stages"].append({"start": 1, "stop": 2, "tp": 1, "devices": [0]}),
     r"stages\[2\].tp: found an unknown key"),
]  # fmt: skip
BAD_LAYERS: Damage = [
    (lambda d: d.update(stages=[]), "plan.stages: found a list of 0, expected at least"),
    (lambda d: d.update(micro_batches=0), "plan.micro_batches: found 0, expected a whole"),
    (lambda d: d.update(virtual=0), "plan.virtual: found 0, expected a whole"),
    (lambda d: d.update(settings=3), "plan.settings: found 3, expected an object"),
    (lambda d: second(d).update(stop=1), r"plan.stages\[1\].stop: found 1, expected a whole"),
    (lambda d: second(d).update(tp=3), r"stages\[1\].devices: found 4, expected a multiple of tp"),
    (lambda d: second(d).update(tp=0), r"stages\[1\].tp: found 0, expected a whole"),
    (lambda d: second(d).update(tp=[1, 2]), r"devices: found 4, expected as many as tp says, 3"),
    (lambda d: second(d).update(tp=[4, 0]), r"tp\[1\]: found 0, expected a whole"),
    (lambda d: second(d).update(tp=[]), r"devices: found 4, expected as many as tp says, 0"),
    (lambda d: second(d).update(tp=[1, 1, 2]), r"samples: found a list of 2, expected a list of 3"),
    (lambda d: second(d).update(devices=[]), r"devices: found 0, expected a multiple"),
    (lambda d: second(d).update(devices=[2, 2]), r"devices: found one of them again, expected"),
    (lambda d: second(d).update(devices=[2, -3]), r"devices\[1\]: found -3, expected a whole"),
    (lambda d: second(d).update(samples=[1]), r"samples: found a list of 1, expected a list of 2"),
    (lambda d: second(d).update(samples=[1, 0.5]), r"samples\[1\]: found 0.5, expected a whole"),
    (lambda d: second(d).update(strategies=[]), r"stages\[1\].strategies: found an unknown key"),
]


@pytest.mark.parametrize(
    ("kind", "damage", "message"),
    [
        *(("operators", damage, message) for damage, message in BAD_OPERATORS),
        *(("layers", damage, message) for damage, message in BAD_LAYERS),
    ],
)
def test_refuses_in_one_line(
    request: pytest.FixtureRequest,
    kind: str,
    damage: Callable[[dict[str, Any]], object],
    message: str,
) -> None:
    value = written(request.getfixturevalue(kind))
    damage(value)
    with pytest.raises(PlanError, match=message) as caught:
        read(value)
    assert str(caught.value).startswith("plan.json: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["operators", "layers"])
def test_every_missing_field_is_named(request: pytest.FixtureRequest, kind: str) -> None:
    value = written(request.getfixturevalue(kind))
    for fields in (value, *value["stages"], *first(value).get("strategies", [])):
        for key in sorted(fields.keys() - {"strategies"}):  # without them it is one of layers
            kept = fields.pop(key)
            with pytest.raises(PlanError, match=rf"{key}: found nothing, expected "):
                read(value)
            fields[key] = kept

"""The saved layer-level plan: read back as written, and everything else refused in one line."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ilp_planner.formats.groups_json import encode_groups, read_saved, write_groups
from ilp_planner.formats.saved_groups import GroupInputs, SavedGroups, verdict_of_groups

from ilp_planner.errors import PlanError
from ilp_planner.evaluate import evaluate
from ilp_planner.files import to_json
from ilp_planner.formats.plan_json import encode, read_plan, write_plan
from ilp_planner.formats.saved_plan import Inputs, Reference, SavedPlan, claim_of
from ilp_planner.plan import GroupStage, Plan, Replica
from tests.mixed_cases import room_plan, room_problem, room_result
from tests.small import make_plan, make_problem

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

INPUTS = GroupInputs(
    files={
        "hostfile": Reference(name="hostfile", sha256="ab12"),
        "clusterfile": Reference(name="clusterfile.json", sha256="cd34"),
        "profile": Reference(name="metis:profile", sha256="ef56"),
    },
    cost_model="metis",
    space="metis",
    memory_rule="metis",
    global_batch=16,
    micro_batch_sizes=(4, 2),
    memory_limit=8.0 * 2**30,
    max_tp=2,
    hidden=512,
    sequence=256,
    vocabulary=0,
)


@pytest.fixture
def saved() -> SavedGroups:
    problem = room_problem()
    result = room_result(problem, room_plan(problem))
    assert result.plan is not None
    assert result.evaluation is not None
    return SavedGroups(
        plan=result.plan,
        inputs=INPUTS,
        claim=claim_of(result, {"python": "3.11"}),
        verdict=verdict_of_groups(result.evaluation),
        certificate=result.certificate,
    )


def test_reads_back_what_was_written(tmp_path: Path, saved: SavedGroups) -> None:
    path = tmp_path / "plan.json"
    write_groups(path, saved)
    assert read_saved(path) == saved
    assert json.loads(path.read_text())["kind"] == "groups"


def test_a_plan_without_claim_or_limits_reads_back(tmp_path: Path, saved: SavedGroups) -> None:
    files = {"profile": Reference(name="analytic")}
    bare = SavedGroups(plan=saved.plan, inputs=GroupInputs(files=files, global_batch=16))
    path = tmp_path / "plan.json"
    write_groups(path, bare)
    assert read_saved(path) == bare


def test_a_broken_plan_has_a_verdict_all_the_same() -> None:
    problem = room_problem()
    plan = replace(room_plan(problem), micro_batches=3)
    verdict = verdict_of_groups(evaluate(problem, plan))
    assert not verdict.legal
    assert verdict.stages == ()


def test_the_two_kinds_are_told_apart(tmp_path: Path, saved: SavedGroups) -> None:
    path = tmp_path / "plan.json"
    write_groups(path, saved)
    with pytest.raises(PlanError, match="kind: found 'groups', expected nothing"):
        read_plan(path)
    problem = make_problem(tmp_path)
    reference = Reference(name="x")
    inputs = Inputs(
        model=reference,
        cluster=reference,
        profile=reference,
        cost_model="native",
        global_batch=64,
        memory_limit=1.0,
        micro_batches=(4,),
        max_stages=2,
    )
    operators = SavedPlan(plan=make_plan(problem), inputs=inputs)
    write_plan(path, operators)
    assert read_saved(path) == operators
    assert "kind" not in encode(operators)


DEGREES = st.integers(1, 4)


@given(st.lists(st.tuples(DEGREES, st.lists(st.integers(0, 9), min_size=1)), min_size=1))
def test_any_plan_reads_back(tmp_path_factory: pytest.TempPathFactory, stages: Any) -> None:
    made, device = [], 0
    for start, (tp, samples) in enumerate(stages):
        replicas = []
        for share in samples:
            replicas.append(Replica(devices=tuple(range(device, device + tp)), samples=share))
            device += tp
        made.append(GroupStage(start=start, stop=start + 1, replicas=tuple(replicas)))
    plan = Plan(model="any", global_batch=8, micro_batches=2, stages=tuple(made))
    path = tmp_path_factory.mktemp("any") / "plan.json"
    write_groups(path, SavedGroups(plan=plan, inputs=INPUTS))
    assert read_saved(path).plan == plan


def stage(data: dict[str, Any]) -> dict[str, Any]:
    last: dict[str, Any] = data["plan"]["stages"][1]
    return last


BAD: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda d: d.update(kind="layers"), "kind: found 'layers', expected groups, or no kind for"),
    (lambda d: d.update(version=3), "version: found 3, expected 1 or 2; a newer ilp-planner"),
    (lambda d: d.update(extra=1), "extra: found an unknown key"),
    (lambda d: d["plan"].update(stages=[]), "plan.stages: found a list of 0, expected at least"),
    (lambda d: d["plan"].update(micro_batches=0), "plan.micro_batches: found 0, expected a whole"),
    (lambda d: d["plan"].update(micro_batch=1), "plan.micro_batch_size: found an unknown key"),
    (lambda d: stage(d).update(stop=1), r"plan.stages\[1\].stop: found 1, expected a whole"),
    (lambda d: stage(d).update(tp=3), r"stages\[1\].devices: found 4, expected a multiple of tp 3"),
    (lambda d: stage(d).update(tp=0), r"stages\[1\].tp: found 0, expected a whole"),
    (lambda d: stage(d).update(devices=[]), r"devices: found 0, expected a multiple"),
    (lambda d: stage(d).update(devices=[2, 2]), r"devices: found one of them again, expected each"),
    (lambda d: stage(d).update(devices=[2, -3]), r"devices\[1\]: found -3, expected a whole"),
    (lambda d: stage(d).update(samples=[1]), r"samples: found a list of 1, expected a list of 2"),
    (lambda d: stage(d).update(samples=[1, 0.5]), r"samples\[1\]: found 0.5, expected a whole"),
    (lambda d: d["inputs"].update(profile=None), "inputs.profile: found null, expected a profile"),
    (lambda d: d["inputs"].update(cost_model=1), "inputs.cost_model: found 1, expected a text"),
    (lambda d: d["inputs"].update(max_tp=0), "inputs.max_tp: found 0, expected a whole"),
    (lambda d: d["inputs"].update(global_batch=0), "inputs.global_batch: found 0, expected"),
    (lambda d: d["inputs"].update(memory_limit_bytes=0), "memory_limit_bytes: found 0, expected"),
    (lambda d: d["inputs"].update(micro_batch_sizes=[0]), r"micro_batch_sizes\[0\]: found 0"),
    (lambda d: d["inputs"].update(vocabulary=-1), "inputs.vocabulary: found -1, expected"),
]


@pytest.mark.parametrize(("damage", "message"), BAD, ids=[message for _, message in BAD])
def test_refuses_in_one_line(
    tmp_path: Path, saved: SavedGroups, damage: Callable[[dict[str, Any]], object], message: str
) -> None:
    data = encode_groups(saved)
    damage(data)
    path = tmp_path / "bad.json"
    path.write_text(to_json(data))
    with pytest.raises(PlanError, match=message) as caught:
        read_saved(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_every_missing_field_is_named(tmp_path: Path, saved: SavedGroups) -> None:
    path = tmp_path / "bad.json"
    data = encode_groups(saved)
    for fields in (data["plan"], stage(data), data["inputs"], data["inputs"]["hostfile"]):
        for key in list(fields):
            value = fields.pop(key)
            path.write_text(to_json(data))
            with pytest.raises(PlanError, match=rf"{key}: found nothing, expected "):
                read_saved(path)
            fields[key] = value

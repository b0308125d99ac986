"""From a saved plan to its problem: by what the file holds, whatever became of the files that it
names; by these only where that is asked for."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ilp_planner.base.errors import PlanError, SpecError, UsageError
from ilp_planner.base.files import to_json
from ilp_planner.evaluate import evaluate
from ilp_planner.formats.saved_check import judge_saved
from ilp_planner.formats.saved_json import encode_saved, read_saved, write_saved
from ilp_planner.formats.saved_plan import SavedPlan, saved_import, saved_result
from ilp_planner.formats.saved_problem import model_and_cluster, problem_of
from ilp_planner.inputs.files import InputFiles
from ilp_planner.inputs.problem import Problem
from ilp_planner.inputs.request import Reference, Request
from ilp_planner.spaces.registry import build_problem
from tests.mixed_cases import room_plan, room_result, write_room
from tests.small import make_plan, make_result, write_specs

SAVED = Path(__file__).parent / "saved"
GIB = 2**30
HELD = {
    "operators": ("tiny.toml", "pair.toml"),
    "layers": ("room.toml",),
    "hosts": ("hostfile", "clusterfile.json"),
}
SIZES: dict[str, Any] = {"hidden": 512, "sequence": 256, "vocabulary": 4000}


def asked(folder: Path, kind: str, **more: Any) -> Request:
    """Write files, and return a request that names them."""
    write_specs(folder)
    write_room(folder)
    profile = Reference(name=f"metis:{folder}/profile")
    names: dict[str, str] = {
        "operators": {"model": "tiny.toml", "cluster": "pair.toml"},
        "layers": {"cluster": "room.toml"},
        "hosts": {"hostfile": "hostfile", "clusterfile": "clusterfile.json"},
    }[kind]
    files = {key: Reference(name=str(folder / name)) for key, name in names.items()}
    if kind == "operators":
        files["profile"] = Reference(name="analytic")
        return Request(files=files, space="operators", **more)
    return Request(files={**files, "profile": profile}, **SIZES, **more)


def save(folder: Path, kind: str, **more: Any) -> tuple[Path, SavedPlan]:
    """Save a plan for files in a folder, in another folder; return the file and what it holds."""
    request = asked(folder, kind, global_batch=16, **more)
    problem = build_problem(InputFiles(request))
    if kind == "operators":
        saved = saved_result(problem, make_result(problem, make_plan(problem), gap=0.25))
    else:
        saved = saved_result(problem, room_result(problem, room_plan(problem)))
    path = folder / "elsewhere" / "deep" / "plan.json"
    path.parent.mkdir(parents=True)
    write_saved(path, saved)
    return path, read_saved(path)


KINDS = pytest.mark.parametrize("kind", sorted(HELD))


def time_of(problem: Problem[Any], saved: SavedPlan) -> float:
    evaluation = evaluate(problem, saved.plan)
    assert evaluation.legal
    return evaluation.iteration_time


def change(file: Path) -> None:
    """Make devices slower or links narrower; of a model, make it deeper."""
    text = file.read_text()
    new = text.replace("sustained = 0.", "sustained = 0.0").replace("layers = 2", "layers = 3")
    if file.name == "clusterfile.json":
        new = json.dumps({k: {**v, "inter_bandwidth": 1} for k, v in json.loads(text).items()})
    if file.name == "hostfile":
        new = text.replace("slots=2", "slots=4")
    assert new != text
    file.write_text(new)


@KINDS
def test_the_texts_of_all_but_the_profile_are_held(tmp_path: Path, kind: str) -> None:
    _, saved = save(tmp_path, kind)
    files = saved.inputs.files
    assert {Path(r.name).name for r in files.values() if r.text is not None} == set(HELD[kind])
    for reference in files.values():
        if reference.text is not None:
            assert reference.text == Path(reference.name).read_text()
    assert files["profile"].text is None
    assert bool(files["profile"].sha256) == (kind != "operators")


@KINDS
def test_unchanged_files_give_the_problem_that_was_solved(tmp_path: Path, kind: str) -> None:
    path, saved = save(tmp_path, kind)
    problem = problem_of(saved, path)
    assert saved.claim is not None
    assert time_of(problem, saved) == saved.claim.objective
    assert problem.request == saved.inputs
    assert problem.notes == problem_of(saved, path, accept_changed=True).notes


@KINDS
def test_a_plan_is_judged_the_same_after_its_files_are_gone(tmp_path: Path, kind: str) -> None:
    path, saved = save(tmp_path, kind)
    before = judge_saved(problem_of(saved, path), saved, certificate=False)
    for name in HELD[kind]:
        (tmp_path / name).unlink()
    after = judge_saved(problem_of(saved, path), saved, certificate=False)
    assert after.evaluation == before.evaluation
    assert after.faults == before.faults
    assert after.problem.notes == before.problem.notes


@KINDS
def test_a_plan_is_judged_the_same_after_its_files_changed(tmp_path: Path, kind: str) -> None:
    path, saved = save(tmp_path, kind)
    before = judge_saved(problem_of(saved, path), saved, certificate=False)
    for name in HELD[kind]:
        change(tmp_path / name)
    after = judge_saved(problem_of(saved, path), saved, certificate=False)
    assert after.evaluation == before.evaluation
    assert after.faults == before.faults
    added = after.problem.notes[len(before.problem.notes) :]
    assert len(added) == len(HELD[kind])
    for name, note in zip(HELD[kind], added, strict=True):
        assert f"{tmp_path / name}: differs today from what the plan was saved with" in note


def test_what_changed_is_accepted_where_it_is_asked_for(tmp_path: Path) -> None:
    path, saved = save(tmp_path, "operators")
    change(tmp_path / "pair.toml")
    then, now = problem_of(saved, path), problem_of(saved, path, accept_changed=True)
    assert time_of(now, saved) > 2 * time_of(then, saved)
    assert not any("differs today" in note for note in now.notes)
    judged = judge_saved(now, saved, certificate=False)
    assert "result.objective_s: found" in judged.fault
    assert now.request is not None
    assert now.request.files["cluster"].text == (tmp_path / "pair.toml").read_text()


@KINDS
def test_files_that_are_gone_are_named_where_they_are_asked_for(tmp_path: Path, kind: str) -> None:
    path, saved = save(tmp_path, kind)
    (tmp_path / HELD[kind][-1]).unlink()
    with pytest.raises(SpecError, match=rf"{HELD[kind][-1]}: no such file"):
        problem_of(saved, path, accept_changed=True)


def test_a_profile_is_not_held(tmp_path: Path) -> None:
    path, saved = save(tmp_path, "layers")
    row = next((tmp_path / "profile").glob("*.json"))
    row.write_text(row.read_text() + "\n")
    with pytest.raises(PlanError) as caught:
        problem_of(saved, path)
    then = saved.inputs.files["profile"].sha256[:12]
    assert str(caught.value).startswith(f"{path}: inputs.profile: found sha256 ")
    assert f"expected {then}: it has changed since the plan was saved" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert problem_of(saved, path, accept_changed=True).model
    shutil.rmtree(tmp_path / "profile")
    with pytest.raises(Exception, match=r"profile: no such profile folder"):
        problem_of(saved, path)


# ---- memory limits ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["operators", "layers"])
def test_the_memory_limits_of_the_file_are_those_used(tmp_path: Path, kind: str) -> None:
    path, saved = save(tmp_path, kind)
    limits = saved.inputs.memory_limits
    assert limits
    assert problem_of(saved, path).memory_limits == limits
    value = encode_saved(saved)
    less = {name: 1000 + number for number, name in enumerate(limits)}
    value["inputs"]["memory_limits_bytes"] = less
    path.write_text(to_json(value))
    tight = read_saved(path)
    problem = problem_of(tight, path)
    assert problem.memory_limits == less
    assert {v.rule for v in evaluate(problem, tight.plan).violations} == {"memory"}
    today = problem_of(tight, path, accept_changed=True)
    assert today.memory_limits == limits
    lower = replace(saved, inputs=replace(saved.inputs, memory_limit=900.0))
    assert set(problem_of(lower, path).memory_limits.values()) == {900.0}


@pytest.mark.parametrize("kind", ["operators", "layers"])
def test_limits_that_were_asked_for_come_back(tmp_path: Path, kind: str) -> None:
    path, saved = save(tmp_path, kind, memory_limit=6.0 * GIB)
    assert set(problem_of(saved, path).memory_limits.values()) == {6.0 * GIB}
    today = problem_of(saved, path, accept_changed=True)
    assert set(today.memory_limits.values()) == {6.0 * GIB}


# ---- where files are ----------------------------------------------------------------------------


def test_relative_names_may_begin_where_the_plan_is(tmp_path: Path) -> None:
    """Also those of a file that holds no texts, as from before."""
    for place in (tmp_path / "first", tmp_path / "second" / "deep"):
        place.mkdir(parents=True)
    shutil.copytree(SAVED, tmp_path / "first", dirs_exist_ok=True)
    for name in ("operators-v2.json", "metis-v2.json"):
        file = shutil.copy(SAVED / name, tmp_path / "first" / name)
        assert problem_of(read_saved(file), file)
    for name in ("tiny.toml", "pair.toml"):
        shutil.copy(SAVED / name, tmp_path / "second" / name)
    file = shutil.copy(SAVED / "operators-v2.json", tmp_path / "second" / "deep" / "plan.json")
    assert problem_of(read_saved(file), file)


def test_a_change_of_a_file_that_is_not_held_is_refused(tmp_path: Path) -> None:
    shutil.copytree(SAVED, tmp_path, dirs_exist_ok=True)
    (tmp_path / "pair.toml").write_text((SAVED / "pair.toml").read_text() + "# mine\n")
    file = tmp_path / "operators-v2.json"
    saved = read_saved(file)
    for read in (problem_of, model_and_cluster):
        with pytest.raises(PlanError, match=r"inputs.cluster: found sha256 .* it has changed"):
            read(saved, file)
        assert read(saved, file, accept_changed=True)


def test_the_model_and_the_cluster_are_there_without_the_profile(tmp_path: Path) -> None:
    path, saved = save(tmp_path, "layers")
    shutil.rmtree(tmp_path / "profile")
    (tmp_path / "room.toml").unlink()
    model, cluster = model_and_cluster(saved, path)
    assert model is None
    assert cluster.name == "room"


def test_a_plan_from_elsewhere_has_a_problem_too(tmp_path: Path) -> None:
    problem = build_problem(InputFiles(asked(tmp_path, "layers", global_batch=16)))
    plan = room_plan(problem)
    saved = saved_import(problem, plan, evaluate(problem, plan))
    path = tmp_path / "plan.json"
    write_saved(path, saved)
    assert read_saved(path) == saved
    assert saved.claim is None
    assert evaluate(problem_of(read_saved(path), path), plan).legal


# ---- what cannot be -----------------------------------------------------------------------------


def test_an_unknown_space_is_refused(tmp_path: Path) -> None:
    path, saved = save(tmp_path, "layers")
    other = replace(saved, inputs=replace(saved.inputs, space="mine"))
    with pytest.raises(PlanError, match=r"inputs.space: found 'mine', expected one of operators,"):
        problem_of(other, path)


def test_no_cost_model_is_refused(tmp_path: Path) -> None:
    path, saved = save(tmp_path, "layers")
    for space in ("", "groups"):
        other = replace(saved, inputs=replace(saved.inputs, cost_model="", space=space))
        with pytest.raises(UsageError, match=r"cost_model: found '', expected one of"):
            problem_of(other, path)


@KINDS
def test_a_place_that_must_not_be_looked_at_is_none_to_compare_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """As where another user saved the plan."""
    path, saved = save(tmp_path, kind)

    def refuse(place: Path) -> bool:
        if place.name in HELD[kind]:
            raise PermissionError(13, "Permission denied", str(place))
        return place.name != "nothing" and os.path.exists(place)  # noqa: PTH110

    monkeypatch.setattr(Path, "exists", refuse)
    monkeypatch.setattr(Path, "is_file", refuse)
    assert time_of(problem_of(saved, path), saved)
    with pytest.raises(SpecError, match=r"cannot be read: Permission denied"):
        problem_of(saved, path, accept_changed=True)


@pytest.mark.parametrize("kinds", [("operators", "layers"), ("layers", "operators")])
def test_stages_of_another_kind_than_the_space_has_are_a_broken_rule(
    tmp_path: Path, kinds: tuple[str, str]
) -> None:
    saved = []
    for kind in kinds:
        (tmp_path / kind).mkdir()
        saved.append(save(tmp_path / kind, kind))
    (path, found), (_, other) = saved
    mixed = replace(found, plan=replace(other.plan, model=found.plan.model))
    judged = judge_saved(problem_of(mixed, path), mixed, certificate=False)
    assert judged.faults
    assert judged.evaluation.cost is None

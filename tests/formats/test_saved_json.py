"""The saved plan: what is written is read back, files from before are read as ever, and everything
else is refused in one line."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.errors import PlanError
from ilp_planner.base.files import to_json
from ilp_planner.base.limits import SEED
from ilp_planner.costs.profiles.table import Provenance
from ilp_planner.evaluate import evaluate
from ilp_planner.formats.json_fields import Fields
from ilp_planner.formats.saved_json import decode_saved, encode_saved, read_saved, write_saved
from ilp_planner.formats.saved_plan import Claim, Run, SavedPlan, Verdict, verdict_of
from ilp_planner.optimize.result import Moment, Status, Stop
from tests.examples import for_each
from tests.formats.saved_cases import (
    OF_LAYERS,
    TEXTS,
    plans,
    requests,
    saved_layers,
    saved_operators,
    wherever,
)
from tests.mixed_cases import room_plan, room_problem

SAVED = Path(__file__).parent / "saved"
KINDS = ("operators", "layers")


@pytest.fixture
def operators(tmp_path: Path) -> SavedPlan:
    return saved_operators(tmp_path)


@pytest.fixture
def layers() -> SavedPlan:
    return saved_layers()


@pytest.fixture(params=KINDS)
def saved(request: pytest.FixtureRequest) -> SavedPlan:
    found: SavedPlan = request.getfixturevalue(request.param)
    return found


def written(saved: SavedPlan) -> dict[str, Any]:
    """Return what the file holds."""
    value: dict[str, Any] = json.loads(to_json(encode_saved(saved)))
    return value


def through_a_file(path: Path, saved: SavedPlan) -> SavedPlan:
    write_saved(path, saved)
    return read_saved(path)


# ---- what is written is read back ---------------------------------------------------------------

TIMES = st.floats(0, 1e12)
SHARES = st.dictionaries(st.sampled_from([str(source) for source in Provenance]), TIMES)
MOMENTS = st.builds(Moment, TIMES, TIMES | st.just(math.inf), TIMES)
RUNS = st.builds(
    Run,
    wall=TIMES,
    versions=st.dictionaries(TEXTS, TEXTS, max_size=3),
    history=st.lists(MOMENTS, max_size=3).map(tuple),
)
CLAIMS = st.builds(
    Claim,
    status=st.sampled_from(Status),
    stopped_by=st.sampled_from(Stop),
    objective=TIMES | st.just(math.inf),
    bound=TIMES | st.just(math.inf),
    gap=TIMES | st.just(math.inf),
    bound_source=TEXTS,
    solver=TEXTS,
    seed=st.integers(0, SEED),
    notes=st.lists(TEXTS, max_size=3).map(tuple),
    among=TEXTS,
    confirmed_by=TEXTS,
    run=st.none() | RUNS,
)
VERDICTS = st.builds(
    Verdict,
    legal=st.booleans(),
    iteration_time=TIMES,
    stages=st.lists(st.tuples(TIMES, TIMES), max_size=4).map(tuple),
    violations=st.lists(TEXTS, max_size=3).map(tuple),
    provenance=SHARES,
    errors=SHARES,
)
CERTIFICATES = st.dictionaries(TEXTS, st.lists(st.integers() | TEXTS, max_size=3), max_size=3)


@given(
    saved=st.builds(
        SavedPlan,
        plan=plans(),
        inputs=requests(),
        claim=st.none() | CLAIMS,
        verdict=st.none() | VERDICTS,
        certificate=CERTIFICATES,
    )
)
def test_anything_reads_back(tmp_path_factory: pytest.TempPathFactory, saved: SavedPlan) -> None:
    assert through_a_file(tmp_path_factory.mktemp("any") / "plan.json", saved) == saved


def test_reads_back_what_was_written(tmp_path: Path, saved: SavedPlan) -> None:
    assert through_a_file(tmp_path / "plan.json", saved) == saved
    assert json.loads((tmp_path / "plan.json").read_text())["version"] == 8


def test_both_kinds_of_stages_are_of_one_kind_of_file(
    operators: SavedPlan, layers: SavedPlan
) -> None:
    assert written(operators).keys() == written(layers).keys()
    assert "kind" not in written(layers)


def test_a_plan_without_claim_reads_back(tmp_path: Path, saved: SavedPlan) -> None:
    bare = SavedPlan(plan=saved.plan, inputs=saved.inputs)
    assert through_a_file(tmp_path / "plan.json", bare) == bare


def test_what_differs_from_run_to_run_comes_last_and_may_be_missing(
    tmp_path: Path, saved: SavedPlan
) -> None:
    data = written(saved)
    assert list(data)[-1] == "run"
    del data["run"]
    path = tmp_path / "plan.json"
    path.write_text(to_json(data))
    assert saved.claim is not None
    assert read_saved(path) == replace(saved, claim=replace(saved.claim, run=None))


def test_numbers_that_do_not_exist_are_null(tmp_path: Path, saved: SavedPlan) -> None:
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
    path = tmp_path / "plan.json"
    found = through_a_file(path, SavedPlan(plan=saved.plan, inputs=saved.inputs, claim=claim))
    assert json.loads(path.read_text())["result"]["objective_s"] is None
    assert found.claim == claim


def test_a_broken_plan_has_a_verdict_all_the_same(tmp_path: Path) -> None:
    problem = room_problem()
    plan = replace(room_plan(problem), micro_batches=3)
    verdict = verdict_of(problem, plan, evaluate(problem, plan))
    assert verdict is not None
    assert not verdict.legal
    assert verdict.stages == ()
    path = tmp_path / "plan.json"
    found = through_a_file(path, SavedPlan(plan=plan, inputs=OF_LAYERS, verdict=verdict)).verdict
    assert found is not None
    assert json.loads(path.read_text())["evaluation"]["iteration_time_s"] is None
    assert math.isnan(found.iteration_time)
    assert found.violations == verdict.violations


def test_who_confirmed_a_proof_is_kept_where_somebody_did(tmp_path: Path, saved: SavedPlan) -> None:
    assert saved.claim is not None
    assert "confirmed_by" not in written(saved)["result"]  # as in files from before
    confirmed = replace(saved, claim=replace(saved.claim, confirmed_by="cp-sat"))
    assert through_a_file(tmp_path / "plan.json", confirmed) == confirmed


# ---- files from before --------------------------------------------------------------------------


def test_a_file_of_the_first_version_says_the_same_as_of_the_second() -> None:
    first = read_saved(SAVED / "operators-v1.json")
    assert first == read_saved(SAVED / "operators-v2.json")
    assert first.claim is not None
    assert first.claim.run is not None
    assert first.inputs.space == "operators"
    assert first.plan.micro_batches == 2


@pytest.mark.parametrize("file", sorted(SAVED.glob("*-v?.json")), ids=lambda file: file.stem)
def test_a_file_from_before_is_written_in_this_version(tmp_path: Path, file: Path) -> None:
    again = through_a_file(tmp_path / "plan.json", read_saved(file))
    assert wherever(again) == wherever(read_saved(file))


def test_a_file_of_layers_from_before_holds_no_texts() -> None:
    found = read_saved(SAVED / "metis-v2.json").inputs
    assert found.files.keys() == {"hostfile", "clusterfile", "profile"}
    assert all(reference.text is None for reference in found.files.values())
    assert found.memory_limits is None
    assert (found.space, found.memory_rule, found.vocabulary) == ("metis", "metis", 4000)


# ---- everything else ----------------------------------------------------------------------------

BAD: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda d: d.pop("schema"), "schema: found nothing, expected one of ilp-planner plan"),
    (lambda d: d.pop("version"), "version: found nothing, expected 1 or 2 .* or 8$"),
    (lambda d: d.update(version=0), "version: found 0, expected 1 or 2 .* or 8$"),
    (lambda d: d.update(version=True), "version: found true, expected 1 or 2 .* or 8$"),
    (lambda d: d.update(version=8.0), "version: found 8.0, expected 1 or 2 .* or 8$"),
    (lambda d: d.update(version=[3]), "version: found a list of 1, expected 1 or 2 .* or 8$"),
    (lambda d: (d.update(version=9), d["run"]["versions"].update({"ilp-planner": "9.1"})),
     "version: found 9, expected 1 or 2 .* or 8; ilp-planner 9.1 reads it$"),
    (lambda d: d.update(version=9), "expected 1 or 2 .* or 8; a newer ilp-planner reads it$"),
    (lambda d: d.update(version=9, run=[]),
     "expected 1 or 2 .* or 8; a newer ilp-planner reads it$"),
    (lambda d: d.update(kind="layers"), "kind: found 'layers', expected groups, or no kind"),
    (lambda d: d.update(kind="groups"), "kind: found an unknown key, expected "),
    (lambda d: d.update(version=2, kind="layers"), "kind: found 'layers', expected groups, or no"),
    (lambda d: d.pop("plan"), "plan: found nothing, expected an object"),
    (lambda d: d.pop("inputs"), "inputs: found nothing, expected an object"),
    (lambda d: d.update(plam={}), "plam: found an unknown key, expected 'plan'"),
    (lambda d: d.update(extra=1), "extra: found an unknown key"),
    (lambda d: d["plan"].update(stages=[]), "plan.stages: found a list of 0, expected at least"),
    (lambda d: d["inputs"].update(profile=None), "inputs.profile: found null, expected a profile"),
    (lambda d: d.pop("result"), "result: found nothing, expected a value or null"),
    (lambda d: d["result"].update(status="good"), "result.status: found 'good', expected one of"),
    (lambda d: d["result"].update(status=[]), "result.status: found a list of 0, expected one of"),
    (lambda d: d["result"].update(bound_s="1"), "result.bound_s: found '1', expected a number"),
    (lambda d: d["result"].update(wall_s=1.0), "result.wall_s: found an unknown key"),
    (lambda d: d["result"].update(notes=[1]), r"result.notes\[0\]: found 1, expected a text"),
    (lambda d: d["result"].update(seed=-1), "result.seed: found -1, expected a whole"),
    (lambda d: d["run"].update(versions={"a": 1}), "run.versions.a: found 1, expected a text"),
    (lambda d: d.update(run=None), "run: found null, expected an object"),
    (lambda d: d["run"].update(history=[{"after_s": -1}]),
     r"run.history\[0\].after_s: found -1, expected a number of at least 0"),
    (lambda d: d["evaluation"].update(legal="yes"), "evaluation.legal: found 'yes', expected true"),
    (lambda d: d["evaluation"].update(stages={}), "evaluation.stages: found an object, expected"),
    (lambda d: d["evaluation"].update(provenance={"guessed": 1}),
     "evaluation.provenance.guessed: found an unknown key"),
    (lambda d: d.update(certificate=3), "certificate: found 3, expected an object"),
]  # fmt: skip


@for_each(("damage", "message"), BAD)
def test_refuses_in_one_line(
    tmp_path: Path, saved: SavedPlan, damage: Callable[[dict[str, Any]], object], message: str
) -> None:
    data = written(saved)
    damage(data)
    path = tmp_path / "bad.json"
    path.write_text(to_json(data))
    with pytest.raises(PlanError, match=message) as caught:
        read_saved(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", ["[]", "3", '"plan"', "null"])
def test_refuses_what_is_no_object(tmp_path: Path, content: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(content)
    with pytest.raises(PlanError, match=r"file: found .*, expected an object"):
        read_saved(path)


def test_another_kind_of_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "tiny.toml"
    path.write_text((SAVED / "tiny.toml").read_text())
    with pytest.raises(PlanError, match=r"found a model or a cluster in TOML, .* a saved plan"):
        read_saved(path)


def test_every_missing_field_is_named(tmp_path: Path, saved: SavedPlan) -> None:
    """Of the frame, the claim and the verdict; `plan` and `inputs` have tests of their own."""
    data = written(saved)
    data["run"]["versions"] = {}
    path = tmp_path / "bad.json"
    once_added = {"run", "history", "among", "confirmed_by", "provenance", "provenance_error"}
    for fields in (data, data["result"], data["run"], data["evaluation"]):
        for key in sorted(fields.keys() - once_added):
            value = fields.pop(key)
            path.write_text(to_json(data))
            with pytest.raises(PlanError, match=rf"{key}: found nothing, expected "):
                read_saved(path)
            fields[key] = value
    for key in ("time_s", "memory_bytes"):
        value = data["evaluation"]["stages"][0].pop(key)
        path.write_text(to_json(data))
        with pytest.raises(PlanError, match=rf"stages\[0\].{key}: found nothing, expected "):
            read_saved(path)
        data["evaluation"]["stages"][0][key] = value


def test_an_open_file_is_read(saved: SavedPlan) -> None:
    assert decode_saved(Fields(written(saved), file="plan.json")) == saved

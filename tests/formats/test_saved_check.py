"""A saved plan judged again: files from before hold, and nothing that a file claims is believed."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ilp_planner.base.errors import PlanError
from ilp_planner.formats.saved_check import Judgement, judge_saved
from ilp_planner.formats.saved_json import read_saved, write_saved
from ilp_planner.formats.saved_plan import SavedPlan
from ilp_planner.formats.saved_problem import problem_of
from ilp_planner.inputs.problem import Problem
from ilp_planner.optimize.bounds.operator_part import OperatorPart
from ilp_planner.optimize.result import Status
from ilp_planner.spaces.operators.build import OperatorSpace
from ilp_planner.spaces.registry import space_named
from ilp_planner.specs.gpus import gpu
from tests.examples import for_each
from tests.formats.saved_cases import wherever
from tests.tiny import tight_problem

SAVED = Path(__file__).parent / "saved"
FILES = sorted(SAVED.glob("*-v?.json"))


def judged(file: Path) -> Judgement:
    """Judge a file, with its certificate where it has one."""
    saved = read_saved(file)
    return judge_saved(problem_of(saved, file), saved, certificate=bool(saved.certificate))


def test_there_are_files_of_all_versions_and_spaces() -> None:
    saved = [read_saved(file) for file in FILES]
    assert {file.stem[-2:] for file in FILES} == {"v1", "v2", "v3", "v4", "v5", "v6", "v7"}
    spaces = {space_named(plan.inputs.space) for plan in saved}
    assert spaces == {"operators", "groups", "metis", "amp", "megatron"}


def test_a_proof_of_other_times_is_refuted_by_its_parts() -> None:
    """Of a version in which nothing hid what tensor-parallel ranks send: the plan and its time
    stand, and the bounds of the parts that had it are named."""
    found = judged(SAVED / "megatron-v2.json")
    assert found.evaluation.legal
    assert found.saved.claim is not None
    assert found.evaluation.iteration_time == pytest.approx(found.saved.claim.objective, rel=1e-9)
    (fault,) = found.faults
    assert fault.startswith("certificate: the bound of part tp 2, dp 1, pp 1, micro-batch 1")
    assert fault.endswith("does not hold")


# Gradients had the latency of one message then, not of each of their buckets, and passes hid more
# of them than they last.
OTHER_TIME = "megatron-v4"


def test_a_plan_of_another_time_is_told_and_its_proof_holds() -> None:
    found = judged(SAVED / f"{OTHER_TIME}.json")
    assert found.saved.claim is not None
    then, now = found.saved.claim.objective, found.evaluation.iteration_time
    assert then < now < then * 1.2
    assert found.faults == (
        f"result.objective_s: found {then!r}, expected {now!r} as computed from the inputs",
    )
    assert found.certificate is not None
    assert found.certificate.holds


@pytest.mark.slow
@for_each("file", [file for file in FILES if file.stem not in ("megatron-v2", OTHER_TIME)])
def test_a_file_from_before_holds(file: Path) -> None:
    """Its plan, its times and its proof."""
    found = judged(file)
    saved = found.saved
    assert not found.faults
    assert found.evaluation.legal
    assert found.coverage.outside is None
    if saved.claim is None:
        assert not saved.certificate
        return
    assert found.evaluation.iteration_time == pytest.approx(saved.claim.objective, rel=1e-9)
    assert found.certificate is not None
    assert found.certificate.holds
    assert found.certificate.bound == pytest.approx(saved.claim.bound, rel=1e-9)
    assert saved.claim.status is Status.OPTIMAL


@for_each("kind", ["operators", "layers", "megatron"])
def test_memory_of_before_is_what_a_plan_was_saved_with(kind: str) -> None:
    """Clusters that name no GPU had what cards are sold with, above what a process sees of them."""
    found = judged(SAVED / f"{kind}-v3.json")
    sold = {"v100-sxm2-32gb": 32, "a100": 80, "t4": 15}
    limits = found.problem.memory_limits
    assert limits == {name: sold[name] * 2**30 for name in limits}
    assert found.saved.claim is not None
    assert found.evaluation.iteration_time == found.saved.claim.objective
    if kind == "operators":  # 31.92 GiB, on a card of which torch sees 31.74
        most = max(max(stage.memory) for stage in found.evaluation.stages)
        assert most > gpu("V100-32GB").memory


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_what_a_file_from_before_says_holds_in_this_version_too(tmp_path: Path, file: Path) -> None:
    """With the texts of its inputs, which need not be there then."""
    then = read_saved(file)
    problem = problem_of(then, file)
    assert problem.request is not None
    now = replace(then, inputs=problem.request)
    path = tmp_path / "plan.json"
    write_saved(path, now)
    assert wherever(read_saved(path)) == wherever(now)
    for reference in now.inputs.files.values():
        text = reference.text
        beside = SAVED / reference.name
        there = beside if beside.exists() else Path(reference.name)
        assert text is None or text == there.read_text()
    kept = {kind for kind, reference in now.inputs.files.items() if reference.text is not None}
    assert kept == then.inputs.files.keys() - {"profile"}
    again = judge_saved(problem_of(now, file), now, certificate=False)
    assert len(again.faults) == (file.stem == OTHER_TIME)
    assert again.problem.memory_limits == problem.memory_limits


# ---- what does not hold -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def problem() -> Problem[Any]:
    return problem_of(read_saved(SAVED / "metis-v2.json"), SAVED / "metis-v2.json")


@pytest.fixture
def saved() -> SavedPlan:
    return read_saved(SAVED / "metis-v2.json")


def claiming(saved: SavedPlan, **changes: Any) -> SavedPlan:
    """Return the plan with another claim."""
    assert saved.claim is not None
    return replace(saved, claim=replace(saved.claim, **changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"objective": 0.1}, r"result.objective_s: found 0.1, expected 0.288.* as computed from"),
        ({"bound": 0.3}, r"result.bound_s: found 0.3, expected at most the objective_s of 0.288"),
        ({"bound": 0.1}, r"result.gap: found 0.0, expected 0.65.* \(2 more\)"),
        ({"gap": 0.5}, r"result.gap: found 0.5, expected 0.0 from objective_s and bound_s"),
        ({"status": Status.FEASIBLE}, r"result.status: found feasible, expected optimal"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_a_false_claim_is_a_fault(
    problem: Problem[Any], saved: SavedPlan, changes: dict[str, Any], message: str
) -> None:
    found = judge_saved(problem, claiming(saved, **changes), certificate=False)
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(found.fault)


def test_an_optimum_that_the_certificate_does_not_prove_is_a_fault(
    problem: Problem[Any], saved: SavedPlan
) -> None:
    """The certificate of a plan that is 5 % from its bound, in a file that calls it optimal."""
    assert saved.claim is not None
    parts = [{**part, "bound_s": 0.95 * part["bound_s"]} for part in saved.certificate["parts"]]
    least = min(part["bound_s"] for part in parts)
    for whole, faults in (
        (least, ["certificate.bound_s", "result.bound_s"]),
        (saved.certificate["bound_s"], ["result.bound_s", "certificate.bound_s"]),
        (None, ["certificate.bound_s", "result.bound_s", "certificate.bound_s"]),
    ):
        certificate = {**saved.certificate, "bound_s": whole, "parts": parts}
        found = judge_saved(problem, replace(saved, certificate=certificate), certificate=True)
        assert found.certificate is not None
        assert found.certificate.holds
        assert [fault.split(":")[0] for fault in found.faults] == faults
        above = f"result.bound_s: found {saved.claim.bound!r}, expected at most {least!r}"
        assert any(fault.startswith(above) for fault in found.faults)


def test_a_false_verdict_is_a_fault(problem: Problem[Any], saved: SavedPlan) -> None:
    """Exports would tell its time."""
    assert saved.verdict is not None
    for changes, message in (
        ({"iteration_time": 0.1}, "evaluation.iteration_time_s: found 0.1, expected 0.288"),
        ({"iteration_time": math.nan}, "evaluation.iteration_time_s: found nan, expected 0.288"),
        ({"legal": False}, "evaluation.legal: found false, expected true"),
    ):
        verdict = replace(saved.verdict, **changes)
        found = judge_saved(problem, replace(saved, verdict=verdict), certificate=False)
        assert found.fault.startswith(message)


def test_a_broken_plan_is_the_first_fault(problem: Problem[Any], saved: SavedPlan) -> None:
    broken = replace(saved, plan=replace(saved.plan, stages=saved.plan.stages[:-1]))
    found = judge_saved(problem, broken, certificate=False)
    assert found.fault.startswith("plan: plan: layers covered once: found 4 layers, expected 6")
    assert len(found.faults) == 1  # nothing more is said of what is claimed for it


def test_a_proof_that_is_not_there_cannot_be_checked(
    problem: Problem[Any], saved: SavedPlan
) -> None:
    """What is claimed with it does not hold, whether or not the proof is asked for; of a plan that
    nothing is claimed of, there is none to check."""
    assert saved.claim is not None
    bare = replace(saved, certificate={})
    for certificate in (False, True):
        found = judge_saved(problem, bare, certificate=certificate)
        assert not found.holds
        assert found.fault == (
            f"result.bound_s: found {saved.claim.bound!r}, expected null or 0: there is no "
            "certificate that proves any bound"
        )
        assert found.certificate is None
    changes: dict[str, Any] = {"bound": 0.0, "gap": 1.0, "confirmed_by": ""}
    for nothing in (None, replace(saved.claim, **changes, status=Status.FEASIBLE)):
        modest = replace(bare, claim=nothing)
        assert judge_saved(problem, modest, certificate=False).holds
        with pytest.raises(PlanError, match="certificate: found null, expected the record of a p"):
            judge_saved(problem, modest, certificate=True)


def test_parts_of_a_proof_are_those_of_the_problem(problem: Problem[Any], saved: SavedPlan) -> None:
    parts = saved.certificate["parts"]
    key = problem.space.part_key
    other = {**parts[0], key: "another"}
    for changed, message in (
        ([*parts, parts[0]], f"found {key} {parts[0][key]} 2 times, expected once"),
        ([*parts, other], f"found {key} another, expected none of that name"),
        (parts[1:], f"found no {key} {parts[0][key]}, expected all that the inputs have"),
    ):
        certificate = {**saved.certificate, "parts": changed}
        found = judge_saved(problem, replace(saved, certificate=certificate), certificate=False)
        assert message in found.fault


@for_each("file", FILES)
def test_what_a_proof_says_besides_is_a_fault(file: Path) -> None:
    """Every key of a certificate counts, so that one of another version is not half read."""
    saved = read_saved(file)
    if not saved.certificate or file.stem == OTHER_TIME:  # whose time is told first
        return
    problem = problem_of(saved, file)
    parts = saved.certificate["parts"]
    assert parts
    for change, fault in (
        ({"version": 2}, "certificate.version: found 2, expected 1"),
        ({"version": "1"}, "certificate.version: found '1', expected 1"),
        ({"method": "mine"}, "certificate: found key 'method', expected version, bound_s, parts"),
        (
            {"parts": [*parts[:-1], {**parts[-1], "because": 1}]},
            f"certificate.parts: found key 'because', expected {problem.space.part_key}, bound_s",
        ),
    ):
        changed = replace(saved, certificate={**saved.certificate, **change})
        found = judge_saved(problem, changed, certificate=False)
        assert [f[: len(fault)] for f in found.faults] == [fault]
        if "version" in change:
            with pytest.raises(PlanError, match=r"certificate.version: found .* expected 1, which"):
                judge_saved(problem, changed, certificate=True)


def test_what_is_said_of_a_stage_that_was_solved_is_known() -> None:
    part = OperatorPart(tight_problem(), 1)
    part.bound_by_stages(math.inf)
    record = part.record()
    space = OperatorSpace()
    assert set(record) == {space.part_key, "bound_s", "by", *space.proof_keys}
    stages = [
        stage
        for file in FILES
        for proved in read_saved(file).certificate.get("parts", [])
        for stage in proved.get("exact_stages", [])
    ]
    assert stages
    assert {tuple(stage) for stage in stages} == {space.proof_keys["exact_stages"]}
    file = SAVED / "operators-v2.json"
    saved = read_saved(file)
    certificate = json.loads(json.dumps(saved.certificate))
    certificate["parts"][0].setdefault("exact_stages", []).append({"start": 0, "colour": "red"})
    found = judge_saved(
        problem_of(saved, file), replace(saved, certificate=certificate), certificate=False
    )
    assert found.fault.startswith("certificate.parts.exact_stages: found key 'colour', expected")


def test_a_part_that_claims_too_much_is_named(problem: Problem[Any], saved: SavedPlan) -> None:
    parts = [{**part, "bound_s": 1e3} for part in saved.certificate["parts"]]
    certificate = {**saved.certificate, "parts": parts}
    found = judge_saved(problem, replace(saved, certificate=certificate), certificate=True)
    assert "does not hold" in found.fault
    assert found.certificate is not None
    assert not found.certificate.holds

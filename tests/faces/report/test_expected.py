"""How far times are off: said of plans whose time is by a machine's constants, of no others."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from ilp_planner.evaluate import evaluate
from ilp_planner.faces.report import json_report, lines
from ilp_planner.faces.report.brief import error_text
from ilp_planner.faces.report.expected import expected_lines, expected_object, expected_percent
from ilp_planner.specs.machine import Machine
from ilp_planner.specs.time_errors import kind_of_job, machine_known, published_error
from ilp_planner.specs.training import OptimizerSettings, Settings
from tests.analysis.calibration.machines import DEFAULT, h100, lab
from tests.examples import for_each
from tests.megatron_cases import every_plan, small_problem
from tests.training_jobs import llama

CALIBRATED = replace(DEFAULT, error=0.041, runs=12)
SOME = Settings(optimizer=OptimizerSettings(sharding="optimizer"))
SECONDS = 2.0


def case(*machines: Machine, settings: object = SOME, source: str = "analytic") -> Any:
    """Return a problem and a plan of one device of each machine."""
    types = {f"{n}": h100(name=f"{n}", machine=machine) for n, machine in enumerate(machines)}
    groups = tuple(replace(lab().nodes[0], device=name, devices=1, count=1) for name in types)
    problem = SimpleNamespace(
        profile_source=source,
        cluster=replace(lab(), device_types=types, nodes=groups),
        spec=SimpleNamespace(architecture=llama()),
        space=SimpleNamespace(name="megatron"),
    )
    return problem, SimpleNamespace(settings=settings, used=tuple(range(len(machines))))


def interval_of(machine: Machine) -> dict[str, float]:
    error = machine_known(machine).error
    assert error is not None
    return {"low_s": error.low * SECONDS, "high_s": error.high * SECONDS}


def test_a_plan_has_the_error_of_its_worst_machine() -> None:
    worse = replace(DEFAULT, error=0.07, runs=3)
    ((name, text),) = expected_lines(*case(CALIBRATED, worse))
    assert name == "expected error"
    assert text.startswith("4 of 5 runs took ")
    assert text.endswith(" more (3 runs of this machine, leave-one-out)")
    assert expected_object(*case(CALIBRATED, worse), SECONDS) == {
        "expected_error": 0.07,
        "expected_interval": interval_of(worse),
        "expected_basis": "3 runs of this machine, leave-one-out",
        "calibration_runs": 3,
    }


def test_constants_that_nobody_judged_have_no_interval_and_say_so() -> None:
    changed = replace(DEFAULT, sustained=0.3)
    ((_, text),) = expected_lines(*case(CALIBRATED, changed))
    assert text.startswith("not known (")
    assert "nothing like it was measured" in text
    found = expected_object(*case(CALIBRATED, changed), SECONDS)
    assert found["expected_error"] is None
    assert found["expected_interval"] is None
    assert found["expected_basis"] in text


def test_uncalibrated_times_rest_on_published_runs() -> None:
    problem, plan = case(DEFAULT)
    kind = kind_of_job(llama(), SOME, len(plan.used), "megatron")
    error = published_error(replace(kind, gpu="H100-80GB"))
    assert expected_lines(problem, plan) == [("expected error", error.text)]
    assert expected_percent(problem, plan) == error.short
    found = expected_object(problem, plan, SECONDS)
    assert found["expected_interval"]["low_s"] < SECONDS < found["expected_interval"]["high_s"]
    assert found["expected_basis"] == error.basis
    assert found["calibration_runs"] == 0


@pytest.mark.parametrize("change", [{"settings": None}, {"source": "table:layers.csv"}])
def test_times_by_other_models_have_none(change: dict[str, Any]) -> None:
    assert expected_lines(*case(CALIBRATED, **change)) == []
    found = expected_object(*case(CALIBRATED, **change), SECONDS)
    assert found["expected_error"] is None
    assert found["expected_basis"] is None


def test_results_say_it_beside_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (lines, json_report):  # what the time rests on is another matter
        monkeypatch.setattr(module, "time_shares", lambda *_: {})
    problem = small_problem(lab(h100(machine=CALIBRATED), nodes=1))
    plan = next(every_plan(problem))
    evaluation = evaluate(problem, plan)
    shown = lines.plan_lines(problem, plan, evaluation)
    names = [name for name, _ in shown]
    assert names[names.index("iteration time") + 1] == "expected error"
    assert json_report.plan_object(problem, plan, evaluation)["expected_error"] == 0.041
    assert json_report.plan_object(problem, None, None).get("expected_error") is None


@for_each(
    ("space", "sharding", "says"),
    [
        ("megatron", "optimizer", ""),
        ("megatron", "parameters", "dense, 16 bits, on H100"),
        ("torchtitan@0.2.2", "parameters", "dense, 16 bits, on H100"),
        ("deepspeed", "optimizer", "none with DeepSpeed: widened"),
    ],
)
def test_the_runtime_counts(space: str, sharding: str, says: str) -> None:
    settings = Settings(optimizer=OptimizerSettings(sharding=sharding))
    problem, plan = case(DEFAULT, settings=settings)
    problem.space.name = space
    ((_, text),) = expected_lines(problem, plan)
    usual = expected_lines(*case(DEFAULT))[0][1]
    assert says in text
    brief = error_text(problem, plan, None)  # type: ignore[arg-type]
    assert brief.startswith("4 of 5 such runs took " if "widened" not in text else "4 of 5 runs n")
    assert says.removesuffix(": widened") in (text if "widened" not in text else brief)
    assert (text == usual) is (space == "megatron" and sharding == "optimizer")

"""How far times are off: said of plans whose time is by a machine's constants, of no others."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from ilp_planner.evaluate import evaluate
from ilp_planner.faces.report import json_report, lines
from ilp_planner.faces.report.expected import expected_error, expected_lines, expected_object
from ilp_planner.specs.machine import Machine
from tests.analysis.calibration.machines import h100, lab
from tests.examples import for_each
from tests.megatron_cases import every_plan, small_problem

CALIBRATED = Machine(error=0.041, runs=12)


@for_each(
    ("machine", "text"),
    [
        (CALIBRATED, "4.10 % (12 runs, leave-one-out)"),
        (Machine(runs=1), "not known (1 run; needs two different ones)"),
        (Machine(error=0.08), "8.00 % (other machines of this kind; not calibrated)"),
        (Machine(), ""),
    ],
)
def test_in_words(machine: Machine, text: str) -> None:
    assert expected_error(machine) == text


SOME = SimpleNamespace(optimizer=SimpleNamespace(sharding="optimizer"))


def case(*machines: Machine, settings: object = SOME, source: str = "analytic") -> Any:
    """Return a problem and a plan of one device of each machine."""
    types = {f"{n}": h100(name=f"{n}", machine=machine) for n, machine in enumerate(machines)}
    groups = tuple(replace(lab().nodes[0], device=name, devices=1, count=1) for name in types)
    problem = SimpleNamespace(
        profile_source=source, cluster=replace(lab(), device_types=types, nodes=groups)
    )
    return problem, SimpleNamespace(settings=settings, used=tuple(range(len(machines))))


def test_a_plan_has_the_error_of_its_worst_machine() -> None:
    worse = Machine(error=0.07, runs=3)
    assert expected_lines(*case(CALIBRATED, worse)) == [
        ("expected error", "7.00 % (3 runs, leave-one-out)")
    ]
    assert expected_object(*case(CALIBRATED, worse)) == {
        "expected_error": 0.07,
        "calibration_runs": 3,
    }
    assert expected_lines(*case(CALIBRATED, Machine())) == []
    assert expected_object(*case(CALIBRATED, Machine()))["expected_error"] is None


@pytest.mark.parametrize("change", [{"settings": None}, {"source": "table:layers.csv"}])
def test_times_by_other_models_have_none(change: dict[str, Any]) -> None:
    assert expected_lines(*case(CALIBRATED, **change)) == []
    assert expected_object(*case(CALIBRATED, **change))["expected_error"] is None


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


def test_sharded_parameters_were_compared_with_no_run() -> None:
    machine = Machine(error=0.098)
    for sharding, said in (("optimizer", False), ("parameters", True)):
        settings = SimpleNamespace(optimizer=SimpleNamespace(sharding=sharding))
        ((_, text),) = expected_lines(*case(machine, settings=settings))
        assert ("no run of Megatron-LM with sharded parameters" in text) is said

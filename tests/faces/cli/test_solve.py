"""`ilp-plan solve`: what it prints and saves, and its exit codes."""

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from ilp_planner.base.errors import InfeasibleError, SolverError
from ilp_planner.faces.cli.main import REPLACED
from ilp_planner.formats.saved_json import read_saved
from ilp_planner.inputs.problem import Problem
from ilp_planner.inputs.request import Reference
from ilp_planner.optimize.result import Result, Status
from tests.faces.cli.conftest import Done
from tests.small import make_plan, make_result

Command = Callable[..., Done]


@pytest.mark.usefixtures("fake")
def test_prints_a_row_per_stage_and_the_proof(ilp_plan: Command, operators: list[str]) -> None:
    done = ilp_plan("solve", *operators)
    assert done.code == 0
    assert done.err == ""
    assert done.out.splitlines()[1].startswith("WITHIN 1.1 %  ")
    assert "\n    0  0-14" in done.out
    assert "iteration time" not in done.out
    done = ilp_plan("solve", *operators, "--verbose")
    for word in ("iteration time", "bound", "chain-dp", "gap", "1.00 %", "time limit", "analytic"):
        assert word in done.out


@pytest.mark.usefixtures("fake")
def test_prints_one_json_object(ilp_plan: Command, operators: list[str]) -> None:
    done = ilp_plan("solve", *operators, "--json")
    assert done.code == 0
    value = json.loads(done.out)
    assert value["solver"] == "fake"
    assert len(value["stages"]) == 2


def test_hands_on_limits_and_solver(
    ilp_plan: Command, operators: list[str], fake: SimpleNamespace
) -> None:
    options = ["--time-limit", "7", "--gap", "0.02", "--workers", "3", "--seed", "5"]
    assert ilp_plan("solve", *operators, *options, "--solver", "milp").code == 0
    limits = fake.calls[0]["limits"]
    assert (limits.seconds, limits.gap, limits.workers, limits.seed) == (7, 0.02, 3, 5)
    assert fake.calls[0]["solver"] == "milp"


def test_saves_the_plan_with_all_that_it_rests_on(saved: Path) -> None:
    plan = read_saved(saved)
    for kind, name in (("model", "tiny.toml"), ("cluster", "pair.toml")):
        held = plan.inputs.files[kind]
        assert (held.name, held.text) == (name, Path(name).read_text())
        assert len(held.sha256) == 64
    assert plan.inputs.files["profile"] == Reference(name="analytic")
    assert plan.inputs.memory_limits == {"gpu": 8 * 2**30}
    assert (plan.inputs.memory_limit, plan.inputs.micro_batch_sizes) == (None, ())
    assert plan.claim is not None
    assert plan.claim.gap == pytest.approx(0.01)
    assert plan.claim.run is not None
    assert "python" in plan.claim.run.versions
    assert plan.verdict is not None
    assert plan.verdict.legal


def test_options_shape_the_problem(
    ilp_plan: Command, operators: list[str], fake: SimpleNamespace
) -> None:
    seen: list[Problem] = []

    def answer(problem: Problem) -> Result:
        seen.append(problem)
        return make_result(problem, make_plan(problem))

    fake.answer = answer
    options = ["--micro-batch-size", "4", "2", "--memory-limit", "6000MiB", "--max-stages", "2"]
    assert ilp_plan("solve", *operators, *options, "--cost-model", "aceso").code == 0
    problem = seen[0]
    assert problem.micro_batch_sizes == (2, 4)
    assert problem.micro_batches == (16, 32)
    assert problem.memory_limit == 6000 * 2**20
    assert problem.max_stages == 2
    assert problem.costs.name == "aceso"


@pytest.mark.parametrize("sizes", [["2", "4"], ["2,4"], ["2", "--micro-batch-size", "4"]])
@pytest.mark.usefixtures("fake")
def test_micro_batch_sizes_in_any_form(
    ilp_plan: Command, operators: list[str], sizes: list[str]
) -> None:
    arguments = [*operators, "--micro-batch-size", *sizes, "--output", "plan.json"]
    assert ilp_plan("solve", *arguments).code == 0
    assert read_saved(Path("plan.json")).inputs.micro_batch_sizes == (2, 4)


def test_a_result_that_cannot_be_saved_is_still_printed(
    ilp_plan: Command, operators: list[str], fake: SimpleNamespace
) -> None:
    def answer(problem: Problem) -> Result:
        Path("plan.json").mkdir()  # after the check, before the save
        return make_result(problem, make_plan(problem))

    fake.answer = answer
    done = ilp_plan("solve", *operators, "--output", "plan.json")
    assert done.code == 1
    assert "plan.json: cannot be written" in done.err
    assert "PROVED OPTIMAL" in done.out
    assert "this command with --output plan.json" in done.out


def test_no_plan_in_time_is_4_and_saves_nothing(
    ilp_plan: Command, operators: list[str], fake: SimpleNamespace
) -> None:
    fake.answer = lambda problem: make_result(problem, None)
    done = ilp_plan("solve", *operators, "--output", "plan.json")
    assert done.code == 4
    assert done.err == "ilp-plan: no plan found in 0.1 s\n"
    assert done.out.startswith("NO PLAN FOUND  ")
    assert "any takes at least 500 ms" in done.out
    assert not Path("plan.json").exists()


@pytest.mark.parametrize("json_option", [[], ["--json"]])
def test_infeasible_is_3_with_the_reason(
    ilp_plan: Command, operators: list[str], fake: SimpleNamespace, json_option: list[str]
) -> None:
    def answer(problem: Problem) -> Result:
        return dataclasses.replace(
            make_result(problem, None),
            status=Status.INFEASIBLE,
            bound=math.inf,
            reason="operator 3 needs 2 GiB more",
        )

    fake.answer = answer
    done = ilp_plan("solve", *operators, *json_option)
    assert done.code == 3
    assert done.err == "ilp-plan: infeasible: operator 3 needs 2 GiB more\n"
    assert "operator 3 needs 2 GiB more" in done.out


def test_a_bound_above_every_plan_ends_the_search(ilp_plan: Command) -> None:
    """Each stage fits at some price of memory, none in truth; the bound alone would only grow."""
    limits = ("--micro-batch-size", "8", "--memory-limit", "12GB")
    done = ilp_plan("solve", "--space", "operators", *limits)
    assert done.code == 3
    assert done.err.startswith("ilp-plan: infeasible: nothing fits: in every pipeline some stage ")
    assert done.out.startswith("PROVED INFEASIBLE  nothing fits: ")


@pytest.mark.parametrize(("required", "code"), [("0.02", 0), ("0.005", 5), ("0", 5)])
@pytest.mark.usefixtures("fake")
def test_require_gap(ilp_plan: Command, operators: list[str], required: str, code: int) -> None:
    done = ilp_plan("solve", *operators, "--require-gap", required, "--output", "plan.json")
    assert done.code == code
    assert ("gap: found 1.00 %" in done.err) == (code == 5)
    assert Path("plan.json").exists()


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (InfeasibleError("stage 0 misses 3 bytes"), 3, "stage 0 misses 3 bytes"),
        (SolverError("two solvers disagree"), 1, "two solvers disagree"),
        (KeyboardInterrupt(), 130, "ilp-plan: interrupted"),
        (ValueError("boom"), 1, "bug in ilp-plan: ValueError: boom"),
        (MemoryError(), 1, "out of memory"),
    ],
)
def test_errors_of_the_search_are_one_line(
    ilp_plan: Command,
    operators: list[str],
    fake: SimpleNamespace,
    error: BaseException,
    code: int,
    line: str,
) -> None:
    def answer(problem: Problem) -> Result:
        raise error

    fake.answer = answer
    done = ilp_plan("solve", *operators)
    assert done.code == code
    assert line in done.err
    assert done.err.count("\n") <= 1


def test_the_real_search_on_the_small_model(ilp_plan: Command, operators: list[str]) -> None:
    done = ilp_plan("solve", *operators, "--time-limit", "60", "--json")
    assert done.code == 0
    value = json.loads(done.out)
    assert value["gap"] == 0
    assert value["status"] == "optimal"
    assert value["violations"] == []


def test_time_limit_0_answers_with_what_is_known(ilp_plan: Command, operators: list[str]) -> None:
    done = ilp_plan("solve", *operators, "--time-limit", "0")
    assert done.code in (0, 4)
    assert "time limit" in done.out


@pytest.mark.parametrize("old", REPLACED)
def test_an_option_of_before_names_the_one_that_replaces_it(ilp_plan: Command, old: str) -> None:
    done = ilp_plan("solve", "--gpus", "8xH100", old, "0.1")
    assert done.code == 2
    assert f"{old}: found an option of earlier versions, expected {REPLACED[old]}" in done.err
    help_text = ilp_plan("solve", "--help").out
    assert REPLACED[old] in help_text
    assert f"{old} " not in help_text


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ([], {"prefer_plain": 0.02, "require_gap": 1.0}),
        (["--prefer-plain", "0"], {"prefer_plain": 0.0, "require_gap": 1.0}),
        (["--require-gap", "0.05"], {"prefer_plain": 0.02, "require_gap": 0.05}),
    ],
)
def test_plainer_plans_are_preferred_unless_nobody_wants_them(
    ilp_plan: Command,
    operators: list[str],
    fake: SimpleNamespace,
    said: list[str],
    expected: dict[str, float],
) -> None:
    assert ilp_plan("solve", *operators, *said).code == 0
    limits = fake.calls[0]["limits"]
    assert {name: getattr(limits, name) for name in expected} == expected


def test_a_share_for_plainer_plans_of_no_runtime_is_refused(
    ilp_plan: Command, operators: list[str]
) -> None:
    done = ilp_plan("solve", *operators, "--prefer-plain", "0.1")
    assert done.code == 2
    assert "--prefer-plain: found 0.1 with space operators" in done.err

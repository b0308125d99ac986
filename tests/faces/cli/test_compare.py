"""`ilp-plan compare`: one problem, many plans."""

import dataclasses
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from ilp_planner.base.errors import SolverError
from ilp_planner.inputs.problem import Problem
from ilp_planner.optimize.result import Result, Stop
from tests.faces.cli.conftest import Done, swapped
from tests.small import make_plan, make_result

Command = Callable[..., Done]


@pytest.fixture(autouse=True)
def bound() -> Iterator[SimpleNamespace]:
    """Replace the certificate checker: it finds the bound that the certificate says."""
    box = SimpleNamespace(factor=1.0)

    def check_certificate(problem: object, certificate: dict[str, float]) -> SimpleNamespace:
        return SimpleNamespace(bound=certificate["bound_s"] * box.factor, parts=(), holds=True)

    with swapped("ilp_planner.optimize.certificate", "check_certificate", check_certificate):
        yield box


@pytest.fixture
def slower(ilp_plan: Command, saved: Path, operators: list[str], fake: SimpleNamespace) -> Path:
    """Return a plan that is cut in a worse place."""

    def answer(problem: Problem) -> Result:
        return make_result(problem, make_plan(problem, cuts=(3,)), gap=0.5)

    usual, fake.answer = fake.answer, answer
    assert ilp_plan("solve", *operators, "--output", "slower.json").code == 0
    fake.answer = usual
    return Path("slower.json")


def test_plans_and_solvers_side_by_side(ilp_plan: Command, saved: Path, slower: Path) -> None:
    done = ilp_plan("compare", slower, saved, "--solvers", "dp,milp", "--json")
    assert done.code == 0
    value = json.loads(done.out)
    names = [entry["name"] for entry in value["entries"]]
    assert names == ["slower.json", "plan.json", "solver dp", "solver milp"]
    first, second, third, _ = value["entries"]
    assert first["objective_s"] > second["objective_s"]
    assert first["gap"] > second["gap"] == pytest.approx(0.01)
    assert first["bound_s"] < value["bound_s"] == third["bound_s"]
    assert first["memory_bytes"] > 0
    assert third["wall_s"] == 1.25
    done = ilp_plan("compare", slower, saved)
    assert done.code == 0
    assert "gap to best bound" in done.out


def test_a_plan_of_another_problem_is_shown_with_the_reason(
    ilp_plan: Command, saved: Path, operators: list[str]
) -> None:
    assert (
        ilp_plan("solve", *operators, "--memory-limit", "7GiB", "--output", "other.json").code == 0
    )
    options = [*operators, "--global-batch-size", "128"]
    assert ilp_plan("solve", *options, "--output", "batch.json").code == 0
    text = Path("tiny.toml").read_text()
    Path("tiny2.toml").write_text(text.replace("layers = 2", "layers = 3"))
    options = [*operators, "--model", "tiny2.toml"]
    assert ilp_plan("solve", *options, "--output", "model.json").code == 0
    Path("broken.json").write_text("{")
    files = ["other.json", "batch.json", "model.json", "broken.json", "none.json"]
    done = ilp_plan("compare", saved, *files)
    assert done.code == 0
    rows = {line.split()[0]: line for line in done.out.splitlines() if ".json" in line}
    assert "another problem: memory limit of gpu is 7.00 GiB, not 8.00 GiB" in rows["other.json"]
    assert "another problem: global batch is 128, not 64" in rows["batch.json"]
    assert "another problem: model is tiny2.toml, not tiny.toml" in rows["model.json"]
    assert "not valid JSON" in rows["broken.json"]
    assert "no such file" in rows["none.json"]


def test_an_equal_input_under_another_name_is_the_same_problem(
    ilp_plan: Command, saved: Path, operators: list[str]
) -> None:
    shutil.copy("tiny.toml", "copy.toml")
    assert (
        ilp_plan("solve", *operators[2:], "--model", "copy.toml", "--output", "copy.json").code == 0
    )
    assert "another problem" not in ilp_plan("compare", saved, "copy.json").out


@pytest.mark.parametrize("name", ["tiny.toml", "pair.toml"])
def test_plans_are_compared_by_what_they_hold(
    ilp_plan: Command, saved: Path, slower: Path, name: str
) -> None:
    file = Path(name)
    file.write_text(file.read_text() + "# a remark\n")
    done = ilp_plan("compare", saved, slower)
    assert done.code == 0
    assert "another problem" not in done.out
    assert done.out.count("differs today from what the plan was saved with") == 1
    file.unlink()
    done = ilp_plan("compare", saved, slower, "--json")
    assert [entry["remark"] for entry in json.loads(done.out)["entries"]] == ["", ""]
    assert ilp_plan("compare", saved, slower, "--accept-changed").code == 1


def test_the_bound_of_a_smaller_space_does_not_count(
    ilp_plan: Command, saved: Path, operators: list[str]
) -> None:
    arguments = [*operators, "--micro-batch-size", "4", "--output", "narrow.json"]
    assert ilp_plan("solve", *arguments).code == 0
    done = ilp_plan("compare", saved, "narrow.json", "--json")
    narrow = json.loads(done.out)["entries"][1]
    assert narrow["bound_s"] == 0
    assert "another choice of micro-batches" in narrow["remark"]


def test_a_plan_below_a_bound_is_an_error(
    ilp_plan: Command, saved: Path, bound: SimpleNamespace
) -> None:
    bound.factor = 1.5
    done = ilp_plan("compare", saved)
    assert done.code == 1
    assert "one of the two is wrong" in done.err


def test_a_solver_that_fails_is_shown(
    ilp_plan: Command, saved: Path, fake: SimpleNamespace
) -> None:
    def answer(problem: Problem) -> Result:
        raise SolverError("no such library")

    fake.answer = answer
    done = ilp_plan("compare", saved, "--solvers", "pulp")
    assert done.code == 0
    assert "no such library" in done.out


def test_a_solver_without_a_plan_is_shown(
    ilp_plan: Command, saved: Path, fake: SimpleNamespace
) -> None:
    fake.answer = lambda problem: dataclasses.replace(make_result(problem, None), bound=1e-9)
    done = ilp_plan("compare", saved, "--solvers", "dp")
    assert done.code == 0
    assert "no plan found" in done.out


def test_ctrl_c_leaves_out_the_solvers_that_have_not_run(
    ilp_plan: Command, saved: Path, fake: SimpleNamespace
) -> None:
    fake.answer = lambda problem: dataclasses.replace(
        make_result(problem, make_plan(problem), gap=0.1), stopped_by=Stop.USER
    )
    done = ilp_plan("compare", saved, "--solvers", "dp,milp")
    assert done.code == 0
    assert "interrupted by the user" in done.out
    assert "solver milp" not in done.out


def test_unknown_solver(ilp_plan: Command, saved: Path) -> None:
    done = ilp_plan("compare", saved, "--solvers", "dp,magic")
    assert done.code == 2
    assert done.err == (
        "ilp-plan: --solvers: found 'magic', expected some of auto, dp, cp-sat, milp, pulp, "
        "gradient, anneal\n"
    )

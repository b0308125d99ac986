"""`--solver gradient|anneal` and `--starts`, through the real commands."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ilp_planner.optimize.solvers.registry import HEURISTICS
from tests.faces.cli.conftest import Done
from tests.mixed_cases import SIZE_OPTIONS, write_room

Command = Callable[..., Done]

every_heuristic = pytest.mark.parametrize("solver", HEURISTICS)


@pytest.fixture
def room(folder: Path) -> list[str]:
    """Write the small mixed cluster; return the options of a problem on it."""
    write_room(folder)
    hosts = ["--hostfile", "hostfile", "--clusterfile", "clusterfile.json"]
    return [*hosts, "--profile", "metis:profile", *SIZE_OPTIONS, "--global-batch-size", "16"]


def solved(ilp_plan: Command, *arguments: str) -> dict[str, Any]:
    done = ilp_plan("solve", *arguments, "--output", "plan.json", "--json")
    assert done.code == 0, done.err
    value: dict[str, Any] = json.loads(done.out)
    return value


@pytest.mark.few(1)
@every_heuristic
@pytest.mark.parametrize("kind", ["operators", "layers"])
def test_solved_judged_and_proved_again(
    ilp_plan: Command, tiny: list[str], room: list[str], solver: str, kind: str
) -> None:
    options = tiny if kind == "operators" else room
    value = solved(ilp_plan, *options, "--solver", solver, "--starts", "2")
    assert value["solver"] == solver
    assert 0 < value["bound_s"] <= value["objective_s"]
    assert any(note.startswith(f"{solver}: a heuristic from 2 starts") for note in value["notes"])
    done = ilp_plan("evaluate", "plan.json", "--check-certificate", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["certificate"]["holds"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["operators", "layers"])
def test_compared_with_an_exact_solver(
    ilp_plan: Command, tiny: list[str], room: list[str], kind: str
) -> None:
    solved(ilp_plan, *(tiny if kind == "operators" else room))
    arguments = ["--solvers", "dp,gradient,anneal", "--starts", "2"]
    done = ilp_plan("compare", "plan.json", *arguments, "--json")
    assert done.code == 0, done.err
    value = json.loads(done.out)
    _, exact, *others = value["entries"]
    assert not exact["heuristic"]
    for entry, name in zip(others, HEURISTICS, strict=True):
        assert entry["name"] == f"solver {name}"
        assert entry["heuristic"]
        assert entry["bound_s"] == 0
        assert entry["wall_s"] > 0
        assert entry["gap"] == pytest.approx(1 - value["bound_s"] / entry["objective_s"], abs=1e-9)
    table = ilp_plan("compare", "plan.json", *arguments).out
    assert table.count("a heuristic, which proves nothing") == 2


def test_where_nothing_else_proves_a_bound_auto_does(ilp_plan: Command, tiny: list[str]) -> None:
    solved(ilp_plan, *tiny, "--time-limit", "60")
    file = Path("plan.json")
    content = json.loads(file.read_text())
    content["certificate"] = None
    file.write_text(json.dumps(content))
    done = ilp_plan("compare", "plan.json", "--solvers", "anneal", "--starts", "2", "--json")
    assert done.code == 0, done.err
    names = [entry["name"] for entry in json.loads(done.out)["entries"]]
    assert names == ["plan.json", "solver anneal", "solver auto"]


def test_the_gaps_mean_what_they_mean_elsewhere(ilp_plan: Command, room: list[str]) -> None:
    value = solved(ilp_plan, *room, "--solver", "anneal", "--starts", "2", "--gap", "0.5")
    assert value["gap"] <= 0.5
    done = ilp_plan("solve", *room, "--solver", "anneal", "--starts", "2", "--require-gap", "0.5")
    assert done.code == 0
    done = ilp_plan("solve", *room, "--solver", "anneal", "--time-limit", "0")
    assert done.code == 4
    assert "no plan found" in done.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["solve", "--starts", "8"], "--starts: found 8 with auto, expected a heuristic"),
        (["solve", "--solver", "dp", "--starts", "8"], "--starts: found 8 with dp, expected"),
        (["solve", "--solver", "anneal", "--starts", "0"], "--starts"),
        (["solve", "--solver", "anneal", "--starts", "many"], "--starts"),
        (["compare", "plan.json", "--starts", "8"], "--starts: found 8 with no solver"),
    ],
)
def test_starts_that_mean_nothing_are_refused(
    ilp_plan: Command, arguments: list[str], message: str
) -> None:
    done = ilp_plan(*arguments)
    assert done.code == 2
    assert message in done.err


def test_the_best_plans_take_a_proof(ilp_plan: Command, room: list[str]) -> None:
    done = ilp_plan("solve", *room, "--solver", "gradient", "--top", "3")
    assert done.code == 2
    assert "--top: found 3 with --solver gradient, a heuristic" in done.err

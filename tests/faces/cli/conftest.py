"""Commands run in the process, on the small model, with a solver that answers at once."""

import importlib
import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ilp_planner.faces.cli.main import run
from ilp_planner.inputs.problem import Problem
from ilp_planner.optimize.result import Result
from tests.schemas.valid import check_printed
from tests.small import make_plan, make_result, write_specs

SAVED: list[str] = []  # the text of the plan of `saved`, once there is one
SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGXCPU")


def heard() -> None:
    """Begin a process without ignored signals: a shell starts background jobs with some, and xdist
    its workers."""
    for name in SIGNALS:
        signal.signal(getattr(signal, name), signal.SIG_DFL)


@contextmanager
def swapped(place: str, name: str, new: object) -> Iterator[None]:
    """Replace a function of a module, in that module and in all that import it or have imported it;
    at the end none is left with the new one."""
    old = getattr(importlib.import_module(place), name)

    def put(found: object, other: object) -> None:
        for module in [m for n, m in sys.modules.items() if n.startswith("ilp_planner")]:
            if vars(module).get(name) is found:
                setattr(module, name, other)

    put(old, new)
    try:
        yield
    finally:
        put(new, old)


@dataclass
class Done:
    """A command that has run."""

    code: int
    out: str
    err: str


def mps_optimum(file: Path) -> float:
    """Return the optimum of an exported program, as OR-Tools' SCIP finds it."""
    from ortools.linear_solver.python import model_builder

    model = model_builder.Model()
    assert model.import_from_mps_file(str(file))
    solver = model_builder.Solver("scip")
    assert solver.solve(model) == model_builder.SolveStatus.OPTIMAL
    value: float = solver.objective_value
    return value


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder: it holds `tiny.toml` and `pair.toml`."""
    write_specs(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ILP_PLAN_TRACEBACK", raising=False)
    monkeypatch.setenv("COLUMNS", "200")  # whatever terminal the tests run in
    return tmp_path


@pytest.fixture
def ilp_plan(folder: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """Run a command; every argument is one word. What it prints as JSON is as its schema says."""

    def call(*arguments: object) -> Done:
        code = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        if "--json" in arguments and "--compat" not in arguments and captured.out:
            check_printed(json.loads(captured.out))
        return Done(code, captured.out, captured.err)

    return call


@pytest.fixture
def tiny() -> list[str]:
    """Return the options that name the small model and cluster."""
    return ["--model", "tiny.toml", "--cluster", "pair.toml", "--global-batch-size", "64"]


@pytest.fixture
def operators(tiny: list[str]) -> list[str]:
    """Return the same, to be planned operator by operator."""
    return [*tiny, "--space", "operators"]


@pytest.fixture
def fake() -> Iterator[SimpleNamespace]:
    """Replace the search; `answer` makes the result, `calls` keeps what was asked for, `search` is
    the search itself."""

    def answer(problem: Problem) -> Result:
        return make_result(problem, make_plan(problem), gap=0.01)

    place = "ilp_planner.optimize.solve"
    search = importlib.import_module(place).solve
    box = SimpleNamespace(answer=answer, calls=[], search=search)

    def solve(problem: Problem, **options: Any) -> Result:
        box.calls.append(options)
        result: Result = box.answer(problem)
        options["progress"](result.objective, result.bound)
        return result

    with swapped(place, "solve", solve):
        yield box


@pytest.fixture
def saved(ilp_plan: Callable[..., Done], operators: list[str], fake: SimpleNamespace) -> Path:
    """Return a saved plan of the small model, which the first test that asks for it makes."""
    path = Path("plan.json")
    if not SAVED:
        assert ilp_plan("solve", *operators, "--output", path).code == 0
        SAVED.append(path.read_text())
    path.write_text(SAVED[0])
    return path

"""Several processes look at parts: what a search says does not depend on how many, in any space."""

import dataclasses
import math
import os
import signal
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import pytest

from ilp_planner.base import team
from ilp_planner.inputs.problem import Problem
from ilp_planner.optimize.search import part_team
from ilp_planner.optimize.solve import solve
from ilp_planner.optimize.solvers.base import Limits
from tests.brute import random_problem
from tests.every_space import PROBLEMS
from tests.examples import for_each, thinned

HERE = os.getpid()
DRAWN: dict[str, Callable[[], Problem[Any]]] = {
    f"groups {seed}": partial(random_problem, seed, devices=4, recomputed=seed == 7)
    for seed in (3, 7, 11, 19)
}


@pytest.fixture(autouse=True)
def _always_several(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, few in (("MANY", 2), ("FEW", 1), ("HEAVY", 1), ("ALONE", -math.inf)):
        monkeypatch.setattr(team, name, few)
    monkeypatch.setattr("threading.active_count", lambda: 1)  # not those of the test runner


def said(problem: Problem[Any], workers: int) -> dict[str, Any]:
    """Return all that a search says, but for its seconds."""
    result = solve(problem, limits=Limits(seconds=1e6, workers=workers, prefer_plain=0.02))
    found = {one.name: getattr(result, one.name) for one in dataclasses.fields(result)}
    del found["wall"]
    found["history"] = result.history[-1][1:]
    return found


@cache
def said_alone(name: str) -> dict[str, Any]:
    """Return what one process says, once for all tests."""
    return said({**PROBLEMS, **DRAWN}[name](), 1)


@for_each("name", thinned([*PROBLEMS, *DRAWN], 5))
@for_each("workers", thinned([3, 2], 2))
def test_nothing_depends_on_the_number_of_processes(name: str, workers: int) -> None:
    alone = said_alone(name)
    assert alone["certificate"]["parts"]
    assert said({**PROBLEMS, **DRAWN}[name](), workers) == alone


@pytest.mark.slow
@for_each("end", [signal.SIGKILL, signal.SIGSTOP])
def test_lost_processes_change_nothing(end: signal.Signals) -> None:
    name, answer, lost = "groups", part_team.answer, 0

    def ended(search: Any, asked: Any) -> Any:
        nonlocal lost
        lost += 1
        if os.getpid() != HERE and lost > 1:
            os.kill(os.getpid(), end)
        return answer(search, asked)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(part_team, "answer", ended)
        assert said(PROBLEMS[name](), 2) == said_alone(name)
    assert lost


def test_others_look_into_parts() -> None:
    """The search asks other processes, and takes what they find."""
    taken: list[int] = []
    take = team.Team._take

    def noted(own: Any, number: int, answers: Any, *others: Any) -> None:
        taken.extend([number] * len(answers))
        take(own, number, answers, *others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(team.Team, "_take", noted)
        said(PROBLEMS["groups"](), 2)
    assert 1 in taken

"""Several processes look at parts: plan, bound and certificate do not depend on how many."""

import dataclasses
import os
import signal
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from ilp_planner.base import team
from ilp_planner.base.team import Board, Team
from ilp_planner.optimize.solve import solve
from ilp_planner.optimize.solvers.base import Limits
from ilp_planner.spaces.training.search import plainer
from ilp_planner.spaces.training.search import search as engine
from ilp_planner.spaces.training.search.search import MegatronSearch, Question
from tests.examples import for_each, thinned
from tests.megatron_cases import GIB, small_cluster
from tests.runtime_cases import runtime_problem

CASES: list[tuple[str, dict[str, Any]]] = [
    ("megatron", {"model": "dense", "global_batch": 16}),
    ("megatron", {"model": "experts", "global_batch": 16}),
    ("torchtitan", {"model": "dense", "global_batch": 16}),
    ("deepspeed", {"model": "dense", "global_batch": 8}),
]


class Counted(Team[Question, Any]):
    """A team that counts the questions that others could take."""

    count = 0

    def _share(self, board: Board, *given: Any) -> None:
        """Count, and share."""
        Counted.count += len(given[1])
        super()._share(board, *given)


@pytest.fixture(autouse=True)
def _always_several(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(team, "MANY", 2)
    monkeypatch.setattr(team, "ALONE", -1.0)
    monkeypatch.setattr(team, "FEW", 1)
    monkeypatch.setattr("threading.active_count", lambda: 1)  # not those of the test runner
    for module in (engine, plainer):
        monkeypatch.setattr(module, "Team", Counted)
    Counted.count = 0
    yield
    assert Counted.count > 10


def found(space: str, asked: dict[str, Any], workers: int, top: int = 1) -> list[object]:
    """Return all that a search says, but for its seconds."""
    cluster = small_cluster(2, 2)
    types = {
        name: dataclasses.replace(one, memory=2.2 * GIB)
        for name, one in cluster.device_types.items()
    }
    cluster = dataclasses.replace(cluster, device_types=types)
    problem = runtime_problem(space, cluster=cluster, **asked)
    result = solve(problem, limits=Limits(workers=workers, prefer_plain=0.02), top=top)
    plans = [ranked.plan for ranked in result.ranking]
    return [result.plan, result.objective, result.bound, result.certificate, result.fastest, plans]


@cache
def found_alone(case: int) -> list[object]:
    """Return what one process finds of a case, once for all tests."""
    return found(*CASES[case], 1)


@pytest.mark.slow
@for_each("case", thinned(range(len(CASES)), 2))
def test_nothing_depends_on_the_number_of_processes(case: int) -> None:
    alone = found_alone(case)
    assert alone[0] is not None
    assert found(*CASES[case], 2) == alone
    assert found(*CASES[case], 3) == alone


@pytest.mark.slow
def test_several_plans_do_not_either() -> None:
    assert found(*CASES[0], 2, top=4) == found(*CASES[0], 1, top=4)


@pytest.mark.slow
@for_each("end", [signal.SIGKILL, signal.SIGSTOP])
def test_lost_processes_change_nothing(end: signal.Signals) -> None:
    here, alone, answer, asked = os.getpid(), found_alone(1), MegatronSearch.answer, []

    def lost(search: MegatronSearch, question: Question) -> Any:
        asked.append(question)
        if os.getpid() != here and len(asked) > 5:
            os.kill(os.getpid(), end)
        return answer(search, question)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MegatronSearch, "answer", lost)
        assert found(*CASES[1], 2) == alone
    assert asked


def test_what_others_have_no_memory_for_is_answered_here() -> None:
    here, alone, answer = os.getpid(), found_alone(1), MegatronSearch.answer

    def full(search: MegatronSearch, question: Question) -> list[Any]:
        if os.getpid() == here:
            return answer(search, question)
        return [None] * len(question.entries)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MegatronSearch, "answer", full)
        assert found(*CASES[1], 2) == alone

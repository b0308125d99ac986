"""The plan that is there at once: legal, of the space, and before any table of candidates."""

import math
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.deadline import OutOfTimeError
from ilp_planner.evaluate import evaluate
from ilp_planner.inputs.problem import Problem
from ilp_planner.optimize.solve import solve
from ilp_planner.optimize.solvers.base import Limits, Task
from ilp_planner.spaces.groups.first_plans import look_first
from ilp_planner.spaces.groups.seating import Seating
from tests.benchmarks.generated import FAST, instance
from tests.brute import cheapest, random_problem
from tests.examples import examples
from tests.problems import build_group_problem

SEEDS = st.integers(0, 2**32 - 1)


@examples(15, more=7)
@given(seed=SEEDS, links=st.sampled_from(["flat", "one", "pairs", "matrix"]))
def test_it_is_a_legal_plan_of_the_space(seed: int, links: str) -> None:
    problem = random_problem(seed, links=links)
    search = problem.space.begin(problem, Task(Limits(seconds=math.inf), "auto"))
    look_first(search)
    assert search.bound > 0
    if search.plan is None:
        return
    assert evaluate(problem, search.plan).legal
    assert problem.space.contains(problem, search.plan)
    best, _ = cheapest(problem)
    assert search.bound <= best * (1 + 1e-9) <= search.objective * (1 + 2e-9)


@cache
def generated_problem() -> Problem[Any]:
    """Return one that is too large for tables to be there at once."""
    profile, cluster, batch = instance(3, 16, 24, 0, FAST)
    return build_group_problem(cluster, profile, model="generated", global_batch=batch)


@pytest.mark.few(3)
@pytest.mark.parametrize("solver", ["auto", "dp", "cp-sat", "gradient", "anneal"])
def test_it_is_there_before_any_table(solver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = generated_problem()

    def late(*_: object) -> None:
        raise OutOfTimeError

    monkeypatch.setattr("ilp_planner.spaces.groups.parts.build_catalogue", late)
    result = solve(problem, solver=solver)
    assert result.plan is not None
    assert evaluate(problem, result.plan).legal
    assert 0 < result.bound <= result.objective


def test_kinds_of_groups_are_as_many_as_have_seats() -> None:
    problem = random_problem(5, devices=12, sizes=(2, 3, 4))
    seating = Seating(problem.cluster)
    for kind, own in enumerate(seating.devices):
        for tp, replicas in ((1, 1), (1, 3), (2, 1), (2, 2), (4, 1)):
            taken = count = 0
            while (seats := seating.seat(kind, tp, replicas, taken)) is not None:
                taken, count = seats[-1][-1] + 1, count + 1
            assert seating.most(kind, tp, replicas, len(own)) == count
            assert seating.most(kind, tp, replicas, 1) == min(count, 1)

"""A heuristic on plans of operators: legal plans near the optimum, and true bounds."""

import math

import pytest
from hypothesis import given

from ilp_planner.optimize.certificate import check_certificate
from ilp_planner.optimize.result import Status
from ilp_planner.optimize.solve import solve
from ilp_planner.optimize.solvers.base import Limits
from ilp_planner.optimize.solvers.registry import HEURISTICS
from ilp_planner.problem import Problem
from tests.every_space import check_consistent
from tests.examples import examples
from tests.tiny import least_time, problems


@pytest.mark.parametrize("solver", HEURISTICS)
@examples(5)
@given(problem=problems(most_ways=1000))
def test_plans_are_legal_and_bounds_hold(solver: str, problem: Problem) -> None:
    result = solve(problem, limits=Limits(seconds=30.0, workers=1, starts=4), solver=solver)
    optimum = least_time(problem)
    check_consistent(problem, result, optimum)
    assert (result.plan is None) == math.isinf(optimum)
    assert (result.status is Status.INFEASIBLE) == math.isinf(optimum)
    if result.plan is not None:
        assert check_certificate(problem, result.certificate).holds
        assert result.objective <= 1.1 * optimum

"""A certificate holds when every part can be derived again, and only then."""

import copy

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ilp_planner.certificate import check_certificate
from ilp_planner.solve import solve
from tests.brute import cheapest, random_problem
from tests.examples import examples


@examples(12)
@given(seed=st.integers(0, 10**6))
def test_what_was_proved_is_proved_again(seed):
    problem = random_problem(seed, devices=4)
    result = solve(problem)
    check = check_certificate(problem, result.certificate)
    assert check.holds
    assert check.bound == pytest.approx(result.bound, rel=1e-9)


@examples(12)
@given(seed=st.integers(0, 10**6))
def test_a_bound_above_the_optimum_does_not_hold(seed):
    problem = random_problem(seed, devices=4)
    optimum, plan = cheapest(problem)
    assume(plan is not None)
    certificate = copy.deepcopy(solve(problem).certificate)
    for part in certificate["parts"]:
        part["bound_s"] = optimum * 1.01
    check = check_certificate(problem, certificate)
    assert not check.holds
    assert check.bound <= optimum * (1 + 1e-9)

"""Which plans of operators a proof is about."""

import dataclasses
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ilp_planner.coverage import Coverage, coverage_of, describe_plans, outside, proved_gap
from ilp_planner.errors import SolverError
from ilp_planner.evaluate import evaluate
from ilp_planner.problem import Problem
from ilp_planner.solve import solve
from tests.tiny import every_plan, problems


@settings(max_examples=25)
@given(problem=problems(most_ways=300, most_operators=3), data=st.data())
def test_no_legal_plan_inside_is_below_the_bound(problem: Problem, data: st.DataObject) -> None:
    """Plans of all micro-batches, of which only some are tried."""
    some = data.draw(st.sets(st.sampled_from(problem.micro_batches), min_size=1))
    fewer = dataclasses.replace(problem, micro_batches=tuple(sorted(some)))
    bound = solve(fewer).bound
    for plan in every_plan(problem):
        evaluation = evaluate(fewer, plan)
        if not evaluation.legal:
            continue
        reason = outside(fewer, plan)
        assert (reason is None) == (plan.micro_batch_size in some)
        if reason is None:
            assert bound <= evaluation.iteration_time * (1 + 1e-9)


@given(problem=problems(most_ways=300, most_operators=2))
@settings(max_examples=5)
def test_where_a_plan_stands(problem: Problem) -> None:
    plan = next(every_plan(problem), None)
    if plan is None:
        return
    among = describe_plans(problem)
    assert coverage_of(problem, plan, legal=True) == Coverage(among, None)
    assert coverage_of(problem, plan, legal=False) == Coverage(among, "the plan is not legal")
    others = dataclasses.replace(problem, micro_batches=(64,))
    reason = coverage_of(others, plan, legal=True).outside
    assert reason == f"micro-batch: found {plan.micro_batch_size}, only 64 tried"


def test_gaps() -> None:
    assert proved_gap(2.0, 1.0) == 0.5
    assert proved_gap(1.0, 1.0 + 1e-12) == 0.0
    assert proved_gap(math.inf, 1.0) == math.inf


@pytest.mark.parametrize("bound", [1.001, math.inf])
def test_a_bound_above_the_time_is_an_error(bound: float) -> None:
    with pytest.raises(SolverError, match=f"the bound of {bound} s is above the 1.0 s of a legal"):
        proved_gap(1.0, bound)

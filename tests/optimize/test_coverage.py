"""Which plans a proof is about, and the gap of a plan to its bound."""

import dataclasses
import math

import pytest

from ilp_planner.base.errors import SolverError
from ilp_planner.base.numerics import ROUNDING
from ilp_planner.optimize.coverage import Coverage, coverage_of, proved_gap
from tests.every_space import every_space, problem_in, result_in


@every_space
def test_where_a_plan_stands(space: str) -> None:
    problem = problem_in(space)
    result = result_in(space)
    plan, among = result.plan, problem.space.describe(problem)
    assert plan is not None
    assert result.among == among
    assert coverage_of(problem, plan, legal=True) == Coverage(among, None)
    assert coverage_of(problem, plan, legal=False) == Coverage(among, "the plan is not legal")
    others = dataclasses.replace(problem, micro_batches=(problem.global_batch * 64,))
    assert coverage_of(others, plan, legal=True).among != among


@every_space
def test_a_number_of_micro_batches_that_is_not_tried_is_outside(space: str) -> None:
    problem = problem_in(space)
    plan = result_in(space).plan
    assert plan is not None
    some = tuple(count for count in problem.micro_batches if count != plan.micro_batches)
    fewer = dataclasses.replace(problem, micro_batches=some)
    name, value, tried = "micro-batches", plan.micro_batches, fewer.micro_batches
    if space == "operators":
        name, value, tried = "micro-batch", plan.micro_batch_size, fewer.micro_batch_sizes
    expected = f"{name}: found {value}, only {', '.join(map(str, tried))} tried"
    assert coverage_of(fewer, plan, legal=True).outside == expected
    assert not fewer.space.contains(fewer, plan)


def test_gaps() -> None:
    assert proved_gap(2.0, 1.0) == 0.5
    assert proved_gap(1.0, 1.0 + 1e-12) == 0.0
    assert proved_gap(math.inf, 1.0) == math.inf


@pytest.mark.parametrize("bound", [1.001, math.inf])
def test_a_bound_above_the_time_is_an_error(bound: float) -> None:
    with pytest.raises(SolverError, match=f"the bound of {bound} s is above the 1.0 s of a legal"):
        proved_gap(1.0, bound)


def test_what_rounding_leaves_is_no_gap_and_no_error() -> None:
    assert proved_gap(1.0, 1.0 + ROUNDING) == 0.0
    assert proved_gap(1.0, 1.0 - ROUNDING / 2) == 0.0
    assert proved_gap(1.0, 1.0 - 2 * ROUNDING) == pytest.approx(2 * ROUNDING)
    with pytest.raises(SolverError):
        proved_gap(1.0, 1.0 + 2 * ROUNDING)

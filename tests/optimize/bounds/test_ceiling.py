"""A bound above any pipeline's time proves that there is none."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ilp_planner.inputs.problem import Problem
from ilp_planner.optimize.bounds.operator_part import OperatorPart, slowest_pipeline
from ilp_planner.optimize.certificate import check_certificate
from ilp_planner.optimize.result import Status, Stop
from ilp_planner.optimize.solve import solve
from ilp_planner.optimize.solvers.base import Limits
from ilp_planner.schedule.formulas import OneForwardOneBackward
from tests.examples import examples
from tests.tiny import (
    StageCatalogue,
    least_memory,
    least_time,
    make_problem,
    problems,
    random_profile,
    with_limit,
)

FEW = examples(12)


def test_stages_receive_and_send_at_other_operators() -> None:
    """The slowest operators to begin with are not those to end with: with one micro-batch, a plan
    of these stages takes nearly as long as any can."""
    operators = (
        "enc-attention-dropout", "enc-1st-layernorm", "enc-attention-softmax", "enc-1st-layernorm",
    )  # fmt: skip
    profile = random_profile(
        5, operators, micro_batches=(1,), degrees=(1,), splits=(0,), holes=0.0, ties=0.0
    )
    problem = make_problem(
        operators, "gpt", profile, cost_model="native", limit=math.inf, micro_batches=(1,),
        global_batch=1, nodes=2, devices=1, max_stages=2,
    )  # fmt: skip
    problem = with_limit(problem, 1.2 * least_memory(problem))
    result = solve(problem, limits=Limits(seconds=60, workers=1))
    assert result.status is Status.OPTIMAL
    assert result.objective == pytest.approx(least_time(problem))


SMALL = problems(most_ways=1000)


@examples(100)
@given(SMALL)
def test_no_plan_reaches_the_ceiling_of_its_part(problem: Problem) -> None:
    for micro_batch in problem.micro_batch_sizes:
        catalogue = StageCatalogue(problem, micro_batch)
        slowest = -1.0  # where there is no pipeline, the ceiling may be 0
        for pipeline in catalogue.pipelines():
            times = [catalogue.priced(*stage)[0] for stage in pipeline]
            worst = [float(time[np.isfinite(time)].max(initial=-1.0)) for time in times]
            if min(worst) >= 0:
                slowest = max(
                    slowest, OneForwardOneBackward(catalogue.micro_batches).iteration_time(worst)
                )
        part = OperatorPart(problem, micro_batch)
        assert slowest < part.ceiling * (1 - 1e-7)


@FEW
@given(SMALL, st.sampled_from([0.5, 0.9, 0.99, 0.9999, 1.0, 1.001]))
def test_infeasible_is_proved_if_and_only_if_there_is_no_plan(
    problem: Problem, share: float
) -> None:
    least = least_memory(problem)
    assume(0 < least < math.inf)  # readers refuse a limit of no byte
    problem = with_limit(problem, least * share)
    result = solve(problem, limits=Limits(seconds=60, workers=1), solver="dp")
    assert result.stopped_by is Stop.PROOF
    assert (result.status is Status.INFEASIBLE) == math.isinf(least_time(problem))
    assert (result.plan is None) == (result.status is Status.INFEASIBLE)
    check = check_certificate(problem, result.certificate)
    assert check.holds
    assert math.isinf(check.bound) == (result.plan is None)


def test_the_slowest_pipeline_by_hand() -> None:
    """Two operators with two options each, of which the second has one that is not allowed; what
    is impossible, or not allowed, counts for nothing."""
    inf, no = math.inf, 99.0
    tables: Any = SimpleNamespace(
        allowed=np.array([[True, True], [True, False]]),
        compute=np.array([[0.1, 0.2], [0.3, no]]),
        recompute=np.array([[0.05, 0.05], [0.1, no]]),
        kind=np.array([0, 1]),
        pair=np.array([0, 0]),
        reshard=np.array([[[0.025, inf], [0.0125, 0.0]]]),
        enter=np.array([[[0.01, 0.05], [0.075, no]], [[0.02, 0.02], [0.03, no]]]),
        leave=np.array([[[[0.03], [inf]], [[0.02], [no]]], [[[0.01], [0.02]], [[inf], [no]]]]),
    )
    inside = 0.25 + 0.4 + 0.025
    for stages, ends in ((1, 0.075 + 0.03), (2, 0.05 + 0.075 + 0.03 + 0.02)):
        found = slowest_pipeline([tables], stages)
        assert found == pytest.approx((inside + ends) * (1 + 1e-6), rel=1e-12)
    faster: Any = SimpleNamespace(**{**vars(tables), "compute": tables.compute / 2})
    assert slowest_pipeline([faster, tables], 1) == slowest_pipeline([tables], 1)
    nothing = {name: 0 * getattr(tables, name) for name in ("compute", "recompute", "enter")}
    nothing |= {"leave": np.zeros((2, 2, 2, 1)), "reshard": np.zeros((1, 2, 2))}
    assert slowest_pipeline([SimpleNamespace(**{**vars(tables), **nothing})], 1) == 1e-9  # type: ignore[list-item]
    assert slowest_pipeline([], 3) == 0

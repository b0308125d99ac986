"""On instances that can be enumerated, `solve` finds the optimum and proves it."""

import math
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ilp_planner.costs.models import COST_MODELS
from ilp_planner.costs.profiles.table import MIB, RowKey
from ilp_planner.evaluate import evaluate
from ilp_planner.inputs.problem import Problem
from ilp_planner.optimize.bounds.memory import explain_infeasible
from ilp_planner.optimize.bounds.operator_part import OperatorPart
from ilp_planner.optimize.result import Result, Status, Stop
from ilp_planner.optimize.solve import solve
from ilp_planner.optimize.solvers.base import Limits
from tests.examples import examples
from tests.tiny import (
    GB,
    judged_least_time,
    least_memory,
    least_time,
    make_problem,
    make_profile,
    make_row,
    problems,
    with_limit,
)

SLOW = examples(40)
FEW = examples(7)
SAME = 1e-9  # relative


def solved(problem: Problem, solver: str = "dp") -> Result:
    return solve(problem, limits=Limits(seconds=30, workers=1), solver=solver)


def check_optimal(problem: Problem, result: Result, optimum: float) -> None:
    """Hold a result against the optimum known from enumeration."""
    assert not any("failed" in note for note in result.notes)
    assert result.stopped_by is Stop.PROOF
    if math.isinf(optimum):
        assert (result.status, result.plan) == (Status.INFEASIBLE, None)
        assert math.isinf(result.bound)
        return
    assert result.status is Status.OPTIMAL
    assert result.objective == pytest.approx(optimum, rel=SAME)
    assert result.bound <= optimum * (1 + SAME)
    assert result.gap == 0
    assert result.plan is not None
    verdict = evaluate(problem, result.plan)
    assert verdict.legal
    assert verdict.iteration_time == result.objective


@SLOW
@given(problems())
def test_the_plan_found_is_the_fastest_of_all_and_is_proved(problem: Problem) -> None:
    check_optimal(problem, solved(problem), least_time(problem))


@examples(12)
@given(problems(most_ways=600, most_operators=3))
def test_the_plan_found_is_the_fastest_that_the_evaluator_accepts(problem: Problem) -> None:
    check_optimal(problem, solved(problem), judged_least_time(problem))


@pytest.mark.parametrize("solver", ["auto", "cp-sat", "milp", "milp-scip", "pulp", "brute-force"])
@FEW
@given(problems(most_ways=5000))
def test_every_backend_finds_the_optimum(solver: str, problem: Problem) -> None:
    check_optimal(problem, solved(problem, solver), least_time(problem))


@FEW
@given(problems(most_ways=5000), st.integers(2, 4))
def test_any_number_of_workers_finds_the_optimum(problem: Problem, workers: int) -> None:
    result = solve(problem, limits=Limits(seconds=30, workers=workers), solver="dp")
    check_optimal(problem, result, least_time(problem))


@examples(15)
@given(problems())
def test_a_problem_without_a_plan_is_proved_infeasible_with_a_reason(problem: Problem) -> None:
    least = least_memory(problem)
    if math.isfinite(least):
        problem = with_limit(problem, least * 0.95)
    result = solved(problem)
    assert (result.status, result.stopped_by) == (Status.INFEASIBLE, Stop.PROOF)
    assert result.reason


def why_infeasible(problem: Problem) -> str:
    return explain_infeasible(
        problem, [OperatorPart(problem, m) for m in problem.micro_batch_sizes]
    )


@examples(15)
@given(problems())
def test_memory_is_blamed_only_when_nothing_fits(problem: Problem) -> None:
    least = least_memory(problem)
    assume(math.isfinite(least))
    assert why_infeasible(with_limit(problem, least * (1 + 1e-6))) == ""


@examples(15)
@given(problems())
def test_the_least_memory_in_which_anything_fits_is_enough(problem: Problem) -> None:
    least = least_memory(problem)
    assume(math.isfinite(least))
    problem = with_limit(problem, least * (1 + 1e-6))
    check_optimal(problem, solved(problem), least_time(problem))


@examples(15)
@given(problems(), st.floats(1.0, 2.0))
def test_more_memory_never_makes_the_optimum_worse(problem: Problem, factor: float) -> None:
    more = with_limit(problem, problem.memory_limit * factor)
    assert solved(more).objective <= solved(problem).objective * (1 + SAME)


@examples(15)
@given(problems(), st.floats(1.0, 4.0), st.floats(1.0, 4.0))
def test_faster_links_never_make_the_optimum_worse(
    problem: Problem, inside: float, between: float
) -> None:
    costs = problem.costs
    profile = replace(
        costs.profile,
        intra_node=tuple(b * inside for b in costs.profile.intra_node),
        inter_node=tuple(b * between for b in costs.profile.inter_node),
    )
    priced = type(costs)(
        costs.chain, costs.family, profile, devices_per_node=costs.devices_per_node
    )
    faster = replace(problem, costs=priced)
    assert solved(faster).objective <= solved(problem).objective * (1 + SAME)


@pytest.mark.parametrize("cost_model", sorted(COST_MODELS))
def test_a_known_optimum(cost_model: str) -> None:
    """Two operators of 3 ms, two devices, 8 micro-batches: two stages of 3 ms each, 7 * 3 + 6."""
    rows = {RowKey(operator="a", micro_batch=1, tp=1, split=0): make_row(message=0, weights=0)}
    problem = make_problem(
        ("a", "a"),
        "resnet",
        make_profile(rows),
        cost_model=cost_model,
        limit=1e9,
        micro_batches=(1,),
        global_batch=8,
    )
    result = solved(problem)
    assert result.objective == pytest.approx(27e-3, rel=SAME)
    assert result.plan is not None
    assert [(s.start, s.stop, s.devices) for s in result.plan.stages] == [
        (0, 1, (0,)),
        (1, 2, (1,)),
    ]


@pytest.mark.parametrize("cost_model", sorted(COST_MODELS))
def test_a_last_operator_without_a_row_at_the_degree_of_the_first_one_is_no_way_out(
    cost_model: str,
) -> None:
    """The evaluator then charges a missing row's size, so the search must know that way too."""
    rows = {
        RowKey(operator="a", micro_batch=1, tp=1, split=0): make_row(),
        RowKey(operator="b", micro_batch=2, tp=2, split=0): make_row(),
    }
    problem = make_problem(
        ("a", "b"),
        "resnet",
        make_profile(rows, intra_node=(1e9 * GB,)),
        cost_model=cost_model,
        limit=2.0**33,
        micro_batches=(2,),
        global_batch=4,
        max_stages=1,
    )
    check_optimal(problem, solved(problem), judged_least_time(problem))


def test_a_large_input_kept_by_an_operator_alone_does_not_rule_out_longer_stages() -> None:
    """`b` alone keeps its input of 80 MiB; behind `a` it keeps none of it."""
    light, heavy = make_row(1e-1, activations=5, weights=0), make_row(activations=10, weights=0)
    last = make_row(message=80, activations=10, weights=0)
    rows = {
        RowKey(operator="a", micro_batch=1, tp=1, split=0): heavy,
        RowKey(operator="a", micro_batch=1, tp=1, split=1): light,
        RowKey(operator="b", micro_batch=1, tp=1, split=0): last,
    }
    problem = make_problem(
        ("a", "b"),
        "resnet",
        make_profile(rows),
        cost_model="native",
        limit=20.9 * MIB,
        micro_batches=(1,),
        global_batch=4,
        devices=1,
    )
    assert least_time(problem) == pytest.approx(4 * (105e-3 + 1 / 10_000 + 80 / 2_000))
    assert why_infeasible(problem) == ""
    check_optimal(problem, solved(problem), least_time(problem))

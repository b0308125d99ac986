"""A heuristic's plan beside the portfolio's bound: whose is what, and however the search ends."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings

from ilp_planner.certificate import check_certificate
from ilp_planner.errors import SolverError
from ilp_planner.evaluate import evaluate
from ilp_planner.heuristic import find_plan, plan_and_bound
from ilp_planner.result import Outcome, Result, Status, Stop
from ilp_planner.solve import solve
from ilp_planner.solvers.base import Limits
from ilp_planner.solvers.registry import HEURISTICS
from ilp_planner.spaces.operators import hunt as heuristic
from tests.test_solve import check_consistent, fixed_problem, tight_problem
from tests.tiny import least_time, problems

if TYPE_CHECKING:
    from collections.abc import Callable

    from ilp_planner.deadline import Deadline
    from ilp_planner.problem import Problem

FEW = settings(max_examples=10)
every_heuristic = pytest.mark.parametrize("solver", HEURISTICS)


def run(problem: Problem, solver: str, progress: Any = None, **limits: Any) -> Result:
    limits = {"seconds": 30.0, "workers": 1, "starts": 4, **limits}
    return solve(problem, limits=Limits(**limits), solver=solver, progress=progress)


@every_heuristic
@FEW
@given(problem=problems(most_ways=1000))
def test_plans_are_legal_and_bounds_hold(solver: str, problem: Problem) -> None:
    result = run(problem, solver)
    optimum = least_time(problem)
    check_consistent(problem, result, optimum)
    assert (result.plan is None) == math.isinf(optimum)
    assert (result.status is Status.INFEASIBLE) == math.isinf(optimum)
    if result.plan is not None:
        assert check_certificate(problem, result.certificate).holds
        assert result.objective <= 1.1 * optimum


@every_heuristic
def test_says_that_it_is_a_heuristic_and_who_proved_the_bound(solver: str) -> None:
    result = run(tight_problem(), solver)
    assert result.solver == solver
    note = next(note for note in result.notes if "heuristic" in note)
    assert note.startswith(f"{solver}: a heuristic from 4 starts, plan after ")


@every_heuristic
def test_a_seed_gives_the_same_plan(solver: str) -> None:
    problem = tight_problem()
    one, other = (run(problem, solver, seed=3, workers=n) for n in (1, 2))
    assert one.plan == other.plan


@every_heuristic
def test_without_time_nothing_is_claimed(solver: str) -> None:
    problem = fixed_problem()
    result = run(problem, solver, seconds=0.0)
    check_consistent(problem, result, least_time(problem))
    assert (result.status, result.stopped_by) == (Status.UNKNOWN, Stop.TIME)


@every_heuristic
def test_an_interrupt_keeps_plan_and_bound(solver: str) -> None:
    problem = fixed_problem()

    def interrupt(objective: float, bound: float) -> None:
        if math.isfinite(objective):
            raise KeyboardInterrupt

    result = run(problem, solver, interrupt)
    assert result.stopped_by is Stop.USER
    assert result.plan is not None
    check_consistent(problem, result, least_time(problem))


@every_heuristic
def test_nothing_that_fits_is_proved(solver: str) -> None:
    result = run(fixed_problem(limit=1.0), solver)
    assert result.status is Status.INFEASIBLE
    assert result.reason


@every_heuristic
def test_alone_it_has_no_portfolio(solver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("the portfolio ran")

    monkeypatch.setattr(heuristic, "Search", never)
    problem = tight_problem()
    found = find_plan(problem, Limits(starts=4, workers=1), solver)
    assert found.plan is not None
    assert evaluate(problem, found.plan).legal
    assert found.bound <= least_time(problem) * (1 + 1e-9)


# ---- a plan and a bound -------------------------------------------------------------------------


def outcome(**changes: Any) -> Outcome:
    values = {
        "status": Status.FEASIBLE,
        "stopped_by": Stop.HEURISTIC,
        "objective": 10.0,
        "bound": 0.0,
        "bound_source": "",
        "wall": 1.0,
        "solver": "anneal",
        "seed": 0,
        "certificate": {"bound_s": 0.0, "parts": ["found"]},
    }
    return Outcome(**{**values, **changes})


PROVED = {
    "status": Status.OPTIMAL,
    "stopped_by": Stop.PROOF,
    "objective": 9.0,
    "bound": 9.0,
    "bound_source": "dp",
    "solver": "auto",
    "certificate": {"bound_s": 9.0, "parts": ["proved"]},
}


def together(found: Outcome, proved: Outcome, gap: float = 0.0) -> Outcome:
    """Put both together; the portfolio tells of its bound before it ends."""

    def prove(
        limits: Limits, progress: Callable[[float, float], None] | None, deadline: Deadline
    ) -> Outcome:
        assert progress is not None
        assert limits.gap == 0.0
        assert deadline.goon()
        progress(proved.objective, proved.bound)
        return proved if deadline.goon() else dataclasses.replace(proved, stopped_by=Stop.TIME)

    return plan_and_bound(lambda limits, progress, deadline: found, prove, Limits(gap=gap))


def test_the_better_plan_of_the_portfolio_is_not_claimed() -> None:
    result = together(outcome(), outcome(**PROVED))
    assert (result.objective, result.bound, result.bound_source) == (10.0, 9.0, "dp")
    assert (result.status, result.stopped_by) == (Status.FEASIBLE, Stop.HEURISTIC)
    assert result.certificate == PROVED["certificate"]
    assert result.gap == pytest.approx(0.1)
    assert any("takes 10.00 % less: 9 s" in note for note in result.notes)


def test_a_plan_that_meets_the_bound_is_optimal() -> None:
    result = together(outcome(objective=9.0), outcome(**PROVED))
    assert (result.status, result.stopped_by) == (Status.OPTIMAL, Stop.PROOF)
    assert not any("less" in note for note in result.notes)


def test_the_portfolio_ends_where_the_gap_is_small_enough() -> None:
    result = together(outcome(), outcome(**PROVED), gap=0.2)
    assert (result.status, result.stopped_by) == (Status.FEASIBLE, Stop.GAP)
    result = together(outcome(), outcome(**PROVED), gap=0.05)
    assert result.stopped_by is Stop.HEURISTIC


def test_without_a_plan_the_portfolios_is_only_told() -> None:
    found = outcome(objective=math.inf, status=Status.UNKNOWN)
    result = together(found, outcome(**PROVED))
    assert (result.status, result.objective, result.bound) == (Status.UNKNOWN, math.inf, 9.0)
    assert "auto found a plan of 9 s" in result.notes
    infeasible = {"status": Status.INFEASIBLE, "objective": math.inf, "bound": math.inf}
    result = together(found, outcome(**{**PROVED, **infeasible, "reason": "too large"}))
    assert (result.status, result.reason) == (Status.INFEASIBLE, "too large")


def test_the_higher_bound_comes_with_its_certificate() -> None:
    late = {**PROVED, "status": Status.FEASIBLE, "stopped_by": Stop.TIME, "bound": 5.0}
    result = together(outcome(bound=8.0, bound_source="stages"), outcome(**late))
    assert (result.bound, result.bound_source, result.stopped_by) == (8.0, "stages", Stop.TIME)
    assert result.certificate["parts"] == ["found"]


def test_an_interrupted_portfolio_says_so() -> None:
    proved = outcome(**{**PROVED, "status": Status.FEASIBLE, "bound": 5.0})
    result = together(outcome(), dataclasses.replace(proved, stopped_by=Stop.USER))
    assert result.stopped_by is Stop.USER


def test_a_plan_below_the_bound_is_an_error() -> None:
    with pytest.raises(SolverError, match="below the bound"):
        together(outcome(objective=8.0), outcome(**PROVED))

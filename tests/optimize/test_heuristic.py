"""A heuristic's plan beside the portfolio's bound: whose is what, and however the search ends."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import pytest

from ilp_planner.base.deadline import Deadline
from ilp_planner.base.errors import SolverError, UsageError
from ilp_planner.inputs.problem import Problem
from ilp_planner.optimize.certificate import check_certificate
from ilp_planner.optimize.heuristic import find_plan, plan_and_bound
from ilp_planner.optimize.result import Result, Status, Stop
from ilp_planner.optimize.solve import solve
from ilp_planner.optimize.solvers.base import Limits
from ilp_planner.optimize.solvers.registry import HEURISTICS
from tests.every_space import METIS, PROBLEMS, check_consistent, every_space, problem_in, result_in
from tests.examples import often
from tests.mixed_cases import room_problem
from tests.tiny import fixed_problem

FEW = Limits(starts=4, workers=1, seconds=60.0)
some_spaces = pytest.mark.parametrize(
    "space", often(PROBLEMS, "operators", "groups", "megatron, two types", "amp, free")
)
every_heuristic = pytest.mark.parametrize("solver", often(HEURISTICS, "anneal"))


@pytest.mark.few(2)
@every_heuristic
@every_space
def test_a_legal_plan_near_the_bound_of_the_portfolio(solver: str, space: str) -> None:
    problem = problem_in(space)
    best = result_in(space)
    result = solve(problem, limits=FEW, solver=solver)
    assert result.plan is not None
    assert result.solver == solver
    check_consistent(problem, result, best.objective)
    assert result.bound == pytest.approx(best.bound, rel=1e-6)
    assert result.objective <= 1.1 * best.objective
    note = next(note for note in result.notes if "heuristic" in note)
    assert note.startswith(f"{solver}: a heuristic from 4 starts, plan after ")
    assert not any("no time was left" in note for note in result.notes)
    assert check_certificate(problem, result.certificate).holds


@every_heuristic
@some_spaces
def test_alone_it_has_no_portfolio(
    solver: str, space: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = problem_in(space)
    best = result_in(space)

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("the portfolio ran")

    monkeypatch.setattr(type(problem.space), "search", never)
    found = find_plan(problem, FEW, solver)
    assert found.plan is not None
    check_consistent(problem, found, best.objective)


@pytest.mark.few(1)
@every_heuristic
@some_spaces
def test_a_seed_gives_the_same_plan(solver: str, space: str) -> None:
    problem = problem_in(space)
    one, other = (
        find_plan(problem, Limits(starts=2, seed=5, workers=workers), solver) for workers in (1, 2)
    )
    assert one.plan == other.plan


@every_heuristic
@every_space
def test_without_time_nothing_is_claimed(solver: str, space: str) -> None:
    problem = problem_in(space)
    result = solve(problem, limits=Limits(seconds=0.0, starts=2), solver=solver)
    check_consistent(problem, result, result_in(space).objective)
    assert result.stopped_by is (Stop.PROOF if result.status is Status.OPTIMAL else Stop.TIME)


@every_heuristic
@every_space
def test_an_interrupt_keeps_plan_and_bound(solver: str, space: str) -> None:
    def interrupt(objective: float, bound: float) -> None:
        if math.isfinite(objective):
            raise KeyboardInterrupt

    problem = problem_in(space)
    result = solve(problem, limits=FEW, solver=solver, progress=interrupt)
    assert result.plan is not None
    assert result.stopped_by is Stop.USER
    check_consistent(problem, result, result_in(space).objective)


NOTHING_FITS: dict[str, Callable[[], Problem]] = {
    "operators": lambda: fixed_problem(limit=1.0),
    "groups": lambda: room_problem(memory_limit=1000.0),
    "metis, without parts": lambda: room_problem(**METIS, memory_limit=1000.0),
}


@every_heuristic
@pytest.mark.parametrize("case", NOTHING_FITS)
def test_nothing_that_fits_is_proved(solver: str, case: str) -> None:
    result = solve(NOTHING_FITS[case](), limits=FEW, solver=solver)
    assert (result.status, result.plan) == (Status.INFEASIBLE, None)
    assert result.reason


def test_the_best_plans_in_order_take_a_proof() -> None:
    with pytest.raises(UsageError, match="top: found 3 with `solver=anneal`, a heuristic"):
        solve(room_problem(), solver="anneal", top=3)


# ---- a plan and a bound -------------------------------------------------------------------------


def outcome(**changes: Any) -> Result:
    values = {
        "plan": None,
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
    return Result(**{**values, **changes})


PROVED = {
    "status": Status.OPTIMAL,
    "stopped_by": Stop.PROOF,
    "objective": 9.0,
    "bound": 9.0,
    "bound_source": "dp",
    "solver": "auto",
    "certificate": {"bound_s": 9.0, "parts": ["proved"]},
}


def together(found: Result, proved: Result, gap: float = 0.0) -> Result:
    """Put both together; the portfolio tells of its bound before it ends."""

    def prove(
        limits: Limits, progress: Callable[[float, float], None] | None, deadline: Deadline
    ) -> Result:
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


def test_without_a_plan_the_portfolios_is_taken() -> None:
    found = outcome(objective=math.inf, status=Status.UNKNOWN)
    result = together(found, outcome(**PROVED))
    assert (result.status, result.objective, result.bound) == (PROVED["status"], 9.0, 9.0)
    assert result.solver == "auto"
    assert any("no plan" in note and "the plan is that of auto" in note for note in result.notes)
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

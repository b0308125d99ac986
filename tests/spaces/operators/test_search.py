"""However a search of operators ends, and whatever its backends do, what it says is true."""

import dataclasses
import importlib
import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import ilp_planner
from ilp_planner.base.deadline import Deadline
from ilp_planner.base.errors import SolverError
from ilp_planner.evaluate import evaluate
from ilp_planner.inputs.problem import Problem
from ilp_planner.optimize.bounds.operator_part import OperatorPart
from ilp_planner.optimize.certificate import check_certificate
from ilp_planner.optimize.graph import StageGraph
from ilp_planner.optimize.result import EVERY_PART, Result, Status, Stop
from ilp_planner.optimize.solve import solve
from ilp_planner.optimize.solvers.base import GraphSolution, Limits, Task
from ilp_planner.optimize.solvers.chain_dp import ChainDP
from ilp_planner.optimize.solvers.cpsat import CpSat
from ilp_planner.optimize.solvers.registry import HEURISTICS
from ilp_planner.spaces.operators.first_plans import FirstPlan, Improver
from ilp_planner.spaces.operators.search import OperatorSearch
from tests.every_space import check_consistent
from tests.examples import examples
from tests.tiny import fixed_problem, least_time, problems, tight_problem

MODULE = importlib.import_module("ilp_planner.spaces.operators.search")
FEW = examples(12)
SAME = 1e-9  # relative
SMALL = problems(most_ways=1000)


def run(problem: Problem, solver: str = "dp", **limits: Any) -> Result:
    progress = limits.pop("progress", None)
    limits = {"seconds": 30.0, "workers": 1, **limits}
    return solve(problem, limits=Limits(**limits), solver=solver, progress=progress)


# ---- ends ---------------------------------------------------------------------------------------


@FEW
@given(SMALL, st.integers(0, 12))
def test_at_the_time_limit_nothing_is_lost(problem: Problem, looks: int) -> None:
    """The clock is looked at so often before the time is up."""
    left = [1000.0] * looks
    with pytest.MonkeyPatch.context() as patch:
        clock = property(lambda deadline: left.pop() if left else 0.0)
        patch.setattr(Deadline, "left", clock)
        result = run(problem)
    check_consistent(problem, result, least_time(problem))
    assert result.stopped_by in (Stop.TIME, Stop.PROOF)
    if result.stopped_by is Stop.PROOF:
        assert result.status in (Status.OPTIMAL, Status.INFEASIBLE)


@FEW
@given(SMALL, st.integers(1, 8))
def test_an_interrupt_gives_the_best_plan_so_far(problem: Problem, calls: int) -> None:
    seen: list[tuple[float, float]] = []

    def interrupt(objective: float, bound: float) -> None:
        seen.append((objective, bound))
        if len(seen) == calls:
            raise KeyboardInterrupt

    result = run(problem, progress=interrupt)
    assume(len(seen) == calls)
    assert result.stopped_by is Stop.USER
    check_consistent(problem, result, least_time(problem))
    assert result.objective == seen[-1][0]
    assert result.bound == pytest.approx(seen[-1][1], rel=SAME) or math.isinf(result.bound)


@FEW
@given(SMALL, st.sampled_from([0.05, 0.3, 0.9]))
def test_with_a_gap_the_plan_is_within_it(problem: Problem, gap: float) -> None:
    result = run(problem, gap=gap)
    optimum = least_time(problem)
    check_consistent(problem, result, optimum)
    assert result.stopped_by in (Stop.GAP, Stop.PROOF)
    if math.isfinite(optimum):
        assert result.gap <= gap
        assert result.objective * (1 - gap) <= optimum
        assert (result.stopped_by is Stop.GAP) == (result.gap > 0)


def test_a_gap_stops_the_search_early() -> None:
    problem = tight_problem()
    result = run(problem, gap=0.9)
    assert (result.status, result.stopped_by) == (Status.FEASIBLE, Stop.GAP)
    assert 0 < result.gap <= 0.9
    whole = run(problem)
    assert (whole.status, whole.stopped_by) == (Status.OPTIMAL, Stop.PROOF)
    assert whole.gap == 0


@FEW
@given(SMALL)
def test_progress_only_improves_and_never_crosses(problem: Problem) -> None:
    seen: list[tuple[float, float]] = []
    result = run(problem, progress=lambda objective, bound: seen.append((objective, bound)))
    optimum = least_time(problem)
    for objective, bound in seen:
        assert bound <= objective
        assert bound <= optimum * (1 + SAME) or math.isinf(optimum)
    for (objective, bound), (later, raised) in pairwise(seen):
        assert later <= objective
        assert raised >= bound * (1 - SAME)
    if result.plan is not None:
        assert seen[-1][0] == result.objective


# ---- auto ---------------------------------------------------------------------------------------


def count_calls(patch: pytest.MonkeyPatch, kind: type) -> list[Status]:
    """Record the status of every answer of a backend."""
    answers: list[Status] = []
    original = kind.solve  # type: ignore[attr-defined]

    def spy(self: Any, *args: Any, **options: Any) -> GraphSolution:
        solution: GraphSolution = original(self, *args, **options)
        answers.append(solution.status)
        return solution

    patch.setattr(kind, "solve", spy)
    return answers


def test_auto_is_the_dp_where_that_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = count_calls(monkeypatch, CpSat)
    problem = fixed_problem()
    result = run(problem, "auto")
    assert (result.status, result.stopped_by) == (Status.OPTIMAL, Stop.PROOF)
    assert answers == [Status.OPTIMAL]  # only to confirm the proof
    assert (result.confirmed_by, result.notes) == ("cp-sat", ())
    assert result.solver == "auto"


def test_auto_gives_to_cp_sat_what_the_dp_leaves_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULE, "MOST_LABELS", 1)
    tried, answers = count_calls(monkeypatch, ChainDP), count_calls(monkeypatch, CpSat)
    problem = fixed_problem()
    result = run(problem, "auto")
    assert tried == [Status.UNKNOWN]
    assert answers
    assert result.notes == ()
    assert (result.status, result.stopped_by) == (Status.OPTIMAL, Stop.PROOF)
    check_consistent(problem, result, least_time(problem))
    assert result.objective == pytest.approx(least_time(problem), rel=SAME)


@pytest.mark.parametrize("error", [RuntimeError, ValueError, OSError, ImportError, SolverError])
@pytest.mark.parametrize("solver", ["auto", "cp-sat"])
def test_a_backend_that_fails_is_replaced_by_the_dp_with_a_note(
    monkeypatch: pytest.MonkeyPatch, solver: str, error: type[Exception]
) -> None:
    def fail(*_: object, **__: object) -> GraphSolution:
        raise error("out of luck\nand of much else")

    monkeypatch.setattr(MODULE, "MOST_LABELS", 1)
    monkeypatch.setattr(CpSat, "solve", fail)
    problem = fixed_problem()
    result = run(problem, solver)
    assert result.notes == ("cp-sat failed (out of luck); chain DP alone went on",)
    assert (result.status, result.stopped_by) == (Status.OPTIMAL, Stop.PROOF)
    assert result.objective == pytest.approx(least_time(problem), rel=SAME)
    check_consistent(problem, result, least_time(problem))


def test_when_the_dp_itself_fails_the_error_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> GraphSolution:
        raise RuntimeError("out of luck")

    monkeypatch.setattr(ChainDP, "solve", fail)
    with pytest.raises(RuntimeError, match="out of luck"):
        run(fixed_problem())


def test_a_backend_that_the_user_interrupts_ends_the_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(self: ChainDP, graph: StageGraph, *_: Any, **__: Any) -> GraphSolution:
        return GraphSolution(
            path=(),
            objective=math.inf,
            bound=0.0,
            status=Status.UNKNOWN,
            stopped_by=Stop.USER,
            solver="dp",
        )

    monkeypatch.setattr(ChainDP, "solve", interrupted)
    problem = fixed_problem()
    result = run(problem)
    assert result.stopped_by is Stop.USER
    check_consistent(problem, result, least_time(problem))


def test_the_path_of_an_interrupted_backend_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the solver had its first path only when it was interrupted."""
    solve = ChainDP.solve

    def interrupted(self: ChainDP, *given: Any, **options: Any) -> GraphSolution:
        return dataclasses.replace(solve(self, *given, **options), stopped_by=Stop.USER)

    monkeypatch.setattr(ChainDP, "solve", interrupted)
    problem = fixed_problem()
    result = run(problem)
    assert result.stopped_by is Stop.USER
    assert result.plan is not None
    check_consistent(problem, result, least_time(problem))


def without_first_plans(patch: pytest.MonkeyPatch) -> None:
    """Let a search begin without a plan."""
    patch.setattr("ilp_planner.spaces.operators.first_plans.first_plan", lambda part: None)


# ---- lies ---------------------------------------------------------------------------------------

LIES: dict[str, tuple[Callable[[GraphSolution], dict[str, Any]], str]] = {
    "a bound that is too high": (lambda s: {"bound": s.bound * 1.5}, "below the proved bound"),
    "a path that ends too early": (lambda s: {"path": s.path[:-1]}, "illegal plan"),
    "a path that begins too late": (lambda s: {"path": s.path[1:]}, "illegal plan"),
    "a path that goes twice": (lambda s: {"path": s.path * 2}, "illegal plan"),
}


@pytest.mark.parametrize("name", LIES)
def test_a_backend_that_lies_is_caught(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    lie, message = LIES[name]
    honest = ChainDP.solve

    def solve_badly(self: ChainDP, *args: Any, **options: Any) -> GraphSolution:
        solution = honest(self, *args, **options)
        return dataclasses.replace(solution, **lie(solution)) if solution.path else solution

    monkeypatch.setattr(ChainDP, "solve", solve_badly)
    without_first_plans(monkeypatch)  # beside which no bound is believed to be higher
    with pytest.raises(SolverError, match=message):
        run(fixed_problem())


@pytest.mark.parametrize("factor", [0.5, 1 - 1e-5, 1 + 1e-5, 2.0])
def test_a_claim_that_the_evaluator_does_not_share_is_an_error(
    monkeypatch: pytest.MonkeyPatch, factor: float
) -> None:
    honest = OperatorPart.known_time
    monkeypatch.setattr(OperatorPart, "known_time", lambda part, path: honest(part, path) * factor)
    without_first_plans(monkeypatch)  # which a plan that claims more is not judged beside
    with pytest.raises(SolverError, match=r"^the search claims .* s for a plan that takes .* s$"):
        run(fixed_problem())


def test_operators_that_take_no_time_are_planned_too() -> None:
    problem = fixed_problem()
    costs = problem.costs
    rows = {
        key: dataclasses.replace(row, forward=0.0, backward=0.0)
        for key, row in costs.profile.rows.items()
    }
    profile = dataclasses.replace(costs.profile, rows=rows)
    instant = dataclasses.replace(problem, costs=type(costs)(costs.chain, costs.family, profile))
    result = solve(instant, limits=Limits(seconds=20))
    assert result.plan is not None
    assert result.bound <= result.objective


# ---- stages behind that are not counted ---------------------------------------------------------


@examples(40)
@given(SMALL)
def test_where_the_stages_behind_are_counted_last_the_answer_is_the_same(problem: Problem) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ilp_planner.optimize.bounds.operator_part.FEW_STATES", 0)
        result = run(problem)
        optimum = least_time(problem)
        check_consistent(problem, result, optimum)
        assert result.stopped_by is Stop.PROOF
        if result.plan is not None:
            assert result.objective == pytest.approx(optimum, rel=SAME)
            assert check_certificate(problem, result.certificate).holds
    if result.plan is not None:  # whatever the certificate's reader would begin with
        assert check_certificate(problem, result.certificate).holds


def test_a_row_of_groups_is_followed_once_and_again_when_twice_the_time_has_passed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Prices find ways for its stages before these are solved; not where little is to be gained."""
    problem = ilp_planner.problem(
        model="gpt3-1.3b", cluster="v100-32gb-1x8", space="operators", global_batch=64
    )
    search = OperatorSearch(problem, Task(Limits(), "dp"))
    search.begin()
    part = min(search.parts, key=lambda p: p.bound)
    cutoff = 1.5 * search.objective
    search.plan, search.objective = None, math.inf
    part.bound_by_stages(cutoff)
    path = search.cheapest(part.expand(cutoff).graph, ()).path
    looks: list[str] = []

    def follow(self: OperatorSearch, *_: object) -> bool:
        looks.append("follow")
        return False

    def improved(self: Improver, plan: FirstPlan) -> FirstPlan:
        looks.append("improved")
        return plan

    monkeypatch.setattr(OperatorSearch, "follow", follow)
    monkeypatch.setattr(Improver, "improved", improved)
    search.deadline.started -= 10.0
    assert search.look_along(part, path)
    assert search.plan is not None
    assert search.objective >= part.bound
    assert looks == ["follow", "improved"]
    assert not search.look_along(part, path)
    assert looks == ["follow", "improved"]
    search.deadline.started -= 20.0
    search.look_along(part, path)
    assert looks == ["follow", "improved", "improved"]
    search.deadline.started -= 1000.0
    search.objective = part.bound * (1 + 1e-4)
    assert not search.look_along(part, path)
    assert looks == ["follow", "improved", "improved"]


def test_without_time_there_are_a_bound_of_all_and_a_first_plan() -> None:
    problem = fixed_problem()
    result = solve(problem, deadline=Deadline(0.0))
    assert (result.status, result.stopped_by) == (Status.FEASIBLE, Stop.TIME)
    assert evaluate(problem, result.plan).legal
    assert 0 < result.bound < result.objective
    assert len(result.certificate["parts"]) == len(problem.micro_batches)
    assert check_certificate(problem, result.certificate).holds


def test_who_is_interrupted_before_the_parts_are_there_has_a_certificate_of_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has one part that stands for all, and holds."""
    problem, made = tight_problem(), []
    begin = OperatorPart.__init__

    def interrupted(self: OperatorPart, *given: Any) -> None:
        if made:
            raise KeyboardInterrupt
        made.append(self)
        begin(self, *given)

    with monkeypatch.context() as patched:
        patched.setattr(OperatorPart, "__init__", interrupted)
        result = solve(problem)
    assert len(problem.micro_batches) > 1
    assert (result.status, result.stopped_by) == (Status.UNKNOWN, Stop.USER)
    assert result.certificate["parts"] == [{"micro_batch": EVERY_PART, "bound_s": 0.0, "by": ""}]
    assert check_certificate(problem, result.certificate).holds


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

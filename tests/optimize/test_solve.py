"""However a search ends, in every space: the best plan so far, a valid bound, why it stopped."""

import math
from itertools import pairwise

import pytest

from ilp_planner.base.deadline import Deadline
from ilp_planner.base.errors import UsageError
from ilp_planner.optimize.result import Status, Stop
from ilp_planner.optimize.solve import solve
from ilp_planner.optimize.solvers.base import Limits
from tests.every_space import check_consistent, every_space, problem_in, result_in
from tests.tiny import tight_problem

SAME = 1e-9  # relative


@every_space
def test_a_proved_optimum(space: str) -> None:
    problem, result = problem_in(space), result_in(space)
    assert (result.status, result.stopped_by) == (Status.OPTIMAL, Stop.PROOF)
    assert result.gap == 0
    check_consistent(problem, result, result.objective)


@pytest.mark.few(4)
@pytest.mark.parametrize("solver", ["dp", "cp-sat", "milp"])
@every_space
def test_other_solvers_prove_the_same(space: str, solver: str) -> None:
    problem = problem_in(space)
    result = solve(problem, solver=solver)
    assert (result.status, result.solver) == (Status.OPTIMAL, solver)
    assert result.objective == pytest.approx(result_in(space).objective, rel=1e-6)


@pytest.mark.few(5)
@pytest.mark.parametrize("solver", ["auto", "dp", "cp-sat", "milp"])
@every_space
def test_a_search_may_have_all_the_time(space: str, solver: str) -> None:
    result = solve(problem_in(space), limits=Limits(seconds=math.inf), solver=solver)
    assert (result.status, result.stopped_by) == (Status.OPTIMAL, Stop.PROOF)


@pytest.mark.parametrize("solver", ["auto", "dp", "cp-sat", "milp"])
@every_space
def test_without_time_there_is_a_bound(space: str, solver: str) -> None:
    problem = problem_in(space)
    result = solve(problem, limits=Limits(seconds=0.0), solver=solver)
    assert result.solver == solver
    # AMP's own program is small and looks at no clock; no other one places ranks freely.
    at_once = space == "amp, free" or (space == "amp" and solver in ("auto", "dp"))
    assert result.status is (Status.OPTIMAL if at_once else Status.UNKNOWN)
    assert result.stopped_by is (Stop.PROOF if at_once else Stop.TIME)
    check_consistent(problem, result, result_in(space).objective)


@pytest.mark.few(4)
@every_space
def test_at_the_time_limit_nothing_is_lost(space: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is looked at so often before the time is up."""
    problem, optimum = problem_in(space), result_in(space).objective
    left: list[float] = []
    clock = property(lambda deadline: left.pop() if left else 0.0)
    monkeypatch.setattr(Deadline, "left", clock)
    for looks in (0, 1, 2, 4, 7, 11, 20, 80):
        left[:] = [1000.0] * looks
        result = solve(problem, solver="dp")
        check_consistent(problem, result, optimum)
        assert result.stopped_by in (Stop.TIME, Stop.PROOF, Stop.EFFORT)
        assert (result.stopped_by is Stop.PROOF) == (result.status is Status.OPTIMAL)


@pytest.mark.few(11)
@pytest.mark.parametrize("calls", [1, 2, 3, 5, 8])
@every_space
def test_an_interrupt_gives_the_best_plan_so_far(space: str, calls: int) -> None:
    problem, optimum = problem_in(space), result_in(space).objective
    seen: list[tuple[float, float]] = []

    def interrupt(objective: float, bound: float) -> None:
        seen.append((objective, bound))
        if len(seen) == calls:
            raise KeyboardInterrupt

    result = solve(problem, progress=interrupt)
    check_consistent(problem, result, optimum)
    if len(seen) < calls:
        assert result.status is Status.OPTIMAL
        return
    assert result.stopped_by is Stop.USER
    assert result.objective == seen[-1][0]
    assert result.bound >= seen[-1][1] * (1 - SAME)


@every_space
def test_an_interrupt_at_the_first_plan_keeps_it(space: str) -> None:
    def interrupt(objective: float, bound: float) -> None:
        if math.isfinite(objective):
            raise KeyboardInterrupt

    problem = problem_in(space)
    result = solve(problem, progress=interrupt)
    assert result.stopped_by is Stop.USER
    assert result.plan is not None
    check_consistent(problem, result, result_in(space).objective)


@pytest.mark.few(4)
@pytest.mark.parametrize("gap", [0.05, pytest.param(0.3, marks=pytest.mark.slow), 0.9])
@every_space
def test_with_a_gap_the_plan_is_within_it(space: str, gap: float) -> None:
    problem, optimum = problem_in(space), result_in(space).objective
    result = solve(problem, limits=Limits(gap=gap))
    check_consistent(problem, result, optimum)
    assert result.gap <= gap
    assert result.objective * (1 - gap) <= optimum
    assert result.stopped_by is (Stop.GAP if result.gap > 0 else Stop.PROOF)


@pytest.mark.few(2)
@every_space
def test_progress_only_improves_and_never_crosses(space: str) -> None:
    seen: list[tuple[float, float]] = []
    problem = problem_in(space)
    result = solve(problem, progress=lambda objective, bound: seen.append((objective, bound)))
    for objective, bound in seen:
        assert bound <= objective
        assert bound <= result.objective * (1 + SAME)
    for (objective, bound), (later, raised) in pairwise(seen):
        assert later <= objective
        assert raised >= bound * (1 - SAME)
    assert seen[-1][0] == result.objective


@every_space
def test_an_unknown_solver_is_refused(space: str) -> None:
    with pytest.raises(UsageError, match=r"found 'cpsat' .did you mean 'cp-sat'"):
        solve(problem_in(space), solver="cpsat")


def test_plans_of_operators_are_not_ranked() -> None:
    with pytest.raises(UsageError, match=r"^top: found 2 in space operators"):
        solve(tight_problem(), top=2)

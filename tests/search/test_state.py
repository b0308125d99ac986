"""A search keeps the best legal plan, and believes nothing that contradicts its bound."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.deadline import OutOfTimeError
from ilp_planner.errors import SolverError
from ilp_planner.numerics import NEVER
from ilp_planner.result import Status, Stop
from ilp_planner.search.state import SearchState
from ilp_planner.solvers.base import Limits


@dataclass(frozen=True)
class Judgement:
    """What an evaluator says."""

    iteration_time: float
    violations: tuple[str, ...] = ()

    @property
    def legal(self) -> bool:
        return not self.violations


class Guess(SearchState[str, Judgement]):
    """A search whose bound is given."""

    def __init__(self, bound: float = 0.0, limits: Limits | None = None) -> None:
        super().__init__(limits or Limits(), "auto", None, ("a note",))
        self.least = bound

    @property
    def bound(self) -> float:
        return self.least


@given(st.lists(st.floats(1.0, 10.0), min_size=1))
def test_the_fastest_plan_is_kept(times: list[float]) -> None:
    search = Guess(1.0)
    kept = [search.keep(str(time), Judgement(time), 1.0) for time in times]
    assert search.objective == min(times)
    assert search.plan == str(min(times))
    assert kept == [all(time < before for before in times[:n]) for n, time in enumerate(times)]


def test_a_time_that_is_no_number_is_not_kept() -> None:
    search = Guess()
    assert not search.keep("plan", Judgement(math.nan), 0.0)
    assert search.plan is None


def test_an_illegal_plan_is_an_error() -> None:
    with pytest.raises(SolverError, match="illegal plan: too much memory"):
        Guess().keep("plan", Judgement(1.0, ("too much memory",)), 0.0)


def test_a_plan_below_the_bound_is_an_error_up_to_rounding() -> None:
    search = Guess(1.0)
    assert search.keep("plan", Judgement(1 - 1e-10), 1.0)
    with pytest.raises(SolverError, match=r"below the proved bound of 1\.0 s"):
        search.keep("plan", Judgement(0.99), 1.0)


@pytest.mark.parametrize(
    ("time", "bound", "status", "reported"),
    [
        (2.0, 1.0, Status.FEASIBLE, 1.0),
        (2.0, 2.0, Status.OPTIMAL, 2.0),
        (2.0, 2.0 * (1 + 1e-10), Status.OPTIMAL, 2.0),
        (math.inf, 1.0, Status.UNKNOWN, 1.0),
        (math.inf, NEVER, Status.INFEASIBLE, math.inf),
    ],
)
def test_what_is_known_at_the_end(
    time: float, bound: float, status: Status, reported: float
) -> None:
    search = Guess()
    if math.isfinite(time):
        search.keep("plan", Judgement(time), 0.0)
    search.least = bound
    known = search.conclusion(Stop.TIME, ())
    assert (known["status"], known["bound"], known["notes"]) == (status, reported, ("a note",))
    assert known["certificate"]["bound_s"] == (reported if math.isfinite(reported) else None)


def test_a_bound_above_the_plan_at_the_end_is_an_error() -> None:
    search = Guess()
    search.keep("plan", Judgement(2.0), 0.0)
    search.least = 3.0
    with pytest.raises(SolverError, match=r"bound of 3\.0 s is above the plan of 2\.0 s"):
        search.conclusion(Stop.PROOF, ())


def test_without_time_left_it_stops() -> None:
    search = Guess(limits=Limits(seconds=0.0))
    assert not search.goon()
    with pytest.raises(OutOfTimeError):
        search.check_time()

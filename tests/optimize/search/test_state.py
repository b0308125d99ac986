"""A search keeps the best legal plan, and believes nothing that contradicts its bound."""

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.deadline import Deadline, OutOfTimeError
from ilp_planner.base.errors import SolverError
from ilp_planner.base.numerics import NEVER
from ilp_planner.costs.base import PlanCost
from ilp_planner.evaluate import Evaluation, Violation
from ilp_planner.optimize.result import Status, Stop
from ilp_planner.optimize.search.state import Proved, SearchState
from ilp_planner.optimize.solvers.base import Limits, Task
from ilp_planner.plan import Plan


def plan(name: str = "plan") -> Plan[Any]:
    return Plan(model=name, global_batch=1, micro_batches=1, stages=())


def judged(seconds: float, *violations: Violation) -> Evaluation:
    """Return what the evaluator says."""
    cost = PlanCost(iteration_time=seconds, stages=(), terms={})
    return Evaluation(cost=cost, violations=violations)


SPACE = SimpleNamespace(
    describe=lambda _: "all plans", explain=lambda _: "nothing fits", graded=False
)
PROBLEM: Any = SimpleNamespace(space=SPACE, notes=("a note of the problem",))


class Guess(SearchState):
    """A search whose bound is given."""

    def __init__(
        self, bound: float = 0.0, limits: Limits | None = None, deadline: Deadline | None = None
    ) -> None:
        super().__init__(PROBLEM, Task(limits or Limits(), "auto", deadline=deadline))
        self.notes.append("a note")
        self.least = bound

    @property
    def bound(self) -> float:
        return self.least

    def proved_parts(self) -> Sequence[Proved]:
        return ()


@given(st.lists(st.floats(1.0, 10.0), min_size=1))
def test_the_fastest_plan_is_kept(times: list[float]) -> None:
    search = Guess(1.0)
    kept = [search.keep(plan(str(time)), judged(time), 1.0) for time in times]
    assert search.objective == min(times)
    assert search.plan == plan(str(min(times)))
    assert search.evaluation == judged(min(times))
    assert kept == [all(time < before for before in times[:n]) for n, time in enumerate(times)]


def test_a_time_that_is_no_number_is_not_kept() -> None:
    search = Guess()
    assert not search.keep(plan(), judged(math.nan), 0.0)
    assert search.plan is None


def test_an_illegal_plan_is_an_error() -> None:
    violation = Violation("memory", "stage 0", "2 GiB", "at most 1 GiB")
    with pytest.raises(SolverError, match="illegal plan: stage 0: memory: found 2 GiB"):
        Guess().keep(plan(), judged(1.0, violation), 0.0)


def test_a_plan_below_the_bound_is_an_error_up_to_rounding() -> None:
    search = Guess(1.0)
    assert search.keep(plan(), judged(1 - 1e-10), 1.0)
    with pytest.raises(SolverError, match=r"below the proved bound of 1\.0 s"):
        search.keep(plan(), judged(0.99), 1.0)


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
        search.keep(plan(), judged(time), 0.0)
    search.least = bound
    result = search.result(Stop.TIME)
    assert (result.status, result.bound) == (status, reported)
    assert result.stopped_by is (Stop.PROOF if status is Status.OPTIMAL else Stop.TIME)
    assert result.notes == ("a note of the problem", "a note")
    assert result.reason == ("nothing fits" if status is Status.INFEASIBLE else "")
    assert result.among == "all plans"
    assert result.certificate["bound_s"] == (reported if math.isfinite(reported) else None)


def test_a_bound_above_the_plan_at_the_end_is_an_error() -> None:
    search = Guess()
    search.keep(plan(), judged(2.0), 0.0)
    search.least = 3.0
    with pytest.raises(SolverError, match=r"bound of 3\.0 s is above the plan of 2\.0 s"):
        search.result(Stop.PROOF)


@pytest.mark.parametrize(("seconds", "notes"), [(60.0, 0), (0.0, 1)])
def test_a_proof_that_nobody_wants_any_more_is_not_confirmed(
    seconds: float, notes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looking for what is left open may raise the bound, which is enough for who asked."""
    enough: list[int] = []
    search = Guess(2.0, deadline=Deadline(seconds, wanted=lambda: not enough))
    search.keep(plan(), judged(2.0), 0.0)
    monkeypatch.setattr(SPACE, "last_problem", lambda *_: enough.append(1), raising=False)
    search.confirm()
    said = [note for note in search.notes if note.startswith("not confirmed by cp-sat")]
    assert len(said) == notes
    assert all(note.endswith("no time was left") for note in said)


def test_without_time_left_it_stops() -> None:
    search = Guess(limits=Limits(seconds=0.0))
    assert not search.goon()
    with pytest.raises(OutOfTimeError):
        search.check_time()

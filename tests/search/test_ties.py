"""The plainest of the plans that take as good as the same time."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ilp_planner as ilp
from ilp_planner.evaluate import evaluate
from ilp_planner.result import Status, Stop
from ilp_planner.search.start import Start
from ilp_planner.search.ties import RANK_ORDER, weight
from ilp_planner.solve import solve
from ilp_planner.solvers.base import Limits
from tests.tiny import tight_problem

if TYPE_CHECKING:
    from ilp_planner.problem import Problem
    from ilp_planner.result import Result
    from ilp_planner.spaces.megatron.costs import MegatronCosts

LIMITS = Limits(seconds=60)


@pytest.fixture(scope="module")
def problem() -> Problem[MegatronCosts]:
    """Return one whose fastest plan is special, and hardly faster than a plain one."""
    return ilp.problem(
        "llama2-7b",
        "a100-4x8",
        global_batch=256,
        max_cp=1,
        sharding="optimizer",
        overlap="none",
        fused_loss="none",
        recompute="none,core_attn,full,block",
        remainder="first",
    )


@cache
def solved(problem: Problem[MegatronCosts], tie: float) -> Result:
    """Return what a search ends with that may give up so much, once for all tests."""
    return solve(problem, limits=replace(LIMITS, tie=tie))


@pytest.mark.parametrize("tie", [0.001, 0.01, 0.1])
def test_a_plainer_plan_is_taken_and_what_it_costs_is_said(
    problem: Problem[MegatronCosts], tie: float
) -> None:
    fastest, plain = solved(problem, 0.0), solved(problem, tie)
    space = problem.space
    assert fastest.status is Status.OPTIMAL
    assert fastest.plan is not None
    assert plain.plan is not None
    assert weight(space.specialities(plain.plan)) < weight(space.specialities(fastest.plan))
    assert plain.bound == pytest.approx(fastest.objective)
    assert fastest.objective < plain.objective <= fastest.objective * (1 + tie)
    assert evaluate(problem, plain.plan).legal
    assert fastest.fastest is None
    assert plain.fastest is not None
    assert (plain.fastest.objective, plain.fastest.status) == (fastest.objective, fastest.status)
    assert plain.slower == pytest.approx(plain.objective / fastest.objective - 1)
    (note,) = [note for note in plain.notes if note.startswith("tie: ")]
    assert RANK_ORDER in note
    assert note.endswith("`tie=0` takes the fastest")


def test_a_saved_plan_that_is_plainer_needs_no_search(problem: Problem[MegatronCosts]) -> None:
    """It is slower than the bounds that are taken, by what was given up for it. A search that asks
    for the fastest, or does not know how the plan was come by, finds it."""
    limits = replace(LIMITS, tie=0.01)
    first = solved(problem, 0.01)
    assert first.plan is not None
    start = Start(
        name="plan.json",
        plan=first.plan,
        space=problem.space.name,
        seconds=first.objective,
        request=problem.request,
        certificate=first.certificate,
        ended=True,
    )
    again = solve(problem, limits=limits, start=start)
    assert (again.plan, again.bound, again.stopped_by) == (first.plan, first.bound, Stop.PROOF)
    assert {moment.objective for moment in again.history} == {first.objective}
    for begun, tie in ((start, 0.0), (replace(start, ended=False), 0.01)):
        searched = solve(problem, limits=replace(limits, tie=tie), start=begun)
        assert min(m.objective for m in searched.history) == pytest.approx(first.bound)


def test_more_than_one_plan_is_listed_with_the_fastest_first(
    problem: Problem[MegatronCosts],
) -> None:
    listed = solve(problem, limits=replace(LIMITS, tie=0.1), top=2)
    assert listed.status is Status.OPTIMAL
    assert listed.ranking[0].plan == listed.plan


def test_plans_of_no_runtime_have_no_ties() -> None:
    result = solve(tight_problem(), limits=replace(LIMITS, tie=0.5))
    assert result.status is Status.OPTIMAL
    assert result.gap == 0


def test_what_no_share_is_is_refused() -> None:
    with pytest.raises(ilp.UsageError, match=r"tie: found 1.5, expected a fraction from 0 to"):
        Limits(tie=1.5)


@given(st.lists(st.text(min_size=1), max_size=4))
def test_what_one_runtime_alone_has_weighs_more_than_any_number_of_settings(
    names: list[str],
) -> None:
    assert weight([RANK_ORDER]) > weight([name for name in names if name != RANK_ORDER])

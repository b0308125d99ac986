"""Of nearly equal plans for a runtime, the plainest, and the fastest beside it."""

import math
from dataclasses import replace
from functools import cache
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ilp_planner as ilp
from ilp_planner.evaluate import evaluate
from ilp_planner.faces.report.lines import fastest_lines
from ilp_planner.formats.saved_plan import saved_result
from ilp_planner.formats.saved_start import start_of
from ilp_planner.formats.versions import versions
from ilp_planner.inputs.problem import Problem
from ilp_planner.optimize.result import Result, Status, Stop
from ilp_planner.optimize.search.preference import check_preference, most, plainer_first, time_kept
from ilp_planner.optimize.search.start import Start
from ilp_planner.optimize.solve import solve
from ilp_planner.optimize.solvers.base import Limits
from ilp_planner.spaces.training.costs import MegatronCosts
from tests.tiny import tight_problem

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
def solved(problem: Problem[MegatronCosts], share: float) -> Result:
    """Return what a search ends with that may give up so much, once for all tests."""
    return solve(problem, limits=replace(LIMITS, prefer_plain=share))


@pytest.mark.parametrize("share", [0.001, 0.01, 0.1])
def test_a_plainer_plan_is_taken_and_the_fastest_stays_beside_it(
    problem: Problem[MegatronCosts], share: float
) -> None:
    fastest, plain = solved(problem, 0.0), solved(problem, share)
    assert fastest.status is Status.OPTIMAL
    assert fastest.fastest is None
    assert plain.fastest is not None
    assert plain.status is Status.FEASIBLE
    assert (plain.fastest.plan, plain.fastest.objective, plain.fastest.status) == (
        fastest.plan, fastest.objective, fastest.status,
    )  # fmt: skip
    own, other = (problem.space.plainness(problem, r.plan) for r in (plain, fastest) if r.plan)
    assert (*own.values(),) < (*other.values(),)
    assert plain.bound == pytest.approx(fastest.objective)
    assert fastest.objective < plain.objective <= fastest.objective * (1 + share)
    assert plain.slower == pytest.approx(plain.objective / fastest.objective - 1)
    assert plain.plan is not None
    assert evaluate(problem, plain.plan).legal
    ((_, line),) = fastest_lines(problem, plain)
    assert "proved optimal" in line
    assert line.endswith("--prefer-plain 0 takes it")
    assert not fastest_lines(problem, fastest)


def start_of_result(problem: Problem[MegatronCosts], result: Result) -> Start:
    """Return what a search starts from that has a result."""
    return start_of(saved_result(problem, result, versions()), "plan.json")


def test_a_saved_plan_that_is_plainer_needs_no_search(problem: Problem[MegatronCosts]) -> None:
    """A search that asks for the fastest, gives up another share, or does not know how the plan was
    come by, starts from both plans."""
    limits = replace(LIMITS, prefer_plain=0.01)
    first = solved(problem, 0.01)
    start = start_of_result(problem, first)
    again = solve(problem, limits=limits, start=start)
    assert (again.plan, again.objective, again.bound) == (first.plan, first.objective, first.bound)
    assert again.fastest == first.fastest
    assert again.stopped_by is Stop.PROOF
    assert len(again.history) <= 4  # both plans, their bound, and the plan at the end
    for begun, share in ((start, 0.0), (start, 0.1), (replace(start, ended=False), 0.01)):
        searched = solve(problem, limits=replace(limits, prefer_plain=share), start=begun)
        cold = solved(problem, share)
        assert (searched.plan, searched.fastest) == (cold.plan, cold.fastest)


def test_an_old_file_that_names_no_fastest_plan_is_searched(
    problem: Problem[MegatronCosts],
) -> None:
    """It may have been chosen by another order, or by a smaller share."""
    cold = solved(problem, 0.1)
    start = start_of_result(problem, solved(problem, 0.01))
    old = replace(start, prefer_plain=math.nan, fastest=None)
    warm = solve(problem, limits=replace(LIMITS, prefer_plain=0.1), start=old)
    assert (warm.plan, warm.bound) == (cold.plan, pytest.approx(cold.bound))


def test_more_than_one_plan_is_listed_with_the_fastest_first(
    problem: Problem[MegatronCosts],
) -> None:
    listed = solve(problem, limits=replace(LIMITS, prefer_plain=0.1), top=2)
    assert listed.status is Status.OPTIMAL
    assert listed.ranking[0].plan == listed.plan
    assert listed.fastest is None


def test_a_plainer_plan_keeps_within_the_gap_that_is_required(
    problem: Problem[MegatronCosts],
) -> None:
    wide = solved(problem, 0.1)
    assert wide.gap > 0
    within = solve(problem, limits=replace(LIMITS, prefer_plain=0.1, require_gap=2 * wide.gap))
    assert within.plan == wide.plan
    less = solve(problem, limits=replace(LIMITS, prefer_plain=0.1, require_gap=wide.gap / 2))
    assert less.gap <= wide.gap / 2
    nothing = solve(problem, limits=replace(LIMITS, prefer_plain=0.1, require_gap=0.0))
    assert nothing.gap == 0
    assert nothing.fastest is None


def test_a_search_keeps_some_of_its_time_for_plainer_plans(
    problem: Problem[MegatronCosts], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is found when the time of the search is up may be anything but plain."""
    left: list[float] = []
    monkeypatch.setattr(
        type(problem.space), "search", lambda space, search: left.append(search.deadline.left)
    )
    monkeypatch.setitem(
        solve.__globals__, "prefer_plain", lambda search: left.append(search.deadline.left)
    )
    for steady in (False, True):
        deadline = LIMITS.deadline(steady=steady)
        solve(problem, limits=replace(LIMITS, prefer_plain=0.1), deadline=deadline)
    searching, after, steadily, then = left
    assert after - searching == pytest.approx(time_kept(60.0), abs=0.5)
    assert then == pytest.approx(steadily, abs=0.5)
    assert time_kept(math.inf) < 60


def assert_plainer_first(order: list[tuple[float, tuple[int, ...]]]) -> None:
    """Whatever is before something faster is plainer and hardly slower; of neighbours that differ
    hardly the plainer one is first; the first one is what a search would choose."""
    for place, (seconds, plain) in enumerate(order):
        for faster, other in order[place + 1 :]:
            assert seconds <= faster or (plain < other and seconds <= most(faster))
    for (seconds, plain), (after, other) in pairwise(order):
        assert not (other < plain and after <= most(seconds))
    if order:
        limit = most(min(seconds for seconds, _ in order))
        near = [(plain, seconds) for seconds, plain in order if seconds <= limit]
        assert (order[0][1], order[0][0]) == min(near)


OFFERS = st.tuples(
    st.one_of(st.floats(1.0, 1.1), st.sampled_from((1.0, 1.0501, 1.0509))),
    st.tuples(st.integers(0, 2), st.integers(0, 2)),
)


@given(st.lists(OFFERS, max_size=12), st.randoms(use_true_random=False))
def test_offers_are_in_a_total_order(
    offers: list[tuple[float, tuple[int, ...]]], random: Random
) -> None:
    """Whatever order they come in, as far as two can be told apart."""
    order = plainer_first(offers, lambda offer: offer)
    assert sorted(order) == sorted(offers)
    assert_plainer_first(order)
    shuffled = list(offers)
    random.shuffle(shuffled)
    assert plainer_first(shuffled, lambda offer: offer) == order


def test_the_plainer_of_two_offers_that_differ_hardly_comes_first() -> None:
    offload, sequence_parallel = (1.0501, (1, 0)), (1.0509, (0, 0))
    assert plainer_first([offload, sequence_parallel], lambda offer: offer)[0] == sequence_parallel
    slow = (1.08, (0, 0))
    assert plainer_first([slow, offload], lambda offer: offer)[0] == offload


def test_plans_of_no_runtime_are_equally_plain() -> None:
    result = solve(tight_problem(), limits=replace(LIMITS, prefer_plain=0.5))
    assert result.status is Status.OPTIMAL
    assert result.fastest is None
    assert math.isnan(result.prefer_plain)


def test_what_no_share_is_is_refused() -> None:
    with pytest.raises(ilp.UsageError, match=r"prefer_plain: found 1.5, expected a fraction from"):
        Limits(prefer_plain=1.5)


def test_a_share_is_refused_where_no_plainer_plan_is_looked_for(
    problem: Problem[MegatronCosts],
) -> None:
    """Nobody is told that it was looked for one; 0 may always be said."""
    for share in (None, 0.0):
        check_preference(tight_problem(), share, top=3, solver="anneal")
    check_preference(problem, 0.1, top=1, solver="auto")
    cases: list[tuple[Any, dict[str, Any], str]] = [
        (tight_problem(), {"top": 1, "solver": "auto"}, "space operators"),
        (problem, {"top": 2, "solver": "auto"}, "`top=2`"),
        (problem, {"top": 1, "solver": "anneal"}, "`solver=anneal`"),
    ]
    for other, said, word in cases:
        with pytest.raises(ilp.UsageError, match=f"prefer_plain: found 0.1 with .*{word}"):
            check_preference(other, 0.1, **said)

"""The search over sets of nodes finds what enumeration does, and no plan beats its bounds."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ilp_planner.base.errors import InfeasibleError, UsageError
from ilp_planner.base.numerics import ROUNDING
from ilp_planner.base.units import HOUR
from ilp_planner.optimize.result import Stop
from ilp_planner.optimize.solvers.base import Limits
from ilp_planner.spaces.objectives.any_nodes import solve_on_any_nodes
from ilp_planner.spaces.objectives.objective import BOTH, OBJECTIVES, PRICE, TIME, Objective, Point
from ilp_planner.spaces.objectives.on_nodes import problem_on
from ilp_planner.spaces.objectives.search import Chosen, solve_on_sets
from ilp_planner.specs.prices import hourly_price, nodes_of
from tests.examples import for_each
from tests.mixed_cases import room_problem
from tests.spaces.objectives.cases import KINDS, every_point, group_problem, points_of

EXACTLY = Limits(seconds=1e6)
SEEDS = st.integers(0, 2**32 - 1)
SHARES = st.sampled_from([0.2, 0.5, 1.0, math.inf])


def found_in(problem: Any, objective: Objective, budget: float = math.inf) -> Chosen | None:
    """Return what a search finds; None where it proves that there is nothing."""
    try:
        return solve_on_sets(problem, objective, max_hourly=budget, limits=EXACTLY)
    except InfeasibleError:
        return None


def compare(points: Sequence[Point], chosen: Chosen | None, objective: Objective) -> None:
    """Compare a search with all plans that there are."""
    best = objective.best(points)
    if chosen is None:
        assert not best
        return
    aim = chosen.result.aim
    assert aim is not None
    assert aim.complete
    assert aim.gap == 0
    assert chosen.result.stopped_by is Stop.PROOF
    # Equal plans on nodes that cost differently are as good: values are compared, not nodes.
    expected = [objective.values(point) for point in best]
    had = [objective.values(Point(one.on.seconds, one.on.hourly)) for one in aim.best]
    assert had == [pytest.approx(each, rel=1e-9) for each in expected]
    for one in aim.best:
        within = [p for p in points if p.hourly <= one.on.hourly * (1 + ROUNDING)]
        others = points if len(objective.figures) == 1 else within
        least = min(getattr(point, aim.figure) for point in others)
        assert one.bound <= least * (1 + ROUNDING)
    for one in aim.sets:
        own = [p for p in points if math.isclose(p.hourly, one.hourly)]
        same = [o for o in aim.sets if math.isclose(o.hourly, one.hourly)]
        if own and len(same) == 1:
            assert one.bound <= min(p.seconds for p in own) * (1 + ROUNDING)


def check_objectives(kind: str, seed: int, share: float) -> None:
    """Compare what is found within a share of what all nodes cost."""
    problem = KINDS[kind][0](seed)
    points = every_point(kind, problem)
    whole = hourly_price(problem.cluster, range(problem.cluster.node_count))
    assert whole is not None
    budget = share * whole
    within = [p for p in points if p.hourly <= budget * (1 + ROUNDING)]
    for objective in OBJECTIVES.values():
        chosen = found_in(problem, objective, budget)
        compare(within, chosen, objective)
        if chosen is not None and chosen.result.plan is not None:
            cluster = chosen.problem.cluster
            used = hourly_price(cluster, nodes_of(cluster, chosen.result.plan.used))
            assert used is not None
            assert used <= budget * (1 + ROUNDING)


@settings(max_examples=6)
@given(seed=SEEDS, share=SHARES)
def test_every_objective_finds_what_enumeration_does_of_groups(seed: int, share: float) -> None:
    check_objectives("groups", seed, share)


@settings(max_examples=2)
@given(seed=SEEDS, share=SHARES)
def test_every_objective_finds_what_enumeration_does_of_operators(seed: int, share: float) -> None:
    check_objectives("operators", seed, share)


@settings(max_examples=1)
@given(seed=SEEDS, share=SHARES)
def test_every_objective_finds_what_enumeration_does_of_megatron(seed: int, share: float) -> None:
    check_objectives("megatron", seed, share)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=30)
@given(seed=SEEDS, share=SHARES)
def test_every_objective_finds_what_enumeration_does(kind: str, seed: int, share: float) -> None:
    check_objectives(kind, seed, share)


@settings(max_examples=4)
@given(seed=SEEDS)
def test_plans_of_all_nodes_do_not_beat_the_bounds_either(seed: int) -> None:
    """Plans that leave nodes idle are in the space of all of them as well: planned there, with all
    links in sight, none is cheaper or faster than what was proved set by set."""
    problem = group_problem(seed, measured=True)
    points = points_of("groups", problem)
    for objective in (PRICE, TIME):
        chosen = found_in(problem, objective)
        values = [objective.values(point)[0] for point in points]
        if chosen is None:
            assert not values
        elif values:
            assert chosen.result.aim is not None
            assert chosen.result.aim.best[0].bound <= min(values) * (1 + ROUNDING)


def test_a_budget_below_the_cheapest_plan_says_what_that_costs() -> None:
    problem = next(p for p in map(group_problem, range(50)) if len(points_of("groups", p)) > 10)
    cheapest = min(point.hourly for point in every_point("groups", problem))
    with pytest.raises(InfeasibleError) as caught:
        solve_on_sets(problem, TIME, max_hourly=cheapest * 0.99, limits=EXACTLY)
    assert f"expected at least {cheapest:.10g}, the price per hour of the cheapest" in str(
        caught.value
    )
    chosen = solve_on_sets(problem, TIME, max_hourly=cheapest, limits=EXACTLY)
    assert chosen.result.plan is not None


def test_no_time_gives_no_proof_but_true_bounds() -> None:
    problem = group_problem(1)
    for objective in OBJECTIVES.values():
        chosen = solve_on_sets(problem, objective, limits=Limits(seconds=0.0))
        assert chosen.result.stopped_by is Stop.TIME
        assert chosen.result.plan is None
        assert chosen.result.bound == 0


def test_a_gap_that_may_be_left_is_kept() -> None:
    problem = next(p for p in map(group_problem, range(50)) if len(points_of("groups", p)) > 10)
    exact = solve_on_sets(problem, BOTH, limits=EXACTLY).result.aim
    loose = solve_on_sets(problem, BOTH, limits=Limits(seconds=1e6, gap=0.3)).result.aim
    assert exact is not None
    assert loose is not None
    assert loose.gap <= 0.3
    least = min(one.on.seconds * one.on.hourly / HOUR for one in exact.best)
    assert min(o.on.seconds * o.on.hourly / HOUR for o in loose.best) <= least / 0.7


def test_what_does_not_go_with_sets_of_nodes_is_refused() -> None:
    problem = group_problem(1)
    with pytest.raises(UsageError, match=r"^solver: found anneal, a heuristic"):
        solve_on_sets(problem, PRICE, solver="anneal")
    with pytest.raises(UsageError, match=r"^objective: found nodes that are no cluster's"):
        solve_on_sets(room_problem(), PRICE)


@pytest.mark.slow
def test_where_nothing_fits_on_any_nodes_memory_is_blamed() -> None:
    problem = next(p for p in map(group_problem, range(50)) if not every_point("groups", p))
    with pytest.raises(InfeasibleError, match=r"^no plan on any set of nodes: .*memory"):
        solve_on_sets(problem, PRICE, limits=EXACTLY)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=6)
@given(seed=SEEDS)
def test_no_plan_of_the_front_is_slower_than_the_fastest_on_its_nodes(kind: str, seed: int) -> None:
    problem = KINDS[kind][0](seed)
    chosen = found_in(problem, BOTH)
    if chosen is None or chosen.result.aim is None:
        return
    for one in chosen.result.aim.best:
        alone = solve_on_any_nodes(problem_on(problem, one.on.nodes), limits=EXACTLY)
        assert one.on.seconds <= alone.result.objective * (1 + ROUNDING)


@for_each("seed", range(3))
def test_a_front_of_plainer_plans_has_none_that_another_one_beats(seed: int) -> None:
    """And each takes hardly longer than the fastest on its nodes."""
    problem, both = KINDS["megatron"][0](seed), BOTH
    limits = EXACTLY
    fastest = solve_on_sets(problem, both, limits=limits).result.aim
    plain = solve_on_sets(problem, both, limits=replace(limits, prefer_plain=0.3)).result.aim
    assert fastest is not None
    assert plain is not None
    before = {one.on.counts: one.on.seconds for one in fastest.best}
    assert {one.on.counts for one in plain.best} <= before.keys()
    for one in plain.best:
        assert one.on.seconds <= before[one.on.counts] * 1.3
    points = [Point(one.on.seconds, one.on.hourly) for one in plain.best]
    assert both.best(points) == points

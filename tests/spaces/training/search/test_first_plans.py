"""First plans are looked for in parts of the plainest settings, and never in what is done with."""

import heapq

import pytest

import ilp_planner
from ilp_planner.optimize.solve import solve
from ilp_planner.optimize.solvers.base import Limits, Task
from ilp_planner.spaces.training.bounds.near_cuts import NEAR
from ilp_planner.spaces.training.bounds.variant import never_fits
from ilp_planner.spaces.training.enumerate.distance import distance
from ilp_planner.spaces.training.enumerate.variants import leanest
from ilp_planner.spaces.training.search.first_plans import (
    NEAREST,
    by_settings,
    climb,
    dive,
    likely_beside,
    samples,
)
from ilp_planner.spaces.training.search.possible import likely_degrees, megatron_parts
from ilp_planner.spaces.training.search.search import MegatronSearch, scout
from tests.megatron_cases import GIB, MIXTURE, small_cluster, small_problem


def small_parts():
    """Return the parts of a problem with several settings and orders of ranks."""
    problem = small_problem(small_cluster(2, 2), batch=8)
    return megatron_parts(problem, problem.costs)


def test_parts_of_the_plainest_settings_come_first() -> None:
    parts = small_parts()
    plainest, others = by_settings(parts)
    assert sorted([*plainest, *others]) == list(range(len(parts)))
    assert plainest
    assert others
    assert all(parts[n].degrees.choice == parts[n].degrees.order == 0 for n in plainest)
    assert set(samples(parts)) <= set(plainest)


def test_a_variant_that_is_done_with_is_not_worked_again() -> None:
    """It has no turns left."""
    engine = MegatronSearch(small_parts(), goon=lambda: True)
    numbers = range(len(engine.parts))
    for number in numbers:
        key = number, leanest(engine.parts[number])
        engine.turns[key] = len(NEAR)
        engine.done.add(key)
    dive(engine, numbers, polished=0)
    assert not engine.best


def test_what_holds_least_is_too_large_where_nothing_of_a_part_fits() -> None:
    """And where anything fits, it is not."""
    found = set()
    for memory in (0.2, 0.5, 1.0, 4.0):
        problem = small_problem(small_cluster(2, 2), batch=8, memory_limit=memory * GIB)
        parts = megatron_parts(problem, problem.costs)
        engine = MegatronSearch(parts, goon=lambda: True)
        for number, part in enumerate(parts):
            too_large = engine.is_too_large(number)
            found.add(too_large)
            assert not too_large or all(never_fits(part, v) for v in part.variants())
    assert found == {True, False}


@pytest.mark.parametrize("space", ["megatron", "torchtitan"])
def test_climbing_ends_at_a_plan_that_is_best_among_its_neighbours(space: str) -> None:
    """It only gets better, every plan is legal, and where it stops the nearest parts were tried."""
    problem = ilp_planner.problem(model="llama3-8b", gpus="64xH100", global_batch=64, space=space)
    search = problem.space.begin(problem, Task(Limits(), "auto", None, None))
    assert scout(search)
    first = search.objective
    engine = MegatronSearch(
        [state.part for state in search.states], goon=lambda: True, accept=search.accept
    )
    engine.start(search)
    climb(engine)
    assert search.objective <= first
    (best,) = engine.best
    assert best.value == pytest.approx(search.objective, rel=1e-9)
    near = heapq.nsmallest(
        NEAREST, range(len(engine.parts)), key=lambda n: distance(engine.parts[n], best.plan)
    )
    again = MegatronSearch([engine.parts[n] for n in near], goon=lambda: True, accept=search.accept)
    climbed = search.objective
    again.start(search)
    climb(again)
    assert search.objective == climbed


def test_without_a_plan_there_is_nothing_to_climb_from() -> None:
    engine = MegatronSearch(small_parts(), goon=lambda: True)
    climb(engine)
    assert not engine.best
    assert not engine.turns


@pytest.mark.parametrize("space", ["megatron", "deepspeed"])
def test_whoever_listens_is_told_what_is_known_at_the_end(space: str) -> None:
    told: list[tuple[float, float]] = []
    problem = ilp_planner.problem(model="llama3-8b", gpus="16xH100", global_batch=32, space=space)
    result = solve(
        problem, limits=Limits(tie=0.0), progress=lambda plan, bound: told.append((plan, bound))
    )
    assert told[-1] == pytest.approx((result.objective, result.bound), rel=1e-9)


@pytest.mark.slow
def test_degrees_beside_a_plan_have_twice_or_half_of_one() -> None:
    problem = small_problem(small_cluster(2, 4), batch=8, experts=MIXTURE)
    changes = set()
    for degrees in (group[0] for group in likely_degrees(problem, problem.costs)):
        own = degrees.tp, degrees.cp, degrees.ep, degrees.micro_batch
        for one in likely_beside(problem, degrees, lambda: True):
            d = one.part.degrees
            pairs = [*zip(own, (d.tp, d.cp, d.ep, d.micro_batch), strict=True)]
            changed = [(a, b) for a, b in pairs if a != b]
            assert len(changed) == 1
            assert max(changed[0]) == 2 * min(changed[0])
            changes.add(([a == b for a, b in pairs].index(False), changed[0]))
    assert {place for place, _ in changes} == set(range(4))


def test_first_plans_far_above_their_bounds_are_looked_for_beside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With next to no time until gradients have to be summed, more context parallelism is better
    than what good plans mostly have."""
    found = []
    for close in (0.15, 1.0):
        monkeypatch.setattr("ilp_planner.spaces.training.search.search.CLOSE", close)
        problem = ilp_planner.problem(model="llama3-405b", gpus="8192xH100", global_batch=1024)
        search = problem.space.begin(problem, Task(Limits(), "auto", None, None))
        assert scout(search)
        found.append(search.objective)
    assert found[0] < 0.8 * found[1]

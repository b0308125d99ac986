"""First plans are looked for in parts of the plainest settings, and never in what is done with."""

from __future__ import annotations

from ilp_planner.spaces.megatron.first_plans import by_settings, dive, samples
from ilp_planner.spaces.megatron.near_cuts import NEAR
from ilp_planner.spaces.megatron.possible import megatron_parts
from ilp_planner.spaces.megatron.search import MegatronSearch
from ilp_planner.spaces.megatron.variants import leanest
from tests.megatron_cases import small_cluster, small_problem


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

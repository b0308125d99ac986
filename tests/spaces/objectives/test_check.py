"""Proofs of objectives are derived again from the inputs, and what is claimed too high is found."""

import math
from collections.abc import Mapping
from itertools import product
from typing import Any

import pytest

from ilp_planner.base.deadline import Deadline
from ilp_planner.base.errors import PlanError
from ilp_planner.formats.saved_plan import encode_aim
from ilp_planner.optimize.result import Stop
from ilp_planner.optimize.solvers.base import Limits, Task
from ilp_planner.spaces.objectives.check import AimCheck, check_aim
from ilp_planner.spaces.objectives.objective import OBJECTIVES
from ilp_planner.spaces.objectives.search import Chosen, SetsSearch, solve_on_sets
from tests.spaces.objectives.cases import KINDS, every_point, points_of

SEEDS = {"groups": 20, "operators": 0, "megatron": 2}


def checked(chosen: Chosen, aim: Mapping[str, Any]) -> AimCheck:
    """Derive the bounds of a result again."""
    result = chosen.result
    assert result.plan is not None
    return check_aim(chosen.problem, result.plan, result.objective, aim)


@pytest.mark.parametrize(
    ("kind", "objective"),
    [
        ("groups", "both"),
        ("operators", "price"),
        ("megatron", "price"),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in product(KINDS, OBJECTIVES)),
    ],
)
def test_bounds_of_all_sets_are_found_again(kind: str, objective: str) -> None:
    problem = next(
        p
        for p in map(KINDS[kind][0], range(SEEDS[kind], SEEDS[kind] + 50))
        if kind == "megatron" or points_of(kind, p)
    )
    chosen = solve_on_sets(problem, OBJECTIVES[objective], limits=Limits(seconds=1e6))
    assert chosen.result.aim is not None
    aim = encode_aim(chosen.result.aim)
    check = checked(chosen, aim)
    assert check.holds
    assert check.gap == 0
    assert check.bound == pytest.approx(chosen.result.aim.best[0].bound)
    best = min(chosen.result.aim.best, key=lambda one: one.on.seconds)
    place = [one.counts for one in chosen.result.aim.sets].index(best.on.counts)
    aim["sets"][place]["bound_s"] = 2 * best.on.seconds
    aim["sets"][place]["parts"] = [
        {**part, "bound_s": 2 * best.on.seconds} for part in aim["sets"][place]["parts"]
    ]
    spoiled = checked(chosen, aim)
    assert not spoiled.holds
    assert not spoiled.sets[place].holds


def test_a_set_on_which_nothing_fits_is_found_again_and_one_left_out_is_missed() -> None:
    for problem in map(KINDS["groups"][0], range(60)):
        points = every_point("groups", problem)
        if not points:
            continue
        chosen = solve_on_sets(problem, OBJECTIVES["price"], limits=Limits(seconds=1e6))
        assert chosen.result.aim is not None
        aim = encode_aim(chosen.result.aim)
        if any(one["bound_s"] is None for one in aim["sets"]):
            break
    check = checked(chosen, aim)
    assert check.holds
    assert any(math.isinf(one.rederived) for one in check.sets)
    aim["sets"].pop(0)
    with pytest.raises(PlanError, match=r"objective: .* is missing from 'sets'"):
        checked(chosen, aim)


def test_sets_that_nobody_looked_at_have_a_bound_that_is_found_again() -> None:
    """What the model's products take at least; in Megatron's spaces."""
    problem = KINDS["megatron"][0](SEEDS["megatron"])
    deadline = Deadline(math.inf)
    task = Task(Limits(seconds=1e6), "auto", None, deadline)
    search = SetsSearch(problem, OBJECTIVES["price"], math.inf, task)
    search.turn(search.sets[-1], deadline)
    chosen = search.chosen(Stop.TIME)
    aim = chosen.result.aim
    assert aim is not None
    new = [one for one in aim.sets if not one.parts]
    assert new
    assert all(one.bound > 0 for one in new)
    assert aim.best[0].bound > 0
    assert checked(chosen, encode_aim(aim)).holds

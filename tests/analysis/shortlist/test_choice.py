"""Plans chosen together lose least: against every other choice, on random regrets."""

from itertools import combinations

import numpy as np
import pytest

from ilp_planner.analysis.shortlist import choice
from ilp_planner.analysis.shortlist.choice import (
    MILLION,
    by_enumeration,
    by_program,
    least_regret,
    one_by_one,
    regrets_of,
)
from tests.examples import for_each

SEEDS = range(40)


def matrix(seed: int) -> np.ndarray:
    """Return regrets of a few plans in a few scenarios; small numbers, so that many tie."""
    draws = np.random.default_rng(seed)
    plans, scenarios = draws.integers(1, 8), draws.integers(1, 9)
    found: np.ndarray = draws.integers(0, draws.choice([4, 100_000]), (plans, scenarios))
    return found


def brute(regrets: np.ndarray, count: int, first: int) -> tuple[int, int]:
    """Return the least worst regret of all choices, and the least sum beside it, entry by entry."""
    plans, scenarios = regrets.shape
    best = None
    for some in combinations(range(plans), min(count, plans)):
        if first in some:
            left = [min(int(regrets[p, s]) for p in some) for s in range(scenarios)]
            best = min(best or (max(left), sum(left)), (max(left), sum(left)))
    assert best is not None
    return best


@for_each("seed", SEEDS)
def test_no_choice_is_better(seed: int) -> None:
    regrets = matrix(seed)
    first = seed % len(regrets)
    for count in range(1, len(regrets) + 2):
        found = least_regret(regrets, count, first)
        assert first in found.plans
        assert len(found.plans) == min(count, len(regrets))
        assert found[1:3] == brute(regrets, count, first)
        left = regrets[list(found.plans)].min(axis=0)
        assert found[1:3] == (left.max(), left.sum())


@for_each("seed", SEEDS)
def test_the_program_agrees_with_enumeration(seed: int) -> None:
    regrets = matrix(seed)
    for count in range(2, len(regrets) + 1):
        program, every = by_program(regrets, count, 0), by_enumeration(regrets, count, 0)
        assert program.proved
        assert program[1:3] == every[1:3]
        assert one_by_one(regrets, count, 0)[1:3] >= every[1:3]


@for_each("seed", SEEDS)
def test_a_plan_more_never_loses_more(seed: int) -> None:
    regrets = matrix(seed)
    worst = [least_regret(regrets, count).worst for count in range(1, len(regrets) + 1)]
    assert worst == sorted(worst, reverse=True)


def test_many_plans_go_to_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "MOST_SETS", 0)
    regrets = matrix(1)
    assert least_regret(regrets, 3)[1:3] == brute(regrets, 3, 0)


def test_one_plan_is_the_first_one() -> None:
    assert least_regret(np.array([[5, 7], [0, 0]]), 1) == ((0,), 7, 12, True)


def test_regrets_are_shares_of_the_best_time() -> None:
    found = regrets_of([[1.0, 3.0], [1.5, 2.0]])
    assert found.tolist() == [[0, MILLION // 2], [MILLION // 2, 0]]

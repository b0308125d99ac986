"""The few plans of many whose best one loses least, whatever of several scenarios is true.

A plan's regret in a scenario is by how much longer it takes there than the best plan; of several
plans, the least regret counts. Chosen are plans with the least largest regret over the scenarios,
of these with the least sum. Regrets are whole millionths, so that both are exact.
"""

from __future__ import annotations

import math
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

MILLION = 1_000_000
MOST_SETS = 50_000  # that are looked at one by one
SECONDS = 20.0  # of a solver at most


class Choice(NamedTuple):
    """Plans by their numbers, ascending. worst, total: regrets in millionths: the largest over the
    scenarios, and their sum. proved: no other choice is better."""

    plans: tuple[int, ...]
    worst: int
    total: int
    proved: bool = True


def regrets_of(times: Sequence[Sequence[float]]) -> NDArray[np.int64]:
    """Return regrets in millionths [plan, scenario] of seconds [plan, scenario]."""
    found = np.asarray(times, np.float64)
    whole: NDArray[np.int64] = np.rint((found / found.min(axis=0) - 1) * MILLION).astype(np.int64)
    return whole


def least_regret(regrets: NDArray[np.int64], count: int, first: int = 0) -> Choice:
    """Choose `count` plans, `first` among them; fewer if there are no more.

    Parameters
    ----------
    regrets: millionths [plan, scenario].
    """
    plans, _ = regrets.shape
    more = min(count, plans) - 1
    if more <= 0:
        return judged(regrets, (first,))
    if math.comb(plans - 1, more) <= MOST_SETS:
        return by_enumeration(regrets, more + 1, first)
    return by_program(regrets, more + 1, first)


def helpful(regrets: NDArray[np.int64], count: int) -> list[Choice]:
    """Choose one plan, two plans, ... up to `count`, as long as one more helps in some scenario;
    the first plan is among all of them."""
    found = [least_regret(regrets, 1)]
    for some in range(2, count + 1):
        more = least_regret(regrets, some)
        if more[1:3] >= found[-1][1:3]:
            break
        found.append(more)
    return found


def judged(regrets: NDArray[np.int64], plans: Sequence[int], *, proved: bool = True) -> Choice:
    """Return plans with their regrets."""
    left = regrets[list(plans)].min(axis=0)
    return Choice(tuple(sorted(plans)), int(left.max()), int(left.sum()), proved)


def by_enumeration(regrets: NDArray[np.int64], count: int, first: int) -> Choice:
    """Choose plans by looking at every set of them."""
    others = [plan for plan in range(len(regrets)) if plan != first]
    every = (judged(regrets, (first, *rest)) for rest in combinations(others, count - 1))
    return min(every, key=lambda one: (one.worst, one.total, one.plans))


def by_program(regrets: NDArray[np.int64], count: int, first: int) -> Choice:
    """Choose plans by an integer program, first for the worst regret, then for the sum. What no
    solver found in time is improved plan by plan, without a proof."""
    from ortools.sat.python import cp_model

    plans, scenarios = regrets.shape
    start = one_by_one(regrets, count, first)
    program = cp_model.CpModel()
    chosen = [program.new_bool_var("") for _ in range(plans)]
    program.add(sum(chosen) == count)
    program.add(chosen[first] == 1)
    best = [[program.new_bool_var("") for _ in range(scenarios)] for _ in range(plans)]
    left = []
    for s in range(scenarios):
        program.add_exactly_one(best[p][s] for p in range(plans))
        for p in range(plans):
            program.add_implication(best[p][s], chosen[p])
        left.append(sum(int(regrets[p, s]) * best[p][s] for p in range(plans)))
    worst = program.new_int_var(0, start.worst, "worst")
    for each in left:
        program.add(each <= worst)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = SECONDS
    solver.parameters.num_workers = 1
    solver.parameters.catch_sigint_signal = False
    found = start._replace(proved=False)
    for objective in (worst, sum(left)):
        program.minimize(objective)
        status = solver.solve(program)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return found
        proved = status == cp_model.OPTIMAL
        own = judged(regrets, np.flatnonzero(solver.boolean_values(chosen)).tolist())
        found = min(found, own, key=lambda one: one[1:3])._replace(proved=proved)
        if not proved:
            return found
        program.add(worst <= found.worst)
    return found


def one_by_one(regrets: NDArray[np.int64], count: int, first: int) -> Choice:
    """Choose plans greedily, each the best beside those that were chosen before."""
    found = judged(regrets, (first,))
    while len(found.plans) < count:
        rest = (plan for plan in range(len(regrets)) if plan not in found.plans)
        every = [judged(regrets, (*found.plans, plan)) for plan in rest]
        found = min(every, key=lambda one: (one.worst, one.total, one.plans))
    return found

"""Metis's space as a whole: its rules of memory, and which plans its proofs are about."""

from types import SimpleNamespace
from typing import Any

import pytest

from ilp_planner.base.numerics import ROUNDING
from ilp_planner.costs.base import PlanCost, StageCost
from ilp_planner.optimize.search import graph_hunt
from ilp_planner.optimize.solvers.base import Limits, Task
from ilp_planner.peers.metis.build import MetisSpace
from tests.every_space import METIS, result_in
from tests.examples import for_each
from tests.mixed_cases import room_plan, room_problem

GIB = 2**30


def test_the_rule_of_memory_is_a_choice() -> None:
    assert MetisSpace().options() == {}
    assert MetisSpace(summed=True).options() == {"memory_rule": "metis"}


def test_proofs_are_about_what_metis_enumerates() -> None:
    problem, found = room_problem(**METIS), result_in("metis").plan
    assert found is not None
    assert problem.space.outside(problem, found) is None
    first = room_plan(problem, ((0, 1, 1, (0, 1)), (1, 6, 2, (2, 3, 4, 5))))
    last = room_plan(problem, ((0, 5, 2, (2, 3, 4, 5)), (5, 6, 1, (0, 1))))
    assert [problem.space.outside(problem, plan) for plan in (first, last)] == [None, None]
    between = room_plan(problem, ((0, 2, 1, (2, 3)), (2, 3, 1, (0, 1)), (3, 6, 1, (4, 5))))
    assert problem.space.outside(problem, between) == (
        "stages: groups, degrees, samples or devices that Metis does not enumerate"
    )
    assert problem.space.describe(problem) == (
        "plans with 1, 2, 4, 8, 16 micro-batches, devices type by type in any order of the types, "
        "stages of a power of two of them, and Metis's shares of samples"
    )


@for_each(
    ("wanted", "said"),
    [
        (2.0 * GIB, []),
        (2.0 * GIB * (1 + ROUNDING), []),
        (2.5 * GIB, ["stage 1: memory: found 2.50 GiB, expected at most 2.00 GiB (Metis's rule)"]),
    ],
)
def test_under_metis_s_rule_groups_hold_what_they_must_in_sum(
    wanted: float, said: list[str]
) -> None:
    needs = [(1.0 * GIB, 2.0 * GIB), (wanted, 2.0 * GIB)]
    costs = SimpleNamespace(group_memory=lambda plan, cluster: needs)
    problem: Any = SimpleNamespace(costs=costs, cluster=None)
    nothing: Any = None
    found = MetisSpace(summed=True).check_memory(problem, nothing, nothing)
    assert [str(broken) for broken in found] == said


def test_without_it_every_device_does_by_itself() -> None:
    problem = room_problem(**METIS, memory_limit=3 * GIB)
    plan = room_plan(problem)
    full = StageCost(time=1.0, memory=(4.0 * GIB,), time_terms={}, memory_terms={})
    cost = PlanCost(iteration_time=1.0, stages=(full, full), terms={})
    assert [broken.where for broken in MetisSpace().check_memory(problem, plan, cost)] == [
        "stage 0, device 0",
        "stage 1, device 2",
    ]


def test_orders_of_types_and_numbers_of_micro_batches_are_annealed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows: list[Any] = []
    monkeypatch.setattr(graph_hunt, "anneal_parts", lambda search, choices: rows.extend(choices))
    problem = room_problem(**METIS, micro_batch_sizes=(2, 4))
    search = problem.space.begin(problem, Task(Limits(seconds=60), "anneal"))
    assert problem.space.anneal(search)
    assert len(rows) == len(search.states) == 4
    assert {row[-1] for row in rows} == {4, 8}
    assert len({row[:-1] for row in rows}) == 2

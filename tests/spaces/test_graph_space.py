"""The rules of a plan of layers, whatever space of them it is in."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ilp_planner.evaluate import evaluate
from ilp_planner.solve import solve
from ilp_planner.specs.training import Settings
from tests.every_space import METIS
from tests.mixed_cases import room_plan, room_problem

if TYPE_CHECKING:
    from ilp_planner.plan import GroupPlan
    from ilp_planner.problem import Problem

GIB = 2**30
MODELS: list[dict[str, Any]] = [
    {},
    {"cost_model": "metis"},
    METIS,
    {**METIS, "memory_rule": "metis"},
]


def rules(problem: Problem, plan: GroupPlan) -> list[str]:
    return [violation.rule for violation in evaluate(problem, plan).violations]


@pytest.mark.parametrize("options", MODELS, ids=str)
def test_a_legal_plan(options: dict[str, Any]) -> None:
    problem = room_problem(**options)
    found = evaluate(problem, room_plan(problem))
    assert found.legal
    assert found.cost is not None
    assert found.iteration_time == pytest.approx(sum(found.cost.terms.values()))
    assert len(found.cost.stages) == 2
    assert solve(problem).bound <= found.iteration_time * (1 + 1e-9)
    assert found.idle == ()


def test_idle_devices_are_named() -> None:
    problem = room_problem()
    found = evaluate(problem, room_plan(problem, [(0, 6, 1, (2, 3, 4, 5))]))
    assert found.idle == (0, 1)
    assert found.legal


def test_idle_devices_are_not_in_the_space_of_metis() -> None:
    problem = room_problem(**METIS)
    assert rules(problem, room_plan(problem, [(0, 6, 1, (2, 3, 4, 5))])) == ["devices used once"]


@pytest.mark.parametrize(
    ("stages", "rule"),
    [
        ([(0, 2, 1, (0, 1)), (3, 6, 1, (2, 3))], "layers covered once"),
        ([(0, 2, 1, (0, 1)), (1, 6, 1, (2, 3))], "layers covered once"),
        ([(0, 5, 1, (2, 3))], "layers covered once"),
        ([(0, 9, 1, (2, 3))], "layers covered once"),
        ([(0, 2, 1, (0, 1)), (2, 6, 1, (1, 2))], "devices used once"),
        ([(0, 6, 1, (2, 6))], "devices used once"),
        ([(0, 6, 4, (2, 3, 4, 5))], "degrees"),
        ([(0, 2, 1, (0,)), (2, 4, 1, (2,)), (4, 6, 1, (3,))], "stages"),
    ],
)
def test_broken_rules(stages: Any, rule: str) -> None:
    problem = room_problem(max_stages=2)
    found = evaluate(problem, room_plan(problem, stages))
    assert rule in [violation.rule for violation in found.violations]


def with_samples(plan: GroupPlan, samples: tuple[int, ...]) -> GroupPlan:
    first = plan.stages[0]
    replicas = [replace(r, samples=s) for r, s in zip(first.replicas, samples, strict=True)]
    return replace(plan, stages=(replace(first, replicas=tuple(replicas)), *plan.stages[1:]))


def test_shares_of_a_micro_batch() -> None:
    problem = room_problem()
    plan = room_plan(problem)
    assert rules(problem, with_samples(plan, (2, 1))) == ["samples"]
    assert rules(problem, with_samples(plan, (3, 1))) == ["degrees"]
    assert rules(problem, with_samples(plan, (4, 0))) == ["degrees", "degrees"]
    assert rules(problem, replace(plan, micro_batches=2)) == ["samples", "samples"]


def test_settings_are_of_a_runtime() -> None:
    """Virtual stages are on the same replicas, and only a runtime has them."""
    problem = room_problem()
    plan = room_plan(problem, [(0, 3, 1, (0, 1)), (3, 6, 1, (0, 1))])
    assert rules(problem, replace(plan, settings=Settings())) == ["devices used once"] * 2
    assert rules(problem, replace(plan, virtual=2)) == ["settings"]
    assert rules(problem, replace(with_samples(plan, (3, 1)), virtual=2)) == [
        "settings",
        "replicas",
    ]
    others = room_plan(problem, [(0, 3, 1, (0, 1)), (3, 6, 1, (1, 0))])
    assert rules(problem, replace(others, virtual=2)) == ["devices used once"]


def test_memory_names_the_device_and_both_figures() -> None:
    problem = room_problem(memory_limit=2.0 * GIB)
    violations = evaluate(problem, room_plan(problem)).violations
    assert violations
    assert {violation.rule for violation in violations} == {"memory"}
    assert violations[0].limit == "at most 2.00 GiB"
    assert violations[0].where == "stage 0, device 0"


def test_more_memory_never_breaks_a_plan() -> None:
    """A plan that is legal with little memory is legal with more, at the same time."""
    small, large = room_problem(memory_limit=12.0 * GIB), room_problem(memory_limit=24.0 * GIB)
    plan = solve(small).plan
    assert plan is not None
    assert evaluate(large, plan).legal
    assert evaluate(large, plan).iteration_time == evaluate(small, plan).iteration_time


def test_what_is_not_profiled_is_named() -> None:
    problem = room_problem(cost_model="metis")
    plan = room_plan(problem, [(0, 6, 1, (2,))], micro_batches=1)
    violations = evaluate(problem, plan).violations
    assert [violation.rule for violation in violations] == ["profiled"]
    assert violations[0].have == "A100 tp1 bs16"

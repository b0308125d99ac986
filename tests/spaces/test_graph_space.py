"""The rules of a plan of layers, whatever space of them it is in."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from ilp_planner.base.numerics import NEVER
from ilp_planner.evaluate import evaluate
from ilp_planner.inputs.problem import Problem
from ilp_planner.optimize.certificate import check_certificate
from ilp_planner.optimize.result import Stop
from ilp_planner.optimize.search import graph_search
from ilp_planner.optimize.solve import solve
from ilp_planner.optimize.solvers.base import Limits, Task
from ilp_planner.plan import GroupPlan
from ilp_planner.spaces.groups.build import GroupSpace
from ilp_planner.specs.training import Recompute, Settings
from tests.every_space import METIS
from tests.examples import for_each
from tests.mixed_cases import room_plan, room_problem

GIB = 2**30
MODELS: list[dict[str, Any]] = [
    {},
    {"cost_model": "metis"},
    METIS,
    {**METIS, "memory_rule": "metis"},
]


def rules(problem: Problem, plan: GroupPlan) -> list[str]:
    return [violation.rule for violation in evaluate(problem, plan).violations]


@for_each("options", MODELS)
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


@for_each(
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


FULL = Recompute(granularity="full", method="uniform", layers=1)


class Knowing(GroupSpace):
    """A space whose stages may compute whole layers again."""

    def recomputations(self, problem: Problem) -> tuple[str, ...]:
        return ("none", "full")


@pytest.mark.parametrize(
    ("again", "words"), [(FULL, "all layers"), (replace(FULL, layers=2), "all layers, 2 at once")]
)
def test_stages_compute_again_what_the_costs_know(again: Recompute, words: str) -> None:
    """Layers one by one, which have a price, where the space has them."""
    problem = room_problem()
    plan = room_plan(problem)
    stages = (replace(plan.stages[0], recompute=again), *plan.stages[1:])
    for space, kinds in ((GroupSpace(), "none"), (Knowing(), "none or full")):
        found = [str(v) for v in space.check_whole(problem, replace(plan, stages=stages))]
        priced = again == FULL and isinstance(space, Knowing)
        text = f"stage 0: recompute: found {words}, expected {kinds}"
        assert found == ([] if priced else [text])


# ---- how they are searched ----------------------------------------------------------------------


class Noted(GroupSpace):
    """A space that notes how it is searched, and finds nothing."""

    def look_first(self, search: Any) -> None:
        search.did.append("first")

    def look_longer(self, search: Any) -> None:
        search.did.append("longer")

    def look(self, search: Any) -> None:
        search.did.append("look")

    def anneal(self, search: Any) -> bool:
        search.did.append("anneal")
        return bool(search.anneals)


def state(**said: Any) -> Any:
    """Return a search that has time left and no proof, but for what is said."""
    usual = {
        "did": [],
        "check_time": lambda: None,
        "solver": "gradient",
        "anneals": True,
        "goon": lambda: True,
        "gap_reached": lambda: False,
        "proved": lambda: False,
        "plan": "a plan",
        "bound": 1.0,
        "problem": SimpleNamespace(costs=SimpleNamespace(spread=False, mixed_tp=False)),
    }
    return SimpleNamespace(**{**usual, **said})


@for_each(
    ("solver", "anneals", "did"),
    [
        ("gradient", True, ["first", "look"]),
        ("anneal", True, ["first", "anneal"]),
        ("anneal", False, ["first", "anneal", "look"]),
    ],
)
def test_annealing_moves_what_decides_the_graphs_where_something_does(
    solver: str, anneals: bool, did: list[str]
) -> None:
    search = state(solver=solver, anneals=anneals)
    Noted().hunt(search)
    assert search.did == did
    assert GroupSpace().anneal(search) is False


@for_each(
    ("said", "stop"),
    [
        ({}, Stop.HEURISTIC),
        ({"goon": lambda: False}, Stop.TIME),
        ({"gap_reached": lambda: True}, Stop.PROOF),
        ({"gap_reached": lambda: True, "goon": lambda: False}, Stop.PROOF),
        ({"bound": NEVER}, Stop.PROOF),
    ],
)
def test_a_heuristic_says_what_stopped_it(said: dict[str, Any], stop: Stop) -> None:
    assert Noted().hunt(state(**said)) is stop


@pytest.mark.parametrize(
    ("said", "stop"),
    [
        ({}, Stop.EFFORT),
        ({"gap_reached": lambda: True}, Stop.GAP),
        ({"proved": lambda: True}, Stop.PROOF),
        ({"plan": None}, Stop.PROOF),
    ],
)
def test_a_search_says_what_stopped_it(
    said: dict[str, Any], stop: Stop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks for plans before it outlines the parts, and again where these are large."""
    for name in ("outline_parts", "search_graphs"):
        monkeypatch.setattr(graph_search, name, lambda search, name=name: search.did.append(name))
    search = state(**said)
    assert Noted().search(search) is stop
    assert search.did == ["first", "outline_parts", "longer", "search_graphs"]


def test_parts_are_named_proved_and_confirmed() -> None:
    problem = room_problem(micro_batch_sizes=(4, 8))
    space, names = problem.space, ["2 micro-batches", "4 micro-batches"]
    assert space.part_names(problem) == names
    search = space.begin(problem, Task(Limits(seconds=60), "dp"))
    assert space.names_before(search, problem.constraints) == names
    found = solve(problem, limits=Limits(seconds=60, workers=1), solver="dp")
    assert found.plan is not None
    check = check_certificate(problem, found.certificate)
    assert check.holds
    assert check.bound == pytest.approx(found.objective, rel=1e-9)
    search.accept(
        found.plan, search.states[names.index(f"{found.plan.micro_batches} micro-batches")]
    )
    last = space.last_problem(search, found.plan)
    assert last is not None
    assert last.arcs >= len(found.plan.stages)

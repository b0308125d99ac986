"""What a space answers that says nothing of its own."""

import math
from typing import Any

import pytest

from ilp_planner.costs.base import PlanCost, StageCost
from ilp_planner.evaluate import evaluate
from ilp_planner.inputs.problem import Problem
from ilp_planner.inputs.request import Request
from ilp_planner.spaces.base import Space
from tests.mixed_cases import room_plan, room_problem

GIB = 2**30


class Plain(Space[Any, Any]):
    """The least that a space is."""

    name = "plain"

    def part_names(self, problem: Problem[Any]) -> list[int | str]:
        return ["a", "b"]

    def describe(self, problem: Problem[Any]) -> str:
        return "plans"

    def exclusions(self, problem: Problem[Any], plan: Any) -> Any:
        return iter(())

    check_whole: Any = exclusions

    def begin(self, problem: Problem[Any], task: Any) -> Any:
        return problem, task

    def last_problem(self, search: Any, plan: Any) -> Any:
        return search, plan

    search: Any = None
    hunt: Any = None
    prove: Any = None
    rank: Any = None


class Search:
    """The state of a search of a problem."""

    def __init__(self, problem: Problem[Any]) -> None:
        self.problem = problem


@pytest.fixture(scope="module")
def problem() -> Problem[Any]:
    return room_problem(memory_limit=3 * GIB)


def test_it_has_no_choices_one_thread_and_stages_of_any_devices(problem: Problem[Any]) -> None:
    space = Plain()
    assert repr(space) == "<Space plain>"
    assert space.options() == {}
    assert not space.threaded
    assert space.stage_sizes(problem) == (1, 2, 3, 4, 5, 6)


def test_its_plans_need_nothing_special_and_are_not_sorted(problem: Problem[Any]) -> None:
    space, search, plan = Plain(), Search(problem), room_plan(problem)
    assert list(space.families(search, 1.0)) == []
    assert not space.graded
    assert space.plainness(problem, plan) == {}
    assert list(space.names_before(search, problem.constraints)) == ["a", "b"]


def test_its_rule_is_memory(problem: Problem[Any]) -> None:
    space, plan = Plain(), room_plan(problem)
    fits, full = (
        StageCost(time=1.0, memory=(size,), time_terms={}, memory_terms={})
        for size in (3.0 * GIB, 4.0 * GIB)
    )
    cost = PlanCost(iteration_time=1.0, stages=(fits, full), terms={})
    assert [str(broken) for broken in space.check(problem, plan, cost)] == [
        "stage 1, device 2: memory: found 4.00 GiB, expected at most 3.00 GiB"
    ]
    assert space.explain(Search(problem)) == (
        "in every plan some device would need more memory than it has (T4 3.00 GiB, A100 3.00 GiB)"
    )


def test_seconds_add_up_to_an_iteration() -> None:
    problem = room_problem()
    plan = room_plan(problem)
    evaluation = evaluate(problem, plan)
    assert evaluation.cost is not None
    seconds = Plain().seconds(problem, plan, evaluation.cost)
    assert sum(seconds.values()) == pytest.approx(evaluation.iteration_time, rel=1e-9)


def test_bounds_are_taken_where_limits_and_memory_let_in_no_more() -> None:
    """What lets in more is named, limits before memory."""
    asked = Request(files={}, max_stages=2, memory_limits={"T4": 1.0 * GIB})
    more = Request(files={}, max_stages=3, memory_limits={"T4": 2.0 * GIB})
    assert list(Plain().widened(asked, asked)) == []
    first, second = Plain().widened(asked, more)
    assert first == "max stages: 2 there, 3 here"
    assert second.startswith("memory: ")


def test_what_a_proof_leaves_open_is_what_a_search_without_end_does(problem: Problem[Any]) -> None:
    plan = room_plan(problem)
    found: Any = Plain().proved_problem(problem, plan, {})
    (begun, task), of = found
    assert (begun, of) == (problem, plan)
    assert (task.limits.seconds, task.solver) == (math.inf, "dp")

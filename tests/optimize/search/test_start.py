"""What a search of any space takes of a saved plan."""

from dataclasses import replace
from typing import Any

import pytest

from ilp_planner.base.errors import PlanError, SolverError
from ilp_planner.evaluate import evaluate
from ilp_planner.inputs.problem import Problem
from ilp_planner.inputs.request import Reference, Request
from ilp_planner.optimize.certificate import check_certificate
from ilp_planner.optimize.search.start import Known, Start
from ilp_planner.optimize.solve import solve
from ilp_planner.optimize.solvers.base import Limits, Task
from tests.every_space import every_space, problem_in, result_in
from tests.tiny import tight_problem

FILES = {"profile": Reference(name="analytic")}


def asked_in(space: str, **changes: Any) -> Problem[Any]:
    """Return the problem of a space as one that was asked for; its inputs have no names."""
    problem = problem_in(space)
    limits = {"memory_limits": problem.memory_limits, **changes}
    return replace(problem, request=Request(files=FILES, space=space, **limits))


def start_in(space: str, **changes: Any) -> Start:
    """Return what a search of a space starts from that found its optimum before."""
    result, problem = result_in(space), asked_in(space)
    assert result.plan is not None
    start = Start(
        name="plan.json",
        plan=result.plan,
        space=problem.space.name,
        seconds=result.objective,
        request=problem.request,
        certificate=result.certificate,
    )
    return replace(start, **changes)


def note_of(problem: Problem[Any], start: Start) -> str:
    """Return what a search says of what it took; it finds what there is in any case."""
    found = solve(problem, start=start)
    assert found.objective == pytest.approx(start.seconds, rel=1e-9)
    assert found.gap == 0
    assert check_certificate(problem, found.certificate).holds
    return found.notes[len(problem.notes)]


@pytest.mark.few(1)
@every_space
def test_a_saved_optimum_needs_no_search(space: str) -> None:
    problem, start = asked_in(space), start_in(space)
    plans: list[float] = []
    solve(problem, start=start, progress=lambda plan, bound: plans.append(plan))
    assert plans[0] == start.seconds  # there before anything was searched
    note = note_of(problem, start)
    assert note.startswith("start: the plan of plan.json, ")
    count = len(start.certificate["parts"])
    if problem.space.name == "operators":
        assert "none of its bounds: of operators they rest on stages" in note
    else:
        assert f"bounds of {count} of {count} parts are that file's" in note


@pytest.mark.few(3)
@every_space
def test_more_memory_takes_no_bounds(space: str) -> None:
    had = {name: limit / 2 for name, limit in problem_in(space).memory_limits.items()}
    start = start_in(space)
    assert start.request is not None
    start = replace(start, request=replace(start.request, memory_limits=had))
    assert "none of its bounds: memory: " in note_of(asked_in(space), start)


@pytest.mark.few(2)
@every_space
def test_objects_are_not_known_to_be_the_same(space: str) -> None:
    assert "none of its bounds: an input is an object" in note_of(
        problem_in(space), start_in(space)
    )


def test_a_plan_that_is_none_of_the_space_is_not_taken() -> None:
    problem, start = tight_problem(), start_in("operators")
    stages = start.plan.stages
    broken = replace(start.plan, stages=(replace(stages[0], first_device=1), *stages[1:]))
    note = solve(problem, start=replace(start, plan=broken)).notes[len(problem.notes)]
    assert note.startswith("start: no plan like that of plan.json, which is none here (stage 0: ")


@every_space
def test_of_a_plan_comes_one_for_twice_the_batch(space: str) -> None:
    result, problem = result_in(space), asked_in(space)
    assert result.plan is not None
    twice = replace(
        problem,
        global_batch=2 * problem.global_batch,
        micro_batches=tuple(2 * count for count in problem.micro_batches),
    )
    search = twice.space.begin(twice, Task(Limits(), "auto"))
    twice.space.approach(search, result.plan)
    assert search.plan is not None
    assert search.plan.global_batch == twice.global_batch
    assert evaluate(twice, search.plan).legal
    assert twice.space.contains(twice, search.plan)


def test_a_search_that_contradicts_taken_bounds_names_their_file() -> None:
    problem, start = asked_in("megatron"), start_in("megatron")
    search = problem.space.begin(problem, Task(Limits(), "auto"))
    search.take_bounds([Known(2 * start.seconds, "work")] * len(search.states))
    search.borrowed = start.name
    with pytest.raises(SolverError, match=r"bounds of plan\.json were taken"):
        search.accept(start.plan)


def test_bounds_above_their_plan_are_refused() -> None:
    start = start_in("megatron")
    parts = [{**part, "bound_s": 2 * start.seconds} for part in start.certificate["parts"]]
    with pytest.raises(PlanError, match=r"plan\.json: certificate: found bounds of"):
        solve(asked_in("megatron"), start=replace(start, certificate={"parts": parts}))

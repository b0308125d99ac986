"""The best plans that differ in more than cuts, against a list of all plans."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ilp_planner.base.deadline import Deadline
from ilp_planner.evaluate import evaluate
from ilp_planner.optimize.result import Status, Stop
from ilp_planner.optimize.solve import solve
from ilp_planner.plan import GroupPlan
from tests.brute import every_plan, random_problem
from tests.examples import examples
from tests.megatron_cases import small_problem
from tests.mixed_cases import room_problem


def shape(plan: GroupPlan, problem) -> tuple[object, ...]:
    types = problem.cluster.type_of
    return (
        plan.micro_batches,
        tuple(
            (stage.tp, tuple(sorted(types[r.devices[0]] for r in stage.replicas)))
            for stage in plan.stages
        ),
    )


@examples(3, more=16)
@given(seed=st.integers(0, 10**6), top=st.integers(2, 5))
@example(seed=494, top=2)  # a family that takes more on the nodes than on the best links
def test_the_listed_families_are_the_best_ones(seed, top):
    # flat links: where groups sit makes no difference, and every family has one best time
    problem = random_problem(seed, links="flat", devices=4)
    best: dict[object, float] = {}
    for plan in every_plan(problem):
        seconds = problem.costs.plan_cost(plan, problem.cluster).iteration_time
        known = best.get(shape(plan, problem), math.inf)
        if seconds < known and evaluate(problem, plan).legal:
            best[shape(plan, problem)] = seconds
    result = solve(problem, top=top)
    if not best:
        assert result.plan is None
        return
    expected = sorted(best.values())[:top]
    found = [entry.evaluation.iteration_time for entry in result.ranking]
    assert found == sorted(found)
    assert found == pytest.approx(expected, rel=1e-9)
    assert len({shape(entry.plan, problem) for entry in result.ranking}) == len(found)
    for entry in result.ranking:
        assert entry.evaluation.legal
        assert entry.bound <= entry.evaluation.iteration_time * (1 + 1e-9)


@pytest.mark.parametrize("problem", [room_problem(), small_problem()], ids=repr)
def test_out_of_time_the_plan_itself_is_listed(problem, monkeypatch):
    """The time is up at the first plan."""
    found = []
    clock = property(lambda deadline: 0.0 if found else 60.0)
    monkeypatch.setattr(Deadline, "left", clock)
    result = solve(problem, top=3, progress=lambda best, bound: best < math.inf and found.append(1))
    assert (result.status, result.stopped_by) == (Status.FEASIBLE, Stop.TIME)
    assert [entry.plan for entry in result.ranking] == [result.plan]
    assert result.ranking[0].bound == result.bound


def test_one_plan_needs_no_list():
    result = solve(random_problem(3, links="flat", devices=4))
    assert result.ranking == ()

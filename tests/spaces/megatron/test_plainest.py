"""Plans of Megatron's space that are plainer than the one a search ends with."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ilp_planner.evaluate import evaluate
from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.search.ties import take_plainest, weight
from ilp_planner.solve import solve
from ilp_planner.solvers.base import Limits, Task
from ilp_planner.spaces.megatron import plainest
from ilp_planner.spaces.megatron.plainest import plainer, specialities
from tests.megatron_cases import FEW, small_problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ilp_planner.plan import GroupPlan, Replica
    from ilp_planner.spaces.megatron.parts import MegatronPart
    from ilp_planner.spaces.megatron.variants import Variant

TIE = 0.5


def turned(plan: GroupPlan, devices: int) -> GroupPlan:
    """Return a plan with its devices the other way round, in an order that no part has."""

    def other(replica: Replica) -> Replica:
        return replace(replica, devices=tuple(devices - 1 - d for d in replica.devices))

    stages = (replace(s, replicas=tuple(map(other, s.replicas))) for s in plan.stages)
    return replace(plan, stages=tuple(stages))


@pytest.mark.parametrize("of_a_part", [True, False])
def test_plainer_plans_are_found_beside_any_plan(of_a_part: bool) -> None:
    """That of a heuristic or of a file may be of no part of the search."""
    problem = small_problem(layers=5, constraints=constraints_of({**FEW, "pp": 2}))
    best = solve(problem).plan
    assert best is not None
    search = problem.space.begin(problem, Task(Limits(tie=TIE), "auto"))
    own = best if of_a_part else turned(best, problem.cluster.device_count)
    assert any(state.part.holds(own) for state in search.states) is of_a_part
    search.plan, search.evaluation = own, evaluate(problem, own)
    search.objective = evaluate(problem, best).iteration_time
    limit = search.objective * (1 + TIE)
    assert all(evaluate(problem, plan).legal for plan in plainer(search, limit))
    take_plainest(search)
    assert weight(specialities(search.plan)) < weight(specialities(best))


def test_what_needs_more_than_a_plan_that_was_taken_is_not_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is missed by that: the plan is the plainest of all, and the fastest of those."""
    problem = small_problem(layers=5, constraints=constraints_of({**FEW, "pp": 2}))
    best = solve(problem).plan
    assert best is not None
    search = problem.space.begin(problem, Task(Limits(tie=TIE), "auto"))
    search.plan, search.evaluation = best, evaluate(problem, best)
    search.objective = search.evaluation.iteration_time
    limit = search.objective * (1 + TIE)
    every = [*plainer(search, limit)]  # none is taken
    looked: list[tuple[bool, int]] = []
    needs, best_of = plainest._needs, plainest._best

    def spy(part: MegatronPart, variant: Variant, *given: Any) -> Iterator[GroupPlan]:
        looked.append(weight(needs(part, variant)))
        assert looked[-1] <= weight(specialities(search.plan))
        return best_of(part, variant, *given)

    monkeypatch.setattr(plainest, "_best", spy)
    take_plainest(search)
    taken = weight(specialities(search.plan))
    assert looked == sorted(looked)
    assert taken < weight(specialities(best))
    judged = [(weight(specialities(p)), evaluate(problem, p).iteration_time) for p in every]
    assert (taken, search.objective) == min(entry for entry in judged if entry[1] <= limit)

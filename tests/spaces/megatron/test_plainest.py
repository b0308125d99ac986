"""Plans of Megatron's space that are plainer than the one a search ends with."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ilp_planner.evaluate import evaluate
from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.search.ties import take_plainest, weight
from ilp_planner.solve import solve
from ilp_planner.solvers.base import Limits, Task
from ilp_planner.spaces.megatron.plainest import plainer, specialities
from tests.megatron_cases import FEW, small_problem

if TYPE_CHECKING:
    from ilp_planner.plan import GroupPlan, Replica

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

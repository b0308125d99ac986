import math

import numpy as np
import pytest

from ilp_planner.analysis.simulated import simulated, stage_times
from ilp_planner.base.errors import PlanError, UsageError
from ilp_planner.costs.base import PlanCost, StageCost
from ilp_planner.evaluate import Evaluation
from ilp_planner.plan import OperatorPlan, OperatorStage, Plan, Strategy


def priced(
    *seconds: float, virtual: int = 1, outside: float = 0.0
) -> tuple[OperatorPlan, PlanCost]:
    """Return a plan of 8 micro-batches whose stages take so long, and its price by the formula."""
    ranks = len(seconds) // virtual
    stages = tuple(
        OperatorStage(
            start=s, stop=s + 1, first_device=s % ranks, device_count=1, strategies=(Strategy(),)
        )
        for s in range(len(seconds))
    )
    plan = Plan(model="m", global_batch=8, micro_batches=8, stages=stages, virtual=virtual)
    costs = [StageCost(time=s, memory=(0.0,), time_terms={}, memory_terms={}) for s in seconds]
    loads = [sum(seconds[rank::ranks]) for rank in range(ranks)]
    time = plan.schedule.iteration_time(loads) + outside
    return plan, PlanCost(iteration_time=time, stages=tuple(costs), terms={})


def test_a_third_of_a_stage_is_its_forward_pass() -> None:
    _, cost = priced(3, 6)
    times = stage_times(cost)
    assert times.forward.tolist() == [1, 2]
    assert (times.forward + times.backward).tolist() == [3, 6]
    assert np.allclose(times.input + times.weight, times.backward)


def test_equal_virtual_stages_take_what_the_formula_says() -> None:
    plan, cost = priced(3, 3, 3, 3, virtual=2, outside=0.5)
    found = simulated(plan, Evaluation(cost=cost, violations=()))
    assert found.schedule == "interleaved"
    assert found.outside == pytest.approx(0.5)
    assert found.seconds == pytest.approx(found.judged)


def test_unequal_virtual_stages_take_longer_than_the_formula_says() -> None:
    plan, cost = priced(9, 3, 3, 9, virtual=2)
    found = simulated(plan, Evaluation(cost=cost, violations=()))
    assert found.seconds > 1.05 * found.judged
    assert found.least <= found.timeline.seconds


def test_a_schedule_that_the_plan_does_not_fit_is_refused() -> None:
    plan, cost = priced(3, 3)
    with pytest.raises(UsageError, match="schedule: zb-v takes 2 stages per rank"):
        simulated(plan, Evaluation(cost=cost, violations=()), "zb-v")


def test_a_plan_without_times_is_refused() -> None:
    plan, _ = priced(3, 3)
    for cost in (None, priced(3, math.inf)[1], priced(math.nan, 3)[1]):
        with pytest.raises(PlanError, match="plan: its stages have no times to simulate"):
            simulated(plan, Evaluation(cost=cost, violations=()))

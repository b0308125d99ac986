"""Costs as values: what they are compared by."""

from dataclasses import replace

import numpy as np

from ilp_planner.costs.base import PlanCost, StageCost
from ilp_planner.schedule.engine import StageTimes


def test_costs_are_equal_whatever_is_known_of_passes() -> None:
    """What is known of forward passes is a note on the time, and arrays have no equality."""
    stage = StageCost(time=1.0, memory=(2.0,), time_terms={}, memory_terms={})
    assert replace(stage, forward=0.5) == stage
    assert replace(stage, time=2.0) != stage
    plan = PlanCost(iteration_time=3.0, stages=(stage,), terms={})
    passes = StageTimes(*[np.zeros(2)] * 4, np.zeros(1), np.zeros(1))
    assert replace(plan, passes=passes) == plan
    assert replace(plan, iteration_time=4.0) != plan

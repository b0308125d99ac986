"""Costs as values: what they are compared by, and what surrounds a stage where nothing is said."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ilp_planner.costs.base import PlanCost, StageCost
from ilp_planner.costs.operators import Surroundings
from ilp_planner.simulation.engine import StageTimes


def test_costs_are_equal_whatever_is_known_of_passes() -> None:
    """What is known of forward passes is a note on the time, and arrays have no equality."""
    stage = StageCost(time=1.0, memory=(2.0,), time_terms={}, memory_terms={})
    assert replace(stage, forward=0.5) == stage
    assert replace(stage, time=2.0) != stage
    plan = PlanCost(iteration_time=3.0, stages=(stage,), terms={})
    passes = StageTimes(*[np.zeros(2)] * 4, np.zeros(1), np.zeros(1))
    assert replace(plan, passes=passes) == plan
    assert replace(plan, iteration_time=4.0) != plan


def test_a_stage_of_which_nothing_is_said_is_alone_on_its_node() -> None:
    alone = Surroundings(micro_batch=4, micro_batches=2)
    assert (alone.behind, alone.enters_node, alone.leaves_node) == (0, False, False)

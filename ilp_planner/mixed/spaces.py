"""The plan spaces by name; a space is imported when it is asked for."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ilp_planner.mixed.plan_space import Space
    from ilp_planner.mixed.problem import GroupProblem
    from ilp_planner.mixed.space import SpacePart

SPACES = {
    "planner": "ilp_planner.mixed.planner.own:PlannerSpace",
    "metis": "ilp_planner.mixed.metis.own:MetisSpace",
    "amp": "ilp_planner.mixed.amp.own:AmpSpace",
    "megatron": "ilp_planner.mixed.megatron.own:MegatronSpace",
}


def space_of(problem: GroupProblem) -> Space:
    """Return the plan space of a problem."""
    module, _, kind = SPACES[problem.space].partition(":")
    found: Space = getattr(importlib.import_module(module), kind)(problem)
    return found


def parts_of(problem: GroupProblem) -> list[SpacePart]:
    """Return the parts of the problem's plan space."""
    return space_of(problem).parts()

"""The plan spaces by name; a space is imported when it is asked for."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ilp_planner.group_problem import GroupProblem
    from ilp_planner.search.parts import SpacePart
    from ilp_planner.spaces.base import Space

SPACES = {
    "planner": "ilp_planner.spaces.groups.space:PlannerSpace",
    "metis": "ilp_planner.spaces.metis.space:MetisSpace",
    "amp": "ilp_planner.spaces.amp.space:AmpSpace",
    "megatron": "ilp_planner.spaces.megatron.space:MegatronSpace",
}


def space_of(problem: GroupProblem) -> Space:
    """Return the plan space of a problem."""
    module, _, kind = SPACES[problem.space].partition(":")
    found: Space = getattr(importlib.import_module(module), kind)(problem)
    return found


def parts_of(problem: GroupProblem) -> list[SpacePart]:
    """Return the parts of the problem's plan space."""
    return space_of(problem).parts()

"""From the request to the problem."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ilp_planner.spaces.groups.cost_models import COST_MODELS
from ilp_planner.spaces.groups.space import GroupSpace
from ilp_planner.spaces.layers import layer_problem

if TYPE_CHECKING:
    from ilp_planner.inputs.files import InputFiles
    from ilp_planner.problem import Problem


def build(files: InputFiles) -> Problem[Any]:
    """Read all inputs and build the problem.

    Raises
    ------
    SpecError, ProfileError, UsageError: the problem cannot be planned, with the reason.
    """
    model = COST_MODELS[files.request.cost_model]
    cluster = model.cluster(files)
    costing = model.costing(files, cluster)
    return layer_problem(files, GroupSpace(), cluster, costing, costing.costs.degrees())

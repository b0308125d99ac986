"""From the request to the problem."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ilp_planner.base.errors import UsageError
from ilp_planner.peers.amp.costs import AmpCosts
from ilp_planner.peers.amp.degrees import amp_space
from ilp_planner.peers.amp.source import amp_source
from ilp_planner.peers.amp.space import AmpSpace
from ilp_planner.spaces.layers import Costing, layer_problem, refuse_stages

if TYPE_CHECKING:
    from ilp_planner.inputs.files import InputFiles
    from ilp_planner.problem import Problem


def build(files: InputFiles) -> Problem[AmpCosts]:
    """Read all inputs and build the problem.

    Raises
    ------
    SpecError, ProfileError, UsageError: the problem cannot be planned, with the reason.
    """
    asked = files.request
    refuse_stages(files, AmpSpace.name)
    for name, value in (
        ("micro_batch_sizes", asked.micro_batch_sizes),
        ("memory_limit", asked.memory_limit),
    ):
        if value:
            raise UsageError(
                f"{name}: found it with `space=amp`, which tries every micro-batch and has "
                "no model of memory"
            )
    profile, (cluster, _) = amp_source(files), files.cluster
    free = asked.placement not in ("", "default")
    costs = AmpCosts(profile=profile, repaired=free)
    degrees = amp_space(costs, cluster, files.global_batch, max_tp=asked.max_tp)
    model = files.model_name or profile.model.name
    costing = Costing(costs, model, profile.source, degrees.notes)
    return layer_problem(files, AmpSpace(free=free), cluster, costing, costs.degrees())

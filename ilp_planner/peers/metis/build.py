"""From the request to the problem."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ilp_planner.peers.metis.costing import metis_costing
from ilp_planner.peers.metis.space import MetisSpace
from ilp_planner.spaces.layers import layer_problem, refuse_stages

if TYPE_CHECKING:
    from ilp_planner.inputs.files import InputFiles
    from ilp_planner.peers.metis.costs import MetisCosts
    from ilp_planner.problem import Problem


def build(files: InputFiles) -> Problem[MetisCosts]:
    """Read all inputs and build the problem.

    Raises
    ------
    SpecError, ProfileError, UsageError: the problem cannot be planned, with the reason.
    """
    refuse_stages(files, MetisSpace.name)
    costing, (cluster, _) = metis_costing(files, files.cluster[0]), files.cluster
    space = MetisSpace(summed=files.request.memory_rule == "metis")
    return layer_problem(files, space, cluster, costing, costing.costs.degrees())

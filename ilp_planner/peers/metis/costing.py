"""Metis's costs of layers on any groups of devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ilp_planner.base.errors import UsageError
from ilp_planner.peers.metis.cluster import metis_cluster_of
from ilp_planner.peers.metis.costs import MetisCosts
from ilp_planner.peers.metis.formulas import MetisFormulas
from ilp_planner.peers.metis.source import metis_source
from ilp_planner.spaces.groups.cost_models import MIXED, SPREAD
from ilp_planner.spaces.layers import Costing, memory_limits

if TYPE_CHECKING:
    from ilp_planner.inputs.files import InputFiles
    from ilp_planner.specs.cluster import ClusterSpec


def metis_costing(files: InputFiles, cluster: ClusterSpec) -> Costing:
    """Return Metis's costs, on its profile.

    Raises
    ------
    UsageError: shares are asked for, which are even here, or recomputation, or several degrees in a
    stage, or stages spread over nodes, which are not priced.
    """

    if files.request.shares:
        raise UsageError(
            f"`shares={files.request.shares}`: found it with `cost_model=metis`, whose shares are "
            "even as published, expected none"
        )
    if files.request.stage_tp == MIXED:
        raise UsageError(
            "`stage_tp=mixed`: found it with `cost_model=metis`, whose stages have one degree as "
            "published, expected one, or `cost_model=native`"
        )
    if files.request.seats == SPREAD:
        raise UsageError(
            "`seats=spread`: found it with `cost_model=metis`, whose formulas know packed stages, "
            "expected packed, or `cost_model=native`"
        )
    if files.request.constraints.recompute not in ((), ("none",)):
        asked = files.request.constraints.texts["recompute"]
        raise UsageError(
            f"`recompute={asked}`: found it with `cost_model=metis`, which measures layers without "
            "recomputation, expected none, or `cost_model=native`"
        )
    _, metis = files.cluster
    profile, model, sizes = metis_source(files)
    costs = MetisCosts(
        formulas=MetisFormulas(
            profile=profile,
            cluster=metis_cluster_of(cluster) if metis is None else metis,
            hidden=sizes.need("hidden"),
            sequence=sizes.need("sequence"),
            vocabulary=sizes.need("vocabulary"),
            row_names={name: cluster.device_types[name].profile for name in cluster.type_names},
        ),
        max_tp=files.request.max_tp,
        limits=memory_limits(cluster, files.request),
    )
    return Costing(costs, model, profile.named, costs.notes, says_degrees=True)

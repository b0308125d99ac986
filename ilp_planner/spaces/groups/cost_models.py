"""The cost models of layers on any groups of devices (`GroupTables`), by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.base.errors import UsageError
from ilp_planner.base.parts import part
from ilp_planner.inputs.profiles import layer_source
from ilp_planner.spaces.layers import Costing, memory_limits
from ilp_planner.specs.node_kinds import with_kinds

if TYPE_CHECKING:
    from collections.abc import Callable

    from ilp_planner.costs.profiles.layers import LayerProfile
    from ilp_planner.inputs.files import InputFiles
    from ilp_planner.inputs.request import Request
    from ilp_planner.specs.cluster import ClusterSpec

EVEN = "even"  # of the shares that a request may ask for
MIXED = "mixed"  # of the tensor-parallel degrees
SPREAD = "spread"  # of the seats


def native_costing(files: InputFiles, cluster: ClusterSpec) -> Costing:
    """Return the planner's own costs, on any profile of layers.

    Raises
    ------
    UsageError: layers must be recomputed, and the profile has no times for that.
    """
    from ilp_planner.costs.layers import layer_costs
    from ilp_planner.costs.profiles.device_names import for_cluster
    from ilp_planner.costs.profiles.recomputed import with_recomputation

    _, metis = files.cluster
    source = layer_source(files, cluster)
    rows = with_recomputation(for_cluster(source.profile, cluster))
    notes = () if metis is None else metis.notes
    if rows.links is not None:
        # Every placement of a group has to be bounded, measured or not.
        notes += (
            f"{rows.source}: measured links count in tensor-parallel messages; gradient rings and "
            "sends between stages rest on the cluster's links",
        )
    limits, uneven = memory_limits(cluster, files.request), files.request.shares != EVEN
    mixed_tp, spread = files.request.stage_tp == MIXED, files.request.seats == SPREAD
    asked = files.request.constraints.recompute
    kinds = tuple(dict.fromkeys("selective" if kind == "core_attn" else kind for kind in asked))
    costs = layer_costs(
        rows,
        cluster,
        limits,
        uneven=uneven,
        mixed_tp=mixed_tp,
        spread=spread,
        recomputations=kinds,
    )
    if not costs.recomputations:
        raise UsageError(_not_priced(files.request, rows))
    left = [kind for kind in kinds if kind not in costs.recomputations]
    if left:
        notes += (f"recompute {', '.join(left)}: not priced by {rows.source}, not tried",)
    notes = (*notes, *rows.notes)
    return Costing(costs, source.model, source.named, notes, short_batches=costs.uneven)


def _not_priced(asked: Request, rows: LayerProfile) -> str:
    """Return that a profile has none of the requested kinds of recomputation."""
    found = f"`recompute={asked.constraints.texts['recompute']}`: found {rows.source}"
    if "full" in rows.recomputed:
        return (
            f"{found}, which does not say what layers hold whose attention's core is computed "
            "again (flash attention keeps no scores), expected none, full or block"
        )
    return (
        f"{found}, which has no forward passes by themselves, expected none; an analytic profile, "
        "or a table with forward passes, says what layers take that are computed again"
    )


def metis_costing(files: InputFiles, cluster: ClusterSpec) -> Costing:
    """Return Metis's costs, on its profile."""
    found: Costing = part("peers.metis.build:metis_costing")(files, cluster)
    return found


class CostModel(NamedTuple):
    """The builder of costs, and its cluster.

    costing: of the files and the cluster. by_links: whether nodes of one type with different links
    are types of their own.
    """

    costing: Callable[[InputFiles, ClusterSpec], Costing]
    by_links: bool

    def cluster(self, files: InputFiles) -> ClusterSpec:
        """Return the cluster that is planned."""
        cluster, _ = files.cluster
        return with_kinds(cluster) if self.by_links else cluster


COST_MODELS = {
    "native": CostModel(native_costing, by_links=True),
    # Metis's formulas count the types of a stage, and know one rate of each node
    "metis": CostModel(metis_costing, by_links=False),
}

"""From a model, a cluster of equal devices and a profile of operators to a problem."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ilp_planner.base.errors import ProfileError, SpecError, UsageError
from ilp_planner.costs.models import COST_MODELS, costs_named
from ilp_planner.inputs.profiles import operator_source
from ilp_planner.problem import Problem
from ilp_planner.spaces.layers import micro_batch_counts
from ilp_planner.spaces.operators.space import OperatorSpace, stage_devices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.costs.operators import OperatorTables
    from ilp_planner.costs.profiles.table import Profile
    from ilp_planner.inputs.files import InputFiles
    from ilp_planner.specs.cluster import ClusterSpec
    from ilp_planner.specs.model import ModelSpec


def build(files: InputFiles) -> Problem[OperatorTables]:
    """Read all inputs and build the problem.

    Raises
    ------
    SpecError, ProfileError, UsageError: the problem cannot be planned, with the reason.
    """
    asked = files.request
    model, cluster = files.model_or_default(), files.cluster_file()
    exact = costs_named(asked.cost_model).exact_sizes
    recorded = (asked.memory_limits or {}).get(cluster.type_names[0])
    limits = [limit for limit in (asked.memory_limit, recorded) if limit is not None]
    return build_problem(
        model,
        cluster,
        operator_source(files, model, cluster, exact=exact),
        cost_model=asked.cost_model,
        global_batch=files.global_batch,
        micro_batch_sizes=asked.micro_batch_sizes,
        memory_limit=min(limits, default=None),
        max_stages=asked.max_stages,
        max_stage_nodes=asked.max_stage_nodes,
    )


def build_problem(
    model: ModelSpec,
    cluster: ClusterSpec,
    profile: Profile,
    *,
    cost_model: str = "native",
    global_batch: int,
    micro_batch_sizes: Sequence[int] = (),
    memory_limit: float | None = None,
    max_stages: int | None = None,
    max_stage_nodes: int | None = None,
) -> Problem[OperatorTables]:
    """Check the inputs against each other and freeze them.

    Parameters
    ----------
    micro_batch_sizes: to try, over all replicas; empty: all that replicas of profiled samples make
        up to the batch.
    memory_limit: bytes per device; None: all of the device's memory.
    max_stage_nodes: nodes that one stage is on, at most; None: any, if its costs have them.

    Raises
    ------
    SpecError, ProfileError, UsageError: the problem cannot be planned, with the reason.
    """
    if cost_model not in COST_MODELS:
        raise UsageError(
            f"cost_model: expected one of {', '.join(COST_MODELS)}, found {cost_model!r}"
        )
    limit = float(cluster.device.memory if memory_limit is None else memory_limit)
    if not limit > 0:
        raise SpecError(f"memory limit: must be positive, found {limit:.0f} bytes")
    stages = cluster.device_count if max_stages is None else max_stages
    if stages < 1:
        raise UsageError(f"max_stages: must be at least 1, found {stages}")
    missing = [op for op in dict.fromkeys(model.operators) if op not in _profiled(profile)]
    if missing:
        raise ProfileError(
            f"{profile.source}: operator {missing[0]!r} of {model.name} has no row "
            f"({len(missing)} operators without any)"
        )
    per_node = cluster.devices_per_node
    costs = costs_named(cost_model)(
        model.operators, model.family, profile, devices_per_node=per_node
    )
    notes = list(profile.notes)
    most = max_stage_nodes or cluster.node_count
    groups = stage_devices(cluster, most if costs.spans_nodes else 1)
    known = costs.micro_batch_sizes(groups)
    wanted = tuple(dict.fromkeys(micro_batch_sizes)) or _up_to(global_batch, known)
    if any(m < 1 for m in wanted):
        raise SpecError(f"micro-batch size: must be at least 1, found {min(wanted)}")
    unknown = [m for m in wanted if m not in known]
    if unknown:
        notes.append(
            f"micro-batch {', '.join(map(str, unknown))}: not of profiled samples "
            f"({', '.join(map(str, known))} are), left out"
        )
    profiled = [m for m in wanted if m in known]
    if not profiled:
        raise ProfileError(
            f"{profile.source}: no rows for micro-batch {', '.join(map(str, wanted))}, "
            f"expected one of {', '.join(map(str, known))}"
        )
    micro_batches, left_out = micro_batch_counts(global_batch, profiled)
    return Problem(
        model=model.name,
        cluster=cluster,
        space=OperatorSpace(group_sizes=groups),
        costs=costs,
        global_batch=global_batch,
        micro_batches=micro_batches,
        memory_limits={cluster.type_names[0]: limit},
        max_stages=min(stages, cluster.device_count, len(model.operators)),
        max_tp=max(g for g in groups if g <= per_node),
        profile_source=profile.source,
        notes=(*notes, *left_out),
    )


def _up_to(global_batch: int, sizes: Sequence[int]) -> Sequence[int]:
    """Return the sizes of micro-batches that are no larger than the batch; all, if none is."""
    return [size for size in sizes if size <= global_batch] or sizes


def _profiled(profile: Profile) -> set[str]:
    return {key.operator for key in profile.rows}

"""Memory and messages of every rank of a plan: of its training job, or of its stages one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ilp_planner.analysis.analyze import PURPOSES, Analysis, GroupKind, analyze_stages
from ilp_planner.analysis.devices import devices_of
from ilp_planner.analysis.placed import (
    device_names,
    link_of,
    placed_groups,
    placed_links,
    stage_jobs,
)
from ilp_planner.base.errors import PlanError
from ilp_planner.costs.training.job import node_order
from ilp_planner.formats.megatron.plan import job_of_plan
from ilp_planner.plan import is_of_groups
from ilp_planner.specs.data_sheets import capability_notes
from ilp_planner.specs.decoder import as_decoder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ilp_planner.plan import AnyPlan, GroupPlan
    from ilp_planner.specs.cluster import ClusterSpec
    from ilp_planner.specs.model import ModelSpec


def analyze_plan(
    plan: AnyPlan,
    model: ModelSpec,
    cluster: ClusterSpec,
    *,
    source: str,
    name: str = "",
    limit: float | None = None,
    device: str = "",
    notes: Sequence[str] = (),
) -> Analysis:
    """Return memory and messages of every rank of a plan.

    Parameters
    ----------
    source: the plan's name in messages. name: of the model, for people. limit: bytes of a device
        that may be used. device: its name. All three come from model and cluster unless they are
        said.

    Raises
    ------
    PlanError: neither a training job nor its stages one by one can say the plan.
    """
    devices = devices_of(cluster, limit)
    name, device = name or model.name, device or devices.name
    try:
        job = job_of_plan(plan, model, cluster)
    except PlanError as error:
        decoder = as_decoder(model.architecture)
        if decoder is None or not is_of_groups(plan):
            raise
        try:
            jobs = stage_jobs(plan, decoder, model.precision, cluster)
        except PlanError as misfit:
            raise PlanError(f"{source}: {misfit}") from None
        cp = plan.settings.cp if plan.settings else 1
        own = devices.notes if limit is not None else ()  # of the limits of all, not of each stage
        return analyze_stages(
            jobs,
            name=name,
            limit=devices.memory,
            limits=() if limit is not None else tuple(_limits(plan, cluster)),
            device=device,
            notes=(*notes, *own, *_remarks(plan, str(error))),
            placed=tuple(_kinds(plan, cluster, cp)),
            links=placed_links(plan, cluster, cp),
        )
    job = replace(job, devices_per_node=devices.per_node, generation=devices.generation)
    limits: tuple[float, ...] = ()
    own = devices.notes
    if limit is None and len(cluster.type_names) > 1 and is_of_groups(plan):
        limits = tuple(_limits(plan, cluster))
        own = (*cluster.notes, *capability_notes(cluster))
    return analyze_stages(
        (job,) * job.pp,
        name=name,
        limit=devices.memory,
        limits=limits,
        device=device,
        notes=(*notes, *own, *_order(plan, cluster)),
    )


def _remarks(plan: GroupPlan, reason: str) -> Iterator[str]:
    """Yield the assumptions about a plan that is analysed stage by stage, with reasons."""
    yield f"no launch line says all of this plan: {reason}"
    if plan.settings is None:
        yield (
            "the plan does not say how its ranks train: Adam with states on every replica, flash "
            "attention and no recomputation are assumed"
        )
    if any(len({replica.samples for replica in stage.replicas}) > 1 for stage in plan.stages):
        yield "replicas take different numbers of samples: the fullest of each stage is shown"


def _order(plan: AnyPlan, cluster: ClusterSpec) -> Iterator[str]:
    """Yield the nodes of the cluster for the names of GPUs, if ranks fill the nodes in another
    order than the cluster has."""
    order = node_order(plan, cluster) if is_of_groups(plan) else None
    if order is not None and list(order) != sorted(order):
        nodes = ", ".join(map(str, order))
        yield f"GPUs are named in the order of ranks: n0, n1, ... are nodes {nodes} of the cluster"


def _limits(plan: GroupPlan, cluster: ClusterSpec) -> Iterator[float]:
    """Yield the memory of the smallest device of every stage, bytes."""
    for stage in plan.stages[: plan.ranks]:
        names = {cluster.type_of[device] for device in stage.devices}
        yield float(min(cluster.device_types[name].memory for name in names))


def _kinds(plan: GroupPlan, cluster: ClusterSpec, cp: int) -> Iterator[GroupKind]:
    """Yield the groups of every stage that have more than one member."""
    names = device_names(cluster)
    for group in placed_groups(plan, cp):
        if len(group.devices[0]) > 1:
            yield GroupKind(
                kind=f"stage {group.stage} {group.kind}",
                purpose=PURPOSES[group.kind],
                size=len(group.devices[0]),
                count=len(group.devices),
                link=link_of(cluster, group.devices),
                members=tuple(tuple(names[d] for d in devices) for devices in group.devices),
            )

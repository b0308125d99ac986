"""Memory and messages of every rank of a plan: of its training job, or of its stages one by one.

Plans that no single launch line can say: each stage as a job of its own, on its own devices.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.analysis.analyze import PURPOSES, Analysis, GroupKind, analyze_stages
from ilp_planner.analysis.devices import devices_of
from ilp_planner.base.errors import PlanError
from ilp_planner.costs.training.job import layout_of, node_order
from ilp_planner.formats.megatron.plan import job_of_plan
from ilp_planner.job.groups import BETWEEN, INSIDE, MIXED, NOBODY
from ilp_planner.plan import is_of_groups
from ilp_planner.specs.data_sheets import architecture_notes, gpu_architecture
from ilp_planner.specs.decoder import as_decoder
from ilp_planner.specs.gpu_architectures import HOPPER
from ilp_planner.specs.training import Settings, TrainingJob

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ilp_planner.plan import AnyPlan, GroupPlan, GroupStage
    from ilp_planner.specs.cluster import ClusterSpec
    from ilp_planner.specs.decoder import Decoder
    from ilp_planner.specs.model import ModelSpec


# ---- placed --------------------------------------------------------------------------------------


AROUND = 2  # what a chain of layers has besides the transformer's: embedding and head


class PlacedGroup(NamedTuple):
    """Groups of one kind in one stage, as devices of the cluster."""

    kind: str
    stage: int
    devices: tuple[tuple[int, ...], ...]


def stage_jobs(
    plan: GroupPlan, model: Decoder, precision: str, cluster: ClusterSpec | None = None
) -> tuple[TrainingJob, ...]:
    """Return for every pipeline rank of a plan the job that has its degrees everywhere.

    A stage whose replicas take different numbers of samples is shown by its fullest replica.

    Raises
    ------
    PlanError: the plan is of a chain with another number of layers, or replicas of a stage differ
        in their degree.
    """
    last = model.layers + AROUND
    if plan.stages[-1].stop != last:
        raise PlanError(
            f"plan.stages: found {plan.stages[-1].stop} layers, expected {last}: embedding, "
            f"{model.layers} transformer layers and head"
        )
    layout = layout_of((0, *(stage.stop for stage in plan.stages)), model)
    settings = plan.settings or Settings(precision=precision)
    found = []
    for rank in range(plan.ranks):
        stage = plan.stages[rank]
        if len(stage.degrees) > 1:
            found_degrees = " and ".join(map(str, stage.degrees))
            raise PlanError(
                f"plan.stages[{rank}].tp: found {found_degrees}, expected one degree for all "
                "replicas of a stage"
            )
        samples = max(1, *(replica.samples for replica in stage.replicas))
        found.append(
            TrainingJob(
                model=model,
                micro_batch=samples,
                global_batch=samples * stage.dp * plan.micro_batches,
                tp=max(1, stage.tp // settings.cp),
                pp=plan.ranks,
                dp=stage.dp,
                layout=layout,
                settings=settings,
                gpu_architecture=HOPPER  # of the oldest devices of the stage
                if cluster is None
                else gpu_architecture(cluster, {cluster.type_of[d] for d in stage.devices}),
            )
        )
    return tuple(found)


def placed_groups(plan: GroupPlan, cp: int = 1) -> Iterator[PlacedGroup]:
    """Yield the groups of every stage on the plan's own devices.

    Stages with equally many devices hand on in pairs; others have no fixed partners.
    """
    for r in range(plan.ranks):
        stage = plan.stages[r]
        tp = max(1, stage.tp // cp)
        rows = [_rows(replica.devices, tp) for replica in stage.replicas]
        yield PlacedGroup(kind="tp", stage=r, devices=tuple(row for each in rows for row in each))
        if cp > 1:
            contexts = (tuple(zip(*each, strict=True)) for each in rows)
            yield PlacedGroup(
                kind="cp", stage=r, devices=tuple(g for each in contexts for g in each)
            )
        replicas = [replica.devices for replica in stage.replicas]
        yield PlacedGroup(kind="dp", stage=r, devices=tuple(zip(*replicas, strict=True)))
        if r + 1 < plan.ranks:
            pairs = _pairs(stage, plan.stages[r + 1])
            if pairs:
                yield PlacedGroup(kind="pp", stage=r, devices=pairs)


def _rows(devices: tuple[int, ...], tp: int) -> tuple[tuple[int, ...], ...]:
    return tuple(devices[i : i + tp] for i in range(0, len(devices), tp))


def _pairs(stage: GroupStage, following: GroupStage) -> tuple[tuple[int, ...], ...]:
    if len(stage.devices) != len(following.devices):
        return ()
    return tuple(zip(stage.devices, following.devices, strict=True))


def placed_links(plan: GroupPlan, cluster: ClusterSpec, cp: int = 1) -> dict[tuple[str, int], str]:
    """Return the links of the messages of each kind of group, by (kind, pipeline rank)."""
    links = {
        (group.kind, group.stage): link_of(cluster, group.devices)
        for group in placed_groups(plan, cp)
    }
    for r in range(plan.ranks):
        here, after = plan.stages[r], plan.stages[(r + 1) % plan.ranks]
        links["dp-cp", r] = links["dp", r] if cp == 1 else _joined(links["dp", r], links["cp", r])
        if r + 1 < plan.ranks and ("pp", r) not in links:
            pairs = ((a, b) for a in here.devices for b in after.devices)
            links["pp", r] = link_of(cluster, pairs)
    return links


def _joined(*links: str) -> str:
    kinds = set(links) - {NOBODY}
    return MIXED if len(kinds) > 1 else kinds.pop() if kinds else NOBODY


def link_of(cluster: ClusterSpec, groups: Iterable[Sequence[int]]) -> str:
    """Return the links of the messages of groups of devices."""
    found = set()
    for group in groups:
        if len(group) < 2:
            return NOBODY
        nodes = {cluster.node_of[device] for device in group}
        found.add(INSIDE if len(nodes) == 1 else BETWEEN)
    return MIXED if len(found) > 1 else found.pop() if found else NOBODY


def device_names(cluster: ClusterSpec) -> Mapping[int, str]:
    """Return `n0_g0` of every device: its node, and its place there."""
    first: dict[int, int] = {}
    names = {}
    for device, node in enumerate(cluster.node_of):
        first.setdefault(node, device)
        names[device] = f"n{node}_g{device - first[node]}"
    return names


# ---- plans ---------------------------------------------------------------------------------------


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
    job = replace(job, devices_per_node=devices.per_node, gpu_architecture=devices.gpu_architecture)
    limits: tuple[float, ...] = ()
    own = devices.notes
    if limit is None and len(cluster.type_names) > 1 and is_of_groups(plan):
        limits = tuple(_limits(plan, cluster))
        own = (*cluster.notes, *architecture_notes(cluster))
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

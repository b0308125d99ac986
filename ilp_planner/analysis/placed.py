"""Plans that no single launch line can say: each stage as a job of its own, on its own devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.base.errors import PlanError
from ilp_planner.costs.training.job import layout_of
from ilp_planner.job.groups import BETWEEN, INSIDE, MIXED, NOBODY
from ilp_planner.specs.data_sheets import generation
from ilp_planner.specs.generations import HOPPER
from ilp_planner.specs.training import Settings, TrainingJob

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ilp_planner.plan import GroupPlan, GroupStage
    from ilp_planner.specs.cluster import ClusterSpec
    from ilp_planner.specs.decoder import Decoder

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
                generation=HOPPER  # of the oldest devices of the stage
                if cluster is None
                else generation(cluster, {cluster.type_of[d] for d in stage.devices}),
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

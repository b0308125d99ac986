"""Limits of a problem, and its relaxations by one limit each."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from ilp_planner.base.files import Document
from ilp_planner.base.units import counted, format_bytes
from ilp_planner.inputs.request import Reference
from ilp_planner.inputs.table import INPUTS
from ilp_planner.spaces.registry import SPACES
from ilp_planner.specs.cluster_writer import cluster_text
from ilp_planner.specs.degrees import divisors
from ilp_planner.specs.gpu_cluster import with_more_nodes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from ilp_planner.inputs.constraints import Constraints
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.inputs.request import Request
    from ilp_planner.plan import AnyPlan
    from ilp_planner.specs.cluster import ClusterSpec, NodeGroup
    from ilp_planner.specs.link import Link

MORE = 2**30  # bytes of each device that are tried
TIMES = 2  # of the rate of links, of samples and of devices in a node
# Limits of a request besides its constraints, and what they are called.
LIMITS = {row.attribute: row.limit for row in INPUTS if row.limit}


@dataclass(frozen=True, slots=True, kw_only=True)
class Relaxation:
    """A limit, and a request that lets go of it.

    limit: for people. change: the relaxed limit. kind: for programs, one of `memory`, `node`,
    `links`, `batch`, `nodes` and `asked`. device: the type that there is more of; empty: no one
    type's. scale: seconds for the samples of before are so many times those of the new iteration.
    wider: the plans of before are still there and take no longer, so that no gain is below nothing.
    """

    limit: str
    change: str
    kind: str
    request: Request
    device: str = ""
    scale: float = 1.0
    wider: bool = True


def relaxations(
    problem: Problem[Any], whole: ClusterSpec, plan: AnyPlan, chosen: Collection[str] = ()
) -> tuple[Relaxation, ...]:
    """Return the relaxations of a problem. The user's own constraints come first.

    Parameters
    ----------
    whole: the cluster of the problem's request with all of its nodes. plan: of the problem.
    chosen: constraints that the search chose, not the user: they limit nothing.
    """
    assert problem.request is not None
    asked = replace(problem.request, memory_limits=None)
    found = [*_asked(asked, chosen), *_context(problem, asked), *_batches(problem, asked, plan)]
    if "cluster" in asked.files:
        found += [
            *_memory(problem, asked, whole),
            *_nodes(asked, whole),
            *_links(asked, whole),
            *_larger_nodes(asked, whole),
        ]
    return tuple(found)


def _asked(asked: Request, chosen: Collection[str]) -> Iterator[Relaxation]:
    """Yield the problem without each of the user's constraints and limits."""
    for name, text in asked.constraints.texts.items():
        if name in chosen:
            continue
        yield Relaxation(
            limit=f"{name.replace('_', ' ')} {text}",
            change="not asked for",
            kind="asked",
            request=replace(asked, constraints=asked.constraints.but([name])),
        )
    defaults = {field.name: field.default for field in fields(asked)}
    for name, what in LIMITS.items():
        value, default = getattr(asked, name), defaults[name]
        if value == default:
            continue
        shown = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
        shown = format_bytes(value) if name == "memory_limit" else shown
        yield Relaxation(
            limit=f"{what} {shown}",
            change="not asked for",
            kind="asked",
            request=replace(asked, **dict[str, Any]({name: default})),
        )
    usual = "any"
    if asked.shares not in ("", usual):
        yield Relaxation(
            limit=f"shares {asked.shares}",
            change=usual,
            kind="asked",
            request=replace(asked, shares=usual),
        )


def _batches(problem: Problem[Any], asked: Request, plan: AnyPlan) -> Iterator[Relaxation]:
    """Yield one more micro-batch of the plan's, and twice the samples: their seconds are for as
    many samples as before."""
    if asked.experiment:
        return
    batch = problem.global_batch
    sizes = {batch + plan.micro_batch_size: "one more micro-batch", TIMES * batch: "twice as large"}
    for samples, change in sizes.items():
        yield Relaxation(
            limit=f"batch of {batch}",
            change=f"{change}, per {batch} samples",
            kind="batch",
            request=replace(asked, global_batch=samples),
            scale=batch / samples,
            wider=False,
        )


def _context(problem: Problem[Any], asked: Request) -> Iterator[Relaxation]:
    """Yield twice the context parallelism that is tried without being asked for more."""
    if "max_cp" in SPACES[problem.space.name].options and asked.max_cp is None:
        tried: int = problem.costs.max_cp
        if tried * TIMES in divisors(problem.cluster.device_count) and tried > 1:
            yield Relaxation(
                limit=f"context parallelism up to {tried}",
                change=f"up to {TIMES * tried}",
                kind="asked",
                request=replace(asked, max_cp=TIMES * tried),
            )


def _memory(problem: Problem[Any], asked: Request, whole: ClusterSpec) -> Iterator[Relaxation]:
    """Yield more memory of each device type; of a limit that was asked for, of all of them."""
    if not any(problem.memory_limits.values()) or not SPACES[problem.space.name].memory:
        return
    if asked.memory_limit is not None:
        limit = asked.memory_limit + MORE
        yield Relaxation(
            limit=f"memory limit {format_bytes(asked.memory_limit)}",
            change=f"{format_bytes(MORE)} more, as far as devices have it",
            kind="memory",
            request=replace(asked, memory_limit=limit),
        )
        return
    for name in problem.cluster.type_names:
        device = whole.device_types[name]
        more = replace(device, memory=device.memory + MORE)
        types = {**whole.device_types, name: more}
        yield Relaxation(
            limit=f"memory of {device.type}, {format_bytes(problem.memory_limits[name])}",
            change=f"{format_bytes(MORE)} more of each",
            kind="memory",
            device=device.type,
            request=_on(asked, replace(whole, device_types=types)),
        )


def _nodes(asked: Request, whole: ClusterSpec) -> Iterator[Relaxation]:
    """Yield one more node of each device type, for plans to use or not; links between two nodes
    each say nothing of another one's."""
    if whole.matrix or asked.constraints.max_devices is not None:
        return
    for name in whole.type_names:
        own = [group for group in whole.nodes if group.device == name]
        kind, count = whole.device_types[name].type, sum(group.count for group in own)
        yield Relaxation(
            limit=f"{counted(count, 'node')} of {own[0].devices} {kind}",
            change="one more",
            kind="node",
            device=kind,
            request=_on(asked, _with_node(whole, own[0], last=bool(asked.constraints.without))),
        )


def _with_node(whole: ClusterSpec, group: NodeGroup, *, last: bool) -> ClusterSpec:
    """Return a cluster with one more node like those of a group: among them, or after all others,
    whose numbers and groups then mean what they did."""
    if last:
        return with_more_nodes(whole, [*whole.nodes, replace(group, count=1, name="")])
    more = replace(group, count=group.count + 1)
    return with_more_nodes(whole, [more if one is group else one for one in whole.nodes])


def _links(asked: Request, whole: ClusterSpec) -> Iterator[Relaxation]:
    """Yield links inside nodes, and between them, of twice the rate."""
    if max(whole.devices_of_nodes) > 1:
        yield Relaxation(
            limit="links inside nodes",
            change="twice as fast",
            kind="links",
            request=_on(
                asked,
                replace(
                    whole,
                    intra_node=_faster(whole.intra_node),
                    within={name: _faster(link) for name, link in whole.within.items()},
                ),
            ),
        )
    if whole.node_count > 1:
        matrix = tuple(tuple(map(_faster, row)) for row in whole.matrix)
        zones = tuple(replace(zone, link=_faster(zone.link)) for zone in whole.zones)
        between = {pair: _faster(link) for pair, link in whole.between.items()}
        yield Relaxation(
            limit="links between nodes",
            change="twice as fast",
            kind="links",
            request=_on(
                asked,
                replace(
                    whole,
                    inter_node=_faster(whole.inter_node),
                    between=between,
                    matrix=matrix,
                    zones=zones,
                ),
            ),
        )


def _faster(link: Link) -> Link:
    """Return a link of twice the rate."""
    collectives = {count: TIMES * rate for count, rate in link.collectives.items()}
    return replace(link, bandwidth=TIMES * link.bandwidth, collectives=collectives)


def _larger_nodes(asked: Request, whole: ClusterSpec) -> Iterator[Relaxation]:
    """Yield half as many nodes of twice the devices, so that tensor parallelism reaches over two of
    today's: for equal nodes with equal links."""
    alone = len(whole.nodes) == 1 and whole.symmetric and not whole.within
    group = whole.nodes[0]
    if not alone or group.count % TIMES or asked.constraints.without:
        return
    nodes = (replace(group, count=group.count // TIMES, devices=TIMES * group.devices),)
    request = _on(asked, replace(whole, nodes=nodes))
    yield Relaxation(
        limit=f"tensor parallelism within nodes of {group.devices}",
        change=f"nodes of {TIMES * group.devices}, half as many",
        kind="nodes",
        request=request,
        wider=False,
    )


def _on(asked: Request, cluster: ClusterSpec) -> Request:
    """Return a request on another cluster, held as text."""
    name = asked.files["cluster"].name
    text = cluster_text(cluster)
    held = Reference(name=name, sha256=Document(name, text).sha256, text=text)
    return replace(asked, files={**asked.files, "cluster": held})


def with_constraints(asked: Request, demands: Constraints) -> Request:
    """Return a request with further demands, which precede its own."""
    new = {name: getattr(demands, name) for name in demands.texts}
    return replace(asked, constraints=asked.constraints.with_(**new), memory_limits=None)

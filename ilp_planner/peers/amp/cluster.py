"""AMP's clusters: nodes with one figure for their links inside and one for links to other nodes.

A node sends to itself at `intra_Gbps`, and two nodes send to each other at the smaller of their
`inter_Gbps`. The nodes of one instance type need not have the same figures.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ilp_planner.base.errors import SpecError
from ilp_planner.base.limits import DEVICES
from ilp_planner.specs.cluster import ClusterSpec, Device, NodeGroup
from ilp_planner.specs.link import Link
from ilp_planner.specs.toml_reader import Table

GIGABIT = 1e9 / 8  # bytes
# AMP's files have no latency and its cost model uses none; other cost models need one. Inside a
# node it is that of NVLink or PCIe, between nodes that of TCP in a data centre.
LATENCY_WITHIN = 5e-6
LATENCY_BETWEEN = 25e-6
MOST_GIGAS = 1e6  # of bytes or bits per second


@dataclass(frozen=True, slots=True, kw_only=True)
class AmpNode:
    """One node.

    number: its place in the order of the ranks. instance: as profiles name it. gpu: device type.
    memory: bytes per device. within, between: bytes/s inside the node and to other nodes.
    """

    number: int
    instance: str
    gpu: str
    gpus: int
    memory: int
    within: float
    between: float
    name: str = ""


def read_amp_nodes(cluster: Table) -> tuple[AmpNode, ...]:
    """Read `nodes` of one cluster, in the order of their `id`.

    Raises
    ------
    SpecError: one line with the file, the key, the found and the expected value.
    """
    values = cluster.values.get("nodes")
    if not isinstance(values, list) or not values:
        found = "nothing" if values is None else "an empty list" if values == [] else repr(values)
        raise cluster.error(f"nodes must be a list of at least one node, found {found:.60}")
    nodes = []
    for place, value in enumerate(values):
        where = f"{cluster.where}.nodes[{place}]"
        if not isinstance(value, dict):
            raise cluster.error(f"nodes[{place}] must be an object, found {value!r:.60}")
        nodes.append(_read_node(Table(value, file=cluster.file, where=where), place))
    nodes.sort(key=lambda node: node.number)
    for a, b in itertools.pairwise(nodes):
        if a.number == b.number:
            raise cluster.error(f"nodes must have different ids, found {a.number} twice")
    return tuple(nodes)


def _read_node(node: Table, place: int) -> AmpNode:
    number = node.values.get("id", place)
    if isinstance(number, bool) or not isinstance(number, int):
        raise node.error(f"id must be a whole number, found {number!r}")
    if node.whole("gpus") > DEVICES:
        raise node.error(f"gpus must be at most {DEVICES}, found {node.whole('gpus')!r:.60}")
    return AmpNode(
        number=number,
        instance=node.text("instance"),
        gpu=node.text("gpu"),
        gpus=node.whole("gpus"),
        memory=round(_figure(node, "mem_GB") * 2**30),
        within=_figure(node, "intra_Gbps") * GIGABIT,
        between=_figure(node, "inter_Gbps") * GIGABIT,
    )


def _figure(node: Table, key: str) -> float:
    value = node.number(key)
    if not 1 / MOST_GIGAS <= value <= MOST_GIGAS:
        raise node.error(f"{key} must be {1 / MOST_GIGAS:g} to {MOST_GIGAS:g}, found {value!r}")
    return value


def on_hosts(
    nodes: Sequence[AmpNode], hosts: Sequence[tuple[str, int]], *, file: str
) -> tuple[AmpNode, ...]:
    """Return the nodes that a DeepSpeed hostfile lists, with its names and numbers of devices.

    Hosts are the nodes one by one; if all nodes are equal, there may be more or fewer hosts.

    Parameters
    ----------
    hosts: (name, slots) in the order of the ranks. file: to blame.

    Raises
    ------
    SpecError: the hosts cannot be these nodes.
    """
    if not hosts:
        raise SpecError(f"{file}: expected at least one host, found none")
    alike = {replace(node, number=0) for node in nodes}
    if len(alike) == 1:
        nodes = [nodes[0]] * len(hosts)
    if len(hosts) != len(nodes):
        raise SpecError(
            f"{file}: expected {len(nodes)} hosts, one for each node of the cluster "
            f"(its nodes differ), found {len(hosts)}"
        )
    for (host, slots), node in zip(hosts, nodes, strict=True):
        if not 1 <= slots <= node.gpus:
            raise SpecError(
                f"{file}: {host}: slots must be 1 to {node.gpus}, which a node of "
                f"{node.instance} has, found {slots}"
            )
    return tuple(
        replace(node, number=number, name=host, gpus=slots)
        for number, ((host, slots), node) in enumerate(zip(hosts, nodes, strict=True))
    )


def device_types(nodes: Sequence[AmpNode]) -> tuple[str, ...]:
    """Return the name of each node's device type: its GPU, with the instance or the speed of its
    links if the GPU would name two different ones."""
    kinds = {(node.instance, node.gpu, node.memory, node.within) for node in nodes}
    namings: tuple[Callable[[AmpNode], str], ...] = (
        lambda node: node.gpu,
        lambda node: f"{node.gpu} {node.instance}",
        lambda node: f"{node.gpu} {node.instance} {node.within / GIGABIT:g} Gbit/s",
    )
    for naming in namings:
        if len({naming(node) for node in nodes}) == len(kinds):
            return tuple(naming(node) for node in nodes)
    return tuple(
        f"{namings[-1](node)} {node.memory / 2**30:g} GiB" for node in nodes
    )  # the memory differs, and nothing else is left to differ


def amp_cluster(name: str, nodes: Sequence[AmpNode]) -> tuple[ClusterSpec, Mapping[str, str]]:
    """Return the cluster, and the instance of each of its device types.

    Nodes of a type that differ in their link to other nodes get a matrix of links.
    """
    types = device_types(nodes)
    first = dict(reversed(list(zip(types, nodes, strict=True))))
    between = {
        kind: {n.between for t, n in zip(types, nodes, strict=True) if t == kind} for kind in first
    }
    even = all(len(figures) == 1 for figures in between.values())
    pairs = itertools.combinations_with_replacement(sorted(first), 2)
    cluster = ClusterSpec(
        name=name,
        device_types={
            kind: Device(name=kind, memory=node.memory)
            for kind, node in ((kind, first[kind]) for kind in dict.fromkeys(types))
        },
        nodes=tuple(
            NodeGroup(device=kind, devices=node.gpus, name=node.name)
            for kind, node in zip(types, nodes, strict=True)
        ),
        intra_node=_within(nodes[0].within),
        inter_node=_between(nodes[0], nodes[0]),
        within={kind: _within(node.within) for kind, node in first.items()},
        between={(a, b): _between(first[a], first[b]) for a, b in pairs} if even else {},
        matrix=() if even else tuple(tuple(_between(a, b) for b in nodes) for a in nodes),
    )
    return cluster, {kind: node.instance for kind, node in first.items()}


def _within(bandwidth: float) -> Link:
    return Link(bandwidth=bandwidth, latency=LATENCY_WITHIN)


def _between(a: AmpNode, b: AmpNode) -> Link:
    return Link(bandwidth=min(a.between, b.between), latency=LATENCY_BETWEEN)

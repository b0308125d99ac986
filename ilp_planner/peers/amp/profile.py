"""AMP's published profiles: forward seconds per layer of one sample, its models and its clusters.

One JSON file holds `clusters` (an experiment each: nodes, model, global batch), `profiles` (one per
model, instance type and tensor-parallel degree) and a section of dimensions per model.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.base.errors import ProfileError, SpecError
from ilp_planner.base.file_kinds import FileKind, refuse_other_kind
from ilp_planner.base.files import read_json
from ilp_planner.base.limits import DEVICES
from ilp_planner.peers.amp.models import AmpModel, child, dimension, read_model
from ilp_planner.specs.cluster import ClusterSpec, Device, NodeGroup
from ilp_planner.specs.link import Link
from ilp_planner.specs.toml_reader import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from ilp_planner.base.numerics import Floats


# ---- AMP's clusters ------------------------------------------------------------------------------
# Nodes with one figure for their links inside and one for links to other nodes.
# A node sends to itself at `intra_Gbps`, and two nodes send to each other at the smaller of their
# `inter_Gbps`. The nodes of one instance type need not have the same figures.


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


# ---- profile -------------------------------------------------------------------------------------


PASSES = 3  # AMP: forward and backward take three times the forward pass
LONGEST = 1e9  # seconds; no layer takes longer, and none takes less than 1 / LONGEST


@dataclass(frozen=True, kw_only=True, eq=False)
class AmpProfile:
    """Measured rows of one model on the device types of one cluster.

    source: for the user. forward: (device type, tp) -> float64 [L], seconds of the forward pass of
    one sample, tensor-parallel communication included. whole: likewise, with operators before each
    layer, or after the last, that AMP does not charge; empty: nothing does.
    """

    source: str
    model: AmpModel
    forward: Mapping[tuple[str, int], Floats]
    whole: Mapping[tuple[str, int], Floats] = field(default_factory=dict)

    def degrees(self, device: str) -> tuple[int, ...]:
        """Tensor-parallel degrees that a device type has rows for, ascending."""
        return tuple(sorted(tp for kind, tp in self.forward if kind == device))


@dataclass(frozen=True, kw_only=True, eq=False)
class AmpExperiment:
    """One of the clusters of a file, with the model and the batch that it trains."""

    name: str
    cluster: ClusterSpec
    profile: AmpProfile
    global_batch: int


def read_amp(
    path: Path, experiment: str = "", *, hosts: Sequence[tuple[str, int]] = (), hostfile: str = ""
) -> AmpExperiment:
    """Read one experiment.

    experiment: its name; may be left out when the file has one.
    hosts: (name, slots) of a DeepSpeed hostfile, to run on instead of on all devices of the nodes;
        hostfile: where they come from, to blame.

    Raises
    ------
    SpecError, ProfileError: one line with the file, the key, the found and the expected value.
    """
    root = _root(path)
    clusters = child(root, "clusters")
    name = _chosen(clusters, experiment)
    table = child(clusters, name)
    nodes = read_amp_nodes(table)
    if hosts or hostfile:
        nodes = on_hosts(nodes, hosts, file=hostfile or "hostfile")
    cluster, instances = amp_cluster(name, nodes)
    profile = _profile(root, table.text("model"), instances, str(path))
    return AmpExperiment(
        name=name, cluster=cluster, profile=profile, global_batch=dimension(table, "gbs")
    )


def read_amp_profile(path: Path, model: str, devices: Sequence[str]) -> AmpProfile:
    """Read the rows of a model for device types of a cluster that is described elsewhere.

    devices: names of the cluster's types in profiles (`Device.profile`); each is the
        `instance` or the `device` of some profile.
    """
    root = _root(path)
    instances = {}
    entries = [child(child(root, "profiles"), key) for key in child(root, "profiles").values]
    for device in devices:
        named = {
            entry.text("instance")
            for entry in entries
            if device in (entry.text("instance"), entry.text("device"))
        }
        if len(named) > 1:
            found = ", ".join(sorted(named))
            raise ProfileError(
                f"{path}: profiles: {device!r} must be of one instance, found {found}"
            )
        instances[device] = named.pop() if named else device
    return _profile(root, model, instances, str(path))


def _root(path: Path) -> Table:
    refuse_other_kind(path, FileKind.AMP, ProfileError)
    values = read_json(path, ProfileError)
    if not isinstance(values, dict):
        raise ProfileError(
            f"{path}: expected an object with clusters and profiles, found {values!r:.60}"
        )
    return Table(values, file=str(path))


def _chosen(clusters: Table, experiment: str) -> str:
    names = list(clusters.values)
    if not experiment and len(names) == 1:
        return names[0]
    if experiment not in names:
        found = repr(experiment) if experiment else "no experiment to choose"
        known = ", ".join(names) or "none"
        raise SpecError(f"{clusters.file}: `experiment`: expected one of {known}, found {found}")
    return experiment


# ---- rows ---------------------------------------------------------------------------------------


def _profile(root: Table, model: str, instances: Mapping[str, str], source: str) -> AmpProfile:
    shape = read_model(root, model)
    profiles = child(root, "profiles")
    rows: dict[tuple[str, int], tuple[str, list[float]]] = {}
    for key in sorted(profiles.values):
        entry = child(profiles, key)
        if entry.text("model") != model:
            continue
        found = entry.text("instance"), entry.whole("tp")
        if found in rows:
            raise entry.error(
                f"must differ from {rows[found][0]} in instance or tp, found the same"
            )
        if entry.whole("mbs", 1) != 1:
            raise entry.error(f"mbs must be 1: AMP scales one sample, found {entry.whole('mbs')}")
        rows[found] = key, _forward(entry, shape)
    forward: dict[tuple[str, int], Floats] = {}
    whole: dict[tuple[str, int], Floats] = {}
    begins = [0, *(row + 1 for row in shape.rows[:-1])]  # of what a cut leaves in one piece
    for device, instance in instances.items():
        known = {tp: row for (name, tp), (_, row) in rows.items() if name == instance}
        if not known:
            there = ", ".join(sorted({name for name, _ in rows})) or "none"
            raise ProfileError(
                f"{root.file}: profiles: expected rows of {model!r} on {instance!r}, "
                f"found those on {there}"
            )
        for tp, row in sorted(known.items()):
            seconds = np.array(row, dtype=np.float64)
            forward[device, tp] = seconds[list(shape.rows)]
            whole[device, tp] = np.add.reduceat(seconds, begins)
    return AmpProfile(source=f"amp:{source}", model=shape, forward=forward, whole=whole)


def _forward(entry: Table, model: AmpModel) -> list[float]:
    """Return the seconds of all layers."""
    values = entry.values.get("forward_s")
    if not isinstance(values, list):
        raise entry.error(f"forward_s must be a list of seconds, found {values!r:.60}")
    for place, value in enumerate(values):
        if type(value) not in (int, float) or not 1 / LONGEST < value < LONGEST:
            raise entry.error(f"forward_s[{place}] must be positive seconds, found {value!r:.60}")
    if "n_layers" in entry.values and entry.whole("n_layers") != len(values):
        raise entry.error(
            f"n_layers must be the length of forward_s ({len(values)}), "
            f"found {entry.whole('n_layers')}"
        )
    if model.profiled and len(values) != model.profiled:
        raise entry.error(
            f"forward_s must have {model.profiled} layers, as {model.name!r} has with its "
            f"{np.count_nonzero(model.parameters)} blocks, found {len(values)}"
        )
    if model.rows[-1] >= len(values):
        raise entry.error(
            f"forward_s must have at least {model.rows[-1] + 1} layers, which {model.name!r} "
            f"names, found {len(values)}"
        )
    return values

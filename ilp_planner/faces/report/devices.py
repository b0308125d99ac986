"""The devices of a stage in a cluster, for people."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.base.units import number_ranges
from ilp_planner.inputs.devices import usable_nodes
from ilp_planner.spaces.objectives.node_sets import describe_set

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.inputs.problem import Problem
    from ilp_planner.plan import GroupStage
    from ilp_planner.specs.cluster import ClusterSpec


class _Run(NamedTuple):
    """Devices of nodes of one type. slots: the ones of each node; whole: all that they have."""

    nodes: tuple[int, ...]
    kind: str
    devices: tuple[int, ...]
    slots: tuple[int, ...]
    whole: bool


def describe_devices(cluster: ClusterSpec, devices: Sequence[int]) -> str:
    """Return `node 0: A100 0-3; nodes 1-2: T4 4-11`, whole neighbouring nodes together; equal parts
    of several nodes as `nodes 0, 2: A100 0-3 of 8 each`."""
    return "; ".join(_run_text(cluster, run) for run in _runs(cluster, devices))


def _run_text(cluster: ClusterSpec, run: _Run) -> str:
    several = len(run.nodes) > 1
    found = f"node{'s' if several else ''} {number_ranges(run.nodes)}: {run.kind} "
    if run.whole or not several:
        return found + number_ranges(run.devices)
    return f"{found}{number_ranges(run.slots)} of {cluster.devices_of_nodes[run.nodes[0]]} each"


def _runs(cluster: ClusterSpec, devices: Sequence[int]) -> list[_Run]:
    runs: list[_Run] = []
    for node, found in groupby(sorted(devices), key=cluster.node_of.__getitem__):
        here = tuple(found)
        first = cluster.node_of.index(node)
        slots = tuple(device - first for device in here)
        whole = len(here) == cluster.devices_of_nodes[node]
        run = _Run((node,), cluster.called[node], here, slots, whole)
        for place, before in enumerate(runs):
            if _joined(cluster, before, run):
                runs[place] = before._replace(
                    nodes=(*before.nodes, node), devices=before.devices + here
                )
                break
        else:
            runs.append(run)
    return runs


def _joined(cluster: ClusterSpec, before: _Run, after: _Run) -> bool:
    """Tell whether two runs are told together: whole neighbours, or equal parts of equal nodes."""
    if before.kind != after.kind or before.whole != after.whole:
        return False
    if before.whole:
        return before.nodes[-1] + 1 == after.nodes[0]
    sizes = {cluster.devices_of_nodes[run.nodes[0]] for run in (before, after)}
    return before.slots == after.slots and len(sizes) == 1


def describe_types(cluster: ClusterSpec, devices: Sequence[int]) -> str:
    """Return `3 x A100 + 1 x T4`, in the order of the cluster's types."""
    counts = Counter(cluster.called[cluster.node_of[d]] for d in devices)
    names = dict.fromkeys(name for name in cluster.called if name in counts)
    return " + ".join(f"{counts[name]} x {name}" for name in names)


def describe_idle_nodes(problem: Problem[Any]) -> str:
    """Return the nodes of the named cluster that plans of a problem may not use, as
    `2 nodes of 8 x v100`; empty: they may use all."""
    files = problem.files
    if files is None or not {"cluster"} & {*files.request.files, *files.objects}:
        return ""
    whole = files.whole_cluster
    used = {*usable_nodes(whole, files.request.constraints)}
    return describe_set(whole, tuple(n for n in range(whole.node_count) if n not in used))


def describe_stage(cluster: ClusterSpec, stage: GroupStage, cp: int) -> str:
    """Return `4 x A100 tp1 dp4`, with cp if it is above 1, and recomputation."""
    tp = describe_degrees(cluster, stage, cp)
    degrees = f"tp{tp} {f'cp{cp} ' * (cp > 1)}dp{stage.dp}"
    again = stage.recompute
    more = "" if again.granularity == "none" else f" recomputing {again}"
    return f"{describe_types(cluster, stage.devices)} {degrees}{more}"


def describe_degrees(cluster: ClusterSpec, stage: GroupStage, cp: int = 1) -> str:
    """Return the tensor-parallel degree of a stage, `4`; `1 (A100) + 4 (V100)` if types differ."""
    if len(stage.degrees) == 1:
        return str(stage.tp // cp)
    first = ((replica.tp, cluster.node_of[replica.devices[0]]) for replica in stage.replicas)
    types = dict.fromkeys((tp, cluster.called[node]) for tp, node in first)
    return " + ".join(f"{tp // cp} ({name})" for tp, name in types)


def describe_cluster(cluster: ClusterSpec) -> str:
    """Return `3 nodes of 4 x a100, 1 node of 4 x t4`."""
    sizes = cluster.devices_of_nodes
    kinds = zip(cluster.called, sizes, strict=True)
    parts = []
    for (kind, size), run in groupby(kinds):
        count = len(list(run))
        parts.append(f"{count} node{'s' if count > 1 else ''} of {size} x {kind}")
    return ", ".join(parts)

"""Which devices of a cluster a stage has, for people."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ilp_planner.plan import GroupStage
    from ilp_planner.specs.cluster import ClusterSpec


class _Run(NamedTuple):
    """Devices of neighbouring nodes of one type. whole: all that these nodes have."""

    first_node: int
    last_node: int
    kind: str
    devices: tuple[int, ...]
    whole: bool


def number_ranges(numbers: Iterable[int]) -> str:
    """Return `0-3, 7` for 0, 1, 2, 3, 7."""
    ordered = sorted(numbers)
    parts = []
    for _, run in groupby(enumerate(ordered), key=lambda pair: pair[1] - pair[0]):
        found = [number for _, number in run]
        parts.append(str(found[0]) if len(found) == 1 else f"{found[0]}-{found[-1]}")
    return ", ".join(parts)


def describe_devices(cluster: ClusterSpec, devices: Sequence[int]) -> str:
    """Return `node 0: A100 0-3; nodes 1-2: T4 4-11`, whole neighbouring nodes together."""
    return "; ".join(
        f"{_nodes(run)}: {run.kind} {number_ranges(run.devices)}" for run in _runs(cluster, devices)
    )


def _nodes(run: _Run) -> str:
    if run.first_node == run.last_node:
        return f"node {run.first_node}"
    return f"nodes {run.first_node}-{run.last_node}"


def _runs(cluster: ClusterSpec, devices: Sequence[int]) -> list[_Run]:
    runs: list[_Run] = []
    for node, found in groupby(sorted(devices), key=cluster.node_of.__getitem__):
        here = tuple(found)
        whole = len(here) == cluster.node_of.count(node)
        run = _Run(node, node, cluster.node_types[node], here, whole)
        if runs and _joined(runs[-1], run):
            last = runs.pop()
            run = run._replace(first_node=last.first_node, devices=last.devices + run.devices)
        runs.append(run)
    return runs


def _joined(before: _Run, after: _Run) -> bool:
    adjacent = before.last_node + 1 == after.first_node
    return adjacent and before.kind == after.kind and before.whole and after.whole


def describe_types(cluster: ClusterSpec, devices: Sequence[int]) -> str:
    """Return `3 x A100 + 1 x T4`, in the order of the cluster's types."""
    counts = [
        (name, sum(cluster.type_of[d] == name for d in devices)) for name in cluster.type_names
    ]
    return " + ".join(f"{count} x {name}" for name, count in counts if count)


def describe_stage(cluster: ClusterSpec, stage: GroupStage) -> str:
    """Return `4 x A100 tp1 dp4`."""
    return f"{describe_types(cluster, stage.devices)} tp{stage.tp} dp{stage.dp}"


def describe_cluster(cluster: ClusterSpec) -> str:
    """Return `3 nodes of 4 x a100, 1 node of 4 x t4`."""
    sizes = [cluster.node_of.count(node) for node in range(cluster.node_count)]
    kinds = zip(cluster.node_types, sizes, strict=True)
    parts = []
    for (kind, size), run in groupby(kinds):
        count = len(list(run))
        parts.append(f"{count} node{'s' if count > 1 else ''} of {size} x {kind}")
    return ", ".join(parts)

"""Nodes of an evenly spread stage: the nodes of a neighbour that is spread over as many, or all
possibilities."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ilp_planner.costs.groups import GroupOption
    from ilp_planner.spaces.groups.place import GroupChoice, Seats
    from ilp_planner.specs.cluster import ClusterSpec


def nodes_beside(
    cluster: ClusterSpec,
    choices: Sequence[GroupChoice],
    seats: Seats,
    s: int,
    free: Sequence[int],
    *,
    tight: bool,
) -> list[int] | None:
    """Return the nodes of a stage that is spread, None without room: the nodes of the nearest stage
    that is spread over as many, if they have room; else the nodes with the least room (tight) or
    the most.

    Parameters
    ----------
    seats: of the stages that have theirs. s: number of the stage. free: devices of each node.
    """
    option = choices[s].option
    (kind,) = (kind for kind, count in enumerate(option.replicas) if count)
    name, need = cluster.type_names[kind], option.each * option.tp
    for t in sorted(range(len(choices)), key=lambda t: abs(t - s)):
        other = sorted({*seats[t]})
        if choices[t].option.over == option.over and other:
            same = cluster.node_types[other[0]] == name
            if same and all(free[v] >= need for v in other):
                return other
    able = [v for v, found in enumerate(cluster.node_types) if found == name and free[v] >= need]
    able.sort(key=lambda v: free[v] if tight else -free[v])
    return sorted(able[: option.over]) if len(able) >= option.over else None


def spread_evenly(
    option: GroupOption,
    free: Sequence[int],
    nodes: Sequence[int],
    alike: Sequence[object],
    take: Callable[[], bool],
) -> Iterator[tuple[int, ...]]:
    """Yield replicas per node: equally many in as many nodes as the option says, the first ones of
    equal nodes.

    Parameters
    ----------
    free: devices of each node; nodes: nodes of the option's type, told apart by `alike`.
    take: tells whether there may be another step.
    """
    need, counts = option.each * option.tp, [0] * len(nodes)
    previous = earlier_alike(alike)

    def grow(v: int, left: int) -> Iterator[tuple[int, ...]]:
        if left == 0:
            yield tuple(counts)
            return
        if v == len(nodes) or left > len(nodes) - v or not take():
            return
        if free[nodes[v]] >= need and (previous[v] < 0 or counts[previous[v]]):
            counts[v] = option.each
            yield from grow(v + 1, left - 1)
            counts[v] = 0
        yield from grow(v + 1, left)

    yield from grow(0, option.over)


def earlier_alike(alike: Sequence[object]) -> list[int]:
    """Return the last one before each that is alike, -1 without."""
    return [
        next((w for w in reversed(range(v)) if alike[w] == alike[v]), -1) for v in range(len(alike))
    ]

"""Zones of device types, counted along runs of stages (`bounds/group_regions`)."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.optimize.bounds.group_regions import Regions, regions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ilp_planner.specs.cluster import ClusterSpec, Device

MOST_NUMBERS = 128  # of what is taken in a region: states are so many times as many
MOST_STATES = 4_000_000  # numbers, states and layers: entries of tables, some of each


def regions_of(
    cluster: ClusterSpec,
    zones: Sequence[Sequence[int]],
    types_of: Sequence[Sequence[int]],
    states: int,
) -> Regions:
    """Return the regions of a cluster's device types: its zones.

    Parameters
    ----------
    zones: their types. types_of: the device types of each class of groups. states: of groups, at
        all layers.
    """
    counts, most = cluster.type_counts, min(MOST_NUMBERS, MOST_STATES // max(states, 1))
    units = [1] * len(counts)
    for types in zones:
        while prod(counts[kind] // units[kind] + 1 for kind in types) > max(most, 1):
            units[max(types, key=lambda kind: counts[kind] // units[kind])] *= 2
    return regions(types_of, counts, zones, units)


def alike(cluster: ClusterSpec, zones: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    """Return a number of each device type, int64 [types]: types with the same number are equal
    devices of equal zones, and may stand for each other."""
    numbers = np.arange(len(cluster.type_names))
    for number, types in enumerate(zones):
        for others in zones[:number]:
            if _may_swap(cluster, types, others):
                numbers[list(types)] = numbers[list(others)]
                break
    found: NDArray[np.int64] = np.unique(numbers, return_inverse=True)[1]
    return found


def _may_swap(cluster: ClusterSpec, types: Sequence[int], others: Sequence[int]) -> bool:
    """Tell whether nothing changes if the types of two zones change places."""
    names, swapped = cluster.type_names, list(range(len(cluster.type_names)))
    if len(types) != len(others):
        return False
    for a, b in zip(types, others, strict=True):
        swapped[a], swapped[b] = b, a
        first, second = (cluster.device_types[names[kind]] for kind in (a, b))
        if not _equal(first, second):
            return False
        if sorted(cluster.node_sizes(names[a])) != sorted(cluster.node_sizes(names[b])):
            return False
        if cluster.within.get(names[a]) != cluster.within.get(names[b]):
            return False
    return all(
        cluster.type_link(names[a], names[b])
        == cluster.type_link(names[swapped[a]], names[swapped[b]])
        for a in range(len(names))
        for b in range(a, len(names))
    )


def _equal(first: Device, second: Device) -> bool:
    """Tell whether two types are of one device, with any names and prices; if data sheets are
    missing, profiles call them the same as well."""
    called = first.profile if first.peak is None else second.profile
    told = replace(first, name=second.name, type=second.type, profile=called)
    return replace(told, price=second.price, spot_price=second.spot_price) == second


def zones_of(cluster: ClusterSpec) -> list[list[int]]:
    """Return the types of each zone, if every link between two zones is slower than all others
    between nodes; none if there are no such zones, or if each is of one type and unlike all others:
    Lagrange multipliers tell these apart."""
    names = cluster.type_names
    pairs = [
        (cluster.type_link(names[a], names[b]).bandwidth, a, b)
        for a, b in combinations(range(len(names)), 2)
    ]
    slowest = min((rate for rate, _, _ in pairs), default=0.0)
    groups = [{kind} for kind in range(len(names))]
    for rate, a, b in pairs:
        if rate > slowest:
            joined = [group for group in groups if a in group or b in group]
            groups = [group for group in groups if group not in joined] + [set().union(*joined)]
    own = [
        cluster.type_link(name, name).bandwidth
        for name in names
        if len(cluster.node_sizes(name)) > 1
    ]
    if len(groups) < 2 or any(rate <= slowest for rate in own):
        return []
    zones = sorted(sorted(group) for group in groups)
    alone = all(len(types) == 1 for types in zones)
    if alone and not any(_may_swap(cluster, *pair) for pair in combinations(zones, 2)):
        return []
    return zones

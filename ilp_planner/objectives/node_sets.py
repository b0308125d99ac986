"""Sets of nodes that plans may be on: how many of each kind, not which.

Nodes are of one kind where no other node can tell them apart (`specs/node_kinds.py`) and they have
equally many devices. Of each kind the first ones stand for as many others: a set is a number of
nodes of each kind.
"""

from __future__ import annotations

import math
from collections import Counter
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.errors import UsageError
from ilp_planner.specs.node_kinds import node_kinds
from ilp_planner.specs.prices import check_prices, hourly_price
from ilp_planner.units import counted

if TYPE_CHECKING:
    from ilp_planner.specs.cluster import ClusterSpec

MOST_SETS = 10_000
Kinds = tuple[tuple[int, ...], ...]


class NodeSet(NamedTuple):
    """Some nodes. counts: how many of each kind. nodes: their numbers, ascending. hourly: what they
    cost per hour."""

    counts: tuple[int, ...]
    nodes: tuple[int, ...]
    hourly: float


def kinds_of(cluster: ClusterSpec) -> Kinds:
    """Return the nodes of each kind, ascending, in the order of their first ones."""
    if not cluster.symmetric:
        kinds = node_kinds(cluster)
    else:
        types = dict.fromkeys(cluster.node_types)
        kinds = tuple(
            tuple(n for n, own in enumerate(cluster.node_types) if own == name) for name in types
        )
    sizes = cluster.devices_of_nodes
    found = [
        tuple(node for node in kind if sizes[node] == size)
        for kind in kinds
        for size in dict.fromkeys(sizes[node] for node in kind)
    ]
    return tuple(sorted(found))


def node_sets(cluster: ClusterSpec, most_hourly: float = math.inf) -> list[NodeSet]:
    """Return every set of nodes that costs at most so much per hour, the cheapest first.

    Raises
    ------
    UsageError: a price is not known, or there are too many sets.
    """
    check_prices(cluster, "what plans cost")
    kinds = kinds_of(cluster)
    number = math.prod(len(kind) + 1 for kind in kinds) - 1
    if number > MOST_SETS:
        raise UsageError(
            f"objective: found {number} sets of nodes in cluster {cluster.name!r}, nodes that are "
            f"alike counted, expected at most {MOST_SETS}; `without` leaves nodes out"
        )
    each = []
    for kind in kinds:
        price = hourly_price(cluster, kind[:1])
        assert price is not None
        each.append(price)
    found = []
    for counts in product(*(range(len(kind) + 1) for kind in kinds)):
        hourly = math.fsum(count * price for count, price in zip(counts, each, strict=True))
        if any(counts) and hourly <= most_hourly:
            nodes = sorted(n for kind, c in zip(kinds, counts, strict=True) for n in kind[:c])
            found.append(NodeSet(counts, tuple(nodes), hourly))
    return sorted(found, key=lambda one: (one.hourly, one.counts))


def describe_set(cluster: ClusterSpec, nodes: tuple[int, ...]) -> str:
    """Return what nodes have: `3 nodes of 4 x a100, 1 node of 4 x t4`."""
    groups = Counter((cluster.called[node], cluster.devices_of_nodes[node]) for node in nodes)
    return ", ".join(
        f"{counted(count, 'node')} of {size} x {name}" for (name, size), count in groups.items()
    )

"""Sets of nodes that plans may be on: numbers of each kind, not single nodes.

Nodes are of one kind if no other node can tell them apart (`specs/node_kinds.py`) and they have
equally many devices. Of each kind the first ones stand for as many others: a set is a number of
nodes of each kind. hourly prices are nan if one is not known.
"""

from __future__ import annotations

import math
from collections import Counter
from itertools import chain, product
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ilp_planner.base.errors import UsageError
from ilp_planner.base.units import counted, number_ranges
from ilp_planner.specs.node_kinds import node_kinds
from ilp_planner.specs.prices import check_prices, hourly_price

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ilp_planner.specs.cluster import ClusterSpec

MOST_SETS = 10_000
NAMED = 6  # sets that are named one by one
Kinds = tuple[tuple[int, ...], ...]


class NodeSet(NamedTuple):
    """Some nodes. counts: how many of each kind. nodes: their numbers, ascending. hourly: price per
    hour, nan if unknown."""

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
    # Nodes under leaf switches of as many are alike: the first ones fill one after the other.
    leaves = Counter(cluster.leaves) if cluster.shares_uplinks else Counter[int]()
    sizes = [
        (devices, leaves[leaf])
        for devices, leaf in zip(cluster.devices_of_nodes, cluster.leaves, strict=True)
    ]
    found = [
        tuple(node for node in kind if sizes[node] == size)
        for kind in kinds
        for size in dict.fromkeys(sizes[node] for node in kind)
    ]
    return tuple(sorted(found))


def node_sets(cluster: ClusterSpec) -> list[NodeSet]:
    """Return sets of nodes, the cheapest first if prices are known: every set, or, if there are
    more than `MOST_SETS`, sets with some numbers of nodes of each kind, all and none among them."""
    kinds = kinds_of(cluster)
    each = [hourly_price(cluster, kind[:1]) for kind in kinds]
    known = None not in each
    found = []
    for counts in _counts([len(kind) for kind in kinds]):
        if any(counts):
            prices = (count * (price or 0.0) for count, price in zip(counts, each, strict=True))
            nodes = sorted(chain(*(kind[:c] for kind, c in zip(kinds, counts, strict=True))))
            hourly = math.fsum(prices) if known else math.nan
            found.append(NodeSet(counts, tuple(nodes), hourly))
    return sorted(found, key=lambda one: (one.hourly if known else 0.0, one.counts))


def priced_sets(cluster: ClusterSpec) -> list[NodeSet]:
    """Return every set of nodes, the cheapest first.

    Raises
    ------
    UsageError: a price is not known, or there are too many sets.
    """
    check_prices(cluster)
    number = math.prod(len(kind) + 1 for kind in kinds_of(cluster)) - 1
    if number > MOST_SETS:
        raise UsageError(
            f"objective: found {number} sets of nodes in cluster {cluster.name!r}, nodes that are "
            f"alike counted, expected at most {MOST_SETS}; `without` leaves nodes out"
        )
    return node_sets(cluster)


def _counts(sizes: Sequence[int]) -> Iterable[tuple[int, ...]]:
    """Return how many nodes of each kind sets have; with very many kinds, sets of one kind, and of
    all kinds but one, besides all nodes."""
    numbers = _numbers(sizes)
    if math.prod(map(len, numbers)) - 1 <= MOST_SETS:
        return product(*numbers)
    found = [tuple(sizes)]
    for place, size in enumerate(sizes):
        alone = [0] * len(sizes)
        alone[place] = size
        found += [tuple(alone), tuple(s if n != place else 0 for n, s in enumerate(sizes))]
    return found


def _numbers(sizes: Sequence[int]) -> list[list[int]]:
    """Return how many nodes of each kind sets have: any number, or evenly spread ones if that were
    more than `MOST_SETS` sets."""
    most = max(sizes, default=0)
    while most > 1 and math.prod(min(size, most) + 1 for size in sizes) - 1 > MOST_SETS:
        most -= 1
    return [
        sorted({round(size * step / min(size, most)) for step in range(min(size, most) + 1)})
        for size in sizes
    ]


def every_set(cluster: ClusterSpec) -> bool:
    """Tell whether `node_sets` has every set of nodes."""
    return math.prod(len(kind) + 1 for kind in kinds_of(cluster)) - 1 <= MOST_SETS


def is_whole(kinds: Kinds, counts: tuple[int, ...]) -> bool:
    """Tell whether a set has all nodes of some kinds and none of the others."""
    return all(count in (0, len(kind)) for count, kind in zip(counts, kinds, strict=True))


class Covered(Protocol):
    """A set of nodes, and whether a bound is about plans on it."""

    @property
    def name(self) -> str:
        """The kinds of the nodes."""

    @property
    def counts(self) -> tuple[int, ...]:
        """How many there are of each kind."""

    @property
    def covered(self) -> bool:
        """Whether the bound is about plans on them."""


def describe_covered(cluster: ClusterSpec, sets: Sequence[Covered]) -> str:
    """Return the sets of nodes of a bound's plans: `any of these 8 nodes`."""
    found = _described(cluster, sets)
    # Under leaf switches it matters which of equal nodes are taken.
    several = cluster.shares_uplinks and found != f"all {cluster.node_count} nodes"
    return f"{found}, the first of each kind" if several else found


def _described(cluster: ClusterSpec, sets: Sequence[Covered]) -> str:
    covered = [one for one in sets if one.covered]
    count = cluster.node_count
    if len(covered) == len(sets) and every_set(cluster):
        return f"any of these {count} nodes"
    if [sum(one.counts) for one in covered] == [count]:
        return f"all {count} nodes"
    if len(kinds_of(cluster)) == 1:
        return f"{number_ranges([sum(one.counts) for one in covered])} of these {count} nodes"
    if len(covered) <= NAMED:
        return " or ".join(one.name for one in covered)
    return f"{len(covered)} of {_set_count(cluster)} sets of these {count} nodes"


def _set_count(cluster: ClusterSpec) -> int:
    return math.prod(len(kind) + 1 for kind in kinds_of(cluster)) - 1


def describe_set(cluster: ClusterSpec, nodes: tuple[int, ...]) -> str:
    """Return the content of nodes: `3 nodes of 4 x a100, 1 node of 4 x t4`."""
    groups = Counter[tuple[str, int]]()
    for (_, name, size), count in cluster.contents(nodes).items():
        groups[name, size] += count
    return ", ".join(
        f"{counted(count, 'node')} of {size} x {name}" for (name, size), count in groups.items()
    )

"""The switches between nodes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from ilp_planner.base.limits import DEVICES
from ilp_planner.specs.link import check_within

MOST_OVERSUBSCRIPTION = 1e6


@dataclass(frozen=True, kw_only=True)
class Fabric:
    """The switches between nodes, where these are not under one that has room for all.

    nodes_per_leaf: nodes under one leaf switch (or one set of them, with a switch per rail), in the
        order of nodes; 0: all are under one, or `leaves` says it.
    leaves: of each node, the number of its leaf switch, from 1, those of one switch together;
        empty: `nodes_per_leaf` says it.
    oversubscription: bandwidth of the network cards under a leaf switch, over that of its uplinks
        to all others, of which each node has an equal part; 1: room for all.
    rail_only: the network joins only cards at the same place of their nodes (Wang et al. 2023,
        arXiv 2307.12169); other messages pass the links inside a node first.
    """

    nodes_per_leaf: int = 0
    leaves: tuple[int, ...] = ()
    oversubscription: float = 1.0
    rail_only: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.nodes_per_leaf <= DEVICES:
            raise ValueError(
                f"nodes_per_leaf must be from 0 to {DEVICES}, found {self.nodes_per_leaf}"
            )
        if self.nodes_per_leaf and self.leaves:
            raise ValueError("expected nodes_per_leaf or leaves, found both")
        if len(list(groupby(self.leaves))) > len(set(self.leaves)):
            raise ValueError(
                "leaves: expected nodes under one leaf switch one after the other, as ranks fill "
                f"nodes in their order, found {list(self.leaves)[:20]}"
            )
        check_within(1.0, MOST_OVERSUBSCRIPTION, "", oversubscription=self.oversubscription)
        if self.oversubscription > 1 and not (self.nodes_per_leaf or self.leaves):
            raise ValueError(
                f"oversubscription {self.oversubscription:g} needs nodes_per_leaf, the number of "
                "nodes that share the uplinks of a leaf switch, or leaves: found neither"
            )

    def leaf(self, node: int) -> int:
        """Return the number of the leaf switch of a node, counted from 1."""
        if self.leaves:
            return self.leaves[node]
        return 1 + node // self.nodes_per_leaf if self.nodes_per_leaf else 1

    def of_nodes(self, nodes: Sequence[int]) -> "Fabric":
        """Return the switches between some of the nodes, numbered anew."""
        if not (self.nodes_per_leaf or self.leaves):
            return self
        return replace(self, nodes_per_leaf=0, leaves=tuple(map(self.leaf, nodes)))

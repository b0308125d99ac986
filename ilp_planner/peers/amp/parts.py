"""AMP's space as parts for the general search: one stage graph per choice of degrees."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.optimize.search.parts import FixedGraph
from ilp_planner.peers.amp.degrees import AmpPlan, configuration_graph, default_routes

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from ilp_planner.optimize.graph import StageGraph
    from ilp_planner.peers.amp.costs import AmpCosts, AmpDegrees
    from ilp_planner.plan import GroupPlan
    from ilp_planner.specs.cluster import ClusterSpec


class AmpPart(FixedGraph):
    """One choice of degrees under AMP's placement."""

    def __init__(
        self,
        costs: AmpCosts,
        cluster: ClusterSpec,
        degrees: AmpDegrees,
        global_batch: int,
        model: str,
    ) -> None:
        self.costs, self.cluster, self.degrees = costs, cluster, degrees
        self.global_batch, self.model = global_batch, model
        self.micro_batches = degrees.micro_batches(global_batch)
        self.constant = 0.0
        self.name = part_name(degrees)

    @cached_property
    def stage_graph(self) -> StageGraph:
        """Every partition."""
        tables = self.costs.tables(self.cluster, self.degrees, self.global_batch)
        return configuration_graph(tables, default_routes(self.costs, self.cluster, self.degrees))

    def holds(self, plan: GroupPlan) -> bool:
        """Tell whether a plan has these degrees, and its ranks fill the nodes in order."""
        tp, dp, pp, samples = self.degrees
        first = plan.stages[0]
        found = (first.tp, len(first.replicas), len(plan.stages), first.replicas[0].samples)
        return found == (tp, dp, pp, samples) and plan.used == tuple(range(tp * dp * pp))

    def plan(self, choices: Sequence[int]) -> GroupPlan | None:
        """Return the plan of a path."""
        arcs = np.asarray(choices, dtype=np.int64)
        partition = (self.stage_graph.stop[arcs] - self.stage_graph.start[arcs]).tolist()
        devices = tuple(range(self.degrees.tp * self.degrees.dp * self.degrees.pp))
        plan = AmpPlan(
            degrees=self.degrees, partition=tuple(partition), devices=devices, cost=0.0, bound=0.0
        )
        return plan.group_plan(self.model, self.global_batch)

    def family(self, choice: int) -> Hashable:
        """Return the degrees: plans of one part differ in cuts only."""
        return self.degrees


def part_name(degrees: AmpDegrees) -> str:
    """Return the name of a choice of degrees in certificates."""
    tp, dp, pp, samples = degrees
    return f"tp {tp}, dp {dp}, pp {pp}, micro-batch {samples}"

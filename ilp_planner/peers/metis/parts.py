"""Metis's space as parts for the general search: one stage graph per order of device types and
number of micro-batches."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.optimize.search.parts import FixedGraph, OpenGraph
from ilp_planner.peers.metis.enumeration import MetisGraph, metis_graphs

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from ilp_planner.optimize.graph import StageGraph
    from ilp_planner.peers.metis.costs import MetisCosts
    from ilp_planner.plan import GroupPlan
    from ilp_planner.problem import Problem


class MetisPart(FixedGraph):
    """One order of device types and number of micro-batches of Metis's space."""

    def __init__(self, whole: MetisGraph) -> None:
        self.whole = whole
        self.micro_batches = whole.micro_batches
        self.name = f"{' '.join(whole.sequence)}, {self.micro_batches} micro-batches"
        self.constant = whole.constant

    @property
    def stage_graph(self) -> StageGraph:
        """The whole graph."""
        return self.whole.graph

    def sketch(self) -> OpenGraph | None:
        """Return the whole graph."""
        return self.graph(math.inf, None)

    def plan(self, choices: Sequence[int]) -> GroupPlan | None:
        """Return the plan of a path."""
        return self.whole.plan_of(choices)

    def holds(self, plan: GroupPlan) -> bool:
        """Tell whether a plan is a path of the graph."""
        whole, graph = self.whole, self.whole.graph
        if plan.micro_batches != self.micro_batches:
            return False
        place = {device: rank for rank, device in enumerate(whole.devices)}
        nodes, path = set(graph.sources), []
        for stage in plan.stages:
            size = len(stage.devices)
            arcs = np.flatnonzero(
                (graph.start == stage.start) & (graph.stop == stage.stop) & (whole.tp == stage.tp)
                & (whole.first == place[stage.devices[0]]) & (whole.size == size)
            )  # fmt: skip
            arcs = arcs[np.isin(graph.tail[arcs], list(nodes))]
            if not arcs.size:
                return False
            nodes = set(graph.head[arcs].tolist())
            path.append(int(arcs[0]))
        return graph.sink in nodes and whole.plan_of(path) == plan

    def family(self, choice: int) -> Hashable:
        """Return ranks and tensor-parallel degree."""
        whole = self.whole
        return int(whole.first[choice]), int(whole.size[choice]), int(whole.tp[choice])


def metis_parts(problem: Problem[MetisCosts], *, summed: bool) -> list[MetisPart]:
    """Return a part for every graph that has a plan."""
    return [
        MetisPart(whole)
        for whole in metis_graphs(
            problem.costs,
            problem.cluster,
            global_batch=problem.global_batch,
            micro_batches=problem.micro_batches,
            summed=summed,
            model=problem.model,
        )
    ]

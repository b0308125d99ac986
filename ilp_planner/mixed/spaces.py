"""The plan spaces by name, as parts that the search goes through."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np

from ilp_planner.mixed.space import FixedPlacement, OpenGraph

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from numpy.typing import NDArray

    from ilp_planner.mixed.metis_space import MetisGraph
    from ilp_planner.mixed.problem import GroupProblem
    from ilp_planner.mixed.space import SpacePart
    from ilp_planner.plan import GroupPlan


def parts_of(problem: GroupProblem) -> list[SpacePart]:
    """Return the parts of the problem's plan space."""
    if problem.space == "metis":
        return _metis_parts(problem)
    if problem.space == "amp":
        return _amp_parts(problem)
    if problem.space == "megatron":
        return _megatron_parts(problem)
    from ilp_planner.mixed.planner_space import PlannerPart

    return [PlannerPart(problem, batches) for batches in problem.micro_batches]


def left_out(parts: Sequence[SpacePart]) -> list[str]:
    """Return a line for the user where the parts do not hold every group of devices."""
    from ilp_planner.mixed.planner_space import PlannerPart

    few = [p for p in parts if isinstance(p, PlannerPart) and not p.complete]
    if not few:
        return []
    counts = ", ".join(str(part.micro_batches) for part in few)
    return [
        f"stages of several device types: with {counts} micro-batches there are too many to try "
        "all, only some with powers of two of replicas were; the bound is for these and for all "
        "stages of one type"
    ]


class MetisPart(FixedPlacement):
    """One order of device types and number of micro-batches of Metis's space (`SpacePart`)."""

    def __init__(self, whole: MetisGraph) -> None:
        self.whole = whole
        self.micro_batches = whole.graph.micro_batches
        self.name = f"{' '.join(whole.sequence)}, {self.micro_batches} micro-batches"
        self.constant = whole.constant

    def sketch(self) -> OpenGraph | None:
        """Return the whole graph."""
        return self.graph(np.inf, None)

    def outline(self, cutoff: float) -> OpenGraph | None:
        """Return nothing: the graph is small."""
        return None

    def graph(self, cutoff: float, choices: NDArray[np.int64] | None) -> OpenGraph:
        """Return the whole graph, or some of its arcs."""
        whole = self.whole.graph
        if choices is None:
            return OpenGraph(graph=whole, choice=np.arange(whole.arcs))
        return OpenGraph(graph=whole.only(choices), choice=choices)

    def explicit(self, opened: OpenGraph) -> OpenGraph | None:
        """Return the graph as it is."""
        return opened

    def plan(self, choices: Sequence[int]) -> GroupPlan | None:
        """Return the plan of a path."""
        return self.whole.plan_of(choices)

    def family(self, choice: int) -> Hashable:
        """Return ranks and tensor-parallel degree."""
        whole = self.whole
        return int(whole.first[choice]), int(whole.size[choice]), int(whole.tp[choice])


def _metis_parts(problem: GroupProblem) -> list[SpacePart]:
    from ilp_planner.costs.metis import MetisCosts
    from ilp_planner.mixed.metis_space import metis_graphs

    costs = problem.costs
    assert isinstance(costs, MetisCosts)
    return [
        MetisPart(whole)
        for whole in metis_graphs(
            costs,
            problem.cluster,
            global_batch=problem.global_batch,
            micro_batches=problem.micro_batches,
            memory_rule=problem.memory_rule,
            model=problem.model,
        )
    ]


def _amp_parts(problem: GroupProblem) -> list[SpacePart]:
    from ilp_planner.costs.amp import AmpCosts
    from ilp_planner.mixed.amp.parts import amp_parts

    costs = problem.costs
    assert isinstance(costs, AmpCosts)
    parts = amp_parts(
        costs, problem.cluster, problem.global_batch, problem.model, max_tp=problem.max_tp
    )
    return [part for part in parts if part.micro_batches in problem.micro_batches]


def _megatron_parts(problem: GroupProblem) -> list[SpacePart]:
    from ilp_planner.costs.megatron.costs import MegatronCosts
    from ilp_planner.mixed.megatron.parts import megatron_parts

    assert isinstance(problem.costs, MegatronCosts)
    return cast("list[SpacePart]", megatron_parts(problem, problem.costs))

"""Metis's space, its costs and its parts, and the problem of a request in it."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ilp_planner.base.errors import UsageError
from ilp_planner.base.numerics import ROUNDING
from ilp_planner.base.units import format_bytes
from ilp_planner.evaluate import Violation
from ilp_planner.optimize.search.parts import FixedGraph, OpenGraph
from ilp_planner.peers.metis.cluster import metis_cluster_of
from ilp_planner.peers.metis.costs import MetisCosts
from ilp_planner.peers.metis.enumeration import MetisGraph, metis_graphs
from ilp_planner.peers.metis.formulas import MetisFormulas
from ilp_planner.peers.metis.source import metis_source
from ilp_planner.spaces.base import too_little_memory
from ilp_planner.spaces.graph_space import GraphSpace
from ilp_planner.spaces.groups.cost_models import MIXED, SPREAD
from ilp_planner.spaces.layers import Costing, layer_problem, memory_limits, refuse_stages

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence

    from ilp_planner.costs.base import PlanCost
    from ilp_planner.inputs.files import InputFiles
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.optimize.graph import StageGraph
    from ilp_planner.optimize.search.group_search import GroupSearch
    from ilp_planner.plan import GroupPlan, Plan
    from ilp_planner.specs.cluster import ClusterSpec


# ---- Metis's costs of layers on any groups of devices --------------------------------------------


def metis_costing(files: InputFiles, cluster: ClusterSpec) -> Costing:
    """Return Metis's costs, on its profile.

    Raises
    ------
    UsageError: shares are asked for, which are even here, or recomputation, or several degrees in a
    stage, or stages spread over nodes, which are not priced.
    """

    if files.request.shares:
        raise UsageError(
            f"`shares={files.request.shares}`: found it with `cost_model=metis`, whose shares are "
            "even as published, expected none"
        )
    if files.request.stage_tp == MIXED:
        raise UsageError(
            "`stage_tp=mixed`: found it with `cost_model=metis`, whose stages have one degree as "
            "published, expected one, or `cost_model=native`"
        )
    if files.request.seats == SPREAD:
        raise UsageError(
            "`seats=spread`: found it with `cost_model=metis`, whose formulas know packed stages, "
            "expected packed, or `cost_model=native`"
        )
    if files.request.constraints.recompute not in ((), ("none",)):
        asked = files.request.constraints.texts["recompute"]
        raise UsageError(
            f"`recompute={asked}`: found it with `cost_model=metis`, which measures layers without "
            "recomputation, expected none, or `cost_model=native`"
        )
    _, metis = files.cluster
    profile, model, sizes = metis_source(files)
    costs = MetisCosts(
        formulas=MetisFormulas(
            profile=profile,
            cluster=metis_cluster_of(cluster) if metis is None else metis,
            hidden=sizes.need("hidden"),
            sequence=sizes.need("sequence"),
            vocabulary=sizes.need("vocabulary"),
            row_names={name: cluster.device_types[name].profile for name in cluster.type_names},
        ),
        max_tp=files.request.max_tp,
        limits=memory_limits(cluster, files.request),
    )
    return Costing(costs, model, profile.named, costs.notes, says_degrees=True)


# ---- parts for the general search ----------------------------------------------------------------
# One stage graph per order of device types and number of micro-batches.


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


# ---- the space -----------------------------------------------------------------------------------
# Its own rule of memory, and its orders of device types to anneal over.


@dataclass(frozen=True, kw_only=True, repr=False)
class MetisSpace(GraphSpace[MetisCosts, MetisPart]):
    """A part for every order of device types and number of micro-batches.

    summed: memory is checked of every group in sum, as Metis does; else of every device by itself.
    """

    name = "metis"
    noun = "Metis plan"
    leaves_out = False

    summed: bool = False

    def options(self) -> Mapping[str, str]:
        """Return the rule of memory."""
        return {"memory_rule": "metis"} if self.summed else {}

    def parts(self, problem: Problem[MetisCosts]) -> list[MetisPart]:
        """Return the parts of the space."""
        return metis_parts(problem, summed=self.summed)

    def describe(self, problem: Problem[MetisCosts]) -> str:
        """Return the plans of the proofs."""
        return (
            f"{self.tried(problem)}, devices type by type in any order of the types, stages of a "
            "power of two of them, and Metis's shares of samples"
        )

    def exclusions(self, problem: Problem[MetisCosts], plan: GroupPlan) -> Iterator[str]:
        """Everything that is no path of a graph."""
        tried = dataclasses.replace(problem, micro_batches=(plan.micro_batches,))
        if not any(part.holds(plan) for part in metis_parts(tried, summed=self.summed)):
            yield "stages: groups, degrees, samples or devices that Metis does not enumerate"

    def check_memory(
        self, problem: Problem[MetisCosts], plan: Plan[Any], cost: PlanCost
    ) -> Iterator[Violation]:
        """The memory of every device suffices; under Metis's rule, every group in sum."""
        if not self.summed:
            yield from super().check_memory(problem, plan, cost)
            return
        needs = problem.costs.group_memory(plan, problem.cluster)
        for s, (wanted, available) in enumerate(needs):
            if wanted > available * (1 + ROUNDING):
                limit = f"at most {format_bytes(available)} (Metis's rule)"
                yield Violation("memory", f"stage {s}", format_bytes(wanted), limit)

    def independent_proof(
        self, problem: Problem[MetisCosts], bound: float, nodes: Sequence[int]
    ) -> dict[str, Any]:
        """Return the proof for the checker, with the rows and figures that it counts with."""
        from ilp_planner.spaces.groups.independent import layer_proof

        return layer_proof(problem, bound, summed=self.summed)

    def anneal(self, search: GroupSearch[MetisPart]) -> bool:
        """Anneal over orders of device types and numbers of micro-batches."""
        from ilp_planner.optimize.search.graph_hunt import anneal_parts

        parts = [state.part for state in search.states]
        anneal_parts(search, [(*part.whole.sequence, part.micro_batches) for part in parts])
        return True

    def explain(self, search: GroupSearch[MetisPart]) -> str:
        """Return one line for a problem that is proved infeasible."""
        from ilp_planner.spaces.infeasible import explain_layers

        problem = search.problem
        if not self.summed:
            return explain_layers(problem, too_little_memory(problem))
        limits = ", ".join(f"{n} {format_bytes(b)}" for n, b in problem.memory_limits.items())
        summed = (
            "in every plan the devices of some stage would need more memory, by Metis's rule, than "
            f"they have together ({limits} each)"
        )
        return explain_layers(problem, summed, alone=False)


# ---- from the request to the problem -------------------------------------------------------------


def build(files: InputFiles) -> Problem[MetisCosts]:
    """Read all inputs and build the problem.

    Raises
    ------
    SpecError, ProfileError, UsageError: the problem cannot be planned, with the reason.
    """
    refuse_stages(files, MetisSpace.name)
    costing, (cluster, _) = metis_costing(files, files.cluster[0]), files.cluster
    space = MetisSpace(summed=files.request.memory_rule == MetisSpace.name)
    return layer_problem(files, space, cluster, costing, costing.costs.degrees())

"""Searches of AMP's space: its own program, every choice of degrees in milliseconds; and simulated
annealing over its degrees and, if that is free, the placement of its ranks.

Annealing is as in AMP's own search; a dynamic program splits the layers, which here is exact
(`amp/partition`).
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ilp_planner.optimize.search.choice_annealing import ChoiceAnnealing, Nearness
from ilp_planner.optimize.search.parts import FixedGraph
from ilp_planner.peers.amp.costs import AmpCosts, AmpDegrees, AmpTables, slowness
from ilp_planner.peers.amp.degrees import (
    AmpPlan,
    amp_space,
    configuration_graph,
    default_routes,
    rank_plans,
)
from ilp_planner.peers.amp.partition import best_cut
from ilp_planner.peers.amp.placement import in_order, place, placed_plan, room_of, route_of
from ilp_planner.peers.amp.routes import Counts, Hosts

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from ilp_planner.optimize.graph import StageGraph
    from ilp_planner.optimize.search.group_search import GroupSearch
    from ilp_planner.peers.amp.costs import AmpCosts, AmpDegrees
    from ilp_planner.plan import GroupPlan
    from ilp_planner.specs.cluster import ClusterSpec


# ---- AMP's own program ---------------------------------------------------------------------------


def run_amp(search: GroupSearch[Any], *, free: bool) -> None:
    """Search the space; bounds and the plan go into the state of the search."""
    problem = search.problem
    costs: AmpCosts = problem.costs
    states = {state.part.name: state for state in search.states}
    if free:
        placed = place(
            costs,
            problem.cluster,
            problem.global_batch,
            max_tp=problem.max_tp,
            deadline=search.deadline,
            workers=search.limits.workers,
        )
        search.notes.append(f"placement: {placed.proof}")
        for state in search.states:
            state.raise_bound(placed.bound, "placement")
        search.accept(placed.plan.group_plan(problem.model, problem.global_batch))
        return
    for plan in rank_plans(costs, problem.cluster, problem.global_batch, max_tp=problem.max_tp):
        found = states.get(part_name(plan.degrees))
        if found is not None:
            found.raise_bound(plan.bound, "partition dp")
            search.accept(plan.group_plan(problem.model, problem.global_batch))
    for state in search.states:
        state.raise_bound(search.objective, "partition dp")


# ---- annealing -----------------------------------------------------------------------------------


DEGREES = 0.3  # of the moves change degrees, the others the placement


class Placement(NamedTuple):
    """degrees: their number. counts: of each stage, replicas on each node."""

    degrees: int
    counts: tuple[Counts, ...]


def anneal_amp(search: GroupSearch[Any], *, free: bool) -> None:
    """Look for the best degrees and placement; the plan goes to the search."""
    ChoiceAnnealing(PlacementChoices(search, free=free), search.limits, search.goon).run()


def anneal_placements(search: GroupSearch[Any], numbers: Sequence[int]) -> None:
    """Look for better placements, and degrees near by, from AMP's own placement of these degrees;
    numbers: of the parts of the search."""
    choices = PlacementChoices(search, free=True)
    annealing = ChoiceAnnealing(choices, search.limits, search.goon)
    for number in numbers:
        own = in_order(choices.hosts_of(number), choices.degrees[number])
        annealing.heat_again(Placement(number, own), 0)


class PlacementChoices:
    """Degrees and a placement (`choice_annealing.Choices`). free: other placements than AMP's."""

    def __init__(self, search: GroupSearch[Any], *, free: bool) -> None:
        costs: AmpCosts = search.problem.costs
        self.search, self.cluster = search, search.problem.cluster
        self.costs, self.free = costs, free
        self.slow = slowness(self.cluster)
        batch = search.problem.global_batch
        self.degrees: tuple[AmpDegrees, ...] = amp_space(
            self.costs, self.cluster, batch, max_tp=search.problem.max_tp
        ).degrees
        self.nearness = Nearness(self.degrees)
        self.hosts: dict[int, Hosts] = {}
        self.tables: dict[int, AmpTables] = {}

    def draw(self, random: np.random.Generator) -> Placement:
        """Return any degrees, ranks placed at random."""
        return self.shuffled(int(random.integers(len(self.degrees))), random)

    def shuffled(self, number: int, random: np.random.Generator) -> Placement:
        """Return degrees with a random placement; AMP's own one time in two, or where it is
        fixed."""
        degrees, hosts = self.degrees[number], self.hosts_of(number)
        if not self.free or random.random() < 0.5:
            return Placement(number, in_order(hosts, degrees))
        nodes = np.repeat(np.arange(len(hosts.room)), hosts.room)
        stages = random.permutation(nodes).reshape(degrees.pp, degrees.dp)
        counts = [np.bincount(stage, minlength=len(hosts.room)) for stage in stages]
        return Placement(number, tuple(tuple(row.tolist()) for row in counts))

    def near(self, choice: Placement, random: np.random.Generator) -> Placement:
        """Return other degrees, or the placement with replicas of two stages swapped."""
        counts = np.array(choice.counts)
        fixed = not self.free or min(counts.shape) == 1
        if fixed or random.random() < DEGREES:
            number = self.nearness.draw(choice.degrees, random)
            before, now = self.degrees[choice.degrees], self.degrees[number]
            if now[:3] == before[:3]:
                return Placement(number, choice.counts)
            return self.shuffled(number, random)
        a, b = random.choice(len(counts), 2, replace=False)
        i = int(random.choice(np.flatnonzero(counts[a])))
        others = np.flatnonzero((counts[b] > 0) & (np.arange(len(counts[b])) != i))
        if not others.size:
            return choice
        j = int(random.choice(others))
        most = int(min(counts[a, i], counts[b, j]))
        moved = most if random.random() < 0.5 else int(random.integers(1, most + 1))
        counts[a, i] -= moved
        counts[b, i] += moved
        counts[a, j] += moved
        counts[b, j] -= moved
        return Placement(choice.degrees, tuple(tuple(row) for row in counts.tolist()))

    def least(self, choice: Placement) -> float:
        """Return nothing proved: the split is quick."""
        return 0.0

    def cost(self, choice: Placement) -> float:
        """Return the seconds of the best split on this placement; offer its plan."""
        number, search = choice.degrees, self.search
        degrees, hosts = self.degrees[number], self.hosts_of(number)
        batch = search.problem.global_batch
        if number not in self.tables:
            self.tables[number] = self.costs.tables(self.cluster, degrees, batch)
        routes = route_of(hosts, choice.counts)
        if not self.free:
            routes = default_routes(self.costs, self.cluster, degrees)
        cut = best_cut(self.tables[number], routes)
        if cut is None:
            return math.inf
        if self.free:
            plan = placed_plan(
                self.costs, self.cluster, batch, degrees, hosts, cut.partition, choice.counts
            )
        else:
            terms = self.costs.terms(self.cluster, degrees, cut.partition, batch)
            plan = AmpPlan(
                degrees=degrees,
                partition=cut.partition,
                devices=tuple(range(self.cluster.device_count)),
                cost=terms.total,
                bound=0.0,
            )
        if plan.cost < search.objective:
            search.accept(plan.group_plan(search.problem.model, batch))
        return plan.cost

    def hosts_of(self, number: int) -> Hosts:
        """Return the nodes with their room for groups of these degrees."""
        if number not in self.hosts:
            self.hosts[number] = Hosts(self.slow, room_of(self.cluster, self.degrees[number]))
        return self.hosts[number]


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

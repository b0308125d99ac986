"""AMP's space with a free placement: the nodes of all ranks, jointly with degrees and partition.

The gradient reduction is priced with the slowest link of its ring (the published formula would let
a placement hide slow links). A tensor-parallel group stays inside a node, because the cost model
has no price for splitting one. If the placements that differ by more than a swap of equal nodes are
few enough, all of them count, and the answer is proved; elsewhere a bound with the best links that
any placement could have closes what it can, and CP-SAT places the rest.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.base.deadline import Deadline
from ilp_planner.peers.amp.costs import AmpCosts, AmpDegrees, AmpTables, slowness
from ilp_planner.peers.amp.degrees import AmpPlan, amp_space, rank_key, rank_plans
from ilp_planner.peers.amp.partition import Routes, best_cut, fixed_routes
from ilp_planner.peers.amp.routes import Counts, Hosts, Placements, pipelines, placements

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ilp_planner.specs.cluster import ClusterSpec

MOST_STEPS = 60_000  # of one placement's routes: about a second of search
SECONDS = 120.0  # where nobody says how long
ROUNDS = 4  # partition and placement in turn


@dataclass(frozen=True, kw_only=True)
class Placed:
    """The best plan over placements, and how it was proved.

    plan: its bound is that of its own degrees. bound: lower bound of plans in seconds per
    iteration.
    proof: one line. opened: choices of degrees that were searched; the others were closed by their
        bound.
    """

    plan: AmpPlan
    bound: float
    proof: str
    opened: int
    notes: tuple[str, ...]


def place(
    costs: AmpCosts,
    cluster: ClusterSpec,
    global_batch: int,
    *,
    max_tp: int | None = None,
    most_steps: int = MOST_STEPS,
    deadline: Deadline | None = None,
    workers: int = 1,
) -> Placed:
    """Return the fastest plan of AMP's space on any placement, with a proved bound.

    Parameters
    ----------
    most_steps: of one choice of degrees; beyond, CP-SAT places. deadline: to open choices of
        degrees until; the rest keep their bound. Two minutes without one.

    Raises
    ------
    InfeasibleError: no choice of degrees is possible.
    """
    search = _Search(replace(costs, repaired=True), cluster, global_batch, most_steps, workers)
    space = amp_space(costs, cluster, global_batch, max_tp=max_tp)
    deadline = deadline or Deadline(SECONDS)
    best = rank_plans(search.costs, cluster, global_batch, max_tp=max_tp)[0]
    bound, opened = best.cost, 0
    for least, degrees in sorted((search.least_cost(d), d) for d in space.degrees):
        if least >= best.cost:
            break
        if not deadline.goon():
            bound = min(bound, least)  # ascending: the least of those left
            break
        opened += 1
        found = search.open(degrees, least, best.cost, deadline)
        if found is not None:
            bound = min(bound, found.bound)
            best = min(best, found, key=rank_key)
    proof = "every placement, equal nodes alike"
    if search.placed:
        proof = (
            f"best links of stages on several nodes; CP-SAT placed {search.placed} of {opened} "
            "choices of degrees"
        )
    return Placed(
        plan=best, bound=min(bound, best.cost), proof=proof, opened=opened, notes=space.notes
    )


def room_of(cluster: ClusterSpec, degrees: AmpDegrees) -> tuple[int, ...]:
    """Return how many tensor-parallel groups each node has devices for."""
    return tuple(size // degrees.tp for size in cluster.devices_of_nodes)


def best_links(
    slow: NDArray[np.float64], room: Sequence[int], degrees: AmpDegrees
) -> tuple[Routes, float]:
    """Return one route with links at least as fast as those of any placement, and the seconds per
    number that every placement adds to the smallest cut.

    A cut is sent over the fastest link there is, but not every time: of the groups on a node, at
    least one in pp begins a pipeline there or comes from another node, which leaves so many links
    between nodes. A ring of more replicas than any node has room for must leave a node.
    """
    dp, pp = degrees.dp, degrees.pp
    apart = slow[~np.eye(len(room), dtype=bool)]
    inside, outside = float(np.diag(slow).min()), float(apart.min(initial=np.inf))
    fastest = min(inside, outside)
    within = sum(groups - -(-groups // pp) for groups in room)
    crossing = dp * (pp - 1) - within
    detour = crossing * (outside - fastest) / dp if crossing > 0 else 0.0
    # A ring that fits into a node may still avoid the inside of it, where that is slower.
    ring = 0.0 if dp == 1 else fastest if dp <= max(room) else outside
    return fixed_routes(np.full(pp - 1, fastest), np.full(pp, ring)), detour


class _Search:
    """The state of one call of `place`. placed: choices of degrees that CP-SAT placed."""

    def __init__(
        self,
        costs: AmpCosts,
        cluster: ClusterSpec,
        global_batch: int,
        most_steps: int,
        workers: int,
    ) -> None:
        self.costs, self.cluster, self.global_batch = costs, cluster, global_batch
        self.most_steps, self.workers = most_steps, workers
        self.slow = slowness(cluster)
        self.placed = 0
        self.plan = partial(placed_plan, costs, cluster, global_batch)
        self._known: dict[tuple[int, int, int], tuple[Hosts, Placements | None, bool]] = {}

    def tables(self, degrees: AmpDegrees) -> AmpTables:
        """Return the tables of partitions."""
        return self.costs.tables(self.cluster, degrees, self.global_batch)

    def least_cost(self, degrees: AmpDegrees) -> float:
        """Return a lower bound in seconds of placements; inf if no pipeline can be cut."""
        tables = self.tables(degrees)
        routes, detour = best_links(self.slow, room_of(self.cluster, degrees), degrees)
        cut = best_cut(tables, routes)
        smallest = float(tables.sent[1:-1].min()) if degrees.pp > 1 else 0.0
        return np.inf if cut is None else cut.value + detour * smallest

    def open(
        self, degrees: AmpDegrees, least: float, cutoff: float, deadline: Deadline
    ) -> AmpPlan | None:
        """Return the best plan below the cutoff that is found, with a proved bound; None when it is
        proved that there is none."""
        hosts, known, exact = self._placements(degrees)
        cut = best_cut(self.tables(degrees), known.routes, cutoff) if known else None
        if known and cut is None:
            return None
        if known and cut:
            counts = known.counts(cut.steps)
            if exact or all(map(any, counts)):
                plan = self.plan(degrees, hosts, cut.partition, counts)
                return replace(plan, bound=min(plan.cost, cut.value))
            least = max(least, cut.value)
        self.placed += 1
        plan = self._by_turns(degrees, hosts, deadline)
        return replace(plan, bound=min(least, plan.cost))

    def _placements(self, degrees: AmpDegrees) -> tuple[Hosts, Placements | None, bool]:
        """Return every placement, or, if these are too many, the ones that tell apart stages on one
        node only; and whether it is every one."""
        tp, dp, pp, _ = degrees
        if (tp, dp, pp) not in self._known:
            hosts = Hosts(self.slow, room_of(self.cluster, degrees))
            every = placements(hosts, pp, dp, self.most_steps)
            some = None if every else placements(hosts, pp, dp, self.most_steps, whole=True)
            self._known[tp, dp, pp] = hosts, every or some, every is not None
        return self._known[tp, dp, pp]

    def _by_turns(self, degrees: AmpDegrees, hosts: Hosts, deadline: Deadline) -> AmpPlan:
        """Return a good plan: the best placement of a partition, the best partition of that
        placement, and so on until neither improves."""
        tables = self.tables(degrees)
        cut = best_cut(tables, best_links(hosts.slow, hosts.room, degrees)[0])
        assert cut is not None, "a pipeline with a layer per stage can be cut"
        partition = cut.partition
        best = self.plan(degrees, hosts, partition, in_order(hosts, degrees))
        for turn in range(ROUNDS):
            left = max(deadline.left / ROUNDS, 1.0)
            if turn and not deadline.goon():
                break
            counts = cpsat_counts(
                tables, hosts, degrees, partition, seconds=left, workers=self.workers
            )
            if counts is None:
                break
            better = best_cut(tables, route_of(hosts, counts))
            assert better is not None
            plan = self.plan(degrees, hosts, better.partition, counts)
            if plan.cost >= best.cost:
                break
            best, partition = plan, better.partition
        return best


def placed_plan(
    costs: AmpCosts,
    cluster: ClusterSpec,
    global_batch: int,
    degrees: AmpDegrees,
    hosts: Hosts,
    partition: tuple[int, ...],
    counts: Sequence[Counts],
) -> AmpPlan:
    """Return the plan of a placement on the nodes' own devices, with its true cost and no bound.

    Parameters
    ----------
    counts: how many replicas of each stage each node hosts.
    """
    nodes = np.repeat(pipelines(hosts, counts)[:, :, None], degrees.tp, axis=2)
    devices = np.empty(nodes.size, np.int64)
    node_of = np.array(cluster.node_of)
    for node in range(cluster.node_count):
        at = np.flatnonzero(nodes.ravel() == node)
        devices[at] = np.flatnonzero(node_of == node)[: at.size]
    terms = costs.terms(cluster, degrees, partition, global_batch, nodes)
    return AmpPlan(
        degrees=degrees,
        partition=partition,
        devices=tuple(devices.tolist()),
        cost=terms.total,
        bound=0.0,
    )


# ---- more placements than can be gone through ---------------------------------------------------


def in_order(hosts: Hosts, degrees: AmpDegrees) -> tuple[Counts, ...]:
    """Return AMP's placement."""
    nodes = [n for n, room in enumerate(hosts.room) for _ in range(room)]
    stages = np.array(nodes).reshape(degrees.pp, degrees.dp)
    return tuple(tuple(int((stage == n).sum()) for n in range(len(hosts.room))) for stage in stages)


def route_of(hosts: Hosts, counts: Sequence[Counts]) -> Routes:
    """Return the only route of a placement: how many replicas of each stage each node hosts."""
    replicas = sum(counts[0])
    sending = [hosts.sending(a, b, replicas) / replicas for a, b in itertools.pairwise(counts)]
    rings = [hosts.ring(stage) for stage in counts]
    return fixed_routes(np.array(sending), np.array(rings))


def cpsat_counts(
    tables: AmpTables,
    hosts: Hosts,
    degrees: AmpDegrees,
    partition: Sequence[int],
    *,
    seconds: float = 10.0,
    workers: int = 1,
) -> tuple[Counts, ...] | None:
    """Place a given partition: how many replicas of each stage each node hosts, so that sending and
    the slowest ring together take least; None when CP-SAT finds nothing in time.

    Variables: replicas of a stage on a node, and those of them that send to each node of the next
        stage.
    """
    from ortools.sat.python import cp_model

    ends = np.cumsum([0, *partition])
    stages, nodes = range(degrees.pp), range(len(hosts.room))
    reduced = tables.reduced[ends[:-1], ends[1:]]
    sent = tables.sent[ends[1:-1]] / degrees.dp
    largest = max(float(hosts.slow.max() * max(reduced.max(), sent.max(initial=0.0))), 1e-30)
    scale = 1e6 / largest

    def units(seconds: float) -> int:
        return round(seconds * scale)

    model = cp_model.CpModel()
    hosted = [
        [
            model.new_int_var(0, min(room, degrees.dp), f"hosted {j} {n}")
            for n, room in enumerate(hosts.room)
        ]
        for j in stages
    ]
    terms = []
    for j in stages:
        model.add(sum(hosted[j]) == degrees.dp)
    for n in nodes:
        model.add(sum(hosted[j][n] for j in stages) <= hosts.room[n])
    for j in stages[:-1]:
        flow = [
            [model.new_int_var(0, degrees.dp, f"flow {j} {a} {b}") for b in nodes] for a in nodes
        ]
        for n in nodes:
            model.add(sum(flow[n]) == hosted[j][n])
            model.add(sum(flow[a][n] for a in nodes) == hosted[j + 1][n])
        terms += [units(sent[j] * hosts.slow[a, b]) * flow[a][b] for a in nodes for b in nodes]
    ring = model.new_int_var(0, 2 * 10**6, "ring")
    if degrees.dp > 1:
        for j in stages:
            for n in nodes:
                here = model.new_bool_var(f"here {j} {n}")
                whole = model.new_bool_var(f"whole {j} {n}")
                model.add(hosted[j][n] >= 1).only_enforce_if(here)
                model.add(hosted[j][n] == 0).only_enforce_if(~here)
                model.add(hosted[j][n] == degrees.dp).only_enforce_if(whole)
                inside = units(reduced[j] * hosts.slow[n, n])
                model.add(ring >= inside).only_enforce_if(whole)
                if len(hosts.room) > 1:
                    away = units(reduced[j] * hosts.away[n].min())
                    model.add(ring >= away).only_enforce_if(here, ~whole)
        terms.append(ring)
    model.minimize(sum(terms))
    for j, counts in enumerate(in_order(hosts, degrees)):
        for n in nodes:
            model.add_hint(hosted[j][n], counts[n])
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = workers
    if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    return tuple(tuple(int(solver.value(hosted[j][n])) for n in nodes) for j in stages)

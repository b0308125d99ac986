"""From groups to devices: which nodes' devices form each stage.

Several simple packings are tried and the one whose plan is cheapest under the true links is kept. Where
links differ from node to node, `place_nodes` searches with CP-SAT as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ilp_planner.plan import GroupPlan, GroupStage, Replica

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ilp_planner.costs.groups import GroupOption
    from ilp_planner.mixed.problem import GroupProblem
    from ilp_planner.specs.cluster import ClusterSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupChoice:
    """A stage before it has devices: layers [start, stop), group, samples of each replica."""

    start: int
    stop: int
    option: GroupOption
    samples: tuple[int, ...]


Seats = list[list[int]]
"""Of each stage and each of its replicas, in the order of the types: the node."""


def place(
    problem: GroupProblem, micro_batches: int, choices: Sequence[GroupChoice]
) -> GroupPlan | None:
    """Return the cheapest plan found that puts the groups on devices; None when they do not fit."""
    best: GroupPlan | None = None
    least = float("inf")
    seen = []
    for seats in packings(problem.cluster, choices):
        if seats in seen:
            continue
        seen.append(seats)
        plan = seated(problem, micro_batches, choices, seats)
        cost = problem.costs.plan_cost(plan, problem.cluster).iteration_time
        if cost < least:
            best, least = plan, cost
    return best


def seated(
    problem: GroupProblem,
    micro_batches: int,
    choices: Sequence[GroupChoice],
    seats: Seats,
) -> GroupPlan:
    """Return the plan with every replica on the next free devices of its node."""
    cluster = problem.cluster
    free: dict[int, list[int]] = {}
    for device, node in enumerate(cluster.node_of):
        free.setdefault(node, []).append(device)
    stages = []
    for choice, nodes in zip(choices, seats, strict=True):
        tp = choice.option.tp
        replicas = []
        for node, samples in zip(nodes, choice.samples, strict=True):
            devices, free[node] = free[node][:tp], free[node][tp:]
            replicas.append(Replica(devices=tuple(devices), samples=samples))
        stages.append(GroupStage(start=choice.start, stop=choice.stop, replicas=tuple(replicas)))
    return GroupPlan(
        model=problem.model,
        global_batch=problem.global_batch,
        micro_batches=micro_batches,
        stages=tuple(stages),
    )


def packings(cluster: ClusterSpec, choices: Sequence[GroupChoice]) -> Iterable[Seats]:
    """Yield ways to seat all replicas: stages in their order, in the reverse one, and the largest
    groups first."""
    forward = list(range(len(choices)))
    by_size = sorted(forward, key=lambda s: (-choices[s].option.tp, -sum(choices[s].option.use), s))
    by_use = sorted(forward, key=lambda s: (-sum(choices[s].option.use), s))
    for order in (forward, forward[::-1], by_use, by_size):
        for tight in (False, True):
            seats = _pack(cluster, choices, order, tight=tight)
            if seats is not None:
                yield seats


def _pack(
    cluster: ClusterSpec, choices: Sequence[GroupChoice], order: Sequence[int], *, tight: bool
) -> Seats | None:
    """Seat stages in the given order. tight: prefer the fullest node that holds a whole group, rather
    than the node of the group before."""
    free = [0] * cluster.node_count
    for node in cluster.node_of:
        free[node] += 1
    seats: Seats = [[] for _ in choices]
    last: dict[str, int] = {}
    for s in order:
        option = choices[s].option
        for kind, count in enumerate(option.replicas):
            name = cluster.type_names[kind]
            nodes = [v for v, found in enumerate(cluster.node_types) if found == name]
            need = count * option.tp
            whole = [v for v in nodes if free[v] >= need]
            if count and whole:
                near = last.get(name)
                at = near if near in whole and not tight else min(whole, key=lambda v: free[v])
                chosen = [at] * count
                free[at] -= need
            else:
                chosen = []
                # as few nodes as possible: the emptiest first, the rest where it fits tightly
                while len(chosen) < count:
                    left = count - len(chosen)
                    holding = [v for v in nodes if free[v] >= option.tp]
                    if not holding:
                        return None
                    fitting = [v for v in holding if free[v] // option.tp >= left]
                    at = (
                        min(fitting, key=lambda v: free[v])
                        if fitting
                        else max(holding, key=lambda v: (free[v] // option.tp, -v))
                    )
                    number = min(left, free[at] // option.tp)
                    chosen += [at] * number
                    free[at] -= number * option.tp
            if chosen:
                last[name] = chosen[-1]
            seats[s] += chosen
    return seats

"""From groups to devices: the nodes and devices of each stage.

The planner's placements are packed (`costs/seat_patterns`): every replica lies in one node, and of
the nodes that hold replicas of a stage at most one per device type has room, by its size, for
another one. Groups that say so (`GroupOption.over`) are spread evenly instead, on the nodes of a
neighbour first that is spread over as many. Simple placements come first. If the true links make
the best one slower than the bound of the groups, all are tried as long as they are few; if they are
many and links differ from node to node, `place_nodes` searches with CP-SAT.

Nodes of an evenly spread stage: the nodes of a neighbour that is spread over as many, or all
possibilities.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from itertools import chain, islice, repeat
from typing import TYPE_CHECKING

from ilp_planner.base.numerics import FINE_ROUNDING
from ilp_planner.costs.recomputed_layers import recompute_of
from ilp_planner.optimize.search.parts import Placed
from ilp_planner.plan import GroupPlan, GroupStage, Plan, Replica

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ilp_planner.costs.groups import GroupOption, GroupTables
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.specs.cluster import ClusterSpec


# ---- place spread --------------------------------------------------------------------------------


def nodes_beside(
    cluster: ClusterSpec,
    choices: Sequence[GroupChoice],
    seats: Seats,
    s: int,
    free: Sequence[int],
    *,
    tight: bool,
) -> list[int] | None:
    """Return the nodes of a stage that is spread, None without room: the nodes of the nearest stage
    that is spread over as many, if they have room; else the nodes with the least room (tight) or
    the most.

    Parameters
    ----------
    seats: of the stages that have theirs. s: number of the stage. free: devices of each node.
    """
    option = choices[s].option
    (kind,) = (kind for kind, count in enumerate(option.replicas) if count)
    name, need = cluster.type_names[kind], option.each * option.tp
    for t in sorted(range(len(choices)), key=lambda t: abs(t - s)):
        other = sorted({*seats[t]})
        if choices[t].option.over == option.over and other:
            same = cluster.node_types[other[0]] == name
            if same and all(free[v] >= need for v in other):
                return other
    able = [v for v, found in enumerate(cluster.node_types) if found == name and free[v] >= need]
    able.sort(key=lambda v: free[v] if tight else -free[v])
    return sorted(able[: option.over]) if len(able) >= option.over else None


def spread_evenly(
    option: GroupOption,
    free: Sequence[int],
    nodes: Sequence[int],
    alike: Sequence[object],
    take: Callable[[], bool],
) -> Iterator[tuple[int, ...]]:
    """Yield replicas per node: equally many in as many nodes as the option says, the first ones of
    equal nodes.

    Parameters
    ----------
    free: devices of each node; nodes: nodes of the option's type, told apart by `alike`.
    take: tells whether there may be another step.
    """
    need, counts = option.each * option.tp, [0] * len(nodes)
    previous = earlier_alike(alike)

    def grow(v: int, left: int) -> Iterator[tuple[int, ...]]:
        if left == 0:
            yield tuple(counts)
            return
        if v == len(nodes) or left > len(nodes) - v or not take():
            return
        if free[nodes[v]] >= need and (previous[v] < 0 or counts[previous[v]]):
            counts[v] = option.each
            yield from grow(v + 1, left - 1)
            counts[v] = 0
        yield from grow(v + 1, left)

    yield from grow(0, option.over)


def earlier_alike(alike: Sequence[object]) -> list[int]:
    """Return the last one before each that is alike, -1 without."""
    return [
        next((w for w in reversed(range(v)) if alike[w] == alike[v]), -1) for v in range(len(alike))
    ]


# ---- place ---------------------------------------------------------------------------------------


MOST_PACKINGS = 1000  # to try one by one
MOST_STEPS = 100_000  # of looking for them
SECONDS = 2.0  # for CP-SAT


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupChoice:
    """A stage before it has devices: layers [start, stop), group, samples of each replica, and the
    number of its recomputation."""

    start: int
    stop: int
    option: GroupOption
    samples: tuple[int, ...]
    way: int = 0

    def on(self, replicas: Sequence[Replica]) -> GroupStage:
        """Return the stage on devices."""
        return GroupStage(
            start=self.start,
            stop=self.stop,
            replicas=tuple(replicas),
            recompute=recompute_of(self.way),
        )


Seats = list[list[int]]
"""Of each stage and each of its replicas, in the order of the types: the node."""


def place(
    problem: Problem[GroupTables],
    micro_batches: int,
    choices: Sequence[GroupChoice],
    *,
    least: float = 0.0,
    most_packings: int = MOST_PACKINGS,
) -> Placed:
    """Put groups on devices, packed or spread as their options say, with the least time that can be
    found.

    Parameters
    ----------
    least: lower bound of placements in seconds; one that reaches it is not improved upon.
    """
    search = _Placing(problem, micro_batches, choices)
    cluster = problem.cluster
    for seats in packings(cluster, choices):
        search.offer(seats)
    if search.cost <= least * (1 + FINE_ROUNDING):
        return Placed(plan=search.plan, bound=search.cost)
    steps = _Steps(MOST_STEPS)
    for seats in islice(every_packing(cluster, choices, steps), most_packings + 1):
        if search.tried >= most_packings:
            steps.left = 0
            break
        search.offer(seats)
        if search.cost <= least * (1 + FINE_ROUNDING):
            return Placed(plan=search.plan, bound=search.cost)
    if steps.left > 0:
        return Placed(plan=search.plan, bound=search.cost)
    if search.plan is None or not cluster.symmetric:
        from ilp_planner.spaces.groups.place_nodes import place_nodes

        for found in place_nodes(problem, micro_batches, choices, seconds=SECONDS):
            search.offer(found)
    return Placed(plan=search.plan, bound=min(least, search.cost))


class _Placing:
    """The fastest of the placements offered."""

    def __init__(
        self, problem: Problem[GroupTables], micro_batches: int, choices: Sequence[GroupChoice]
    ) -> None:
        self.problem, self.micro_batches, self.choices = problem, micro_batches, choices
        self.plan: GroupPlan | None = None
        self.cost = math.inf
        self.seen: set[tuple[tuple[int, ...], ...]] = set()

    @property
    def tried(self) -> int:
        """Count different placements."""
        return len(self.seen)

    def offer(self, seats: Seats) -> None:
        """Keep a placement, if it is the cheapest so far under the true links."""
        key = tuple(map(tuple, seats))
        if key in self.seen:
            return
        self.seen.add(key)
        plan = seated(self.problem, self.micro_batches, self.choices, seats)
        cost = self.problem.costs.plan_cost(plan, self.problem.cluster).iteration_time
        if cost < self.cost:
            self.plan, self.cost = plan, cost


def seated(
    problem: Problem[GroupTables], micro_batches: int, choices: Sequence[GroupChoice], seats: Seats
) -> GroupPlan:
    """Return the plan with every replica on the next free devices of its node."""
    cluster = problem.cluster
    free: dict[int, list[int]] = {}
    for device, node in enumerate(cluster.node_of):
        free.setdefault(node, []).append(device)
    stages = []
    for choice, nodes in zip(choices, seats, strict=True):
        option, replicas = choice.option, list[Replica]()
        degrees = chain.from_iterable(
            repeat(option.degree(kind), count) for kind, count in enumerate(option.replicas)
        )
        for node, tp, samples in zip(nodes, degrees, choice.samples, strict=True):
            devices, free[node] = free[node][:tp], free[node][tp:]
            replicas.append(Replica(devices=tuple(devices), samples=samples))
        stages.append(choice.on(replicas))
    return Plan(
        model=problem.model,
        global_batch=problem.global_batch,
        micro_batches=micro_batches,
        stages=tuple(stages),
    )


# ---- simple packings ----------------------------------------------------------------------------


def packings(cluster: ClusterSpec, choices: Sequence[GroupChoice]) -> Iterator[Seats]:
    """Yield placements of all replicas: stages in their order, in the reverse one, and the largest
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
    """Seat stages in the given order. tight: prefer the fullest node that holds a whole group,
    rather than the node of the group before."""
    size = node_devices(cluster)
    free = list(size)
    seats: Seats = [[] for _ in choices]
    last: dict[str, int] = {}
    for s in order:
        option = choices[s].option
        if option.over:
            nodes = nodes_beside(cluster, choices, seats, s, free, tight=tight)
            if nodes is None:
                return None
            seats[s] = option.in_turn(nodes)
            for v in nodes:
                free[v] -= option.each * option.tp
            last[cluster.node_types[nodes[0]]] = nodes[0]
            continue
        for kind, count in enumerate(option.replicas):
            name, tp = cluster.type_names[kind], option.degree(kind)
            nodes = [v for v, found in enumerate(cluster.node_types) if found == name]
            left = count
            while left:
                whole = [v for v in nodes if free[v] >= left * tp]
                near = last.get(name)
                if whole and near in whole and not tight and left == count:
                    at = near
                elif whole:
                    at = min(whole, key=lambda v: free[v])
                else:
                    # Empty nodes are filled; the largest first, so that few are needed.
                    empty = [v for v in nodes if free[v] // tp == size[v] // tp > 0]
                    if not empty:
                        return None
                    at = max(empty, key=lambda v: (free[v] // tp, -v))
                number = min(left, free[at] // tp)
                seats[s] += [at] * number
                free[at] -= number * tp
                left -= number
                last[name] = at
    return seats


def node_devices(cluster: ClusterSpec) -> list[int]:
    """Return the devices of each node."""
    size = [0] * cluster.node_count
    for node in cluster.node_of:
        size[node] += 1
    return size


# ---- all packings -------------------------------------------------------------------------------


class _Steps:
    """A budget."""

    def __init__(self, left: int) -> None:
        self.left = left

    def take(self) -> bool:
        """Use one; tell whether there was one."""
        self.left -= 1
        return self.left > 0


def every_packing(
    cluster: ClusterSpec, choices: Sequence[GroupChoice], steps: _Steps | None = None
) -> Iterator[Seats]:
    """Yield all placements of all replicas, packed or spread as options say, one of each class
    under swaps of equal nodes.

    Parameters
    ----------
    steps: ends early when they are used up.
    """
    steps = steps or _Steps(2**62)
    size = node_devices(cluster)
    free = list(size)
    held: list[tuple[object, ...]] = [() for _ in size]  # what each node has, to tell equal ones
    groups = []
    for s, choice in enumerate(choices):
        at = 0
        for kind, count in enumerate(choice.option.replicas):
            if count:
                name = cluster.type_names[kind]
                nodes = [v for v, found in enumerate(cluster.node_types) if found == name]
                tp = choice.option.degree(kind)
                groups.append((s, nodes, choice.option, tp, choice.samples[at : at + count]))
            at += count

    def grow(number: int, seats: Seats) -> Iterator[Seats]:
        if number == len(groups):
            yield [list(row) for row in seats]
            return
        s, nodes, option, tp, samples = groups[number]
        alike = [
            (size[v], held[v]) if cluster.symmetric else (size[v], (*held[v], v)) for v in nodes
        ]
        if option.over:
            ways = spread_evenly(option, free, nodes, alike, steps.take)
        else:
            sizes = [size[v] for v in nodes]
            ways = _packed(tp, len(samples), sizes, free, nodes, alike, steps)
        for counts in ways:
            if option.over:
                own = [v for v, count in zip(nodes, counts, strict=True) if count]
                rows = iter([option.in_turn(own)])
            else:
                rows = _shared(samples, counts, nodes)
            for row in rows:
                before = [held[v] for v in nodes]
                for v, count in zip(nodes, counts, strict=True):
                    free[v] -= count * tp
                for v in set(row):
                    mine = sorted(x for x, w in zip(samples, row, strict=True) if w == v)
                    held[v] = (*held[v], (number, *mine))
                seats[s] += row
                yield from grow(number + 1, seats)
                del seats[s][len(seats[s]) - len(row) :]
                for v, count, old in zip(nodes, counts, before, strict=True):
                    free[v] += count * tp
                    held[v] = old

    yield from grow(0, [[] for _ in choices])


def _packed(
    tp: int,
    replicas: int,
    sizes: Sequence[int],
    free: Sequence[int],
    nodes: Sequence[int],
    alike: Sequence[object],
    steps: _Steps,
) -> Iterator[tuple[int, ...]]:
    """Yield replicas per node: filled ones, and at most one with room by its size."""
    counts = [0] * len(nodes)
    most = [free[v] // tp for v in nodes]
    full = [size // tp for size in sizes]
    # What is left to seat cannot exceed what the nodes from here on hold.
    room = [0]
    for v in reversed(range(len(nodes))):
        room.append(room[-1] + most[v])
    room.reverse()
    previous = earlier_alike(alike)

    def grow(v: int, left: int, open_node: bool) -> Iterator[tuple[int, ...]]:
        if left == 0:
            yield tuple(counts)
            return
        if v == len(nodes) or left > room[v] or not steps.take():
            return
        ways = range(min(left, most[v]), -1, -1)
        if previous[v] >= 0:
            ways = range(min(ways.start, counts[previous[v]]), -1, -1)
        for count in ways:
            partial = 0 < count < full[v]
            if partial and open_node:
                continue
            counts[v] = count
            yield from grow(v + 1, left - count, open_node or partial)
        counts[v] = 0

    yield from grow(0, replicas, False)


def _shared(
    samples: Sequence[int], counts: Sequence[int], nodes: Sequence[int]
) -> Iterator[list[int]]:
    """Yield the node of each replica, in all placements with different shares of the samples."""
    shares = sorted(Counter(samples).items(), reverse=True)

    def grow(number: int, left: list[int]) -> Iterator[dict[int, list[int]]]:
        if number == len(shares):
            yield {}
            return
        share, count = shares[number]

        def spread(v: int, missing: int, row: list[int]) -> Iterator[list[int]]:
            if v == len(left):
                if missing == 0:
                    yield row
                return
            for here in range(min(missing, left[v]), -1, -1):
                yield from spread(v + 1, missing - here, [*row, here])

        for row in spread(0, count, []):
            rest = [a - b for a, b in zip(left, row, strict=True)]
            at = [v for v, here in zip(nodes, row, strict=True) for _ in range(here)]
            for others in grow(number + 1, rest):
                yield {share: at, **others}

    if len(shares) == 1:
        yield [v for v, count in zip(nodes, counts, strict=True) for _ in range(count)]
        return
    for of in grow(0, list(counts)):
        queues = {share: iter(at) for share, at in of.items()}
        yield [next(queues[share]) for share in samples]

"""The order in which groups take devices, if links depend on nothing but device types.

From the last stage to the first, each group takes the next devices of its types: in the last node
of the downstream group if it fits there as a whole, otherwise from the next node on that holds it;
a group larger than a node takes whole nodes first. Tensor-parallel ranks stay inside a node.
Devices that are passed over stay idle. All of this follows from how many devices of a type are
taken, passed ones included, so labels can count it exactly.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.plan import GroupPlan, GroupStage, Plan, Replica

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ilp_planner.costs.groups import GroupTables
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.spaces.groups.place import GroupChoice
    from ilp_planner.specs.cluster import ClusterSpec


class Seating:
    """The devices of a cluster by type, and the seats of groups."""

    def __init__(self, cluster: ClusterSpec) -> None:
        self.cluster = cluster
        self.devices = [
            [d for d, found in enumerate(cluster.type_of) if found == name]
            for name in cluster.type_names
        ]

    @cached_property
    def rest(self) -> NDArray[np.int64]:
        """Return [types, devices + 1]: devices left in the node once so many of its type are taken;
        0 if the last one taken was the node's last."""
        table = np.zeros((len(self.devices), max(map(len, self.devices)) + 1), np.int64)
        for kind, name in enumerate(self.cluster.type_names):
            place = 0
            for size in self.cluster.node_sizes(name):
                table[kind, place + 1 : place + size + 1] = np.arange(size - 1, -1, -1)
                place += size
        return table

    def seat(self, kind: int, tp: int, replicas: int, taken: int) -> list[list[int]] | None:
        """Return the places of each replica among the type's devices, None when there are too
        few."""
        sizes = self.cluster.node_sizes(self.cluster.type_names[kind])
        need = tp * replicas
        ends = np.cumsum(sizes).tolist()
        begins = [end - size for end, size in zip(ends, sizes, strict=True)]
        fitting = [
            max(begin, taken)
            for begin, end in zip(begins, ends, strict=True)
            if end - max(begin, taken) >= need
        ]
        if fitting:
            first = fitting[0]
            return [list(range(first + i * tp, first + (i + 1) * tp)) for i in range(replicas)]
        seats: list[list[int]] = []
        for begin, end in zip(begins, ends, strict=True):
            if begin < taken:  # begun by another group
                continue
            for first in range(begin, end - tp + 1, tp):
                if len(seats) < replicas:
                    seats.append(list(range(first, first + tp)))
        return seats if len(seats) == replicas else None

    def follow(
        self, demands: Sequence[tuple[int, int]]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return, for each (tensor degree, replicas), [demands, types, devices + 1]: how many
        devices of a type are taken afterwards, -1 if it does not fit; and whether the group is in
        one node with the last device taken before.

        The same as `seat` for every number of devices taken, without a loop over them.
        """
        shape = (len(demands), *self.rest.shape)
        after, near = np.full(shape, -1, np.int64), np.zeros(shape, np.bool_)
        for kind, own in enumerate(self.devices):
            for n, (tp, replicas) in enumerate(demands):
                found, here = self._follow(kind, tp, replicas)
                after[n, kind, : len(own) + 1] = found
                near[n, kind, : len(own) + 1] = here
        return after, near

    def _follow(
        self, kind: int, tp: int, replicas: int
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the same for one type and one demand, [devices + 1]."""
        sizes, begins = self._nodes[kind]
        need, taken = tp * replicas, np.arange(len(self.devices[kind]) + 1)
        if not need:
            return taken, np.zeros(taken.size, np.bool_)
        here = self.rest[kind, : taken.size] >= need
        after, fresh = np.where(here, taken + need, -1), np.searchsorted(begins, taken)
        # the next node that holds the group; sizes.size where there is none
        whole = np.append(np.where(sizes >= need, np.arange(sizes.size), sizes.size), sizes.size)
        whole = np.minimum.accumulate(whole[::-1])[::-1][fresh]
        fits = ~here & (whole < sizes.size)
        after[fits] = begins[whole[fits]] + need
        # otherwise node after node, up to the one that the last replica is in
        room = np.append(0, np.cumsum(sizes // tp))
        last = np.searchsorted(room, room[fresh] + replicas) - 1
        fits = (after < 0) & (last < sizes.size)
        before = room[last[fits]] - room[fresh[fits]]
        after[fits] = begins[last[fits]] + (replicas - before) * tp
        return after, here

    @cached_property
    def _nodes(self) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Devices of the nodes of each type, and how many there are before each of them."""
        sizes = [np.array(self.cluster.node_sizes(name)) for name in self.cluster.type_names]
        return [(each, np.append(0, np.cumsum(each))) for each in sizes]

    def most(self, kind: int, tp: int, replicas: int, most: int) -> int:
        """Return how many equal groups of a type have seats one after the other, at most `most`."""
        after, _ = self._follow(kind, tp, replicas)
        taken = count = 0
        while count < most and after[taken] >= 0:
            taken = int(after[taken])
            count += 1
        return count


def seat_all(
    problem: Problem[GroupTables],
    micro_batches: int,
    choices: Sequence[GroupChoice],
    seating: Seating,
) -> GroupPlan | None:
    """Return the plan with every group on its devices; None when they do not fit."""
    taken = [0] * len(seating.devices)
    stages: list[GroupStage] = []
    for choice in reversed(choices):
        replicas: list[Replica] = []
        for kind, count in enumerate(choice.option.replicas):
            if not count:
                continue
            seats = seating.seat(kind, choice.option.degree(kind), count, taken[kind])
            if seats is None:
                return None
            taken[kind] = seats[-1][-1] + 1
            for places in seats:
                samples = choice.samples[len(replicas)]
                devices = tuple(seating.devices[kind][place] for place in places)
                replicas.append(Replica(devices=devices, samples=samples))
        stages.append(choice.on(replicas))
    return Plan(
        model=problem.model,
        global_batch=problem.global_batch,
        micro_batches=micro_batches,
        stages=tuple(reversed(stages)),
    )

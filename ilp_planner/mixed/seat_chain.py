"""The planner's stage candidates as a chain whose states count the seats in a node.

Seats are counted of the types that have several nodes, all alike. There, a group that needs less
than a node lies in one node as a whole: packed, only one of several nodes could have room for more,
and the others would be full. (Of a type with one node, all groups are neighbours.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.bounds.group_chain import GroupChain, States, states
from ilp_planner.costs.group_network import group_class
from ilp_planner.costs.groups import GroupClass

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ilp_planner.mixed.planner_space import PlannerPart


class SeatChains:
    """Chains of the candidates of a part.

    kept: the candidates that no other one of their range and class beats in everything, the seats
    that it takes in a node included. (A candidate of another class may be worse to send to when its
    node is full.)
    """

    def __init__(self, part: PlannerPart) -> None:
        self.part = part
        self.send_total = part.more_time + part.more_extra
        self.order = np.argsort(part.more_time, axis=1)
        cluster = part.problem.cluster
        sizes = [cluster.node_sizes(name) for name in cluster.type_names]
        counts = [len(s) > 1 and len(set(s)) == 1 for s in sizes]
        self.size = np.array([s[0] if n else 0 for s, n in zip(sizes, counts, strict=True)])
        own = [group_class(option, cluster) for option in part.options]
        classes = list(dict.fromkeys(own))
        self.states = self._states(classes)
        self.class_of = np.array([classes.index(to) for to in own], np.int64)
        use = part.use[:, : self.size.size]
        # devices that a group has in one node where others may be
        self.seats = np.where((use > 0) & (use < self.size), use, 0)
        self.taken = self._taken()
        beside = (self.seats > 0).astype(np.int64)
        needs = np.concatenate((part.use, beside, self.taken[:, None]), axis=1)
        same = np.eye(len(classes), dtype=np.bool_)
        self.kept = part.unbeaten(needs, self.class_of, same)

    def _states(self, classes: list[GroupClass]) -> States:
        """Return the states of groups of these classes."""
        part = self.part
        counted, direct, parted = [], [], []
        for to in classes:
            column = part.column[to]
            # count the type whose links between nodes cost most
            best = (0.0, -1, column)
            if len(to.types) > 1 or to.within_node:
                for kind in to.types:
                    apart = (kind,) if len(to.types) > 1 else ()
                    other = part.column[GroupClass(to.types, False, apart)]
                    more = float((self.send_total[:, other] - self.send_total[:, column]).sum())
                    if self.size[kind] and more > best[0]:
                        best = (more, kind, other)
            counted.append(best[1])
            direct.append(column)
            parted.append(best[2])
        return states(
            part.more_time,
            self.send_total,
            np.array(counted, np.int64),
            np.array(direct, np.int64),
            np.array(parted, np.int64),
            self.size,
        )

    def _taken(self) -> NDArray[np.int64]:
        """Return the devices that each option takes in its node of the type that its class counts,
        0 where that depends on the placement."""
        part = self.part
        taken = np.zeros(len(part.options), np.int64)
        for number, option in enumerate(part.options):
            kind = self.states.counted[self.class_of[number]]
            if kind >= 0:
                devices, size = int(part.use[number, kind]), int(self.size[kind])
                if devices < size:
                    taken[number] = devices
                elif devices % size == 0 and size % option.tp == 0:
                    taken[number] = size  # it fills its nodes
        return taken

    def chain(self, choices: NDArray[np.int64]) -> GroupChain:
        """Return some of the candidates as a chain."""
        part = self.part
        c = part.everything().only(choices)
        row = c.option * (part.layers + 1) + c.stop
        order = np.lexsort((row, c.stop))
        choices, row = choices[order], row[order]
        c = part.everything().only(choices)
        time = c.time + part.least_time[row]
        group = self.class_of[c.option]
        return GroupChain(
            layers=part.layers,
            micro_batches=part.micro_batches,
            capacity=part.capacity,
            choice=choices,
            start=c.start,
            stop=c.stop,
            time=time,
            total=time + c.extra + part.least_extra[row],
            peaks=np.ascontiguousarray(c.peaks.T),
            use=part.use[c.option],
            behind=part.behind(c),
            row=row,
            group=group,
            state=self.states.offset[group] + self.taken[c.option],
            seats=self.seats[c.option],
            send_time=part.more_time,
            send_total=self.send_total,
            order=self.order,
            states=self.states,
        )

"""The planner's stage candidates as a chain whose states count the seats in a node.

Seats are counted of the types that have several nodes, all alike. There, a group that needs less
than a node lies in one node as a whole: packed, only one of several nodes could have room for more,
and the others would be full. (Of a type with one node, all groups are neighbours.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.bounds.group_chain import ChainStages, GroupChain, Sending, first_stops
from ilp_planner.bounds.group_states import States, states
from ilp_planner.costs.group_network import group_class
from ilp_planner.costs.groups import GroupClass

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ilp_planner.spaces.groups.candidates import Catalogue
    from ilp_planner.specs.cluster import ClusterSpec


class SeatChains:
    """Chains of candidates.

    most: stages of a plan.
    kept: the candidates that no other one of their range and class beats in everything, the seats
    that it takes in a node included. (A candidate of another class may be worse to send to when its
    node is full.)
    """

    def __init__(self, catalogue: Catalogue, cluster: ClusterSpec, most: int) -> None:
        self.catalogue, self.most = catalogue, most
        sending = catalogue.sending
        # of one layout, so that the kernels that read them are compiled once
        self.sending = Sending(
            time=np.ascontiguousarray(sending.more_time),
            total=np.ascontiguousarray(sending.more_time + sending.more_extra),
            order=np.argsort(sending.more_time, axis=1),
        )
        sizes = [cluster.node_sizes(name) for name in cluster.type_names]
        counts = [len(s) > 1 and len(set(s)) == 1 for s in sizes]
        self.size = np.array([s[0] if n else 0 for s, n in zip(sizes, counts, strict=True)])
        own = [group_class(option, cluster) for option in catalogue.options]
        classes = list(dict.fromkeys(own))
        self.states = self._states(classes)
        self.class_of = np.array([classes.index(to) for to in own], np.int64)
        use = catalogue.use[:, : self.size.size]
        # devices that a group has in one node where others may be
        self.seats = np.where((use > 0) & (use < self.size), use, 0)
        self.taken = self._taken()
        beside = (self.seats > 0).astype(np.int64)
        needs = np.concatenate((catalogue.use, beside, self.taken[:, None]), axis=1)
        same = np.eye(len(classes), dtype=np.bool_)
        self.kept = catalogue.unbeaten(needs, self.class_of, same)

    def _states(self, classes: list[GroupClass]) -> States:
        """Return the states of groups of these classes."""
        sending, total = self.catalogue.sending, self.sending.total
        counted, direct, parted = [], [], []
        for to in classes:
            column = sending.column[to]
            # count the type whose links between nodes cost most
            best = (0.0, -1, column)
            if len(to.types) > 1 or to.within_node:
                for kind in to.types:
                    apart = (kind,) if len(to.types) > 1 else ()
                    other = sending.column[GroupClass(to.types, False, apart)]
                    more = float((total[:, other] - total[:, column]).sum())
                    if self.size[kind] and more > best[0]:
                        best = (more, kind, other)
            counted.append(best[1])
            direct.append(column)
            parted.append(best[2])
        return states(
            sending.more_time,
            total,
            np.array(counted, np.int64),
            np.array(direct, np.int64),
            np.array(parted, np.int64),
            self.size,
        )

    def _taken(self) -> NDArray[np.int64]:
        """Return the devices that each option takes in its node of the type that its class counts,
        0 where that depends on the placement."""
        options, use = self.catalogue.options, self.catalogue.use
        taken = np.zeros(len(options), np.int64)
        for number, option in enumerate(options):
            kind = self.states.counted[self.class_of[number]]
            if kind >= 0:
                devices, size = int(use[number, kind]), int(self.size[kind])
                if devices < size:
                    taken[number] = devices
                elif devices % size == 0 and size % option.degree(kind) == 0:
                    taken[number] = size  # it fills its nodes
        return taken

    def chain(self, choices: NDArray[np.int64]) -> GroupChain:
        """Return some of the candidates as a chain."""
        found, sending = self.catalogue, self.catalogue.sending
        c = found.stages.only(choices)
        order = np.lexsort((found.rows(c), c.stop))
        choices, c = choices[order], c.only(order)
        row = found.rows(c)
        time = c.time + sending.least_time[row]
        group = self.class_of[c.option]
        stages = ChainStages(
            first=first_stops(c.stop, found.layers),
            start=c.start,
            time=time,
            total=time + c.extra + sending.least_extra[row],
            peaks=np.ascontiguousarray(c.peaks.T),
            use=found.use[c.option],
            behind=found.stages_after(c, self.most),
            row=row,
            group=group,
            state=self.states.offset[group] + self.taken[c.option],
            seats=self.seats[c.option],
        )
        return GroupChain(
            layers=found.layers,
            weight=found.schedule.weight,
            capacity=found.capacity,
            choice=choices,
            stop=c.stop,
            stages=stages,
            sending=self.sending,
            states=self.states,
        )

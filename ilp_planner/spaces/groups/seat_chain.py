"""The planner's stage candidates as a chain with states that count the seats in a node.

Seats are counted of the types that have several nodes, all alike. There, a group that needs less
than a node lies in one node as a whole: packed, only one of several nodes could have room for more,
and the others would be full. (Of a type with one node, all groups are neighbours.)

Groups that are spread evenly over as many nodes of a type are counted likewise, in each of these
nodes: pairs share them all, one after the other, as long as there is room.

Traffic of network cards is counted too if stages are spread. On a card of a spread stage, the rings
of all stages take as long as one after the other, at most as long as the iteration's gradient
reduction. All M nodes of a type together:

    sum over stages that are spread of nodes / M * seconds of the ring <= gradient reduction

Zones of device types, counted along runs of stages (`bounds/group_states`).
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.costs.group_network import best_ring, group_class
from ilp_planner.optimize.bounds.group_chain import (
    Cards,
    ChainStages,
    GroupChain,
    Sending,
    first_stops,
)
from ilp_planner.optimize.bounds.group_states import Regions, States, regions, states

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ilp_planner.costs.groups import GroupClass, GroupTables
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.spaces.groups.candidates import Candidates, Catalogue
    from ilp_planner.specs.cluster import ClusterSpec, Device


# ---- counted -------------------------------------------------------------------------------------


MOST_NUMBERS = 128  # of what is taken in a region: states are so many times as many
MOST_STATES = 4_000_000  # numbers, states and layers: entries of tables, some of each


def regions_of(
    cluster: ClusterSpec,
    zones: Sequence[Sequence[int]],
    types_of: Sequence[Sequence[int]],
    states: int,
) -> Regions:
    """Return the regions of a cluster's device types: its zones.

    Parameters
    ----------
    zones: their types. types_of: the device types of each class of groups. states: of groups, at
        all layers.
    """
    counts, most = cluster.type_counts, min(MOST_NUMBERS, MOST_STATES // max(states, 1))
    units = [1] * len(counts)
    for types in zones:
        while prod(counts[kind] // units[kind] + 1 for kind in types) > max(most, 1):
            units[max(types, key=lambda kind: counts[kind] // units[kind])] *= 2
    return regions(types_of, counts, zones, units)


def alike(cluster: ClusterSpec, zones: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    """Return a number of each device type, int64 [types]: types with the same number are equal
    devices of equal zones, and may stand for each other."""
    numbers = np.arange(len(cluster.type_names))
    for number, types in enumerate(zones):
        for others in zones[:number]:
            if _may_swap(cluster, types, others):
                numbers[list(types)] = numbers[list(others)]
                break
    found: NDArray[np.int64] = np.unique(numbers, return_inverse=True)[1]
    return found


def _may_swap(cluster: ClusterSpec, types: Sequence[int], others: Sequence[int]) -> bool:
    """Tell whether nothing changes if the types of two zones change places."""
    names, swapped = cluster.type_names, list(range(len(cluster.type_names)))
    if len(types) != len(others):
        return False
    for a, b in zip(types, others, strict=True):
        swapped[a], swapped[b] = b, a
        first, second = (cluster.device_types[names[kind]] for kind in (a, b))
        if not _equal(first, second):
            return False
        if sorted(cluster.node_sizes(names[a])) != sorted(cluster.node_sizes(names[b])):
            return False
        if cluster.within.get(names[a]) != cluster.within.get(names[b]):
            return False
    return all(
        cluster.type_link(names[a], names[b])
        == cluster.type_link(names[swapped[a]], names[swapped[b]])
        for a in range(len(names))
        for b in range(a, len(names))
    )


def _equal(first: Device, second: Device) -> bool:
    """Tell whether two types are of one device, with any names and prices; if data sheets are
    missing, profiles call them the same as well."""
    called = first.profile if first.peak is None else second.profile
    told = replace(first, name=second.name, type=second.type, profile=called)
    return replace(told, price=second.price, spot_price=second.spot_price) == second


def zones_of(cluster: ClusterSpec) -> list[list[int]]:
    """Return the types of each zone, if every link between two zones is slower than all others
    between nodes; none if there are no such zones, or if each is of one type and unlike all others:
    Lagrange multipliers tell these apart."""
    names = cluster.type_names
    pairs = [
        (cluster.type_link(names[a], names[b]).bandwidth, a, b)
        for a, b in combinations(range(len(names)), 2)
    ]
    slowest = min((rate for rate, _, _ in pairs), default=0.0)
    groups = [{kind} for kind in range(len(names))]
    for rate, a, b in pairs:
        if rate > slowest:
            joined = [group for group in groups if a in group or b in group]
            groups = [group for group in groups if group not in joined] + [set().union(*joined)]
    own = [
        cluster.type_link(name, name).bandwidth
        for name in names
        if len(cluster.node_sizes(name)) > 1
    ]
    if len(groups) < 2 or any(rate <= slowest for rate in own):
        return []
    zones = sorted(sorted(group) for group in groups)
    alone = all(len(types) == 1 for types in zones)
    if alone and not any(_may_swap(cluster, *pair) for pair in combinations(zones, 2)):
        return []
    return zones


# ---- seat chain ----------------------------------------------------------------------------------


UNITS = 100  # that the longest ring is counted in, of a network card
TINY = 1e-12  # seconds


class SeatChains:
    """Chains of candidates.

    most: stages of a plan.
    """

    def __init__(self, catalogue: Catalogue, problem: Problem[GroupTables], most: int) -> None:
        self.catalogue, self.costs, self.most = catalogue, problem.costs, most
        cluster = problem.cluster
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
        # types and numbers of nodes that groups are spread over, counted like types of their own
        self.spread = list(dict.fromkeys((to.types[0], to.over) for to in classes if to.over))
        self.largest = [max(sizes[kind]) for kind, _ in self.spread]
        self.states = self._states(classes)
        self.class_of = np.array([classes.index(to) for to in own], np.int64)
        use = catalogue.use[:, : self.size.size]
        # devices that a group has in one node where others may be
        each = np.zeros((use.shape[0], len(self.spread)), np.int64)
        for number, (option, to) in enumerate(zip(catalogue.options, own, strict=True)):
            if to.over:
                each[number, self.spread.index((to.types[0], to.over))] = option.each * option.tp
        alone = (use > 0) & (use < self.size) & (each.sum(axis=1) == 0)[:, None]
        packed = np.where(alone, use, 0)
        self.seats = np.concatenate((packed, each), axis=1)
        self.taken = self._taken()
        zones = zones_of(cluster)
        states = catalogue.layers * self.states.group.size
        self.regions = regions_of(cluster, zones, [to.types for to in classes], states)
        self.alike = alike(cluster, zones)
        self.number = self.regions.numbers(catalogue.use, self.class_of)
        self.rings = np.zeros((use.shape[0], 2))
        for number, option in enumerate(catalogue.options):
            if option.over:
                share = option.over / len(sizes[own[number].types[0]])
                self.rings[number] = share * np.array(best_ring(option, cluster))
        beside = (self.seats > 0).astype(np.int64)
        rings = [np.unique(column, return_inverse=True)[1] for column in self.rings.T]
        columns = (catalogue.use, beside, self.taken[:, None], np.stack(rings, axis=1))
        self.needs = np.concatenate(columns, axis=1).astype(np.int64)

    def kept(self, choices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the candidates that no other one of the same range and class dominates, seats
        in a node included. (A candidate of another class may be worse to send to when its node
        is full.)"""
        same = np.eye(self.states.counted.size, dtype=np.bool_)
        return self.catalogue.unbeaten(self.needs, self.class_of, same, choices)

    def _states(self, classes: list[GroupClass]) -> States:
        """Return the states of groups of these classes."""
        sending, total = self.catalogue.sending, self.sending.total
        size = np.append(self.size, self.largest).astype(np.int64)
        counted, direct, parted = [], [], []
        for to in classes:
            column = sending.column[to]
            # count the type whose links between nodes cost most
            best = (0.0, -1, column)
            if len(to.types) > 1 or to.within_node or to.over:
                for kind in to.types:
                    apart = (kind,) if len(to.types) > 1 or to.over else ()
                    other = sending.column[to._replace(within_node=False, apart=apart, leaves=0)]
                    more = float((total[:, other] - total[:, column]).sum())
                    at = self.size.size + self.spread.index((kind, to.over)) if to.over else kind
                    if size[at] and more > best[0]:
                        best = (more, at, other)
            counted.append(best[1])
            direct.append(column)
            parted.append(best[2])
        return states(
            sending.more_time,
            total,
            np.array(counted, np.int64),
            np.array(direct, np.int64),
            np.array(parted, np.int64),
            size,
        )

    def _taken(self) -> NDArray[np.int64]:
        """Return the devices that each option takes in its node of the type that its class counts,
        0 if that depends on the placement."""
        options, use = self.catalogue.options, self.catalogue.use
        taken = np.zeros(len(options), np.int64)
        for number, option in enumerate(options):
            kind = self.states.counted[self.class_of[number]]
            if kind >= self.size.size:
                taken[number] = self.seats[number, kind]
            elif kind >= 0:
                devices, size = int(use[number, kind]), int(self.size[kind])
                if devices < size:
                    taken[number] = devices
                elif devices % size == 0 and size % option.degree(kind) == 0:
                    taken[number] = size  # it fills its nodes
        return taken

    def _cards(self, c: Candidates) -> Cards:
        """Return the time of candidates on the network cards of each type that groups are spread
        over."""
        kinds = sorted({kind for kind, _ in self.spread})
        if not kinds:
            return Cards(1.0, np.zeros((c.option.size, 0), np.int64))
        layers = self.catalogue.layers
        gradients = np.zeros((layers, layers + 1))
        for start in range(layers):
            for stop in range(start + 1, layers + 1):
                crossing = self.costs.crossing(start, stop)
                gradients[start, stop] = 0.0 if crossing is None else crossing[0]
        latency, per_byte = self.rings[c.option].T
        seconds = latency + per_byte * gradients[c.start, c.stop]
        unit = max(float(seconds.max(initial=0.0)) / UNITS, TINY)
        units = np.floor(seconds / unit).astype(np.int64)
        own = self.catalogue.use[c.option][:, kinds] > 0
        return Cards(unit, np.where(own, units[:, None], 0))

    def chain(self, choices: NDArray[np.int64]) -> GroupChain:
        """Return some of the candidates as a chain."""
        found, sending = self.catalogue, self.catalogue.sending
        c = found.stages.only(choices)
        order = np.lexsort((found.rows(c), c.stop))
        choices, c = choices[order], c.only(order)
        row = found.rows(c)
        time = c.time + sending.least_time[row]
        group, cards = self.class_of[c.option], self._cards(c)
        capacity = (*found.capacity, *cards.capacity(np.inf))
        others = np.arange(len(capacity) - self.size.size) + self.alike.max() + 1
        stages = ChainStages(
            first=first_stops(c.stop, found.layers),
            start=c.start,
            time=time,
            total=time + c.extra + sending.least_extra[row],
            peaks=np.ascontiguousarray(c.peaks.T),
            use=np.concatenate((found.use[c.option], cards.use), axis=1),
            behind=found.stages_after(c, self.most),
            row=row,
            group=group,
            state=self.states.offset[group] + self.taken[c.option],
            seats=self.seats[c.option],
            number=self.number[c.option],
        )
        return GroupChain(
            layers=found.layers,
            weight=found.schedule.weight,
            types=self.size.size,
            capacity=capacity,
            alike=np.concatenate((self.alike, others)),
            cards=cards,
            choice=choices,
            stop=c.stop,
            stages=stages,
            sending=self.sending,
            states=self.states,
            regions=self.regions,
        )

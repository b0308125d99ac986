"""Seconds of Megatron's messages over the links of a cluster.

Ranks fill nodes in order, equally many on each. A group inside one node uses its link: one latency,
and a ring's share of the bytes (`profiles.work.exchange_time`). A group that crosses nodes forms a
ring that passes the network card of each node once; the groups that share a card share its
bandwidth, and every step takes a latency, as in `group_network`:

    seconds = steps * latency + bytes that a rank sends * (rings on the fullest card / bandwidth)

NCCL sums over many nodes along trees, but scatters and gathers around rings, whose bandwidth falls
with the number of nodes: over 4, 8, 16, 32, 64 and 128 nodes of H100 a reduce-scatter reaches 360,
345, 320, 300, 280 and 260 GB/s (NVIDIA/nccl, issue 1229), about 6 % less each time. So it takes
`1 + ring_growth * log2(nodes)` as long, by the machine's constant.

In an all-to-all every rank sends to the other nodes by itself. Between pipeline ranks all pairs
send at the same time: the bytes of a node pass its card together. If a profile has measured the
send (`profiles.link_times`), that counts.

Seconds of one message on a known route: of a group of ranks, and between pipeline ranks.

`network` finds the route of a group in a cluster, and has the formulas.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ilp_planner.costs.profiles.link_times import SEND, LinkGroup, LinkTimes
from ilp_planner.costs.profiles.shares import LINKS
from ilp_planner.costs.profiles.work import rates_of
from ilp_planner.job.groups import Axis, grid, spanned
from ilp_planner.specs.link import Link

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from ilp_planner.costs.profiles.table import Origin
    from ilp_planner.costs.profiles.work import Rates
    from ilp_planner.job.modules import Message
    from ilp_planner.specs.cluster import ClusterSpec
    from ilp_planner.specs.training import TrainingJob


# ---- routes --------------------------------------------------------------------------------------


HOP = 3.4e-6  # seconds of a ring's step over NVLink (NCCL 2.23, src/graph/tuning.cc, `hwLat`)
LINE = (2.0**24, 2.0**30)  # bytes between which a measured collective is taken as linear
SLOWER = 0.8  # links of less than so much of the rate that collectives reached are others
# Bytes that a rank sends, of those of the whole tensor, and steps; n: ranks.
SHARES = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 1}
AROUND_RINGS = ("all_gather", "reduce_scatter")  # over nodes; sums go along trees there


class Route(NamedTuple):
    """How fast a kind of group communicates.

    size: ranks. latency: seconds of a step. ring, direct: seconds per byte that a rank sends around
    a ring, or to every other one. crosses: the group is on several nodes. group: as links are
    measured; None: unevenly many on its nodes, or alone. hosts: nodes. rates: of GPUs of one node,
    with measured collectives perhaps; None: of several types. inside: seconds per byte of the links
    within a node. scattered: seconds per byte of a ring that sums nothing or scatters sums, of
    those of `ring`.
    """

    size: int
    latency: float
    ring: float
    direct: float
    crosses: bool
    group: LinkGroup | None = None
    hosts: int = 1
    rates: Rates | None = None
    inside: float = 0.0
    scattered: float = 1.0

    def seconds(self, collective: str, size: float, once: float = 1.0) -> float:
        """Return the seconds of one message.

        Parameters
        ----------
        size: bytes of the whole tensor; of an all-to-all, a rank's input; of a send, its content.
            once: the share of an all-to-all's bytes that passes the network cards.
        """
        if size <= 0:
            return 0.0
        measured = self._measured(collective, size)
        if measured is not None:
            return measured
        latency, per_byte = self.line(collective)
        if self.crosses and collective == "all_to_all":
            per_byte = max(once * per_byte, (self.size - 1) / self.size * self.inside)
        return latency + per_byte * size

    def measured_group(self, collective: str, links: LinkTimes) -> LinkGroup | None:
        """Return the group as links know it; None if they did not measure the message."""
        known = self.group is not None and links.knows(collective, self.group)
        return self.group if known else None

    def line(self, collective: str) -> tuple[float, float]:
        """Return (seconds, seconds per byte) of one message that is not empty."""
        n = self.size
        if n == 1:
            return 0.0, 0.0
        if collective == SEND:
            return self.latency, self.ring
        times = SHARES[collective]
        few, many = (self._measured(collective, size) for size in LINE)
        if few is not None and many is not None:
            per_byte = (many - few) / (LINE[1] - LINE[0])
            return max(0.0, few - per_byte * LINE[0]), per_byte
        if collective == "all_to_all":
            return self.latency, self.direct
        latency = self.latency
        if self.crosses:
            latency = times * ((self.hosts - 1) * latency + (n - self.hosts) * HOP)
        ring = self.ring * (self.scattered if collective in AROUND_RINGS else 1.0)
        return latency, times * ring * (n - 1) / n

    def _measured(self, collective: str, size: float) -> float | None:
        """Return the seconds of a measured collective inside a node."""
        if self.rates is None or self.size == 1:
            return None
        return self.rates.collective(collective, self.size, size)


class Way(NamedTuple):
    """A link that pairs of pipeline ranks use, load: so many of them at once; group: of a pair;
    beyond: seconds per byte of what else they pass."""

    link: Link
    load: int
    group: LinkGroup
    beyond: float = 0.0

    def seconds(self, size: float, links: LinkTimes | None) -> float:
        """Return the seconds of so many bytes from each device."""
        if links is not None and links.knows(SEND, self.group):
            return links.seconds(SEND, size, self.group)
        return self.link.latency + size * max(self.load / self.link.bandwidth, self.beyond)


class Transfer(NamedTuple):
    """Links that pipeline pairs use at the same time; none within a single rank."""

    ways: tuple[Way, ...]

    def seconds(self, size: float, links: LinkTimes | None = None) -> float:
        """Return the seconds of sending one way.

        Parameters
        ----------
        size: bytes that every device sends. links: that were measured.
        """
        return max((way.seconds(size, links) for way in self.ways), default=0.0)

    def origin(self, size: float, links: LinkTimes | None = None) -> Origin:
        """Return the source of these seconds."""
        if links is None or not self.ways:
            return LINKS
        way = max(self.ways, key=lambda way: way.seconds(size, links))
        known = links.knows(SEND, way.group)
        return links.origin(SEND, size, way.group) if known else LINKS


# ---- network -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Network:
    """The links of a cluster under ranks in the order of its nodes.

    cluster: its nodes have equally many devices. order: of its nodes, by number. Under leaf
    switches whose uplinks have no room for all, ranks are taken to fill one after the other, in any
    order of nodes, and the fullest uplinks decide for all groups of a kind.
    """

    cluster: ClusterSpec
    order: tuple[int, ...]

    @cached_property
    def routes(self) -> dict[object, Route]:
        """Results of `route`."""
        return {}

    @cached_property
    def several(self) -> dict[object, tuple[Route, ...]]:
        """Results of `routes_of`."""
        return {}

    @cached_property
    def transfers(self) -> dict[object, Transfer]:
        """Results of `transfer`."""
        return {}

    @cached_property
    def alike(self) -> dict[object, tuple[int, ...]]:
        """Results of `kinds`."""
        return {}

    @cached_property
    def stages(self) -> dict[object, tuple[str, ...]]:
        """Results of `stage_types`."""
        return {}

    @cached_property
    def per_node(self) -> int:
        """Devices of a node."""
        return self.cluster.nodes[0].devices

    @cached_property
    def node_types(self) -> tuple[str, ...]:
        """Device types of the nodes in the order of ranks."""
        return tuple(self.cluster.node_types[node] for node in self.order)

    @cached_property
    def between(self) -> dict[tuple[str, str], Link]:
        """Link between nodes of two types; the slowest one if nodes decide."""
        names = self.cluster.type_names
        if not self.cluster.symmetric:
            return dict.fromkeys(product(names, names), self.cluster.slowest_between)
        return {(a, b): self.cluster.type_link(a, b) for a, b in product(names, names)}

    def types(self, ranks: NDArray[np.int64]) -> tuple[str, ...]:
        """Return the device types of ranks, each once."""
        nodes = np.unique(ranks // self.per_node).tolist()
        return tuple(dict.fromkeys(self.node_types[node] for node in nodes))

    def within(self, types: Iterable[str]) -> Link:
        """Return the slowest of the links inside nodes of these types."""
        links = [self.cluster.within.get(name, self.cluster.intra_node) for name in types]
        return min(links, key=lambda link: link.bandwidth)

    def outside(self, types: Iterable[str]) -> Link:
        """Return the slowest link between nodes of these types."""
        names = tuple(types)
        links = [self.between[a, b] for a in names for b in names]
        return Link(
            bandwidth=min(link.bandwidth for link in links),
            latency=max(link.latency for link in links),
        )

    def stage_types(self, job: TrainingJob, pp_rank: int) -> tuple[str, ...]:
        """Return the device types of a pipeline rank, each once."""
        names = self.cluster.type_names
        if len(names) == 1:
            return names
        key = *grid(job).values(), pp_rank
        if key not in self.stages:
            self.stages[key] = self.types(stage_ranks(job, pp_rank))
        return self.stages[key]

    def kinds(self, job: TrainingJob, groups: Sequence[str]) -> tuple[int, ...]:
        """Return for each pipeline rank the first one with the same devices, and the same routes
        of these kinds of groups."""
        key = groups, _shape(job)
        if key not in self.alike:
            known: dict[object, int] = {}
            self.alike[key] = tuple(
                known.setdefault((self.stage_types(job, rank), *routes), rank)
                for rank in range(job.pp)
                for routes in [[self.route(job, kind, rank) for kind in groups]]
            )
        return self.alike[key]

    def route(self, job: TrainingJob, kind: str, pp_rank: int, part: str = "") -> Route:
        """Return how the groups of a kind communicate on a pipeline rank.

        part: of the replicas that divide the optimiser's states, as in `spanned`.
        """
        key = kind, part, pp_rank, _shape(job)
        if key not in self.routes:
            members, others = spanned(job, kind, part)
            inner = tuple(axis for axis in others if axis.name != "pp")
            first = pp_rank * grid(job)["pp"].stride % self.per_node
            types = self.stage_types(job, pp_rank)
            everywhere = others if self.cluster.shares_uplinks else inner
            same = (_sizes(members), _sizes(inner), first, types, _sizes(everywhere))
            if same not in self.routes:
                self.routes[same] = self._route(members, inner, first, types, everywhere)
            self.routes[key] = self.routes[same]
        return self.routes[key]

    def routes_of(
        self, job: TrainingJob, groups: tuple[str, ...], pp_rank: int
    ) -> tuple[Route, ...]:
        """Return how the groups of several kinds communicate on a pipeline rank."""
        key = groups, pp_rank, _shape(job)
        if key not in self.several:
            self.several[key] = tuple(self.route(job, group, pp_rank) for group in groups)
        return self.several[key]

    def _route(
        self,
        members: tuple[Axis, ...],
        others: tuple[Axis, ...],
        first: int,
        types: tuple[str, ...],
        everywhere: tuple[Axis, ...],
    ) -> Route:
        offsets = _offsets(members)
        size = int(offsets.size)
        link = self.within(types)
        if size == 1:
            return Route(1, 0.0, 0.0, 0.0, False)
        ranks = first + _offsets(others)[:, None] + offsets[None, :]
        nodes = ranks // self.per_node
        crossing = nodes.min(axis=1) != nodes.max(axis=1)
        inside = 1 / (link.collective_bandwidth(size) * self._share("links", types))
        device, stride = self.profiled(types), next(a.stride for a in members if a.size > 1)
        if not crossing.any():
            group = LinkGroup(size, 1, stride, device) if _single(members) else None
            direct = (size - 1) / size * inside
            rates = self.rates(types)
            if rates is not None and (link.collectives or not _carries(inside, rates, size)):
                rates = None
            return Route(size, link.latency, inside, direct, False, group, rates=rates)
        groups = np.flatnonzero(crossing)
        pairs, members_there = np.unique(
            groups[:, None] * (int(nodes.max()) + 1) + nodes[groups], return_counts=True
        )
        rings = int(np.bincount(pairs % (int(nodes.max()) + 1)).max())
        senders = int(np.bincount(nodes[groups].ravel()).max())
        here = max(1, senders // rings)  # members of one group on one node
        card = self.outside(types)
        rate = card.bandwidth * self._share("network", types)
        ring = max(rings / rate, inside if here > 1 else 0.0)
        direct = senders * (size - here) / size / rate
        hosts = int(np.unique(nodes[groups[0]]).size)
        if self.cluster.shares_uplinks:
            every = _offsets(everywhere)[:, None] + offsets[None, :]
            around, apart = self._through_uplinks(every)
            ring, direct = max(ring, around / rate), max(direct, apart / rate)
        if self.cluster.fabric.rail_only:
            rails = np.arange(len(ranks))[:, None] * self.per_node + ranks % self.per_node
            if np.unique(rails[groups]).size * hosts != groups.size * size:
                ring = max(ring, inside)
        even = here * hosts == size and bool((members_there == here).all())
        group = LinkGroup(size, hosts, stride, device, rings) if even else None
        growth = max(self.cluster.device_types[name].machine.ring_growth for name in types)
        return Route(
            size, card.latency, ring, direct, True, group,
            hosts=hosts, inside=inside, scattered=1.0 + growth * math.log2(hosts),
        )  # fmt: skip

    @cached_property
    def leaves(self) -> NDArray[np.int64]:
        """Leaf switch of each node, counted from 0: of those that ranks fill first."""
        found = [self.cluster.leaves[node] for node in sorted(self.order)]
        return np.unique(found, return_inverse=True)[1].astype(np.int64)

    def _through_uplinks(self, ranks: NDArray[np.int64]) -> tuple[float, float]:
        """Return how many rings, and how many times a rank's bytes to all others, pass the fullest
        uplinks for each node's part of them.

        ranks: of all groups of a kind, a row a group: all pipeline ranks send at the same time.
        """
        size, count = ranks.shape[1], int(self.leaves.max()) + 1
        groups = np.arange(len(ranks))[:, None] * count
        pairs, here = np.unique(groups + self.leaves[ranks // self.per_node], return_counts=True)
        leaf, leaves_it = pairs % count, here < size
        parts = np.bincount(self.leaves) / self.cluster.fabric.oversubscription
        around = np.bincount(leaf, leaves_it, count) / parts
        apart = np.bincount(leaf, here * (size - here) / size, count) / parts
        return float(around.max()), float(apart.max())

    def _share(self, constant: str, types: Iterable[str]) -> float:
        """Return the share of the rate of links inside nodes (`links`) or between them (`network`)
        that the slowest of these types reaches."""
        machines = (self.cluster.device_types[name].machine for name in types)
        return min(float(getattr(machine, constant)) for machine in machines)

    def rates(self, types: Iterable[str]) -> Rates | None:
        """Return the rates of kernels and collectives on the single type; None of several."""
        names = set(types)
        return rates_of(self.cluster.device_types[names.pop()]) if len(names) == 1 else None

    def message_seconds(
        self,
        job: TrainingJob,
        messages: Iterable[Message],
        pp_rank: int,
        links: LinkTimes | None = None,
    ) -> float:
        """Return the seconds of messages, one after the other. links: that were measured."""
        total = 0.0
        for m in messages:
            route = self.route(job, m.group, pp_rank)
            group = None if links is None else route.measured_group(m.collective, links)
            if links is None or group is None:
                once = route.seconds(m.collective, m.size, m.once)
            else:
                once = links.seconds(m.collective, m.size, group) if m.size > 0 else 0.0
            total += m.times * once
        return total

    def message_origin(
        self, job: TrainingJob, message: Message, pp_rank: int, links: LinkTimes
    ) -> Origin:
        """Return the source of a message's seconds."""
        group = self.route(job, message.group, pp_rank).measured_group(message.collective, links)
        if group is None or not message.size > 0:
            return LINKS
        return links.origin(message.collective, message.size, group)

    def profiled(self, types: Iterable[str]) -> str | None:
        """Return the profiles' name of the single type; None of several."""
        names = set(types)
        return self.cluster.device_types[names.pop()].profile if len(names) == 1 else None

    def transfer(self, job: TrainingJob, pp_rank: int) -> Transfer:
        """Return the links from a pipeline rank to the next (from the last to the first), one
        way."""
        if job.pp == 1:
            return Transfer(())
        following = (pp_rank + 1) % job.pp
        axes = grid(job)
        stride = axes["pp"].stride
        types = self.stage_types(job, pp_rank), self.stage_types(job, following)
        shape = tuple((axis.size, axis.stride) for name, axis in axes.items() if name != "pp")
        first = pp_rank * stride % self.per_node
        key = (shape, job.pp, (following - pp_rank) * stride, first, types)
        if key not in self.transfers:
            self.transfers[key] = self._transfer(job, pp_rank, following, types)
        return self.transfers[key]

    def _transfer(
        self,
        job: TrainingJob,
        pp_rank: int,
        following: int,
        types: tuple[tuple[str, ...], tuple[str, ...]],
    ) -> Transfer:
        from_node = stage_ranks(job, pp_rank) // self.per_node
        to_node = stage_ranks(job, following) // self.per_node
        crossing = from_node != to_node
        stride = abs(following - pp_rank) * grid(job)["pp"].stride
        device = self.profiled((*types[0], *types[1]))
        ways = []
        if not crossing.all():
            inner, share = self.within(types[0]), self._share("links", types[0])
            inner = replace(inner, bandwidth=inner.bandwidth * share)
            ways.append(Way(inner, 1, LinkGroup(2, 1, stride, device)))
        if crossing.any():
            both = (*types[0], *types[1])
            card, share = self.outside(both), self._share("network", both)
            card = replace(card, bandwidth=card.bandwidth * share)
            load = int(np.bincount(from_node[crossing] - int(from_node.min())).max())
            beyond = self._sent_beyond(job) / card.bandwidth
            if self.cluster.fabric.rail_only and stride % self.per_node:
                inner, share = self.within(both), self._share("links", both)
                beyond = max(beyond, 1 / (inner.bandwidth * share))
            ways.append(Way(card, load, LinkGroup(2, 2, stride, device, load), beyond))
        return Transfer(tuple(ways))

    def _sent_beyond(self, job: TrainingJob) -> float:
        """Return how many of the sends of all pipeline ranks to the next pass the fullest uplinks
        for each node's part of them."""
        if not self.cluster.shares_uplinks:
            return 0.0
        pipeline = grid(job)["pp"]
        ranks = np.arange(job.world, dtype=np.int64)
        last = ranks // pipeline.stride % pipeline.size == pipeline.size - 1
        following = ranks + pipeline.stride * np.where(last, 1 - pipeline.size, 1)
        sent, came = self.leaves[ranks // self.per_node], self.leaves[following // self.per_node]
        beyond, count = sent != came, int(self.leaves.max()) + 1
        parts = np.bincount(self.leaves) / self.cluster.fabric.oversubscription
        return float((np.bincount(sent[beyond], minlength=count) / parts).max())


def _carries(inside: float, rates: Rates, size: int) -> bool:
    """Tell whether links inside a node, seconds per byte, are those of measured collectives: a
    cluster's may be slower, as between cards without bridges."""
    measured = rates.collective("all_gather", size, LINE[1])
    return measured is None or measured >= SLOWER * inside * LINE[1] * (size - 1) / size


def stage_ranks(job: TrainingJob, pp_rank: int) -> NDArray[np.int64]:
    """Return the ranks of a pipeline rank, fastest axis first."""
    axes = dict(grid(job))
    pipeline = axes.pop("pp")
    return pp_rank * pipeline.stride + _offsets(tuple(axes.values()))


def _shape(job: TrainingJob) -> tuple[object, ...]:
    """Return all that the places of a job's groups depend on."""
    settings = job.settings
    return (
        job.tp, job.dp, job.pp, settings.cp, settings.ep, settings.etp, settings.order,
        settings.optimizer.instances,
    )  # fmt: skip


def _sizes(axes: tuple[Axis, ...]) -> tuple[tuple[int, int], ...]:
    return tuple((axis.size, axis.stride) for axis in axes)


def _single(axes: tuple[Axis, ...]) -> bool:
    """Tell whether ranks of a group are equally far apart."""
    return all(b.stride == a.size * a.stride for a, b in pairwise(a for a in axes if a.size > 1))


def _offsets(axes: tuple[Axis, ...]) -> NDArray[np.int64]:
    """Return the ranks of a group from its first one, fastest axis first."""
    found = np.zeros(1, np.int64)
    for axis in axes:
        steps = np.arange(axis.size, dtype=np.int64) * axis.stride
        found = (steps[:, None] + found[None, :]).ravel()
    return found

"""Seconds of one message on a known route: of a group of ranks, and between pipeline ranks.

`network` finds the route of a group in a cluster, and has the formulas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.costs.profiles.link_times import SEND, LinkGroup, LinkTimes
from ilp_planner.costs.profiles.shares import LINKS

if TYPE_CHECKING:
    from ilp_planner.costs.profiles.table import Origin
    from ilp_planner.costs.profiles.work import Rates
    from ilp_planner.specs.link import Link

HOP = 3.4e-6  # seconds of a ring's step over NVLink (NCCL 2.23, src/graph/tuning.cc, `hwLat`)
LINE = (2.0**24, 2.0**30)  # bytes between which a measured collective is taken as linear
# Bytes that a rank sends, of those of the whole tensor, and steps; n: ranks.
SHARES = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 1}


class Route(NamedTuple):
    """How fast a kind of group communicates.

    size: ranks. latency: seconds of a step. ring, direct: seconds per byte that a rank sends around
    a ring, or to every other one. crosses: the group is on several nodes. group: as links are
    measured; None: unevenly many on its nodes, or alone. hosts: nodes. rates: of GPUs of one node,
    with measured collectives perhaps; None: of several types. inside: seconds per byte of the links
    within a node.
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
        return latency, times * self.ring * (n - 1) / n

    def _measured(self, collective: str, size: float) -> float | None:
        """Return the seconds of a measured collective inside a node."""
        if self.rates is None or self.size == 1:
            return None
        return self.rates.collective(collective, self.size, size)


class Way(NamedTuple):
    """A link that pairs of pipeline ranks use, load: so many of them at once; group: of a pair."""

    link: Link
    load: int
    group: LinkGroup

    def seconds(self, size: float, links: LinkTimes | None) -> float:
        """Return the seconds of so many bytes from each device."""
        if links is not None and links.knows(SEND, self.group):
            return links.seconds(SEND, size, self.group)
        return self.link.latency + self.load * size / self.link.bandwidth


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

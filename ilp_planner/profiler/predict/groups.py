"""Volume and hops of a collective, by its group of devices.

Volumes are of the ring algorithms and of direct all-to-alls (NVIDIA's nccl-tests,
doc/PERFORMANCE.md); hops as NCCL's own model of latencies counts them (src/graph/tuning.cc).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER = "all_reduce", "all_gather", "reduce_scatter"
ALL_TO_ALL = "all_to_all"
HALF_RINGS = (ALL_GATHER, REDUCE_SCATTER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A group of devices, as far as the time of a collective depends on it.

    group_size: devices. hosts: that they are on, evenly. stride: between their ranks; 0 on several
    hosts, if only the devices of each host count. sharing: groups that do the same at once: all of
    them on one host, the groups that share a host's network on several.
    """

    group_size: int
    hosts: int
    stride: int
    sharing: int

    @property
    def per_host(self) -> float:
        """Devices of the group on each host."""
        return max(self.group_size / self.hosts, 1.0)

    @property
    def family(self) -> tuple[int, int, int]:
        """The setting without concurrent groups."""
        return self.group_size, self.hosts, self.stride

    def __str__(self) -> str:
        text = f"{self.group_size} devices"
        if self.hosts > 1:
            text += f" on {self.hosts} hosts"
        elif self.stride > 1:
            text += f" at stride {self.stride}"
        return text + (f", {self.sharing} groups at once" if self.sharing > 1 else "")


def volume(name: str, setting: Setting, *, tree: bool = False) -> float:
    """Return the bytes that pass the narrowest place, per byte of the whole tensor.

    On several hosts that is the network of one of them, in one direction: the sum over the sharing
    groups. On one host it is a device's own link.

    tree: an all-reduce by NCCL's two trees over the hosts, each with half of the tensor, instead of
        around the ring. Of two hosts each sends the whole once. Of more, a host inside one tree and
        a leaf of the other sends it twice.
    """
    g, r = setting.group_size, setting.per_host
    if setting.hosts > 1:
        if tree and name == ALL_REDUCE:
            return (1.0 if setting.hosts == 2 else 2.0) * setting.sharing
        passes = {ALL_TO_ALL: r / g * (g - r) / g}.get(name, _ring(name, g))
        return passes * setting.sharing
    return (g - 1) / g**2 if name == ALL_TO_ALL else _ring(name, g)


def _ring(name: str, g: int) -> float:
    if name == ALL_REDUCE:
        return 2 * (g - 1) / g
    return (g - 1) / g if name in HALF_RINGS else 1.0


def hops(name: str, setting: Setting, *, tree: bool = False) -> tuple[float, float]:
    """Return how often a small message waits for a link within a host, and for one between hosts.
    tree: an all-reduce up and down trees over the hosts instead of twice around the ring."""
    g, h = setting.group_size, setting.hosts
    if name == ALL_TO_ALL:
        # In each of its steps some device sends to another host.
        return (g - 1.0, 0.0) if h == 1 else (0.0, g - 1.0)
    if name == ALL_REDUCE and tree:
        return 2 * (setting.per_host - 1), 2 * math.log2(h)
    # A ring leaves and enters each host once; the slowest piece misses only one of its links.
    between = 0 if h == 1 else min(h, g - 1)
    passes = 2 if name == ALL_REDUCE else 1
    return passes * (g - 1.0 - between), passes * float(between)

"""Collectives in groups that were never measured, from the curves of groups that were.

A curve keeps its shape: time and size are stretched so that its latency becomes that of the other
group, by the hops, and its bandwidth that of the other group, by the bytes through the narrowest
place. A stretched curve stays monotone and positive.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

# ---- volume and hops of a collective, by its group of devices ------------------------------------
# Volumes are of the ring algorithms and of direct all-to-alls (NVIDIA's nccl-tests,
# doc/PERFORMANCE.md); hops as NCCL's own model of latencies counts them (src/graph/tuning.cc).


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


# ---- unseen groups -------------------------------------------------------------------------------


if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import ArrayLike

    from ilp_planner.base.numerics import Floats
    from ilp_planner.profiler.predict.curve import Curve

    Known = Mapping[str, Mapping[Setting, Curve]]
    """Curves by collective and setting."""

DAMPING = 0.5  # of the trend of a host's bandwidth over group sizes, in its logarithm
MOST_GROWTH = 2.0  # of that bandwidth per doubling of the group
RIDGE = 1e-2  # relative to the latencies: keeps hops that always come together apart


@dataclass(frozen=True, slots=True, eq=False)
class Stretched:
    """A curve for another group.

    base: the curve that it is of. latency: factor on it. volume: factor on the bytes of a size.
    parts: never faster than all of these one after the other, latencies counted once.
    basis: how it was made, in words.
    """

    base: Curve
    latency: float
    volume: float
    parts: tuple[Stretched, ...]
    basis: str

    def __call__(self, sizes: ArrayLike) -> Floats:
        """Return seconds, float64 of the same shape as sizes (bytes)."""
        wanted = np.asarray(sizes, np.float64)
        found = self.latency * self.base(wanted * (self.volume / self.latency))
        if self.parts:
            moving = sum(part(wanted) - part(0.0) for part in self.parts)
            found = np.maximum(found, self.latency * self.base.latency + moving)
        return np.asarray(found, np.float64)


def stretched(known: Known, name: str, target: Setting) -> Stretched | None:
    """Return the curve of a collective in a setting that was not measured; None if nothing was.
    known: measured ones."""
    donors = sorted(
        ((kind, setting) for kind, curves in known.items() for setting in curves),
        key=lambda donor: _distance(name, target, *donor),
    )
    if not donors:
        return None
    kind, source = donors[0]
    curve = known[kind][source]
    basis = f"{kind} among {source}, "
    if (target.hosts > 1) != (source.hosts > 1):
        # Nothing is known of the links that matter: only what is moved differs.
        factor = _ring_ratio(name, target, kind, source)
        return Stretched(curve, 1.0, factor, (), basis + "no rows of these links")
    latency = _latency_ratio(known[kind], name, target, kind, source)
    if target.hosts == 1:
        factor = volume(name, target) / volume(kind, source)
        source, factor = _within_host(known[kind], name, target, kind, source, factor)
        curve = known[kind][source]
        latency = _latency_ratio(known[kind], name, target, kind, source)
        return Stretched(curve, latency, factor, (), f"{kind} among {source}, hops and bandwidth")
    parts = _ring_parts(known, target) if kind == name == ALL_REDUCE and source.hosts <= 2 else ()
    tree = not parts and kind == name == ALL_REDUCE and _by_trees(known[kind])
    factor = volume(name, target, tree=tree) / volume(kind, source, tree=tree)
    return Stretched(curve, latency, factor, parts, basis + "hops and bytes per host's network")


def _distance(name: str, target: Setting, kind: str, source: Setting) -> tuple[float, ...]:
    """Return how far a measured setting is from the wanted one; the least is taken."""

    def ratio(a: float, b: float) -> float:
        return abs(math.log2(a / b))

    alike = 0 if kind == name else 1 if {kind, name} <= {ALL_REDUCE, *HALF_RINGS} else 2
    beside = ratio(source.sharing, target.sharing)
    links = (source.hosts > 1) != (target.hosts > 1)
    if target.hosts > 1:
        return (
            links,
            alike,
            ratio(source.per_host, target.per_host),
            beside,
            ratio(source.hosts, target.hosts),
        )
    return (
        links,
        alike,
        ratio(source.group_size, target.group_size),
        ratio(max(source.stride, 1), max(target.stride, 1)),
        beside,
    )


def _ring_ratio(name: str, target: Setting, kind: str, source: Setting) -> float:
    """Return how much more a device sends, with all of them alike."""
    flat = (replace(s, hosts=1) for s in (target, source))
    return volume(name, next(flat)) / volume(kind, next(flat))


def _ring_parts(known: Known, target: Setting) -> tuple[Stretched, ...]:
    """Return the two halves of a ring all-reduce among more than two hosts.

    Between two hosts NCCL's trees send half of a ring's bytes; with more they send no less, and its
    rings are the faster ones again for large sizes (tuning.cc counts the speed within a host for up
    to two). A ring all-reduce is a reduce-scatter and an all-gather.
    """
    halves = []
    for name in HALF_RINGS if target.hosts > 2 else ():
        if not any(setting.hosts > 1 for setting in known.get(name, {})):
            return ()
        half = known[name].get(target)
        made = stretched({name: known[name]}, name, target)
        if half is not None:
            made = Stretched(half, 1.0, 1.0, (), name)
        if made is None:
            return ()
        halves.append(made)
    return tuple(halves)


def _by_trees(curves: Mapping[Setting, Curve]) -> bool:
    """Tell whether trees explain the all-reduces between two hosts, not rings.

    The one with the more even speed of the largest messages through the networks.
    """
    ends = [(s, float(c.times[-1]) / c.range[1]) for s, c in curves.items() if s.hosts == 2]
    spread = {
        tree: float(np.ptp([math.log(volume(ALL_REDUCE, s, tree=tree) / t) for s, t in ends]))
        for tree in (False, True)
        if ends
    }
    return bool(ends) and spread[True] < spread[False]


def _within_host(
    curves: Mapping[Setting, Curve],
    name: str,
    target: Setting,
    kind: str,
    source: Setting,
    factor: float,
) -> tuple[Setting, float]:
    """Return the setting to stretch and the factor on the bytes, for a group on one host.

    The links of a host are no ladder: bandwidth is followed from the next smaller and larger group,
    or its trend beyond the largest, damped. Of an all-to-all the worst pair counts, so the slowest
    of the groups of that size that were measured is taken.
    """
    inside = {s: c for s, c in curves.items() if s.hosts == 1}
    if source.group_size == target.group_size:
        return source, factor
    widths = {s: volume(kind, s) * c.range[1] / float(c.times[-1]) for s, c in inside.items()}
    by_size: dict[int, Setting] = {}
    for setting in sorted(inside, key=lambda s: widths[s]):
        held = by_size.get(setting.group_size)
        if held is None or name != ALL_TO_ALL:
            by_size[setting.group_size] = setting
    sizes = sorted(by_size)
    width = {g: widths[by_size[g]] for g in sizes}
    below = [g for g in sizes if g < target.group_size]
    above = [g for g in sizes if g > target.group_size]
    base = below[-1] if below else above[0]
    growth = 1.0
    if below and above:
        share = math.log(target.group_size / base) / math.log(above[0] / base)
        growth = (width[above[0]] / width[base]) ** share
    elif len(sizes) > 1:
        first, last = sizes[-2:] if below else (sizes[1], sizes[0])
        trend = math.log(width[last] / width[first]) / abs(math.log2(last / first))
        limit = math.log(MOST_GROWTH)
        trend = min(max(DAMPING * trend, -limit), 0.0 if name == ALL_TO_ALL else limit)
        growth = math.exp(trend * abs(math.log2(target.group_size / base)))
    source = by_size[base]
    return source, volume(name, target) / volume(kind, source) / growth


def _latency_ratio(
    curves: Mapping[Setting, Curve], name: str, target: Setting, kind: str, source: Setting
) -> float:
    """Return latency of the target over that of the source, by hops fitted on all settings."""
    from scipy.optimize import nnls

    best = (math.inf, 1.0)
    for tree in (False, True) if ALL_REDUCE in (name, kind) else (False,):
        rows = np.array([[1.0, *hops(kind, s, tree=tree)] for s in curves])
        times = np.array([curve.latency for curve in curves.values()])
        weighted = rows / times[:, None]
        scale = np.maximum(np.linalg.norm(weighted, axis=0), 1e-300)
        matrix = np.vstack([weighted / scale, RIDGE * np.eye(3)])
        found, _ = nnls(matrix, np.append(np.ones(len(times)), np.zeros(3)))
        costs = found / scale
        error = float(np.mean(np.abs(rows @ costs / times - 1)))
        wanted, had = (
            float(np.dot(costs, [1.0, *hops(n, s, tree=tree)]))
            for n, s in ((name, target), (kind, source))
        )
        if wanted > 0 and had > 0 and error < best[0]:
            best = (error, wanted / had)
    return best[1]


def held_out(known: Known, name: str, *, hosts: bool) -> Iterator[tuple[Setting, Stretched]]:
    """Yield each setting of a collective, and its curve from the other settings' rows.
    hosts: settings on several hosts, or on one."""
    for setting in known.get(name, {}):
        if (setting.hosts > 1) != hosts:
            continue
        rest = {s: c for s, c in known[name].items() if s.family != setting.family}
        if any((s.hosts > 1) == hosts for s in rest):
            made = stretched({**known, name: rest}, name, setting)
            if made is not None:
                yield setting, made

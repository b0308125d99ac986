"""Small random clusters, profiles and packed placements for tests of group costs."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from ilp_planner.costs.groups import GroupOption, option_of
from ilp_planner.costs.profiles.layers import LayerKey, LayerProfile
from ilp_planner.plan import GroupStage, Replica
from ilp_planner.specs.cluster import ClusterSpec, Device, NodeGroup
from ilp_planner.specs.link import Link

NAMES = ("fast", "mid", "slow")


def device(name: str, memory: int = 16 * 2**30) -> Device:
    return Device(name=name, memory=memory, memory_bandwidth=1e12)


def link(gigabytes: float, microseconds: float = 10) -> Link:
    return Link(bandwidth=gigabytes * 1e9, latency=microseconds * 1e-6)


def cluster_of(nodes: Sequence[tuple[str, int]], *, within: float = 100, across: float = 5):
    return ClusterSpec(
        name="test",
        device_types={name: device(name) for name, _ in nodes},
        nodes=tuple(NodeGroup(device=name, devices=size) for name, size in nodes),
        intra_node=link(within),
        inter_node=link(across, 30),
    )


@st.composite
def clusters(draw, *, types: int = 3) -> ClusterSpec:
    """Equal or unequal nodes; one link for all, one per pair of types, or a matrix."""
    names = NAMES[: draw(st.integers(1, types))]
    sizes = st.sampled_from((1, 2, 3, 4, 6, 8))
    nodes = []
    for name in names:
        size = draw(st.one_of(st.none(), sizes))  # none: nodes of this type differ
        nodes += [(name, size or draw(sizes)) for _ in range(draw(st.integers(1, 3)))]
    links = st.builds(link, st.sampled_from((1, 3, 12, 50, 200)), st.sampled_from((1, 10, 40)))
    kind = draw(st.sampled_from(("one", "pairs", "matrix")))
    pairs = [(a, b) for a in sorted(names) for b in sorted(names) if a <= b]
    count = len(nodes)
    return ClusterSpec(
        name="random",
        device_types={name: device(name) for name in names},
        nodes=tuple(NodeGroup(device=name, devices=size) for name, size in nodes),
        intra_node=draw(links),
        inter_node=draw(links),
        within={name: draw(links) for name in names if draw(st.booleans())},
        between={pair: draw(links) for pair in pairs} if kind == "pairs" else {},
        matrix=tuple(tuple(draw(links) for _ in range(count)) for _ in range(count))
        if kind == "matrix"
        else (),
    )


@dataclass
class Floor:
    """Free devices of every node, by number in the cluster."""

    cluster: ClusterSpec
    free: dict[int, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for number, node in enumerate(self.cluster.node_of):
            self.free.setdefault(node, []).append(number)

    def take(self, node: int, replicas: int, tp: int) -> list[tuple[int, ...]]:
        seats = [tuple(self.free[node][i * tp : (i + 1) * tp]) for i in range(replicas)]
        self.free[node] = self.free[node][replicas * tp :]
        return seats


def pack(floor: Floor, option: GroupOption, pick) -> list[tuple[int, ...]] | None:
    """Place an option: at most one node per type keeps room for another of its replicas.

    `pick(n)` chooses one of n ways. None where it does not fit any more.
    """
    placed = []
    for at, (name, count) in enumerate(zip(floor.cluster.type_names, option.replicas, strict=True)):
        tp = option.degree(at)
        nodes = [n for n, kind in enumerate(floor.cluster.node_types) if kind == name]
        sizes = dict(zip(nodes, floor.cluster.node_sizes(name), strict=True))
        left = count
        while left:
            last = [n for n in nodes if len(floor.free[n]) // tp >= left]
            whole = [
                n for n in nodes if len(floor.free[n]) == sizes[n] and 1 <= sizes[n] // tp <= left
            ]
            ways = [(n, left) for n in last] + [(n, sizes[n] // tp) for n in whole]
            if not ways:
                return None
            node, replicas = ways[pick(len(ways))]
            placed += floor.take(node, replicas, tp)
            left -= replicas
    return placed


def stage_of(
    start: int, stop: int, seats: Sequence[tuple[int, ...]], samples: Sequence[int]
) -> GroupStage:
    pairs = zip(seats, samples, strict=True)
    replicas = tuple(Replica(devices=seat, samples=share) for seat, share in pairs)
    return GroupStage(start=start, stop=stop, replicas=replicas)


def options(draw, floor: Floor) -> GroupOption:
    """An option whose replicas the free devices have room for; one replica at least. Types may
    differ in their degree."""
    nodes = list(zip(floor.cluster.node_types, floor.free.values(), strict=True))
    largest = max(len(free) for _, free in nodes)
    known = st.sampled_from([t for t in (1, 2, 3, 4) if t <= largest])
    degrees = [draw(known)] * len(floor.cluster.type_names)
    if draw(st.booleans()):
        degrees = [tp if i == 0 else draw(known) for i, tp in enumerate(degrees)]
    room = [
        min(5, sum(len(free) // tp for kind, free in nodes if kind == name))
        for name, tp in zip(floor.cluster.type_names, degrees, strict=True)
    ]
    assume(any(room))
    first = draw(st.sampled_from([i for i, seats in enumerate(room) if seats]))
    lone = draw(st.booleans())
    replicas = tuple(
        draw(st.integers(int(i == first), seats)) if i == first or not lone else 0
        for i, seats in enumerate(room)
    )
    return option_of(degrees, replicas)


def profile_of(
    names: Sequence[str] = NAMES,
    layers: int = 6,
    *,
    degrees: Sequence[int] = (1, 2, 4),
    samples: Sequence[int] = (1, 2, 4),
    seed: int = 0,
) -> LayerProfile:
    """A profile whose times rise with samples, slower from type to type."""
    rng = np.random.default_rng(seed)
    base = rng.uniform(1e-3, 3e-3, layers)
    boundary = np.concatenate(([0.0], rng.uniform(1e6, 4e6, layers - 1), [0.0]))
    pairs = [(name, tp) for name in names for tp in degrees]
    weights = rng.uniform(1e8, 3e8, layers)
    time = {
        LayerKey(name, tp, x): base * (1 + i) * (0.3 + 0.7 * x / tp)
        for i, name in enumerate(names)
        for tp in degrees
        for x in samples
    }
    return LayerProfile(
        source="test",
        layers=tuple(f"layer{i}" for i in range(layers)),
        time=time,
        state={(name, tp): 8 * weights / tp for name, tp in pairs},
        activation={(name, tp): weights / 4 / tp for name, tp in pairs},
        workspace={(name, tp): weights / 8 / tp for name, tp in pairs},
        gradients=2 * weights,
        boundary=boundary,
        optimizer=dict.fromkeys(pairs, 1e-12 * weights),
        measured=frozenset(time),
    )

"""Messages of groups of devices: pipeline transfers and gradient rings, on the nodes that a plan
names, and on the best ones that a group can have.

Pipeline transfer. For every micro-batch, activations go forward and their gradients come back, as
many bytes, one after the other. The tensor-parallel ranks of a replica send a share of 1/tp each
and gather inside their node (Megatron's scatter-gather, DeepSpeed's partitioned activations). Two
stages inside one node use its links, every device its own. Otherwise every byte passes the network
card of the sending stage's node, shared by its replicas there:

    seconds = 2 * (latency + max over sending nodes of (bytes of the replicas there / link))

Gradient ring. Rank k of every replica forms a ring that visits node after node and type after type;
each of its 2 (n - 1) steps moves 1/n of the gradients that the rank holds over the slowest link.
The rings of the tp ranks share the network cards of the nodes they cross:

    seconds = 2 (n - 1) (latency + gradients / tp / n * max over links of (its rings / bandwidth))

Where replicas of a stage have different degrees, the gradients are reduced in as many equal pieces
as the least common multiple of these, each in a ring of the ranks that hold it: a rank of a replica
of tp devices is in pieces / tp rings at once, and these share its link.

Pairs, neighbours that are spread evenly over the same nodes (`seat_patterns`), send inside each
node as two stages inside one node do. If samples differ by one, the choice of replicas with more
does not matter (`as_sent`).

Stages that are spread evenly share the network cards of their nodes with all other stages there:
the rings through a card take as long as one after the other.

A placement is packed when, of the nodes that hold devices of a stage, at most one per device type
has room for another replica of it (and every replica lies in one node). The best-link functions are
exact for one-type groups that fit a node or fill whole ones, on links that depend on nothing but
the types of their ends, and never above the seconds of a packed placement; for options that are
spread, of one that is spread so.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from math import lcm
from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.costs.groups import GroupClass, GroupOption
from ilp_planner.costs.seat_patterns import are_pairs, is_packed, spread_over

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ilp_planner.plan import GroupStage
    from ilp_planner.specs.cluster import ClusterSpec
    from ilp_planner.specs.link import Link


class Transfer(NamedTuple):
    """Seconds of sending: latency + per_byte * bytes. The function that made it defines the
    bytes."""

    latency: float
    per_byte: float

    def seconds(self, size: float) -> float:
        """Return the seconds of so many bytes."""
        return self.latency + self.per_byte * size


NOTHING = Transfer(0.0, 0.0)


def group_class(option: GroupOption, cluster: ClusterSpec) -> GroupClass:
    """Return the class of a group of this option for a sender."""
    types = tuple(i for i, count in enumerate(option.replicas) if count)
    if len(types) > 1:
        return GroupClass(types, within_node=False)
    kind, tp = types[0], option.tp
    sizes = cluster.node_sizes(cluster.type_names[kind])
    if option.over:
        return GroupClass(types, within_node=False, over=option.over)
    several = option.replicas[kind] > _filled(cluster, kind, tp)
    leaves = max((size % tp for size in sizes if size >= tp), default=0) if several else 0
    return GroupClass(types, within_node=sum(option.use) < max(sizes), leaves=leaves)


def fits_nodes(option: GroupOption, cluster: ClusterSpec) -> bool:
    """Tell whether every replica can have its tensor-parallel ranks in one node, and so many nodes
    have room for a group that is spread over them."""
    if option.over:
        (kind,) = (kind for kind, count in enumerate(option.replicas) if count)
        sizes = cluster.node_sizes(cluster.type_names[kind])
        return sum(size // option.tp >= option.each for size in sizes) >= option.over
    return all(
        _seats(cluster, kind, option.degree(kind)) >= count
        for kind, count in enumerate(option.replicas)
    )


def _seats(cluster: ClusterSpec, kind: int, tp: int) -> int:
    """Count the replicas that the nodes of a type have room for."""
    return sum(size // tp for size in cluster.node_sizes(cluster.type_names[kind]))


# ---- pipeline transfers -------------------------------------------------------------------------


def stage_transfer(stage: GroupStage, following: GroupStage, cluster: ClusterSpec) -> Transfer:
    """Return the seconds per micro-batch of sending to the next stage and hearing back, by the
    bytes of one sample in one direction."""
    here = {cluster.node_of[d] for d in stage.devices}
    there = {cluster.node_of[d] for d in following.devices}
    if here == there and (len(here) == 1 or are_pairs(stage, following, cluster)):
        node = min(here)  # of pairs any: all are of one type
        most = max(replica.samples / replica.tp for replica in stage.replicas)
        return _both_ways(cluster.link(node, node), most)
    load: dict[int, Counter[int]] = {}  # by node and degree: samples, once for every rank
    for replica in stage.replicas:
        for device in replica.devices:
            of_node = load.setdefault(cluster.node_of[device], Counter())
            of_node[replica.tp] += replica.samples
    ways = []
    for node, by_degree in load.items():
        targets = sorted(there - {node}) or [node]
        links = [cluster.link(node, target) for target in targets]
        samples = sum(count / tp for tp, count in by_degree.items())
        ways.append(_slowest(_both_ways(link, samples) for link in links))
    return _slowest(ways)


def best_transfer(
    option: GroupOption, samples: Sequence[int], to: GroupClass, cluster: ClusterSpec
) -> Transfer:
    """Return the least that `stage_transfer` can be for an option, placed as it says.

    Parameters
    ----------
    samples: of each replica, in the order of the types.
    """
    own = group_class(option, cluster)
    if option.over:
        across = _best_spread(option, samples, own, to, cluster)
    else:
        across = best_across(loads_of(option, samples, own.types, cluster), to, cluster)
    if _may_pair(own, to):
        inside = _both_ways(_within(cluster, own.types[0]), max(samples) / option.tp)
        return _better(across, inside)
    if not (own.within_node and to.within_node and own.types == to.types) or to.apart:
        return across
    inside = _both_ways(_within(cluster, own.types[0]), max(samples) / option.tp)
    lone = len(cluster.node_sizes(cluster.type_names[own.types[0]])) == 1
    return inside if lone else _better(across, inside)


def seen_from(types: Sequence[int], to: GroupClass, cluster: ClusterSpec) -> tuple[object, ...]:
    """Return all that `best_across` reads of a class for senders of these types: if it is equal for
    two classes, sending to them takes as long.
    """
    found: list[object] = []
    for kind in types:
        found.append(cluster.worst_link(kind, to.types))
        if kind not in to.apart:
            found.append(to.within_node and to.types == (kind,))
            others = tuple(u for u in to.types if u != kind) or (kind,)
            found.append(cluster.worst_link(kind, others))
    return tuple(found)


class Load(NamedTuple):
    """The samples that the replicas of one type send from a node that they fill. one: of a single
    replica, if the receiver may sit where they leave devices over; else as many. fills: they leave
    no device of some node over."""

    kind: int
    samples: int
    one: int
    fills: bool


def loads_of(
    option: GroupOption, samples: Sequence[int], types: Sequence[int], cluster: ClusterSpec
) -> list[Load]:
    """Return the loads of a packed group of these types."""
    found, place = [], 0
    for kind in types:
        count = option.replicas[kind]
        shares = sorted(samples[place : place + count])
        place += count
        full = _filled(cluster, kind, option.degree(kind))
        load = one = sum(shares[:full])
        if count > full and _leaves_room(cluster, kind, option):
            one = shares[0]
        found.append(Load(kind, load, one, _fills_a_node(cluster, kind, option)))
    return found


def best_across(loads: Sequence[Load], to: GroupClass, cluster: ClusterSpec) -> Transfer:
    """Return the least that sending over the network can take."""
    ways = []
    for kind, samples, one, fills in loads:
        # Nodes that the sender fills, the receiver is not in.
        alone = fills or kind in to.apart
        behind = to.within_node and to.types == (kind,) and not alone
        if behind and len(loads) > 1:
            continue  # this part of the group may share the receiver's node: the others send
        # Of the receiver's nodes those of the same type may be this one; of one type alone not all.
        others = to.types if alone else tuple(u for u in to.types if u != kind) or (kind,)
        load = one if behind else samples
        ways.append(_both_ways(cluster.worst_link(kind, others), load))
    return _slowest(ways)


def _best_spread(
    option: GroupOption,
    samples: Sequence[int],
    own: GroupClass,
    to: GroupClass,
    cluster: ClusterSpec,
) -> Transfer:
    """Return the least for a group that is spread and no pair of the next one: every node sends its
    share, and for each type of the receiver one of them sends to another node of it."""
    load = sum(sorted(samples)[: option.each])
    return _both_ways(cluster.worst_link(own.types[0], to.types), load)


def _may_pair(own: GroupClass, to: GroupClass) -> bool:
    """Tell whether two groups, at least one of them spread, may be over the same nodes; a packed
    one fills one of them at least."""
    if own.types != to.types or to.apart:
        return False
    if own.over and to.over:
        return own.over == to.over
    return (own.over > 0 and to.leaves > 0) or (to.over > 0 and own.leaves > 0)


def _within(cluster: ClusterSpec, kind: int) -> Link:
    return cluster.within.get(cluster.type_names[kind], cluster.intra_node)


def _filled(cluster: ClusterSpec, kind: int, tp: int) -> int:
    """Count the replicas on a filled node of a type; the smallest node that one fits decides."""
    sizes = set(cluster.node_sizes(cluster.type_names[kind]))
    return min((size // tp for size in sizes if size >= tp), default=1)


def _fills_a_node(cluster: ClusterSpec, kind: int, option: GroupOption) -> bool:
    """Tell whether replicas leave no device of some node over, wherever they are packed."""
    (size, *others) = set(cluster.node_sizes(cluster.type_names[kind]))
    degree = option.degree(kind)
    return not others and size % degree == 0 and degree * option.replicas[kind] >= size


def _leaves_room(cluster: ClusterSpec, kind: int, option: GroupOption) -> bool:
    sizes = set(cluster.node_sizes(cluster.type_names[kind]))
    return any(size % option.degree(kind) for size in sizes)


def _both_ways(link: Link, samples: float) -> Transfer:
    return Transfer(2 * link.latency, 2 * samples / link.bandwidth)


def _better(a: Transfer, b: Transfer) -> Transfer:
    """Return the least latency and the least time per byte."""
    return Transfer(min(a.latency, b.latency), min(a.per_byte, b.per_byte))


def _slowest(transfers: Iterable[Transfer]) -> Transfer:
    """Return the largest latency and the largest time per byte."""
    return Transfer(*(max(column) for column in zip(*transfers, strict=True)))


# ---- gradient rings -----------------------------------------------------------------------------


def stage_ring(stage: GroupStage, cluster: ClusterSpec) -> Transfer:
    """Return the seconds of a stage's gradient reduction, by the bytes of its gradients (not
    divided by tp)."""
    if stage.dp == 1:
        return NOTHING
    order = {name: i for i, name in enumerate(cluster.type_names)}
    pieces = lcm(*stage.degrees)
    rings = []
    cards: Counter[int] = Counter()
    least: dict[int, int] = {}  # of a node's replicas: the smallest degree
    for replica in stage.replicas:
        tp = replica.tp
        for node in {cluster.node_of[device] for device in replica.devices}:
            least[node] = min(least.get(node, tp), tp)
    for piece in range(pieces):
        holders = (r.devices[piece * r.tp // pieces] for r in stage.replicas)
        seats = Counter(cluster.node_of[device] for device in holders)
        ring = sorted(seats, key=lambda node: (order[cluster.node_types[node]], node))
        rings.append((ring, [node for node, count in seats.items() if count > 1]))
        if len(ring) > 1:
            cards.update(ring)
    hops = []
    for ring, shared in rings:
        for node in shared:
            link = cluster.link(node, node)
            hops.append(_hop(link.collective_bandwidth(stage.dp), link, pieces // least[node]))
        if len(ring) > 1:
            for a, b in pairwise([*ring, ring[0]]):
                link = cluster.link(a, b)
                hops.append(_hop(link.bandwidth, link, max(cards[a], cards[b])))
    return _steps(_slowest(hops), stage.dp, pieces)


def shared_rings(
    stages: Sequence[GroupStage], seconds: Sequence[float], cluster: ClusterSpec
) -> list[float]:
    """Return the seconds of each stage's ring, with all rings through the same network card if one
    of the two stages is spread evenly and not packed.

    Parameters
    ----------
    seconds: of each stage's ring by itself.
    """
    over = [frozenset(cluster.node_of[d] for d in stage.devices) for stage in stages]
    spread = [
        len(nodes) > 1 and bool(spread_over(stage, cluster)) and not is_packed(stage, cluster)
        for stage, nodes in zip(stages, over, strict=True)
    ]
    if not any(spread):
        return list(seconds)
    found = []
    for s, nodes in enumerate(over):
        beside = [t for t, other in enumerate(over) if len(other) > 1 and (spread[s] or spread[t])]
        waits = (sum(seconds[t] for t in {*beside, s} if node in over[t]) for node in nodes)
        found.append(max(waits) if len(nodes) > 1 else seconds[s])
    return found


def best_ring(option: GroupOption, cluster: ClusterSpec) -> Transfer:
    """Return the least that `stage_ring` can be for an option, placed as it says."""
    dp, pieces = sum(option.replicas), option.pieces
    if dp == 1:
        return NOTHING
    names = cluster.type_names
    types = [kind for kind, count in enumerate(option.replicas) if count]
    if option.over:
        own, link = _within(cluster, types[0]), cluster.type_link(names[types[0]], names[types[0]])
        hops = [_hop(link.bandwidth, link, pieces)]
        if option.each > 1:
            hops.append(_hop(own.collective_bandwidth(dp), own, 1))
        return _steps(_slowest(hops), dp, pieces)
    hops = []
    for kind in types:
        count, tp = option.replicas[kind], option.degree(kind)
        most, own = max(cluster.node_sizes(names[kind])) // tp, _within(cluster, kind)
        inside = _hop(own.collective_bandwidth(dp), own, pieces // tp)
        link = cluster.type_link(names[kind], names[kind])
        outside = _hop(link.bandwidth, link, pieces)
        if min(count, _filled(cluster, kind, tp)) > 1:
            hops.append(inside)
        if count > most:
            hops.append(outside)
        elif len(types) == 1 and not hops:
            hops.append(_better(inside, outside))  # one large node or several small ones
    if len(types) > 1:
        for a, b in pairwise([*types, types[0]]):
            link = cluster.type_link(names[a], names[b])
            hops.append(_hop(link.bandwidth, link, pieces))
    return _steps(_slowest(hops), dp, pieces)


def _hop(bandwidth: float, link: Link, rings: int) -> Transfer:
    return Transfer(link.latency, rings / bandwidth)


def _steps(hop: Transfer, dp: int, pieces: int) -> Transfer:
    steps = 2 * (dp - 1)
    return Transfer(steps * hop.latency, steps / dp / pieces * hop.per_byte)

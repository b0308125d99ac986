"""The machines of before among the nodes of a cluster, and the value of each as each node.

Nodes are numbered when a job is launched, so any machine can be any of the nodes that are like it:
of as many devices of the same type, in the same zone. Links that are said from node to node leave
every machine its own number. Where another cluster has fewer nodes of a size and more of another
one, machines have lost devices or got some: which of them is not said, so that the first ones stay.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ilp_planner.inputs.devices import nodes_named
from ilp_planner.job.holdings import NOBODY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ilp_planner.analysis.replan.changes import Changes
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.job.holdings import Holdings
    from ilp_planner.specs.cluster import ClusterSpec


@dataclass(frozen=True, kw_only=True, eq=False)
class Moves:
    """Bytes [devices] of weights and optimiser states that each device of a plan takes up.

    needed: that it holds. kept: of them, that it has already. read: that no device has any more,
    and a checkpoint must have.
    """

    needed: NDArray[np.float64]
    kept: NDArray[np.float64]
    read: NDArray[np.float64]

    @property
    def moved(self) -> NDArray[np.float64]:
        """Bytes that each device gets from others."""
        # The difference of sums of parts: what is left of rounding is nothing.
        left = self.needed - self.kept - self.read
        return np.where(left < ROUNDING * self.needed, 0.0, left)

    @property
    def total(self) -> float:
        """Bytes that all devices get from others."""
        return float(self.moved.sum())

    @property
    def most(self) -> float:
        """Bytes that one device gets from others at most."""
        return float(self.moved.max(initial=0.0))

    @property
    def from_checkpoint(self) -> float:
        """Bytes that all devices read from a checkpoint."""
        return float(self.read.sum())


ROUNDING = 1e-9  # relative


def moves(
    old: Holdings, new: Holdings, before: NDArray[np.int64], alive: NDArray[np.bool_]
) -> Moves:
    """Return the bytes that move from one plan to another.

    Parameters
    ----------
    before: [new devices], the number that each had among the old devices, `NOBODY` for one that was
        not there. alive: [old devices], whether each still has its bytes.
    """
    there = (before != NOBODY) & alive[before]
    own = np.flatnonzero(there)
    kept = np.zeros(len(before))
    kept[own] = held_by_both(old, new, before[own], own)
    return Moves(needed=new.bytes, kept=kept, read=lacking(old, new, alive))


def held_by_both(
    old: Holdings, new: Holdings, olds: NDArray[np.int64], news: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the bytes that old and new devices, broadcast against each other, have in common."""
    shared = shared_sizes(old, new)[old.stage[olds], new.stage[news]]
    volumes = common(old.boxes[olds], new.boxes[news])
    found: NDArray[np.float64] = (shared * volumes).sum(axis=(-2, -1))
    return found


def shared_sizes(old: Holdings, new: Holdings) -> NDArray[np.float64]:
    """Return the bytes [old stages + 1, new stages + 1, kinds, 2] of tensors that both stages have;
    the last row and column are of empty devices."""
    wanted = new.has[..., None] * new.sizes
    both = np.einsum("auk,bukp->abkp", old.has, wanted, optimize=True)
    return np.pad(both, ((0, 1), (0, 1), (0, 0), (0, 0)))


def common(some: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the volumes [..., kinds, 2] of boxes that two have in common."""
    low = np.maximum(some[..., 0], others[..., 0])
    high = np.minimum(some[..., 1], others[..., 1])
    found: NDArray[np.float64] = np.prod(np.maximum(high - low, 0.0), axis=-1)
    return found


def lacking(
    old: Holdings,
    new: Holdings,
    holding: NDArray[np.bool_],
    asking: NDArray[np.bool_] | None = None,
) -> NDArray[np.float64]:
    """Return the bytes [new devices] that each needs and that none of some old devices has.

    Parameters
    ----------
    holding: [old devices], whether each counts. asking: [new devices], whether each counts, None
        for all; 0 for the others.
    """
    found = np.zeros(len(new.stage))
    asking = new.stage >= 0 if asking is None else asking & (new.stage >= 0)
    if holding[old.stage >= 0].all():
        return found
    for sizes, olds, news in _runs(old, new):
        wanted = np.flatnonzero(np.isin(new.stage, news) & asking)
        if not wanted.size:
            continue
        holders = np.isin(old.stage, olds)
        if holding[holders].all():
            continue
        for kind, part in np.argwhere(sizes):
            left = _missing(old.boxes[holders & holding, kind, part], new.boxes[wanted, kind, part])
            found[wanted] += sizes[kind, part] * left
    return found


def _runs(
    old: Holdings, new: Holdings
) -> list[tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]]:
    """Return (bytes [kinds, 2], old stages, new stages) of units, or kinds of them, that the same
    stages have."""
    units, kinds, _ = new.sizes.shape
    stages = np.concatenate([old.has, new.has]).reshape(-1, units * kinds)
    patterns, place = np.unique(stages, axis=1, return_inverse=True)
    place = place.reshape(units, kinds)
    found = []
    for number, pattern in enumerate(patterns.T):
        sizes = np.where((place == number)[..., None], new.sizes, 0.0).sum(axis=0)
        olds, news = pattern[: len(old.has)], pattern[len(old.has) :]
        found.append((sizes, np.flatnonzero(olds), np.flatnonzero(news)))
    return found


def _missing(held: NDArray[np.float64], wanted: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the volume [n] of each of n boxes that no held box [m, 3, 2] covers.

    The faces of the held boxes cut the whole into cells, and each is covered or not.
    """
    held = np.unique(held, axis=0)
    edges = [np.unique(np.concatenate([[0.0, 1.0], held[:, axis].ravel()])) for axis in range(3)]
    covered = np.zeros([len(edge) - 1 for edge in edges], dtype=bool)
    for box in held:
        where = (np.searchsorted(edge, side) for edge, side in zip(edges, box, strict=True))
        covered[tuple(slice(low, high) for low, high in where)] = True
    a, b, c = (
        np.maximum(
            np.minimum(edge[1:], wanted[:, axis, 1:]) - np.maximum(edge[:-1], wanted[:, axis, :1]),
            0.0,
        )
        for axis, edge in enumerate(edges)
    )
    found: NDArray[np.float64] = np.einsum("na,nb,nc,abc->n", a, b, c, ~covered, optimize=True)
    return found


PREFERRED = 1e-12  # of the most bytes: what a machine's own number counts where no byte is at stake


FEWER = (
    "they count as its first ones, and what the others held as handed on; where these are broken, "
    "only a checkpoint has it"
)
MORE = "those of before count as its first ones"


@dataclass(frozen=True, kw_only=True, eq=False)
class Machines:
    """The nodes of a plan and those of a changed problem.

    names: of the machines of before, in the order of their nodes. new: of all machines that there
    are now, if they have names in the same cluster. before, after: the devices of every node.
    may: [nodes after, nodes before], whether a node can be a machine of before. own: likewise,
    whether it has its number. alive: [devices before], whether each still has its bytes.
    """

    names: tuple[str, ...]
    new: tuple[str, ...]
    before: tuple[range, ...]
    after: tuple[range, ...]
    may: NDArray[np.bool_]
    own: NDArray[np.bool_]
    alive: NDArray[np.bool_]

    def called(self, seats: Sequence[int]) -> tuple[str, ...]:
        """Return the name of the machine that every node is."""
        known = [NOBODY if seat == NOBODY else self.names[seat] for seat in seats]
        others = iter([name for name in self.new if name not in known])
        return tuple(
            next(others, "another machine") if name == NOBODY else str(name) for name in known
        )

    def devices_before(self, seats: Sequence[int]) -> NDArray[np.int64]:
        """Return the number that every device had before, `NOBODY` for one that was not there.

        Parameters
        ----------
        seats: the node of before that each node is.
        """
        found = np.full(self.after[-1].stop, NOBODY)
        for place, seat in zip(self.after, seats, strict=True):
            if seat != NOBODY:
                both = min(len(place), len(self.before[seat]))
                found[place[:both]] = self.before[seat][:both]
        return found

    def resized(self, seats: Sequence[int]) -> tuple[str, ...]:
        """Return a sentence on every machine that has lost devices or got some."""
        sizes = [
            (self.names[seat], len(place), len(self.before[seat]))
            for place, seat in zip(self.after, seats, strict=True)
            if seat != NOBODY
        ]
        return tuple(
            f"{name} has {now} GPUs instead of {had}: {FEWER if now < had else MORE}"
            for name, now, had in sizes
            if now != had
        )


def machines(old: Problem[Any], new: Problem[Any], changes: Changes) -> Machines:
    """Return the machines of a problem and of the one that it has changed into.

    Lost nodes have lost their bytes. All others can hand it on, also those that the new plan does
    not use. Of another cluster, as many nodes of a kind as both have are the same machines; nodes
    that are left are machines of before with other numbers of devices.
    """
    olds, news = old.node_numbers, new.node_numbers
    kinds = _kinds(old.cluster, olds), _kinds(new.cluster, news)
    may = np.array([[a == b for b in kinds[0]] for a in kinds[1]])
    own = np.array([[a == b for b in olds] for a in news])
    lost: set[int] = set()
    if changes.cluster:
        may |= _resized(*kinds, *(Counter(_kinds_of_all(one)) for one in (old, new)))
    else:
        whole = old.files.whole_cluster if old.files and changes.lost else old.cluster
        lost = {node for name in changes.lost for node in nodes_named(whole, name)}
        may &= np.isin(olds, news)
    sizes = old.cluster.devices_of_nodes
    return Machines(
        names=tuple(f"node{number}" for number in olds),
        new=() if changes.cluster else tuple(f"node{number}" for number in news),
        before=_ranges(sizes),
        after=_ranges(new.cluster.devices_of_nodes),
        may=may,
        own=own,
        alive=np.repeat([number not in lost for number in olds], sizes),
    )


def _resized(
    before: Sequence[NodeKind],
    after: Sequence[NodeKind],
    had: Counter[NodeKind],
    has: Counter[NodeKind],
) -> NDArray[np.bool_]:
    """Return [nodes after, nodes before] whether a node can be a machine that has lost devices or
    got some: of a kind that the cluster has more of, and of one that it has fewer of.

    had, has: all nodes of both clusters, also those that no plan uses.
    """
    more, fewer = has - had, had - has
    alike = ([a in more and b in fewer and a.resizes(b) for b in before] for a in after)
    return np.array(list(alike))


class NodeKind(NamedTuple):
    """All that a node's place in a job depends on, but for its number. size: devices. called:
    their type. place: its number with links from node to node, else `NOBODY`."""

    called: str
    size: int
    zone: str
    place: int

    def resizes(self, other: NodeKind) -> bool:
        """Tell whether it differs from another one in its devices' number alone."""
        return self._replace(size=other.size) == other


def _kinds_of_all(problem: Problem[Any]) -> list[NodeKind]:
    """Return the kinds of all nodes of a problem's cluster, also of those that are left out."""
    whole = problem.files.whole_cluster if problem.files else problem.cluster
    return _kinds(whole, range(whole.node_count))


def _kinds(cluster: ClusterSpec, numbers: Sequence[int]) -> list[NodeKind]:
    """Return the kind of every node."""
    zones = [group.zone for group in cluster.nodes for _ in range(group.count)]
    sizes, called = cluster.devices_of_nodes, cluster.called
    places = numbers if cluster.matrix else [NOBODY] * len(sizes)
    return list(map(NodeKind, called, sizes, zones, places))


def _ranges(sizes: Sequence[int]) -> tuple[range, ...]:
    return tuple(range(start, stop) for start, stop in pairwise(accumulate(sizes, initial=0)))


@dataclass(frozen=True, kw_only=True, eq=False)
class Seated:
    """A plan's devices with their machines. seats: the node of before that every node is, `NOBODY`
    for another machine."""

    seats: tuple[int, ...]
    moves: Moves


def seated(known: Machines, old: Holdings, new: Holdings) -> Seated:
    """Return the machines for the fewest moved bytes."""
    seats, _ = assigned(known, old, new)
    found = moves(old, new, known.devices_before(seats), known.alive)
    return Seated(seats=seats, moves=found)


def assigned(known: Machines, old: Holdings, new: Holdings) -> tuple[tuple[int, ...], float]:
    """Return the node of before that every node is, `NOBODY` for another machine, to keep the most
    bytes, and their number.

    An assignment problem, solved exactly: the bytes that a device keeps depend on its own machine
    alone, and lost bytes are needed on any machine, so the fewest bytes move as well.
    """
    from scipy.optimize import linear_sum_assignment

    kept = kept_by_nodes(known, old, new)
    likes = known.may * (1.0 + known.own)
    worth = kept + PREFERRED * max(1.0, kept.max()) * likes
    rows, columns = linear_sum_assignment(worth, maximize=True)
    seats = [NOBODY] * len(known.after)
    for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
        if known.may[row, column]:
            seats[row] = column
    return tuple(seats), float(kept[rows, columns].sum())


def kept_by_nodes(known: Machines, old: Holdings, new: Holdings) -> NDArray[np.float64]:
    """Return the bytes [nodes after, nodes before] that a node would keep as a machine of before; 0
    if it cannot be it."""
    found = np.zeros(known.may.shape)
    for local in range(max(map(len, known.after))):
        rows = [n for n, place in enumerate(known.after) if local < len(place)]
        columns = [n for n, place in enumerate(known.before) if local < len(place)]
        if columns:
            olds = np.array([known.before[n][local] for n in columns])
            news = np.array([known.after[n][local] for n in rows])
            alive = known.alive[olds]
            held = held_by_both(old, new, olds[None, :], news[:, None]) * alive
            found[np.ix_(rows, columns)] += held
    return found * known.may


def from_other_nodes(
    known: Machines, old: Holdings, new: Holdings, found: Seated
) -> NDArray[np.float64]:
    """Return the bytes [nodes after] that a node takes up from other ones: no device of its machine
    has them, but some other one."""
    node_before = np.repeat(np.arange(len(known.before)), [len(own) for own in known.before])
    taken = np.zeros(len(known.after))
    for node, (place, seat) in enumerate(zip(known.after, found.seats, strict=True)):
        asking = np.zeros(len(new.stage), dtype=bool)
        asking[place] = True
        inside = (node_before == seat) & known.alive
        lacks = lacking(old, new, inside, asking) - found.moves.read
        taken[node] = np.maximum(lacks[place], 0.0).sum()
    return taken

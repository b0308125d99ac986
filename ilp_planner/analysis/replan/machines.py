"""The machines of before among the nodes of a cluster, and the value of each as each node.

Nodes are numbered when a job is launched, so any machine can be any of the nodes that are like it:
of as many devices of the same type, in the same zone. Links that are said from node to node leave
every machine its own number.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ilp_planner.analysis.replan.moves import held_by_both, lacking, moves
from ilp_planner.inputs.devices import nodes_named
from ilp_planner.job.holdings import NOBODY

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from numpy.typing import NDArray

    from ilp_planner.analysis.replan.changes import Changes
    from ilp_planner.analysis.replan.moves import Moves
    from ilp_planner.job.holdings import Holdings
    from ilp_planner.problem import Problem
    from ilp_planner.specs.cluster import ClusterSpec

PREFERRED = 1e-12  # of the most bytes: what a machine's own number counts where no byte is at stake


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
                found[place] = self.before[seat]
        return found


def machines(old: Problem[Any], new: Problem[Any], changes: Changes) -> Machines:
    """Return the machines of a problem and of the one that it has changed into.

    Lost nodes have lost their bytes. All others can hand it on, also those that the new plan does
    not use. Of another cluster, as many nodes of a kind as both have are the same machines.
    """
    olds, news = old.node_numbers, new.node_numbers
    kinds = _kinds(old.cluster, olds), _kinds(new.cluster, news)
    may = np.array([[a == b for b in kinds[0]] for a in kinds[1]])
    own = np.array([[a == b for b in olds] for a in news])
    lost: set[int] = set()
    if not changes.cluster:
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


def _kinds(cluster: ClusterSpec, numbers: Sequence[int]) -> list[Hashable]:
    """Return of every node all that its place in a job depends on, but for its number."""
    zones = [group.zone for group in cluster.nodes for _ in range(group.count)]
    sizes, called = cluster.devices_of_nodes, cluster.called
    places = numbers if cluster.matrix else [NOBODY] * len(sizes)
    return list(zip(called, sizes, zones, places, strict=True))


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
    for size in {len(place) for place in known.after}:
        rows = [n for n, place in enumerate(known.after) if len(place) == size]
        columns = [n for n, place in enumerate(known.before) if len(place) == size]
        for local in range(size if columns else 0):
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

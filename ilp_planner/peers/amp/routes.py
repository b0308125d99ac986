"""Every placement of equal pipelines on nodes, as routes: states that differ only by swapping equal
nodes are one.

A tensor-parallel group stays inside a node, so a placement says how many replicas of each stage
each node hosts. The pairs of replicas that send to each other are free, because pipelines can be
numbered at will: the least-cost matching counts. The ring of a stage is charged with a link that
none of its orders can avoid; if a node's link to others is its own, at most as fast as the link
inside it, every order has exactly that as its slowest.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.base.numerics import FINE_ROUNDING
from ilp_planner.peers.amp.partition import Routes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

Counts = tuple[int, ...]
State = tuple[tuple[int, int], ...]
"""Of each node slot: replicas hosted so far, and of the stage before."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Placements:
    """Routes with the meaning of each step. hosted: replicas of the stage on each slot of the tail
    state."""

    routes: Routes
    hosted: tuple[Counts, ...]
    states: tuple[State, ...]
    hosts: Hosts

    def counts(self, steps: Sequence[int]) -> tuple[Counts, ...]:
        """Return how many replicas of each stage each node hosts, along a path."""
        nodes = list(range(len(self.hosts.room)))  # of each slot
        found = []
        for step in steps:
            hosted = self.hosted[step]
            found.append(tuple(hosted[nodes.index(n)] for n in range(len(nodes))))
            after = self.hosts.advanced(self.states[self.routes.tail[step]], hosted)
            nodes = [nodes[slot] for slot in self.hosts.order(after)]
        return tuple(found)


class Hosts:
    """Nodes with room for whole tensor-parallel groups.

    slow: float64 [N, N], seconds per number. room: groups that each node has devices for.
    """

    def __init__(self, slow: NDArray[np.float64], room: Sequence[int]) -> None:
        self.slow = slow
        self.room = tuple(room)
        self.alike = self._alike()
        # The slot before it of an equal node, -1 for the first.
        self.twin = [-1] * len(self.room)
        for places in self.alike:
            for before, place in itertools.pairwise(places):
                self.twin[place] = before
        self.near_first = self._near_first()
        self._matched: dict[tuple[Counts, Counts], NDArray[np.int64]] = {}
        self.away = np.where(np.eye(len(self.room), dtype=bool), np.inf, slow)

    def _alike(self) -> list[list[int]]:
        """Return the nodes in groups of members that can swap places without a difference."""
        groups: list[list[int]] = []
        for b in range(len(self.room)):
            for group in groups:
                swapped = list(range(len(self.room)))
                swapped[group[0]], swapped[b] = b, group[0]
                same = bool((self.slow == self.slow[np.ix_(swapped, swapped)]).all())
                if same and self.room[group[0]] == self.room[b]:
                    group.append(b)
                    break
            else:
                groups.append([b])
        return groups

    def _near_first(self) -> bool:
        """Tell whether a matching loses nothing by staying inside a node if it can: no detour over
        a node is faster than a direct link and the link inside it."""
        slow = self.slow
        inside = np.diag(slow)
        detour = slow[:, :, None] + slow[None, :, :]  # c to a, a to b
        return bool(
            (detour * (1 + FINE_ROUNDING) >= slow[:, None, :] + inside[None, :, None]).all()
        )

    def order(self, state: State) -> list[int]:
        """Return the slot that moves to each slot in canonical order: equal nodes change places
        among themselves, by their hosted ranks."""
        ordered = list(range(len(state)))
        for places in self.alike:
            for place, slot in zip(places, sorted(places, key=state.__getitem__), strict=True):
                ordered[place] = slot
        return ordered

    def advanced(self, state: State, hosted: Counts) -> State:
        """Return the state after a stage, its slots not yet in canonical order."""
        return tuple((used + new, new) for (used, _), new in zip(state, hosted, strict=True))

    def choices(self, state: State, replicas: int, *, whole: bool = False) -> Iterator[Counts]:
        """Yield the possible hosts of a stage; of equal slots, the first hosts at least as many.

        Parameters
        ----------
        whole: yield one node that hosts it all, or zeros for several that are not told apart.
        """
        if whole:
            yield from self._whole(state, replicas)
            return
        free = [room - used for room, (used, _) in zip(self.room, state, strict=True)]
        behind = list(itertools.accumulate(reversed(free)))[::-1]

        def extend(chosen: list[int], left: int) -> Iterator[Counts]:
            slot = len(chosen)
            if slot == len(free):
                yield tuple(chosen)
                return
            most = min(free[slot], left)
            twin = self.twin[slot]
            if twin >= 0 and state[slot] == state[twin]:
                most = min(most, chosen[twin])
            rest = behind[slot + 1] if slot + 1 < len(free) else 0
            for number in range(most, max(left - rest, 0) - 1, -1):
                yield from extend([*chosen, number], left - number)

        yield from extend([], replicas)

    def _whole(self, state: State, replicas: int) -> Iterator[Counts]:
        none = (0,) * len(state)
        for slot, (used, _) in enumerate(state):
            twin = self.twin[slot]
            if self.room[slot] - used >= replicas and (twin < 0 or state[slot] != state[twin]):
                yield (*none[:slot], replicas, *none[slot + 1 :])
        if replicas > 1 and len(state) > 1:
            yield none

    def ring(self, hosted: Counts) -> float:
        """Return seconds per number of a link that every ring over these replicas has, the slowest
        known to be there. Zeros: on several nodes."""
        on = [n for n, number in enumerate(hosted) if number]
        if not on:
            return float(self.away.min())
        if len(on) == 1:
            return float(self.slow[on[0], on[0]]) if hosted[on[0]] > 1 else 0.0
        least = max(float(self.away[n, on].min()) for n in on)
        # More than half of the replicas: two neighbours in the ring share the node.
        crowded = [float(self.slow[n, n]) for n in on if 2 * hosted[n] > sum(hosted)]
        return max([least, *crowded])

    def sending(self, before: Counts, after: Counts, replicas: int) -> float:
        """Return the least sum over replicas of seconds per number, from one stage to the next;
        zeros for a stage on several nodes."""
        if any(before) and any(after):
            return float((self.matching(before, after) * self.slow).sum())
        # Between one node and several, at least one replica leaves the node.
        leaving = int(any(before) or any(after))
        fastest = float(self.slow.min())
        return (replicas - leaving) * fastest + leaving * max(float(self.away.min()), fastest)

    def matching(self, before: Counts, after: Counts) -> NDArray[np.int64]:
        """Return how many replicas on node a send to node b in a least-cost matching, int64 [N,
        N]."""
        here, there = np.array(before), np.array(after)
        stay = np.minimum(here, there) * self.near_first
        key = tuple((here - stay).tolist()), tuple((there - stay).tolist())
        if key not in self._matched:
            self._matched[key] = transport(self.slow, *key)
        return np.diag(stay) + self._matched[key]


def transport(
    cost: NDArray[np.float64], supply: Sequence[int], demand: Sequence[int]
) -> NDArray[np.int64]:
    """Return the least-cost flow from supplies to demands of the same sum, int64 [N, N], by
    successive shortest paths."""
    left, need = np.array(supply), np.array(demand)
    flow = np.zeros(cost.shape, np.int64)
    cost = cost / cost.max()
    while left.any():
        begin, end = np.where(left > 0, 0.0, np.inf), np.full(need.size, np.inf)
        into, back = np.zeros(need.size, np.int64), np.zeros(left.size, np.int64)
        while True:
            forth = begin[:, None] + cost
            nearer = forth.min(axis=0) < end - FINE_ROUNDING
            into = np.where(nearer, forth.argmin(axis=0), into)
            end = np.where(nearer, forth.min(axis=0), end)
            undone = np.where(flow > 0, end[None, :] - cost, np.inf)
            nearer = undone.min(axis=1) < begin - FINE_ROUNDING
            if not nearer.any():
                break
            back = np.where(nearer, undone.argmin(axis=1), back)
            begin = np.where(nearer, undone.min(axis=1), begin)
        sink = int(np.where(need > 0, end, np.inf).argmin())
        path, node = [(int(into[sink]), sink)], int(into[sink])
        while left[node] == 0:
            taken = int(back[node])
            path += [(node, taken), (int(into[taken]), taken)]
            node = int(into[taken])
        amount = min(left[node], need[sink], *(flow[a, b] for a, b in path[1::2]))
        for place, (a, b) in enumerate(path):
            flow[a, b] += amount if place % 2 == 0 else -amount
        left[node] -= amount
        need[sink] -= amount
    return flow


def placements(
    hosts: Hosts, stages: int, replicas: int, most_steps: int, *, whole: bool = False
) -> Placements | None:
    """Return every placement of `stages` stages of so many replicas that fills all nodes; None when
    that takes more than `most_steps` steps.

    Parameters
    ----------
    whole: tell apart only stages that one node hosts. A stage on several nodes hosts nothing, takes
        no room, and is charged with the fastest links that it can have: a relaxation, and exact
        along paths without one.
    """
    start: State = tuple((0, 0) for _ in hosts.room)
    numbers = {(0, start): 0}
    states = [start]
    rows: list[tuple[int, int, int, float, float]] = []
    hosted: list[Counts] = []
    layer = {start}
    tried = 0
    for stage in range(stages):
        following: set[State] = set()
        for state in sorted(layer):
            best: dict[State, tuple[float, Counts]] = {}
            last = tuple(number for _, number in state)
            for chosen in hosts.choices(state, replicas, whole=whole):
                tried += 1
                if tried > most_steps:
                    return None
                after = hosts.advanced(state, chosen)
                head = tuple(after[slot] for slot in hosts.order(after))
                sending = hosts.sending(last, chosen, replicas) / replicas if stage else 0.0
                if head not in best or sending < best[head][0]:
                    best[head] = sending, chosen
            for head, (sending, chosen) in best.items():
                following.add(head)
                if (stage + 1, head) not in numbers:
                    numbers[stage + 1, head] = len(states)
                    states.append(head)
                ends = numbers[stage, state], numbers[stage + 1, head]
                rows.append((stage, *ends, sending, hosts.ring(chosen)))
                hosted.append(chosen)
        layer = following
    columns = np.array(rows, dtype=np.float64).reshape(-1, 5).T.copy()
    stage_of, tail, head_of = columns[:3].astype(np.int64)
    routes = Routes(
        stages=stages,
        states=len(states),
        stage=stage_of,
        tail=tail,
        head=head_of,
        sending=columns[3],
        ring=columns[4],
    )
    return Placements(routes=routes, hosted=tuple(hosted), states=tuple(states), hosts=hosts)


def pipelines(hosts: Hosts, counts: Sequence[Counts]) -> NDArray[np.int64]:
    """Return the node of every replica, int64 [pp, dp], so that replica by replica the stages send
    over least-cost matchings; pipelines on the same nodes are neighbours in the ring."""
    chains = [[n] for n, number in enumerate(counts[0]) for _ in range(number)]
    for before, after in itertools.pairwise(counts):
        matching = hosts.matching(before, after)
        to = {a: np.repeat(np.arange(row.size), row).tolist() for a, row in enumerate(matching)}
        for chain in chains:
            chain.append(to[chain[-1]].pop())
    return np.array(sorted(chains), dtype=np.int64).T

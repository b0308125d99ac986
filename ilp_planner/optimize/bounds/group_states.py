"""The state of a group of devices; it decides the cost of messages to it.

The cost of a stage's messages depends on the *state* of the downstream group: its class, and the
devices of one type taken in its node, by it and by the following groups that share this node. A
sender with few devices of that type may join them as long as the node has room, or has them in
another node, at a higher cost. That counts seats within nodes, not how nodes are shared out, and
for one type of each class: every packed placement is counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ilp_planner.base.kernels import inner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


class States(NamedTuple):
    """The distinction of groups by senders.

    counted: int64 [classes], the type with counted devices in a node, -1 without. (Groups that are
    spread over as many nodes are of a type of their own here: their node stands for all of these.)
    direct, parted: int64 [classes], columns of sending costs: to such a group as near as it can be,
    and to one that shares no node of the counted type with the sender. size: int64 [types], devices
    of every node of a type. offset: int64 [classes], the first state of a class: devices of the
    node taken, 0 if these are unknown and anyone may join, up to all of them. group, taken: int64
    [S], class and devices of a state. better: bool [S, S], sending to a group of the first state
    never costs more than to one of the second, now or later.
    """

    counted: NDArray[np.int64]
    direct: NDArray[np.int64]
    parted: NDArray[np.int64]
    size: NDArray[np.int64]
    offset: NDArray[np.int64]
    group: NDArray[np.int64]
    taken: NDArray[np.int64]
    better: NDArray[np.bool_]


def states(
    send_time: NDArray[np.float64],
    send_total: NDArray[np.float64],
    counted: NDArray[np.int64],
    direct: NDArray[np.int64],
    parted: NDArray[np.int64],
    size: NDArray[np.int64],
) -> States:
    """Return the states of groups.

    Parameters
    ----------
    send_time, send_total: float64 [rows, columns], as in `Sending`.
    """
    number = np.where(counted >= 0, size[counted] + 1 if size.size else 1, 1)
    group = np.repeat(np.arange(counted.size), number)
    offset = np.cumsum(number) - number
    taken = np.arange(group.size) - offset[group]
    columns = send_time.shape[1]
    less = np.ones((columns, columns), np.bool_)
    for costs in (send_time, send_total):
        for k in range(columns):
            less[k] &= (costs[:, k, None] <= costs).all(axis=0)
    near, far = direct[group], np.where(taken > 0, parted[group], direct[group])
    better = np.ones((group.size, group.size), np.bool_)
    for own in (near, far):
        for other in (near, far):
            better &= less[own[:, None], other]
    better |= (group[:, None] == group) & (taken[:, None] <= taken)
    return States(
        counted=counted,
        direct=direct,
        parted=parted,
        size=size,
        offset=offset.astype(np.int64),
        group=group.astype(np.int64),
        taken=taken.astype(np.int64),
        better=better,
    )


@inner
def step(a, s, mode, arcs, states):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return the state of a candidate that precedes a state, and the column of its messages; -1, -1
    if that is impossible. mode 1: in the same node; 0: in another one, if that is known."""
    c, taken, own = states.group[s], states.taken[s], arcs.group[a]
    d = states.counted[c]
    near = d >= 0 and taken > 0 and arcs.seats[a, d] > 0
    if mode == 1:
        if not near or taken + arcs.seats[a, d] > states.size[d]:
            return -1, -1
        if states.counted[own] == d:
            return states.offset[own] + taken + arcs.seats[a, d], states.direct[c]
        return arcs.state[a], states.direct[c]
    return arcs.state[a], states.parted[c] if near else states.direct[c]


class Regions(NamedTuple):
    """Regions of device types; N numbers of devices at most in each.

    of: int64 [classes], the region that a class of groups is in as a whole, -1: in none.
    home, unit, stride: int64 [types], the region of a type (-1: in none), of how many devices its
        unit is, and by what each unit adds to the number of what is taken in its region.
    fits: bool [regions, N, N], there are as many devices as two numbers together.
    """

    of: NDArray[np.int64]
    home: NDArray[np.int64]
    unit: NDArray[np.int64]
    stride: NDArray[np.int64]
    fits: NDArray[np.bool_]

    @property
    def most(self) -> int:
        """Return how many numbers there are at most."""
        return int(self.fits.shape[2])

    def numbers(self, use: NDArray[np.int64], classes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of each group's devices in its region, 0 in none.

        Parameters
        ----------
        use: int64 [groups, types and more], no more devices than there are. classes: int64
            [groups].
        """
        own = self.of[classes][:, None]
        units = use[:, : self.home.size] // self.unit * self.stride
        found: NDArray[np.int64] = np.where((own >= 0) & (own == self.home), units, 0).sum(axis=1)
        return found


def regions(
    types_of: Sequence[Sequence[int]],
    counts: Sequence[int],
    together: Sequence[Sequence[int]],
    units: Sequence[int],
) -> Regions:
    """Return regions.

    Parameters
    ----------
    types_of: the device types of each class of groups. counts: devices of each type. together: the
    types of each region. units: devices of each type that are counted at once.
    """
    home, stride = np.full(len(counts), -1, np.int64), np.ones(len(counts), np.int64)
    digits: list[NDArray[np.int64]] = []
    for region, types in enumerate(together):
        shape = [counts[kind] // units[kind] + 1 for kind in types]
        steps = np.cumprod([1, *shape[:-1]])
        home[list(types)], stride[list(types)] = region, steps
        digits.append(np.arange(int(np.prod(shape)))[:, None] // steps % shape)
    most = max((len(own) for own in digits), default=1)
    fits = np.zeros((len(digits), most, most), np.bool_)
    for region, (own, types) in enumerate(zip(digits, together, strict=True)):
        room = np.array([counts[kind] // units[kind] for kind in types])
        fits[region, : len(own), : len(own)] = (own[:, None] + own <= room).all(axis=2)
    of = []
    for kinds in types_of:
        homes = {int(home[kind]) for kind in kinds}
        of.append(homes.pop() if len(homes) == 1 else -1)
    return Regions(np.array(of, np.int64), home, np.array(units, np.int64), stride, fits)


@inner
def onwards(own, to, number, behind, regions):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return the number of a group of a class that precedes one of class `to` with the number
    `behind`, -1 if there are not as many devices. number: of the group alone."""
    region = regions.of[own]
    if region < 0 or region != regions.of[to]:
        return number
    return behind + number if regions.fits[region, behind, number] else -1


@inner
def taken_in(own, used, regions):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return the number of all devices that are used in the region of a class."""
    region = regions.of[own]
    number = 0
    for kind in range(regions.home.size):
        if region >= 0 and regions.home[kind] == region:
            number += used[kind] // regions.unit[kind] * regions.stride[kind]
    return number

"""Stages on groups of devices along a chain of layers, with the messages of a group to the next
one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ilp_planner.base.numerics import ROUNDING

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ilp_planner.optimize.bounds.group_states import Regions, States


class ChainStages(NamedTuple):
    """Stage candidates, ordered by (stop, row): ending at layer v are first[v] .. first[v + 1].

    start: their first layer. time, total: float64 [arcs], seconds of a micro-batch, and of a
    micro-batch and all extras, both with the least that sending costs; peaks: float64 [arcs, K],
    seconds; use: int64 [arcs, D], devices. behind: int64 [arcs], most stages after. row: int64
    [arcs], row of sending costs. group, state: int64 [arcs], class of the group, and its state by
    itself. seats: int64 [arcs, types], its devices of a type in one shared node, 0 without. number:
    int64 [arcs], of its devices in its region.
    """

    first: NDArray[np.int64]
    start: NDArray[np.int64]
    time: NDArray[np.float64]
    total: NDArray[np.float64]
    peaks: NDArray[np.float64]
    use: NDArray[np.int64]
    behind: NDArray[np.int64]
    row: NDArray[np.int64]
    group: NDArray[np.int64]
    state: NDArray[np.int64]
    seats: NDArray[np.int64]
    number: NDArray[np.int64]


class Sending(NamedTuple):
    """float64 [rows, columns], seconds that sending adds to a time and a total; order: int64, the
    columns of a row, the fastest first."""

    time: NDArray[np.float64]
    total: NDArray[np.float64]
    order: NDArray[np.int64]


class Cards(NamedTuple):
    """Time of candidates on the network cards of a type of nodes, beyond their own peak: int64
    [arcs, types of nodes], in units of so many seconds, rounded down. Together they take no more
    than the first peak of an iteration."""

    unit: float
    use: NDArray[np.int64]

    def capacity(self, peak: float) -> tuple[int, ...]:
        """Return the number of units if the first peak is at most so many seconds."""
        most = float(self.use.sum())
        units = min(peak * (1 + ROUNDING) / self.unit + ROUNDING, most)
        return (int(units),) * int(self.use.shape[1])


@dataclass(frozen=True, kw_only=True, eq=False)
class GroupChain:
    """Stage candidates of a part.

    weight: how often the slowest counts beyond the first time. types: device types. capacity: of
    devices of each type, seats, and the last columns, of `cards`. alike: int64 [D], the number of
    the multiplier of each of these: interchangeable types, as of equal zones, share one. choice,
    stop: int64 [arcs], their numbers in the part, and their last layers.
    """

    layers: int
    weight: float
    types: int
    capacity: tuple[int, ...]
    alike: NDArray[np.int64]
    cards: Cards
    choice: NDArray[np.int64]
    stop: NDArray[np.int64]
    stages: ChainStages
    sending: Sending
    states: States
    regions: Regions

    @property
    def arcs(self) -> int:
        """Number of stage candidates."""
        return int(self.choice.size)

    def only(self, arcs: NDArray[np.integer[Any]]) -> GroupChain:
        """Return the chain of some of the candidates, given in ascending order."""
        stop, columns = self.stop[arcs], (column[arcs] for column in self.stages[1:])
        stages = ChainStages(first_stops(stop, self.layers), *columns)
        cards = self.cards._replace(use=self.cards.use[arcs])
        return replace(self, choice=self.choice[arcs], stop=stop, stages=stages, cards=cards)

    def below(self, peak: float) -> GroupChain:
        """Return the chain if the first peak is at most so many seconds."""
        if not self.cards.use.shape[1]:
            return self
        others = self.capacity[: -self.cards.use.shape[1]]
        return replace(self, capacity=(*others, *self.cards.capacity(peak)))


def first_stops(stop: NDArray[np.int64], layers: int) -> NDArray[np.int64]:
    """Return the first candidate that stops at each layer, one more at the end, int64 [layers + 2].
    stop: ascending."""
    return np.searchsorted(stop, np.arange(layers + 2)).astype(np.int64)

"""Stages on groups of devices along a chain of layers, with what a group sends to the next one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ilp_planner.bounds.group_states import States


class Candidates(NamedTuple):
    """Stage candidates as compiled searches take them: those that stop at layer v are first[v] ..
    first[v + 1]; the other fields are those of `GroupChain`."""

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


class Sending(NamedTuple):
    """float64 [rows, columns], seconds that sending adds to a time and a total; order: int64, the
    columns of a row, the fastest first."""

    time: NDArray[np.float64]
    total: NDArray[np.float64]
    order: NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class GroupChain:
    """Stage candidates of a part, ordered by (stop, row).

    choice: int64 [arcs], their numbers in the part. start, stop: layers [start, stop). time, total:
    float64 [arcs], seconds of a micro-batch, and of a micro-batch and all extras, both with the
    least that sending costs; peaks: float64 [arcs, K], seconds; use: int64 [arcs, D], devices.
    weight: how often the slowest counts beyond the first time. behind: int64 [arcs], most stages
    after. row: int64 [arcs], row of send_time and send_total: float64 [rows, columns], seconds that
    sending adds; order: int64, their columns, the fastest first. group, state: int64 [arcs], class
    of the group, and its state by itself. seats: int64 [arcs, types], devices of a type that it has
    in one node where others may be, 0 without.
    """

    layers: int
    weight: float
    capacity: tuple[int, ...]
    choice: NDArray[np.int64]
    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    time: NDArray[np.float64]
    total: NDArray[np.float64]
    peaks: NDArray[np.float64]
    use: NDArray[np.int64]
    behind: NDArray[np.int64]
    row: NDArray[np.int64]
    group: NDArray[np.int64]
    state: NDArray[np.int64]
    seats: NDArray[np.int64]
    send_time: NDArray[np.float64]
    send_total: NDArray[np.float64]
    order: NDArray[np.int64]
    states: States

    @property
    def arcs(self) -> int:
        """Number of stage candidates."""
        return int(self.time.size)

    @cached_property
    def candidates(self) -> Candidates:
        """The candidates, by the layer at which they stop."""
        first = np.searchsorted(self.stop, np.arange(self.layers + 2)).astype(np.int64)
        return Candidates(first, *(getattr(self, name) for name in Candidates._fields[1:]))

    @property
    def sending(self) -> Sending:
        """What sending costs."""
        return Sending(self.send_time, self.send_total, self.order)

    @cached_property
    def send_most(self) -> NDArray[np.float64]:
        """float64 [rows]: the most seconds that sending adds to a row's time."""
        most: NDArray[np.float64] = self.send_time.max(axis=1, initial=0.0)
        return most

    def only(self, arcs: NDArray[np.integer[Any]]) -> GroupChain:
        """Return the chain of some of the candidates, given in ascending order."""
        names = (
            "choice", "start", "stop", "time", "total", "peaks", "use", "behind", "row", "group",
            "state", "seats",
        )  # fmt: skip
        return replace(self, **{name: getattr(self, name)[arcs] for name in names})

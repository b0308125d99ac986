"""Pipelines on the bounds of their stages, told apart by the devices that are left alone.

A suffix of a pipeline is a state (devices u, first operator i); how many stages it has is not
counted. The stage before it is taken to have as many downstream stages as the suffix with the
fewest, so it holds no more micro-batches than in any pipeline. As a stage that may use more memory
is no slower, results here bound all pipelines, with fewer states than in `pipeline` by the number
of stages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ilp_planner.optimize.bounds.arrays import INFINITE
from ilp_planner.optimize.bounds.numbering import numbered
from ilp_planner.optimize.bounds.pipelines import Arcs, OpenStages, Pipelines, Place, fewest_before
from ilp_planner.optimize.bounds.relax import reach
from ilp_planner.optimize.bounds.suffixes import (
    Shape,
    Times,
    open_between,
    prefixes,
    suffixes,
    windows,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ilp_planner.optimize.bounds.stages import StageBounds

AT_ONCE = 4  # classes of micro-batches in flight whose bounds are computed together
CHUNK = 64  # devices between two looks at the clock


class Suffixes(NamedTuple):
    """Bounds of the states; D devices, n operators.

    total: float64 [D + 1, n + 1], least sum of stages to the end, in seconds. behind: int64
    [D + 1, n + 1], fewest stages to the end. window: int64 [D + 1, 2], first and last operator of
    the states that matter. length: int64 [G, n], longest stages.
    """

    total: NDArray[np.float64]
    behind: NDArray[np.int64]
    window: NDArray[np.int64]
    length: NDArray[np.int64]


class FewestBehind(Pipelines):
    """All pipelines of a part, relaxed in the downstream stages of each stage.

    stages: bounds, kept here in one array. check: called now and then, may raise.
    """

    def __init__(
        self,
        stages: StageBounds,
        *,
        devices: int,
        per_node: int,
        max_stages: int,
        workers: int = 1,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self.stages, self.workers, self.check = stages, workers, check
        self.operators = len(stages.costs.chain)
        self.devices = devices
        groups = np.array(stages.groups, np.int64)
        self.shape = Shape(
            devices=devices, per_node=per_node, max_stages=max_stages, groups=groups,
            before=fewest_before(devices, per_node, stages.groups),
        )  # fmt: skip
        held = np.array([stages.in_flight(k) for k in range(max_stages)], np.int64)
        self.first, kind = np.unique(held, return_index=True)[1], np.unique(held)
        self.kind = np.searchsorted(kind, held).astype(np.int64)  # by the stages behind
        extents = [stages.extents[g] for g in stages.groups]
        self.base = np.array([extent.base for extent in extents])
        self.entries = np.array([extent.entries for extent in extents], np.int64)
        self.flat = np.zeros(0)
        self.offset = np.full((groups.size, kind.size, 2), -1, np.int64)
        self._known: tuple[float, Suffixes] | None = None

    def exists(self, slowest: float) -> bool:
        """Tell whether there may be a pipeline with all stages within `slowest` seconds."""
        return self.least_sum(slowest) < INFINITE

    def least_sum(self, slowest: float) -> float:
        """Return a lower bound on the sum of stage times of pipelines with none above `slowest`."""
        return float(self.suffixes(slowest).total[self.devices, 0])

    def suffixes(self, slowest: float) -> Suffixes:
        """Return the states that reach the end within `slowest` seconds a stage."""
        if self._known is not None and self._known[0] == slowest:
            return self._known[1]
        if self.offset[0, 0, 0] < 0:
            self._add()
        length = self._lengths(slowest)
        shape = (self.devices + 1, self.operators + 1)
        total, behind = np.full(shape, INFINITE), np.zeros(shape, np.int64)
        total[0, self.operators] = 0.0
        window = windows(length, self.shape)
        known = Suffixes(total, behind, window, length)
        u = 1
        while u <= self.devices:
            self.check()
            end = min(u + CHUNK, self.devices + 1)
            u = suffixes(u, end, self.shape, self.times, length, slowest, window, total, behind)
            if u < 0:  # a table is missing
                u = -u
                self._add()
        self._known = (slowest, known)
        return known

    def open_graph(self, weight: float, cutoff: float, low: float) -> OpenStages:
        """Return the graph of all stages that may be part of a pipeline faster than `cutoff`
        seconds."""
        slowest = self.slowest_below(weight, cutoff)
        known = self.suffixes(slowest)
        self.check()
        ahead = np.full_like(known.total, INFINITE)
        if known.total[self.devices, 0] < INFINITE:
            ahead[self.devices, 0] = 0.0
        prefixes(self.shape, self.times, known, slowest, ahead)
        self.check()
        found = open_between(self.shape, self.times, known, ahead, weight, slowest, low, cutoff)
        self.check()
        tail, head, start, stop, number, entry = found.T
        numbers, (place,) = numbered(number)
        places = [self._place(int(number)) for number in numbers]
        tables = np.array([self._table(int(number)) for number in numbers], np.int64)
        arcs = Arcs(tail, head, start, stop, place, entry, self.flat[tables[place] + entry])
        wide = self.operators + 1
        self.check()
        return self.graph(
            arcs, places, weight=weight, sources=[self.devices * wide], sink=self.operators
        )

    # ---- tables of stages -----------------------------------------------------------------------

    @property
    def times(self) -> Times:
        """Tables of the stages for the compiled functions."""
        rows = self.stages.rows
        return Times(
            flat=self.flat, offset=self.offset, entries=self.entries, kind=self.kind,
            common=rows.common, above=rows.above, base=self.base,
        )  # fmt: skip

    def _lengths(self, slowest: float) -> NDArray[np.int64]:
        """Return the longest stage within `slowest` seconds with nothing downstream, by start ([G,
        n])."""
        rows, lengths = self.stages.rows, []
        for g in self.stages.groups:
            extent = self.stages.extents[g]
            variants = [
                reach(self.stages.times(Place(g, 0, enters, leaves)), rows, extent, slowest)
                for enters in (False, True)
                for leaves in (False, True)
            ]
            lengths.append(np.max(variants, axis=0))
        return np.array(lengths)

    def _parts(self, number: int) -> tuple[int, int, int, int]:
        """Return group, class, and whether the ends cross nodes, of a place's number."""
        rest, leaves = divmod(number, 2)
        rest, enters = divmod(rest, 2)
        group, kind = divmod(rest, self.first.size)
        return group, kind, enters, leaves

    def _place(self, number: int) -> Place:
        group, kind, enters, leaves = self._parts(number)
        devices, behind = int(self.shape.groups[group]), int(self.first[kind])
        return Place(devices, behind, bool(enters), bool(leaves))

    def _table(self, number: int) -> int:
        """Return the start of the times of a place."""
        group, kind, enters, leaves = self._parts(number)
        return int(self.offset[group, kind, enters] + leaves * self.entries[group])

    def _add(self) -> None:
        """Compute the bounds of the next classes of stages."""
        have = int((self.offset[0, :, 0] >= 0).sum())
        count = self.first.size
        new = [
            (x, kind, enters)
            for x in range(len(self.stages.groups))
            for kind in range(have, min(have + AT_ONCE, count))
            for enters in (0, 1)
        ]
        places = [self._place(((x * count + kind) * 2 + enters) * 2) for x, kind, enters in new]
        self.stages.prepare(places, self.workers)
        end = self.flat.size
        for (x, kind, enters), _ in zip(new, places, strict=True):
            self.offset[x, kind, enters] = end
            end += 2 * int(self.entries[x])
        self.flat = np.concatenate([self.flat, *map(self.stages.both_times, places)])
        for x, kind, enters in zip(*np.nonzero(self.offset >= 0), strict=True):
            begin = int(self.offset[x, kind, enters])
            place = self._place(((int(x) * count + int(kind)) * 2 + int(enters)) * 2)
            self.stages.keep(place, self.flat[begin : begin + 2 * int(self.entries[x])])

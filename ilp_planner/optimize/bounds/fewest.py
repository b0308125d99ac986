"""Pipelines on the bounds of their stages, told apart by the devices that are left alone.

A suffix of a pipeline is a state (devices u, first operator i); how many stages it has is not
counted. The stage before it is taken to have as many downstream stages as the suffix with the
fewest, so it holds no more micro-batches than in any pipeline. As a stage that may use more memory
is no slower, results here bound all pipelines, with fewer states than in `pipeline` by the number
of stages.

The compiled passes over suffixes that are told apart by their devices (`fewest`).

Bounds of stages are kept as `bounds.rows` shares them, for all places in one array.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ilp_planner.base.kernels import inner, kernel
from ilp_planner.optimize.bounds.arrays import INFINITE, longer_rows
from ilp_planner.optimize.bounds.pipelines import (
    Arcs,
    OpenStages,
    Pipelines,
    Place,
    fewest_before,
    numbered,
)
from ilp_planner.optimize.bounds.relax import reach

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ilp_planner.optimize.bounds.stages import StageBounds


# ---- suffixes ------------------------------------------------------------------------------------


class Shape(NamedTuple):
    """The devices and their possible stages; D devices, G sizes of groups.

    groups: int64 [G]. before: int64 [D + 1], fewest stages on the first so many devices.
    """

    devices: int
    per_node: int
    max_stages: int
    groups: NDArray[np.int64]
    before: NDArray[np.int64]


class Times(NamedTuple):
    """Bounds on the times of stages, in seconds; n operators, K classes by micro-batches in flight.

    flat: float64, all tables. offset: int64 [G, K, 2], the start of a group's, a class's and an
    entry's table, -1: nowhere yet; stages that leave the node come `entries` later. entries: int64
    [G]. kind: int64 [max_stages], the class by the downstream stages. common, above: int64 [n], as
    in `Rows`. base: int64 [G, n + 1], as in `Extent`.
    """

    flat: NDArray[np.float64]
    offset: NDArray[np.int64]
    entries: NDArray[np.int64]
    kind: NDArray[np.int64]
    common: NDArray[np.int64]
    above: NDArray[np.int64]
    base: NDArray[np.int64]


@kernel
def windows(length, shape):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return [D + 1, 2]: the first and last operator of a suffix on so many devices.

    Relaxed: from every operator on, each group takes its longest stage, wherever it stands.
    """
    groups, n, total = shape.groups, length.shape[1], shape.devices
    ends = np.zeros((groups.size, n), np.int64)
    for x in range(groups.size):
        most = 0
        for i in range(n):
            most = max(most, i + length[x, i])
            ends[x, i] = most
    ahead, window = np.zeros(total + 1, np.int64), np.zeros((total + 1, 2), np.int64)
    window[0, 0] = n
    for u in range(1, total + 1):
        window[u, 0] = n
        for x in range(groups.size):
            if groups[x] > u:
                continue
            ahead[u] = max(ahead[u], ends[x, min(ahead[u - groups[x]], n - 1)])
            low, high = 0, n  # the first operator whose stages reach what is known
            while low < high:
                middle = (low + high) // 2
                if ends[x, middle] < window[u - groups[x], 0]:
                    low = middle + 1
                else:
                    high = middle
            window[u, 0] = min(window[u, 0], low)
    for u in range(total + 1):
        window[u, 1] = min(ahead[total - u], n)
    return window


@inner
def _straddles(start, group, per_node):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    whole = start % per_node == 0 and group % per_node == 0
    return start < 0 or (start // per_node != (start + group - 1) // per_node and not whole)


@kernel
def suffixes(first, end, shape, times, length, slowest, window, total, behind):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Fill the states with `first` to `end` - 1 devices; return the place to go on, negative if a
    table is missing there."""
    flat, offset, entries, kind, common, above, base = times
    for u in range(first, end):
        start = shape.devices - u
        enters = 1 if start > 0 and start % shape.per_node == 0 else 0
        for x in range(shape.groups.size):
            g = shape.groups[x]
            v = u - g
            if v < 0 or _straddles(start, g, shape.per_node):
                continue
            leaves = entries[x] if (start + g) % shape.per_node == 0 else 0
            for i in range(window[u, 0], min(window[u, 1] + 1, length.shape[1])):
                least, fewest = total[u, i], behind[u, i]
                owner = i
                top = min(length[x, i], window[v, 1] - i)
                while top > 0:
                    where = leaves + base[x, owner] - common[owner] - 1
                    for d in range(top, max(common[owner] + 1, window[v, 0] - i) - 1, -1):
                        rest = total[v, i + d]
                        if rest >= INFINITE:
                            continue
                        k = behind[v, i + d]
                        if k + 1 + shape.before[start] > shape.max_stages:
                            continue
                        table = offset[x, kind[k], enters]
                        if table < 0:
                            total[u, :] = INFINITE
                            return -u
                        time = flat[table + where + d]
                        if time > slowest:
                            continue
                        if least >= INFINITE or k + 1 < fewest:
                            fewest = k + 1
                        least = min(least, time + rest)
                    top = min(top, common[owner])
                    owner = above[owner]
                total[u, i], behind[u, i] = least, fewest
    return end


@kernel
def prefixes(shape, times, known, slowest, ahead):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Lower `ahead` [D + 1, n + 1] to the least sum of stages from the beginning to each state."""
    flat, offset, entries, kind, common, above, base = times
    total, behind, window, length = known
    for u in range(shape.devices, 0, -1):
        start = shape.devices - u
        enters = 1 if start > 0 and start % shape.per_node == 0 else 0
        for x in range(shape.groups.size):
            g = shape.groups[x]
            v = u - g
            if v < 0 or _straddles(start, g, shape.per_node):
                continue
            leaves = entries[x] if (start + g) % shape.per_node == 0 else 0
            for i in range(window[u, 0], min(window[u, 1] + 1, length.shape[1])):
                before = ahead[u, i]
                if before >= INFINITE:
                    continue
                owner = i
                top = min(length[x, i], window[v, 1] - i)
                while top > 0:
                    where = leaves + base[x, owner] - common[owner] - 1
                    for d in range(max(common[owner] + 1, window[v, 0] - i), top + 1):
                        if total[v, i + d] >= INFINITE:
                            continue
                        k = behind[v, i + d]
                        if k + 1 + shape.before[start] > shape.max_stages:
                            continue
                        time = flat[offset[x, kind[k], enters] + where + d]
                        if time <= slowest and before + time < ahead[v, i + d]:
                            ahead[v, i + d] = before + time
                    top = min(top, common[owner])
                    owner = above[owner]


@kernel
def open_between(shape, times, known, ahead, weight, slowest, floor, cutoff, arcs):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return the stages that may be part of a pipeline below `cutoff` seconds ([arcs, 6]): the
    states before and after, start, stop, number of the place, and entry in its table.

    arcs: int32 or int64 [some, 6], room for the first ones.
    """
    flat, offset, entries, kind, common, above, base = times
    total, behind, window, length = known
    wide = total.shape[1]
    count = 0
    for u in range(shape.devices, 0, -1):
        start = shape.devices - u
        enters = 1 if start > 0 and start % shape.per_node == 0 else 0
        for x in range(shape.groups.size):
            g = shape.groups[x]
            v = u - g
            if v < 0 or _straddles(start, g, shape.per_node):
                continue
            leaves = 1 if (start + g) % shape.per_node == 0 else 0
            for i in range(window[u, 0], min(window[u, 1] + 1, length.shape[1])):
                before = ahead[u, i]
                if before >= INFINITE:
                    continue
                owner = i
                top = min(length[x, i], window[v, 1] - i)
                while top > 0:
                    where = base[x, owner] - common[owner] - 1
                    for d in range(max(common[owner] + 1, window[v, 0] - i), top + 1):
                        rest = total[v, i + d]
                        if rest >= INFINITE:
                            continue
                        k = behind[v, i + d]
                        if k + 1 + shape.before[start] > shape.max_stages:
                            continue
                        own = kind[k]
                        time = flat[offset[x, own, enters] + leaves * entries[x] + where + d]
                        if time > slowest:
                            continue
                        if weight * max(time, floor) + before + time + rest >= cutoff:
                            continue
                        if count == arcs.shape[0]:
                            arcs = longer_rows(arcs, count)
                        new = arcs[count]
                        new[0], new[1], new[2], new[3] = u * wide + i, v * wide + i + d, i, i + d
                        new[4] = ((x * offset.shape[1] + own) * 2 + enters) * 2 + leaves
                        new[5] = where + d
                        count += 1
                    top = min(top, common[owner])
                    owner = above[owner]
    return arcs[:count]


# ---- fewest --------------------------------------------------------------------------------------


AT_ONCE = 4  # classes of micro-batches in flight whose bounds are computed together
CHUNK = 64  # devices between two looks at the clock
ROOM = 1024  # arcs, at first


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
        wide = self.operators + 1
        narrow = (self.devices + 1) * wide < 2**31  # there may be millions
        room = np.empty((ROOM, 6), np.int32 if narrow else np.int64)
        found = open_between(
            self.shape, self.times, known, ahead, weight, slowest, low, cutoff, room
        )
        self.check()
        del known, ahead
        self.forget()
        tail, head, start, stop, number, entry = (column.copy() for column in found.T)
        del found
        numbers, (place,) = numbered(number)
        places = [self._place(int(number)) for number in numbers]
        tables = np.array([self._table(int(number)) for number in numbers], np.int64)
        arcs = Arcs(
            tail, head, start.astype(np.int64), stop.astype(np.int64), place.astype(number.dtype),
            entry, self.flat[tables[place] + entry],
        )  # fmt: skip
        del start, stop, number, place
        self.check()
        return self.graph(
            arcs, places, weight=weight, sources=[self.devices * wide], sink=self.operators
        )

    def forget(self) -> None:
        """Free the states that reach the end."""
        self._known = None

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

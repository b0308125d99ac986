"""Pipelines of blocks of equal groups: their kinds, numbers and order.

A block is a number of equal groups of one device type. From the last layer to the first, each group
takes as many layers as memory and a slowest stage allow (`cheapest_cuts`). Groups take devices in
this order, too (`seating`): a group that shares no node with the downstream one sends over the
network. Blocks are changed one at a time as long as that helps, and then by simulated annealing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ilp_planner.base.kernels import inner, kernel
from ilp_planner.costs.group_network import group_class
from ilp_planner.costs.groups import GroupClass
from ilp_planner.spaces.groups.options import spread
from ilp_planner.spaces.groups.place import GroupChoice
from ilp_planner.spaces.groups.sending import sent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from ilp_planner.base.deadline import Deadline
    from ilp_planner.costs.groups import GroupOption, OptionTables
    from ilp_planner.spaces.groups.parts import GroupPart
    from ilp_planner.spaces.groups.seating import Seating


# ---- equal cuts ----------------------------------------------------------------------------------


WIDER = 1.02  # from one slowest stage to the next
CLOSE = 1e-4  # relative: so far apart, halvings end
WIDENINGS = 60


class Stages(NamedTuple):
    """Costs of kinds of groups: float64 or int64 [kinds, ...] of `OptionTables`; and seconds of
    sending to a group of a class, float64 [kinds, classes, L + 1]. own, alone: class of each kind,
    and as one in nodes of its own. device: type of each kind. after, near: [kinds, devices + 1],
    as `Seating.follow` has them.

    Stages with recomputation: of [start, stop) they are again_first[kind, start, stop] ..
    again_first[kind, start, stop + 1], int64 [kinds, L, L + 2], the fastest first; again_time:
    float64, again_peaks: float64 [stages, K], again_held: int64.
    """

    time: NDArray[np.float64]
    extra: NDArray[np.float64]
    peaks: NDArray[np.float64]
    held: NDArray[np.int64]
    send_time: NDArray[np.float64]
    send_extra: NDArray[np.float64]
    own: NDArray[np.int64]
    alone: NDArray[np.int64]
    device: NDArray[np.int64]
    after: NDArray[np.int64]
    near: NDArray[np.bool_]
    again_first: NDArray[np.int64]
    again_time: NDArray[np.float64]
    again_peaks: NDArray[np.float64]
    again_held: NDArray[np.int64]


NOT_AGAIN, NEVER = -1, -2


@inner
def _fastest(stages, n, start, stop, need):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return the number of the fastest stage that holds so many micro-batches among recomputing
    ones, `NOT_AGAIN` for the one without, `NEVER` if none does."""
    if stages.held[n, start, stop] >= need:
        return NOT_AGAIN
    for e in range(stages.again_first[n, start, stop], stages.again_first[n, start, stop + 1]):
        if stages.again_held[e] >= need:
            return e
    return NEVER


@inner
def _time(stages, n, start, stop, need):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return the seconds of the fastest stage that holds so many micro-batches, inf without."""
    e = _fastest(stages, n, start, stop, need)
    if e == NEVER:
        return np.inf
    return stages.time[n, start, stop] if e == NOT_AGAIN else stages.again_time[e]


@inner
def _walk(layers, stages, groups, needs, slowest, found):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Give layers and devices to groups, from the last layer on; return the number of stages, 0 if
    some layers are left. Groups that can take none, or have no devices, are passed over."""
    kinds, starts, classes, taken = found
    stop, count = layers, 0
    taken[:] = 0
    for n in groups:
        if count == needs.size:
            break
        type_ = stages.device[n]
        after = stages.after[n, taken[type_]]
        if after < 0:
            continue
        least, to = slowest, -1
        if count:
            following = kinds[count - 1]
            beside = stages.device[following] == type_ and stages.near[n, taken[type_]]
            to = stages.own[following] if beside else stages.alone[following]
            least -= stages.send_time[n, to, stop]
        start = stop
        while start > 0:
            seconds = _time(stages, n, start - 1, stop, needs[count])
            if seconds > least or seconds == np.inf:
                break
            start -= 1
        if start == stop:
            continue
        kinds[count], starts[count], classes[count] = n, start, to
        taken[type_] = after
        count += 1
        stop = start
        if stop == 0:
            return count
    return 0


@inner
def _seconds(layers, stages, needs, found, count, weight):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return the seconds of a pipeline, and of its slowest stage in all repeats."""
    kinds, starts, classes, _ = found
    slowest, total, stop = 0.0, 0.0, layers
    peak = np.zeros(stages.peaks.shape[1])
    for s in range(count):
        n, start = kinds[s], starts[s]
        time = _time(stages, n, start, stop, needs[s])
        again = _fastest(stages, n, start, stop, needs[s])
        if s:
            to = classes[s]
            time += stages.send_time[n, to, stop]
            total += stages.send_extra[n, to, stop]
        slowest = max(slowest, time)
        total += time + stages.extra[n, start, stop]
        for k in range(peak.size):
            own = stages.peaks[n, k, start, stop] if again < 0 else stages.again_peaks[again, k]
            peak[k] = max(peak[k], own)
        stop = start
    for k in range(peak.size):
        total += peak[k]
    return weight * slowest + total, weight * slowest


@kernel
def cheapest_cuts(layers, stages, groups, needs, weight):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return the seconds of the best cuts found, and kind and first layer of each stage, from the
    last one on; none if memory allows no cuts.

    groups: int64, the kind of each group, from the last one on. needs: int64, micro-batches in
    flight with 0, 1 ... downstream stages, as many as there may be stages.
    """
    kinds, starts = np.empty(needs.size, np.int64), np.empty(needs.size, np.int64)
    found = (
        kinds,
        starts,
        np.empty(needs.size, np.int64),
        np.zeros(stages.device.max() + 1, np.int64),
    )
    best_kinds, best_starts = kinds.copy(), starts.copy()
    best, length = np.inf, 0
    high = 0.0
    if _walk(layers, stages, groups, needs, np.inf, found) == 0:
        return best, best_kinds[:0], best_starts[:0]
    for n in groups:
        for start in range(layers):
            if _fastest(stages, n, start, layers, 1) != NEVER:
                high = max(high, _time(stages, n, start, layers, 1))
    while _walk(layers, stages, groups, needs, high, found) == 0:
        high = max(2.0 * high, 1e-9)
    low = 0.0
    while high - low > CLOSE * high:
        middle = 0.5 * (low + high)
        if _walk(layers, stages, groups, needs, middle, found):
            high = middle
        else:
            low = middle
    for _ in range(WIDENINGS):
        count = _walk(layers, stages, groups, needs, high, found)
        if count:
            value, repeated = _seconds(layers, stages, needs, found, count, weight)
            if value < best:
                best, length = value, count
                best_kinds[:] = kinds
                best_starts[:] = starts
            if repeated >= best:  # slower stages take no less
                break
        high *= WIDER
    return best, best_kinds[:length], best_starts[:length]


def again_columns(tables: Sequence[OptionTables]) -> dict[str, NDArray[Any]]:
    """Return the columns of `Stages` for stages with recomputation, by name."""
    layers, kinds = tables[0].time.shape[0], len(tables[0].peaks)
    first = np.zeros((len(tables), layers, layers + 2), np.int64)
    time, peaks, held = [np.zeros(0)], [np.zeros((0, kinds))], [np.zeros(0, np.int64)]
    total = 0
    for n, table in enumerate(tables):
        counts = np.zeros((layers, layers + 2), np.int64)
        again = table.recomputed
        if again is not None:
            order = np.lexsort((again.time, again.stop, again.start))
            time.append(again.time[order])
            peaks.append(again.peaks.T[order])
            held.append(again.in_flight[order])
            np.add.at(counts, (again.start, again.stop), 1)
        ends = total + np.cumsum(counts).reshape(counts.shape)
        first[n] = ends - counts
        total = int(ends[-1, -1])
    return {
        "again_first": first,
        "again_time": np.concatenate(time),
        "again_peaks": np.concatenate(peaks),
        "again_held": np.concatenate(held),
    }


# ---- pipelines -----------------------------------------------------------------------------------


ROUNDS = 8  # of choosing kinds of groups by what the others are
TINY = 1e-12  # seconds: what takes no time is no faster
WARM, COLD = 0.02, 0.0002  # relative: how much worse a change may be, at first and at last


class Block(NamedTuple):
    """Equal groups in a row: the number of their kind, and how many there may be."""

    kind: int
    groups: int


Shape = tuple[Block, ...]
"""The blocks of a pipeline, from the first layer on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """Stages from the first layer on, and their seconds one after the other in the nodes, without
    the constant."""

    seconds: float
    choices: tuple[GroupChoice, ...]


class Pipelines:
    """The pipelines of blocks of a part.

    quick: of a few sizes of groups. options, tables: of each kind of group. most: how many of each
    kind have seats. of_type: the kinds of each device type. found: the best pipelines met, each
    better than the one before.
    """

    def __init__(self, part: GroupPart, seating: Seating, *, quick: bool = False) -> None:
        self.part, self.problem, self.seating = part, part.problem, seating
        wanted = spread(part.single, part.samples) if quick else part.single
        kinds = list(self._kinds(wanted, seating))
        self.options = [option for option, _, _ in kinds]
        self.tables = [table for _, table, _ in kinds]
        self.most = [most for _, _, most in kinds]
        self.type_of = [int(np.flatnonzero(option.replicas)[0]) for option in self.options]
        self.of_type = [
            [n for n, kind in enumerate(self.type_of) if kind == wanted]
            for wanted in range(len(self.problem.cluster.type_names))
        ]
        # models per second of all groups of a kind, as if layers could be parted
        whole = [max(float(table.time[0, -1]), TINY) for table in self.tables]
        self.speed = [most / seconds for most, seconds in zip(self.most, whole, strict=True)]
        self.seen: dict[Shape, float] = {}
        self.found: list[tuple[float, Shape]] = []

    def _kinds(
        self, wanted: Sequence[GroupOption], seating: Seating
    ) -> Iterator[tuple[GroupOption, OptionTables, int]]:
        """Yield the kinds of groups that can hold a layer, and how many of each can be seated."""
        problem, part = self.problem, self.part
        for option in wanted:
            (kind,) = np.flatnonzero(option.replicas)
            most = seating.most(int(kind), option.tp, option.replicas[kind], part.most_stages)
            if not most:
                continue
            table = problem.costs.option_tables(
                option, part.micro_batches, problem.global_batch, problem.cluster
            )
            if table is not None and min(table.samples) > 0 and table.possible.any():
                yield option, table, most

    @cached_property
    def stages(self) -> Stages:
        """Costs of the kinds of groups, and of their messages."""
        problem, tables = self.problem, self.tables
        classes = [group_class(option, problem.cluster) for option in self.options]
        alone = [GroupClass(to.types, within_node=False) for to in classes]
        known = list(dict.fromkeys((*classes, *alone)))
        sends = [
            [sent(problem, self.part.micro_batches, option, table, to) for to in known]
            for option, table in zip(self.options, tables, strict=True)
        ]
        seconds = np.array(sends)
        return Stages(
            time=np.array([table.time for table in tables]),
            extra=np.array([table.extra for table in tables]),
            peaks=np.array([table.peaks for table in tables]),
            held=np.array([table.in_flight for table in tables]),
            send_time=np.ascontiguousarray(seconds[:, :, 0]),
            send_extra=np.ascontiguousarray(seconds[:, :, 1]),
            own=np.array([known.index(to) for to in classes]),
            alone=np.array([known.index(to) for to in alone]),
            device=np.array(self.type_of),
            **self._seats,
            **again_columns(tables),
        )

    @property
    def _seats(self) -> dict[str, NDArray[Any]]:
        """Return the columns of `Stages` for devices, by name."""
        groups = [
            (option.tp, option.replicas[kind])
            for option, kind in zip(self.options, self.type_of, strict=True)
        ]
        after, near = self.seating.follow(groups)
        own = np.arange(len(groups)), np.array(self.type_of)
        return {"after": after[own], "near": near[own]}

    @cached_property
    def _needs(self) -> NDArray[np.int64]:
        schedule = self.part.schedule
        return np.array([schedule.in_flight(n) for n in range(self.part.most_stages)])

    def _cut(self, shape: Shape) -> tuple[float, NDArray[np.int64], NDArray[np.int64]]:
        groups = [block.kind for block in reversed(shape) for _ in range(block.groups)]
        seconds, kinds, starts = cheapest_cuts(
            self.part.layers, self.stages, np.array(groups, np.int64), self._needs, self.part.weight
        )
        return float(seconds), kinds, starts

    def seconds(self, shape: Shape) -> float:
        """Return the seconds of the best pipeline of a shape, inf if memory allows none."""
        if shape not in self.seen:
            seconds = self.seen[shape] = self._cut(shape)[0]
            if seconds < (self.found[-1][0] if self.found else np.inf):
                self.found.append((seconds, shape))
        return self.seen[shape]

    def pipeline(self, shape: Shape) -> Pipeline:
        """Return the best pipeline of a shape that has one."""
        seconds, kinds, starts = self._cut(shape)
        stops = [self.part.layers, *starts[:-1].tolist()]
        rows = zip(kinds.tolist(), starts.tolist(), stops, self._needs.tolist(), strict=False)
        choices = [
            GroupChoice(
                start=start,
                stop=stop,
                option=self.options[n],
                samples=self.tables[n].samples,
                way=self.tables[n].fastest(start, stop, need),
            )
            for n, start, stop, need in rows
        ]
        return Pipeline(seconds=seconds, choices=tuple(reversed(choices)))

    # ---- one change at a time -------------------------------------------------------------------

    def first(self) -> list[Shape]:
        """Return the shapes to begin with: the types in two orders, each with the groups that use
        its devices best, or hold the most layers; and each type alone."""
        types = [k for k, kinds in enumerate(self.of_type) if kinds]
        best, ratio = {}, 0.0
        # the least seconds of all types together, each in proportion to its speed (Dinkelbach)
        for _ in range(ROUNDS):
            best = {
                k: min(self.of_type[k], key=lambda n: self.most[n] - ratio * self.speed[n])
                for k in types
            }
            rate = sum(self.speed[n] for n in best.values())
            ratio = (self.part.weight + sum(self.most[n] for n in best.values())) / max(rate, TINY)
        fast = sorted(best.values(), key=lambda n: -self.speed[n])
        roomy = [max(self.of_type[self.type_of[n]], key=self._room) for n in fast]
        rows = (fast, fast[::-1], roomy, *([n] for n in fast))
        return [tuple(self._whole(n) for n in row) for row in rows if row]

    def _whole(self, kind: int) -> Block:
        """Return the block of all devices of a type."""
        return Block(kind, self.most[kind])

    def _room(self, n: int) -> tuple[int, float]:
        """Return the layers that a type's groups of a kind hold at most, and their speed."""
        longest = int(self.tables[n].possible.sum(axis=1).max())
        return min(longest * self.most[n], self.part.layers), self.speed[n]

    def near(self, shape: Shape) -> Iterator[Shape]:
        """Yield shapes in which two blocks have swapped, one has another kind of group, or there is
        one more or less."""
        for a, b in combinations(range(len(shape)), 2):
            yield (*shape[:a], shape[b], *shape[a + 1 : b], shape[a], *shape[b + 1 :])
        for at, block in enumerate(shape):
            before, after = shape[:at], shape[at + 1 :]
            for n in self.of_type[self.type_of[block.kind]]:
                if n != block.kind:
                    yield (*before, self._whole(n), *after)
            if before or after:
                yield (*before, *after)
        there = {self.type_of[block.kind] for block in shape}
        for kind, kinds in enumerate(self.of_type):
            if kind not in there:
                for n in kinds:
                    for at in range(len(shape) + 1):
                        yield (*shape[:at], self._whole(n), *shape[at:])

    def improve(self, moment: Deadline) -> None:
        """Change one thing of a shape at a time, as long as that helps and there is time."""
        current = min(self.first(), key=self.seconds, default=None)
        while current is not None:
            best = current
            for shape in self.near(current):
                if not moment.goon():
                    return
                if self._promises(shape) and self.seconds(shape) < self.seconds(best):
                    best = shape
                    break
            current = best if best != current else None

    def _promises(self, shape: Shape) -> bool:
        """Tell whether a shape would be the best one met if layers could be parted."""
        if not self.found:
            return True
        rate = sum(self.speed[n] * groups / self.most[n] for n, groups in shape)
        return self.part.weight < rate * self.found[-1][0]

    # ---- annealing ------------------------------------------------------------------------------

    def anneal(self, steps: int, moment: Deadline, seed: int) -> None:
        """Change the best shape at random, and ever less often for the worse.

        Parameters
        ----------
        steps: changes to try, fewer if the time is up.
        """
        if not self.found:
            return
        random = np.random.default_rng(seed)
        seconds, current = self.found[-1]
        for step in range(steps):
            if not moment.goon():
                return
            shape = self.changed(current, random)
            heat = WARM * (COLD / WARM) ** (step / steps)
            if shape:
                other = self.seconds(shape)
                worse = other / seconds - 1
                if worse <= 0 or random.random() < np.exp(-worse / heat):
                    seconds, current = other, shape

    def changed(self, shape: Shape, random: np.random.Generator) -> Shape:
        """Return a shape with a random change: two blocks swap; one takes another kind of group,
        parts with some of its groups for another kind, or gives a group to a block of its type."""
        blocks = list(shape)
        at, way = int(random.integers(len(blocks))), int(random.integers(4))
        block = blocks[at]
        kinds = self.of_type[self.type_of[block.kind]]
        other = int(random.choice(kinds))
        if way == 0:
            to = int(random.integers(len(blocks)))
            blocks[at], blocks[to] = blocks[to], blocks[at]
        elif way == 1:
            blocks[at] = Block(other, 0)
            blocks = self._filled(blocks, at)
        elif way == 2:
            blocks[at] = Block(block.kind, int(random.integers(block.groups + 1)))
            to = int(random.integers(len(blocks) + 1)) if random.random() < 0.5 else at + 1
            blocks.insert(to, Block(other, 0))
            blocks = self._filled(blocks, to)
        else:
            beside = [b for b, each in enumerate(blocks) if each.kind in kinds and b != at]
            blocks[at] = Block(block.kind, block.groups - 1)
            if beside:
                blocks = self._filled(blocks, int(random.choice(beside)))
        return _joined(blocks)

    def _filled(self, blocks: list[Block], at: int) -> list[Block]:
        """Return the blocks with as many groups in one of them as the others leave seats for."""
        kind = blocks[at].kind
        taken = sum(
            block.groups / self.most[block.kind]
            for n, block in enumerate(blocks)
            if n != at and self.type_of[block.kind] == self.type_of[kind]
        )
        left = int((1 - taken) * self.most[kind] + 1e-9)
        return [*blocks[:at], Block(kind, max(left, 0)), *blocks[at + 1 :]]


def _joined(blocks: list[Block]) -> Shape:
    """Return the blocks without empty ones, equal neighbours as one."""
    found: list[Block] = []
    for block in blocks:
        if found and found[-1].kind == block.kind:
            found[-1] = Block(block.kind, found[-1].groups + block.groups)
        elif block.groups > 0:
            found.append(block)
    return tuple(found)

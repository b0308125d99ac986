"""The stages that a plan may have: every range of layers on every group that memory allows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ilp_planner.base.deadline import no_limit
from ilp_planner.base.kernels import kernel
from ilp_planner.schedule.batches import Batches
from ilp_planner.schedule.formulas import OneForwardOneBackward, Schedule
from ilp_planner.spaces.groups.sending import Sending, price_sending

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from ilp_planner.costs.groups import GroupOption, GroupTables, OptionTables
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.specs.cluster import ClusterSpec


class Candidates(NamedTuple):
    """Stages that a plan may have: one entry per (range, option, recomputation that is of use).
    Seconds, without sending. way: number of the recomputation. Of millions, whole numbers are
    int32."""

    option: NDArray[np.int64]
    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    time: NDArray[np.float64]
    extra: NDArray[np.float64]
    peaks: NDArray[np.float64]  # [K, candidates]
    in_flight: NDArray[np.int64]
    way: NDArray[np.int64]

    def only(self, keep: NDArray[np.int64]) -> Candidates:
        """Return some of them, with whole numbers as int64."""
        columns: tuple[Any, ...] = self
        some = (column[..., keep] for column in columns)
        return Candidates(*(_widened(one) for one in some))

    def compact(self) -> Candidates:
        """Return the same with whole numbers as int32; of micro-batches in flight, more are as good
        as so many."""
        columns: tuple[Any, ...] = self
        return Candidates(*map(_narrowed, columns))


def _narrowed(column: NDArray[Any]) -> NDArray[Any]:
    if column.dtype.kind != "i":
        return column
    return np.asarray(np.minimum(column, np.iinfo(np.int32).max), np.int32)


def _widened(column: NDArray[Any]) -> NDArray[Any]:
    return column.astype(np.int64) if column.dtype.kind == "i" else column


@dataclass(frozen=True, kw_only=True, eq=False)
class Catalogue:
    """All candidates with one number of micro-batches, their devices and their costs of sending.

    part: of a full one that the last is. options: the groups; samples: of each of their replicas.
    stages: the candidates.
    outside: float64 [L, L + 1], seconds that all layers before and after a range take at least.
    use: int64 [options, N]; `capacity` is the limit. check_time: raises if the time is up.
    """

    layers: int
    micro_batches: int
    part: float
    options: tuple[GroupOption, ...]
    samples: tuple[tuple[int, ...], ...]
    stages: Candidates
    outside: NDArray[np.float64]
    sending: Sending
    use: NDArray[np.int64]
    capacity: tuple[int, ...]
    check_time: Callable[[], None]

    @cached_property
    def place(self) -> NDArray[np.int64]:
        """Number of the option and range of layers of each candidate, int64 [candidates]:
        candidates that differ only in recomputation have the same."""
        c, size = self.stages, self.layers + 1
        found = c.option.astype(np.int64)
        for column in (c.start, c.stop):
            found *= size
            found += column
        return found

    @cached_property
    def again(self) -> NDArray[np.bool_]:
        """Candidates that a faster one of the same option and range recomputes less than, bool
        [candidates]."""
        order = np.lexsort((self.stages.time, self.place))
        place, again = self.place[order], np.empty(order.size, np.bool_)
        again[order] = np.concatenate(([False], place[1:] == place[:-1]))[: order.size]
        return again

    @property
    def schedule(self) -> Schedule:
        """The order in which stages run."""
        return OneForwardOneBackward(self.micro_batches, part=self.part)

    def rows(self, stages: Candidates) -> NDArray[np.int64]:
        """Return the row of each candidate in the tables of sending."""
        return self.row(stages.option, stages.stop)

    def row(self, option: NDArray[np.int64], stop: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the row of options that end before a layer in the tables of sending."""
        return option * (self.layers + 1) + stop

    def stages_after(self, stages: Candidates, most: int) -> NDArray[np.int64]:
        """Return the most stages after each candidate that memory, or the user, allows. most:
        stages of a plan."""
        held = [self.schedule.in_flight(behind) for behind in range(most)]
        return np.searchsorted(held, stages.in_flight, side="right") - 1

    def kept(self, choices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the candidates that no other one of the same range dominates."""
        own, no_worse = self.sending.own, self.sending.no_worse()
        return self.unbeaten(self.use, own, no_worse, choices)

    def unbeaten(
        self,
        needs: NDArray[np.int64],
        kind: NDArray[np.int64],
        better: NDArray[np.bool_],
        choices: NDArray[np.int64] | None = None,
    ) -> NDArray[np.int64]:
        """Return the candidates that no other one of the same range dominates.

        Parameters
        ----------
        needs: int64 [options, N]; less is no worse. kind: int64 [options]. better: bool [kinds,
            kinds], to a sender a group of the first kind is no worse than of the second.
        choices: of these alone; None: of all.
        """
        sending = self.sending
        c = self.stages if choices is None else self.stages.only(choices)
        order = np.lexsort((c.time, c.stop, c.start))
        keep = np.ones(order.size, np.bool_)
        starts = np.searchsorted(c.start[order], np.arange(self.layers + 1))
        for begin, end in pairwise(starts.tolist()):  # the tables of all at once would be large
            if begin == end:
                continue
            these = c.only(order[begin:end])
            row = self.rows(these)
            rows = (
                these.extra,
                np.minimum(these.in_flight, self.micro_batches),
                kind[these.option],
                needs[these.option],
            )
            seconds = (
                these.peaks.T,
                (these.time + sending.least_time[row])[:, None] + sending.more_time[row],
                (these.extra + sending.least_extra[row])[:, None] + sending.more_extra[row],
            )
            columns = (*rows, np.concatenate(seconds, axis=1))
            stops = np.flatnonzero(np.diff(these.stop, prepend=-1, append=-1))
            for first, last in pairwise(stops.tolist()):  # Ctrl-C is heard in between
                self.check_time()
                drop_dominated(
                    *(values[first:last] for values in columns),
                    better,
                    keep[begin + first : begin + last],
                )
        found = np.sort(order[keep])
        return found if choices is None else choices[found]


def build_catalogue(
    problem: Problem[GroupTables],
    micro_batches: int,
    wanted: Sequence[GroupOption],
    degrees: Sequence[Sequence[int]],
    check_time: Callable[[], None] = no_limit,
) -> Catalogue:
    """Collect the candidates of these options that memory allows.

    Parameters
    ----------
    degrees: tensor-parallel degrees of each device type. check_time: raises if the time is up.
    """
    priced: list[tuple[GroupOption, OptionTables]] = []
    for option in wanted:
        check_time()
        table = problem.costs.option_tables(
            option, micro_batches, problem.global_batch, problem.cluster
        )
        if table is not None and min(table.samples) > 0:
            priced.append((option, table))
    options = tuple(option for option, _ in priced)
    tables = [table for _, table in priced]
    samples = tuple(table.samples for table in tables)
    layers = len(problem.costs.chain)
    use, capacity = device_use(options, problem.cluster, degrees)
    return Catalogue(
        layers=layers,
        micro_batches=micro_batches,
        part=Batches(problem.global_batch, micro_batches).part,
        options=options,
        samples=samples,
        stages=_stages(tables, layers, micro_batches),
        outside=_outside(tables, layers),
        sending=price_sending(problem, micro_batches, options, tables, check_time),
        use=use,
        capacity=capacity,
        check_time=check_time,
    )


def _stages(tables: Sequence[OptionTables], layers: int, micro_batches: int) -> Candidates:
    """Return the ranges that memory allows, option by option."""
    schedule = OneForwardOneBackward(micro_batches)
    least = np.full((layers, layers + 1), schedule.in_flight(1))
    least[:, -1] = schedule.in_flight(0)
    nonempty = np.triu(np.ones((layers, layers + 1), bool), 1)
    none, nothing = np.zeros(0, np.int64), np.zeros(0)
    kinds = len(tables[0].peaks) if tables else 0
    empty = Candidates(none, none, none, nothing, nothing, np.zeros((kinds, 0)), none, none)
    found = [empty.compact()]
    for number, table in enumerate(tables):
        use = nonempty & (table.in_flight >= least)
        start, stop = np.nonzero(use)
        option, peaks = np.full(start.size, number), table.peaks[:, use]
        held, way = table.in_flight[use], np.zeros_like(start)
        own = Candidates(option, start, stop, table.time[use], table.extra[use], peaks, held, way)
        found.append(own.compact())
        if table.recomputed is not None:
            more = table.recomputed
            again = more.only(more.in_flight >= least[more.start, more.stop])
            own = Candidates(
                option=np.full(again.start.size, number),
                start=again.start,
                stop=again.stop,
                time=again.time,
                extra=table.extra[again.start, again.stop],
                peaks=again.peaks,
                in_flight=again.in_flight,
                way=again.way,
            )
            found.append(own.compact())
    columns: list[Any] = [*zip(*found, strict=True)]
    del found
    for number, column in enumerate(columns):  # one after the other: they may be large
        columns[number] = np.concatenate(column, axis=-1)
    return Candidates(*columns)


def _outside(tables: Sequence[OptionTables], layers: int) -> NDArray[np.float64]:
    """Return the seconds that all layers before and after each range take at least; inf if they
    cannot be in stages.

    Of whole ranges, not layer by layer: if a group has devices of several types, each layer may be
    slow on another one of them, and the range is faster than its layers one by one.
    """
    fastest = np.full((layers, layers + 1), np.inf)
    for table in tables:
        np.minimum(fastest, np.where(table.in_flight >= 1, table.time, np.inf), out=fastest)
        if table.recomputed is not None:
            again = table.recomputed
            np.minimum.at(fastest, (again.start, again.stop), again.time)
    before, after = np.zeros(layers + 1), np.zeros(layers + 1)
    for v in range(1, layers + 1):
        before[v] = (before[:v] + fastest[:v, v]).min()
    for v in reversed(range(layers)):
        after[v] = (fastest[v, v + 1 :] + after[v + 1 :]).min()
    outside: NDArray[np.float64] = before[:layers, None] + after[None, :]
    return outside


def device_use(
    options: Sequence[GroupOption], cluster: ClusterSpec, degrees: Sequence[Sequence[int]]
) -> tuple[NDArray[np.int64], tuple[int, ...]]:
    """Return the devices that each option uses, int64 [options, N], and their limits.

    Devices of each type; and, if nodes leave devices out of groups of a tensor-parallel degree, the
    seats for so many devices.
    """
    slots = []
    for kind, name in enumerate(cluster.type_names):
        sizes = cluster.node_sizes(name)
        for tp in degrees[kind]:
            seats = sum(size // tp for size in sizes)
            if tp > 1 and seats * tp < sum(sizes):
                slots.append((kind, tp, seats))
    use = [
        [*o.use, *(o.replicas[kind] * (o.degree(kind) // tp) for kind, tp, _ in slots)]
        for o in options
    ]
    capacity = (*cluster.type_counts, *(seats for _, _, seats in slots))
    return np.array(use, np.int64).reshape(len(options), len(capacity)), capacity


@kernel
def drop_dominated(extra, in_flight, kind, use, seconds, better, keep):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Mark the candidates that another one of their range is at least as good as in everything.

    All are of one range, the fastest first. seconds: float64 [candidates, N], peaks and sending to
    a group of each class. better[a, b]: to a sender, a group of class a is no worse than one of
    class b. keep: bool [candidates], becomes False.
    """
    kept = np.empty(keep.size, np.int64)
    count = 0
    for o in range(keep.size):
        for x in range(count):
            p = kept[x]
            if extra[p] > extra[o] or in_flight[p] < in_flight[o] or not better[kind[p], kind[o]]:
                continue
            worse = False
            for d in range(use.shape[1]):
                worse |= use[p, d] > use[o, d]
            if worse:
                continue
            for k in range(seconds.shape[1]):
                if seconds[p, k] > seconds[o, k]:
                    worse = True
                    break
            if not worse:
                keep[o] = False
                break
        if keep[o]:
            kept[count] = o
            count += 1

"""The planner's own space: any groups of devices in any order along the pipeline, devices may idle.

A part is one number of micro-batches B. Its candidates are all (range of layers, group option) that
memory allows; on the best links that a group can have they cost what no placement undercuts. Nodes
of the stage graph are (first layer, stages after, class of the group): stages after, as far as
memory depends on it; the class, as far as the sender's link does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numba
import numpy as np

from ilp_planner.bounds.resource_paths import Context, no_seats
from ilp_planner.costs.group_network import group_class
from ilp_planner.costs.groups import GroupClass
from ilp_planner.graph import StageGraph
from ilp_planner.mixed.options import mixed_options, most_mixed, single_type_options
from ilp_planner.mixed.place import GroupChoice, Placed, place
from ilp_planner.mixed.seat_chain import SeatChains
from ilp_planner.mixed.seating import Seating, seat_all
from ilp_planner.mixed.space import OpenGraph

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from numpy.typing import NDArray

    from ilp_planner.bounds.group_chain import GroupChain
    from ilp_planner.costs.groups import GroupOption, OptionTables
    from ilp_planner.mixed.problem import GroupProblem
    from ilp_planner.plan import GroupPlan

LEVELS = np.array([0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128])
"""Stages after a stage, told apart in bounds; labels count them one by one."""
MOST_EXPLICIT = 3_000_000  # arcs


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidates:
    """Stages that a plan may have: one entry per (range, option). Seconds, without sending."""

    option: NDArray[np.int64]
    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    time: NDArray[np.float64]
    extra: NDArray[np.float64]
    peaks: NDArray[np.float64]  # [K, candidates]
    in_flight: NDArray[np.int64]

    def only(self, keep: NDArray[np.int64]) -> Candidates:
        """Return some of them."""
        return Candidates(
            option=self.option[keep],
            start=self.start[keep],
            stop=self.stop[keep],
            time=self.time[keep],
            extra=self.extra[keep],
            peaks=self.peaks[:, keep],
            in_flight=self.in_flight[keep],
        )


class PlannerPart:
    """All plans with one number of micro-batches (`SpacePart`)."""

    def __init__(self, problem: GroupProblem, micro_batches: int) -> None:
        cluster, costs = problem.cluster, problem.costs
        self.problem = problem
        self.micro_batches = micro_batches
        self.name = f"{micro_batches} micro-batches"
        self.constant = costs.constant(micro_batches)
        self.layers = len(costs.layers)
        self.weight = micro_batches - 1
        samples = problem.global_batch // micro_batches
        known = costs.degrees()
        degrees = [
            tuple(
                tp
                for tp in known.get(name, ())
                if tp <= min(problem.max_tp, max(cluster.node_sizes(name)))
            )
            for name in cluster.type_names
        ]
        self.single = tuple(single_type_options(cluster.type_counts, degrees, samples))
        self.mixed, self.complete = mixed_options(
            cluster.type_counts, degrees, samples, most_mixed(self.layers)
        )
        self.options: list[GroupOption] = []
        self.samples: list[tuple[int, ...]] = []
        self.candidates: Candidates | None = None
        self._slots = self._tensor_slots(degrees)
        self.seats = Seating(cluster) if cluster.symmetric else None
        self.seat_tables: tuple[NDArray[Any], ...] | None = None
        self.seat_chains: SeatChains | None = None

    # ---- candidates -----------------------------------------------------------------------------

    def _tensor_slots(self, degrees: Sequence[Sequence[int]]) -> list[tuple[int, int, int]]:
        """Return (type, tp, seats for so many devices) where nodes leave devices out of such
        groups."""
        cluster = self.problem.cluster
        slots = []
        for kind, name in enumerate(cluster.type_names):
            sizes = cluster.node_sizes(name)
            for tp in degrees[kind]:
                seats = sum(size // tp for size in sizes)
                if tp > 1 and seats * tp < sum(sizes):
                    slots.append((kind, tp, seats))
        return slots

    def everything(self) -> Candidates:
        """Return all candidates, collected once."""
        if self.candidates is None:
            self.candidates = self._collect((*self.single, *self.mixed))
        return self.candidates

    def _collect(self, wanted: Sequence[GroupOption]) -> Candidates:
        """Return the candidates of these options that memory allows."""
        problem, layers = self.problem, self.layers
        self.options, self.samples = [], []
        tables: list[OptionTables] = []
        for option in wanted:
            table = problem.costs.option_tables(
                option, self.micro_batches, problem.global_batch, problem.cluster
            )
            if table is not None and min(table.samples) > 0:
                self.options.append(option)
                self.samples.append(table.samples)
                tables.append(table)
        # A stage that is not the last one has another micro-batch in flight.
        least = np.full((layers, layers + 1), min(2, self.micro_batches))
        least[:, -1] = 1
        nonempty = np.triu(np.ones((layers, layers + 1), bool), 1)
        single = np.full(layers, np.inf)
        at = np.arange(layers)
        for table in tables:
            held = table.in_flight[at, at + 1] >= 1
            single = np.where(held, np.minimum(single, table.time[at, at + 1]), single)
        single[~np.isfinite(single)] = 0.0
        ends = np.concatenate(([0.0], np.cumsum(single)))
        self.outside = ends[:layers, None] + ends[-1] - ends[None, :]
        columns: list[list[NDArray]] = [[] for _ in range(7)]  # type: ignore[type-arg]
        for number, table in enumerate(tables):
            use = nonempty & (table.in_flight >= least)
            start, stop = np.nonzero(use)
            parts = (
                np.full(start.size, number), start, stop, table.time[use], table.extra[use],
                table.peaks[:, use], table.in_flight[use],
            )  # fmt: skip
            for column, values in zip(columns, parts, strict=True):
                column.append(values)
        kinds = len(problem.costs.peak_names)
        joined = [
            np.concatenate(c, axis=-1) if c else np.zeros((kinds, 0) if n == 5 else 0)
            for n, c in enumerate(columns)
        ]
        self._prepare_sending()
        found = Candidates(
            option=joined[0].astype(np.int64),
            start=joined[1].astype(np.int64),
            stop=joined[2].astype(np.int64),
            time=joined[3],
            extra=joined[4],
            peaks=joined[5],
            in_flight=joined[6].astype(np.int64),
        )
        better = np.ones((self.more_time.shape[1],) * 2, bool)
        for more in (self.more_time, self.more_extra):
            better &= (more[:, :, None] <= more[:, None, :]).all(axis=0)
        self.candidates = found
        self.kept = self.unbeaten(self.use, self.class_of, better)
        return found

    def unbeaten(
        self, needs: NDArray[np.int64], kind: NDArray[np.int64], better: NDArray[np.bool_]
    ) -> NDArray[np.int64]:
        """Return the candidates that no other one of the same range beats in everything.

        Parameters
        ----------
        needs: int64 [options, N], of which less is no worse. kind: int64 [options]. better: bool
            [kinds, kinds], to a sender a group of the first kind is no worse than of the second.
        """
        c = self.candidates
        assert c is not None
        if not c.option.size:
            return np.zeros(0, np.int64)
        order = np.lexsort((c.time, c.stop, c.start))
        ranges = c.start * (self.layers + 1) + c.stop
        first = np.flatnonzero(np.diff(ranges[order], prepend=-1))
        row = c.option * (self.layers + 1) + c.stop
        time, extra = self.least_time[row], self.least_extra[row]
        keep = undominated(
            order, np.append(first, order.size), c.time, c.extra,
            np.ascontiguousarray(c.peaks.T), np.minimum(c.in_flight, self.micro_batches),
            needs[c.option], kind[c.option], better,
            time[:, None] + self.more_time[row], extra[:, None] + self.more_extra[row],
        )  # fmt: skip
        return np.flatnonzero(keep)

    def _prepare_sending(self) -> None:
        """Tell apart the classes of groups that matter to a sender, and price sending."""
        problem = self.problem
        classes = [group_class(option, problem.cluster) for option in self.options]
        kinds = range(len(problem.cluster.type_names))
        # a group in a node of its own is seen as one that shares no node with the sender
        parted = [
            GroupClass(to.types, False, (kind,))
            for to in dict.fromkeys(classes)
            if len(to.types) > 1
            for kind in to.types
        ]
        distinct = list(
            dict.fromkeys([*classes, *(GroupClass((k,), False) for k in kinds), *parted])
        )
        bottleneck = np.zeros((len(self.options), len(distinct), self.layers + 1))
        extra = np.zeros_like(bottleneck)
        for o, (option, samples) in enumerate(zip(self.options, self.samples, strict=True)):
            for c, to in enumerate(distinct):
                bottleneck[o, c], extra[o, c] = problem.costs.send(
                    option, samples, self.micro_batches, to, problem.cluster
                )
        cuts, classes_found = len(self.options) * (self.layers + 1), len(distinct)
        both = np.stack((bottleneck, extra), axis=1)  # [O, 2, C, L + 1]
        flat = np.moveaxis(both, 2, 0).reshape(classes_found, 2 * cuts)
        first, merged = np.zeros(0, np.int64), np.zeros(0, np.int64)
        if classes_found:
            _, first, merged = np.unique(flat, axis=0, return_index=True, return_inverse=True)
        merged = np.asarray(merged).reshape(-1)

        def best(seconds: NDArray[np.float64]) -> tuple[NDArray, NDArray]:  # type: ignore[type-arg]
            """Split into the least over the classes, by (option, cut), and what each adds to it."""
            rows = np.moveaxis(seconds[:, first], 1, 2).reshape(cuts, first.size)
            least = rows.min(axis=1, initial=np.inf)
            return least, rows - least[:, None]

        self.least_time, self.more_time = best(bottleneck)
        self.least_extra, self.more_extra = best(extra)
        number = {to: int(merged[c]) for c, to in enumerate(distinct)}
        self.apart = np.zeros(first.size, np.int64)
        for to in distinct:
            alone = GroupClass(to.types, False)
            self.apart[number[to]] = number[alone if alone in number else to]
        self.column = number
        self.class_of = np.array([number[to] for to in classes], np.int64)
        use = np.array([option.use for option in self.options], np.int64)
        use = use.reshape(len(self.options), len(problem.cluster.type_counts))
        slots = [
            [option.replicas[kind] * (option.tp // tp) for kind, tp, _ in self._slots]
            for option in self.options
        ]
        seats = np.array(slots, np.int64).reshape(len(self.options), len(self._slots))
        self.use = np.concatenate((use, seats), axis=1)
        self.capacity = (*problem.cluster.type_counts, *(seats for _, _, seats in self._slots))

    def _seated(self, option: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """Return what the labels need to seat groups, by arc."""
        assert self.seats is not None
        if self.seat_tables is None:
            demands: dict[tuple[int, int], int] = {}
            rows = [
                [demands.setdefault((o.tp, count), len(demands)) for count in o.replicas]
                for o in self.options
            ]
            after, near = self.seats.follow(tuple(demands))
            classes = [group_class(o, self.problem.cluster) for o in self.options]
            single = [c.types[0] if c.within_node else -1 for c in classes]
            self.seat_tables = np.array(rows, np.int64), np.array(single, np.int64), after, near
        rows_of, single_of, after, near = self.seat_tables
        return {
            "demand": rows_of[option],
            "single": single_of[option],
            "after": after,
            "near": near,
            "rest": self.seats.rest,
            "apart": self.apart,
        }

    # ---- graphs ---------------------------------------------------------------------------------

    def sketch(self) -> OpenGraph | None:
        """Return the graph of groups of one device type."""
        kept = self._kept()
        alone = np.array(
            [sum(n > 0 for n in option.replicas) == 1 for option in self.options], bool
        )
        return self.graph(np.inf, kept[alone[self.everything().option[kept]]])

    def outline(self, cutoff: float) -> OpenGraph | None:
        """Return the graph over positions alone: any number of stages after, the best link to any
        group."""
        return self._leveled(self.below(cutoff, self._kept()), np.zeros(1, np.int64))

    def unplaced(self, cutoff: float) -> OpenGraph | None:
        """Return the graph of all plans below `cutoff` seconds on the best links."""
        everything = np.arange(self.everything().option.size)
        return self.graph(cutoff, self.below(cutoff, everything))

    def _kept(self) -> NDArray[np.int64]:
        self.everything()
        return self.kept

    def below(self, cutoff: float, choices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the candidates that can be part of a plan below `cutoff` seconds."""
        c = self.everything().only(choices)
        row = c.option * (self.layers + 1) + c.stop
        time = c.time + self.least_time[row]
        least = self.weight * time + time + c.extra + self.least_extra[row]
        least += self.outside[c.start, c.stop]
        below: NDArray[np.int64] = choices[least < cutoff]
        return below

    def graph(self, cutoff: float, choices: NDArray[np.int64] | None) -> OpenGraph:
        """Return the graph over (layer, roughly the stages after)."""
        everything = self.everything()
        if choices is None:
            choices = self._kept()
        most = min(self.problem.max_stages, self.layers)
        binding = self.behind(everything.only(choices))
        binding = binding[binding < most - 1]
        deepest = int(binding.max()) + 1 if binding.size else 0
        return self._leveled(choices, LEVELS[deepest >= LEVELS])

    def behind(self, c: Candidates) -> NDArray[np.int64]:
        """Return the most stages after each candidate that memory, or the user, allows."""
        most = min(self.problem.max_stages, self.layers) - 1
        unlimited = c.in_flight >= self.micro_batches
        return np.where(unlimited, most, np.minimum(c.in_flight - 1, most))

    def _leveled(self, choices: NDArray[np.int64], begins: NDArray[np.int64]) -> OpenGraph:
        """Return the graph with a level for every range of stages after: from begins[n] to the
        next."""
        assert self.candidates is not None
        c = self.candidates.only(choices)
        if not choices.size:
            return OpenGraph(graph=self._empty(), choice=choices)
        behind = self.behind(c)
        last = c.stop == self.layers
        levels = begins.size
        arcs = []
        for number, begin in enumerate(begins.tolist()):
            end = int(begins[number + 1]) - 1 if number + 1 < levels else self.layers
            fits = behind >= begin
            if begin == 0:
                final = np.flatnonzero(fits & last)
                arcs.append((final, np.full(final.size, number), np.full(final.size, -1)))
            inner = np.flatnonzero((behind >= max(begin, 1)) & ~last)
            reached = {
                int(np.searchsorted(begins, k - 1, side="right")) - 1
                for k in range(max(begin, 1), end + 1)
            }
            arcs += [
                (inner, np.full(inner.size, number), np.full(inner.size, below))
                for below in sorted(reached)
            ]
        which, level, below = (np.concatenate(x) for x in zip(*arcs, strict=True))
        option, stop = c.option[which], c.stop[which]
        sink = self.layers * levels
        row = option * (self.layers + 1) + stop
        graph = StageGraph(
            nodes=sink + 1,
            sources=tuple(range(levels)),
            sink=sink,
            operators=self.layers,
            micro_batches=self.micro_batches,
            tail=c.start[which] * levels + level,
            head=np.where(below < 0, sink, stop * levels + below),
            start=c.start[which],
            stop=stop,
            time=c.time[which] + self.least_time[row],
            extra=c.extra[which] + self.least_extra[row],
            peaks=c.peaks[:, which],
            use=self.use[option],
            capacity=self.capacity,
        )
        depths = np.arange(self.layers + 1)
        context = Context(
            behind=behind[which],
            level=np.append(np.tile(np.arange(levels), self.layers), 0),
            level_of=np.searchsorted(begins, depths, side="right") - 1,
            kind=self.class_of[option],
            row=row,
            send_time=self.more_time,
            send_extra=self.more_extra,
            **no_seats(which.size),
        )
        seated = None
        if self.seats is not None:
            seated = replace(context, **self._seated(option))
        return OpenGraph(graph=graph, choice=choices[which], context=context, seated=seated)

    def _empty(self) -> StageGraph:
        none = np.zeros(0, np.int64)
        return StageGraph(
            nodes=2, sources=(0,), sink=1, operators=self.layers,
            micro_batches=self.micro_batches, tail=none, head=none, start=none, stop=none,
            time=np.zeros(0),
        )  # fmt: skip

    def explicit(self, opened: OpenGraph) -> OpenGraph | None:
        """Return the graph over (layer, stages after, class of the group)."""
        assert self.candidates is not None
        choices = np.unique(opened.choice)
        if not choices.size:
            return opened
        c = self.candidates.only(choices)
        behind, last = self.behind(c), c.stop == self.layers
        own, classes = self.class_of[c.option], self.more_time.shape[1]
        most = min(self.problem.max_stages, self.layers)
        limiting = behind[behind < most - 1]
        # stages after: 0, 1 ...; the last level stands for `so many or more` where that is the same
        exact = most < self.layers
        levels = most if exact else (int(limiting.max()) + 2 if limiting.size else 1)
        if choices.size * levels * classes > MOST_EXPLICIT:
            return None
        arcs = []
        for number in range(levels):
            open_ended = number == levels - 1 and not exact
            if number == 0:
                final = np.flatnonzero(last)
                arcs.append((final, final * 0, final * 0 - 1, final * 0))
            inner = np.flatnonzero((behind >= number) & ~last)
            for after in sorted({max(number - 1, 0)} | ({number} if open_ended else set())):
                if number == 0 and not open_ended:
                    continue
                for kind in range(classes):
                    arcs.append(
                        (inner, np.full(inner.size, number), np.full(inner.size, after),
                         np.full(inner.size, kind))
                    )  # fmt: skip
        which, level, below, to = (np.concatenate(x) for x in zip(*arcs, strict=True))
        option, stop = c.option[which], c.stop[which]
        sink = self.layers * levels * classes
        row = option * (self.layers + 1) + stop
        inside = below >= 0
        graph = StageGraph(
            nodes=sink + 1,
            sources=tuple(range(levels * classes)),
            sink=sink,
            operators=self.layers,
            micro_batches=self.micro_batches,
            tail=(c.start[which] * levels + level) * classes + own[which],
            head=np.where(inside, (stop * levels + below) * classes + to, sink),
            start=c.start[which],
            stop=stop,
            time=c.time[which]
            + self.least_time[row]
            + np.where(inside, self.more_time[row, to], 0.0),
            extra=c.extra[which]
            + self.least_extra[row]
            + np.where(inside, self.more_extra[row, to], 0.0),
            peaks=c.peaks[:, which],
            use=self.use[option],
            capacity=self.capacity,
        )
        return OpenGraph(graph=graph, choice=choices[which])

    def chain(self, cutoff: float) -> GroupChain:
        """Return the candidates of plans below `cutoff` seconds (without the constant) as a chain
        whose states count the seats in a node."""
        self.everything()
        if self.seat_chains is None:
            self.seat_chains = SeatChains(self)
        return self.seat_chains.chain(self.below(cutoff, self.seat_chains.kept))

    # ---- plans ----------------------------------------------------------------------------------

    def plan(self, choices: Sequence[int]) -> GroupPlan | None:
        """Place groups on devices."""
        return self.placed(choices).plan

    def seat(self, choices: Sequence[int]) -> GroupPlan | None:
        """Seat groups one after the other, as the labels of a seated graph do."""
        assert self.seats is not None
        return seat_all(self.problem, self.micro_batches, self._groups(choices), self.seats)

    def _groups(self, choices: Sequence[int]) -> tuple[GroupChoice, ...]:
        c = self.everything()
        return tuple(
            GroupChoice(
                start=int(c.start[number]),
                stop=int(c.stop[number]),
                option=self.options[int(c.option[number])],
                samples=self.samples[int(c.option[number])],
            )
            for number in choices
        )

    def placed(self, choices: Sequence[int]) -> Placed:
        """Place groups on devices; say what no placement of them undercuts."""
        placed = place(
            self.problem,
            self.micro_batches,
            self._groups(choices),
            least=self.best_links(choices) + self.constant,
        )
        return replace(placed, bound=placed.bound - self.constant)

    def best_links(self, choices: Sequence[int]) -> float:
        """Return seconds, without the constant, of candidates in a row on the best links that they
        can have."""
        rows = np.asarray(choices, np.int64)
        c = self.everything().only(rows)
        row = c.option[:-1] * (self.layers + 1) + c.stop[:-1]
        to = self.class_of[c.option[1:]]
        time, extra = c.time.copy(), c.extra.copy()
        time[:-1] += self.least_time[row] + self.more_time[row, to]
        extra[:-1] += self.least_extra[row] + self.more_extra[row, to]
        peaks = c.peaks.max(axis=1, initial=0.0).sum()
        return float(self.weight * time.max() + time.sum() + extra.sum() + peaks)

    def family(self, choice: int) -> Hashable:
        """Return the group option of a stage candidate."""
        assert self.candidates is not None
        return self.options[int(self.candidates.option[choice])]


@numba.njit(cache=True, nogil=True)
def undominated(  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    order, first, time, extra, peaks, in_flight, use, kind, better, send_time, send_extra
):
    """Tell which candidates no other one of their range is at least as good as in everything.

    order: candidates by range, the fastest first; first: where each range begins. better[a, b]: to
    a sender, a group of class a is no worse than one of class b. send_time, send_extra:
    [candidates, classes], sending to a group of each class.
    """
    keep = np.ones(order.size, np.bool_)
    for r in range(first.size - 1):
        for y in range(first[r] + 1, first[r + 1]):
            o = order[y]
            for z in range(first[r], y):
                p = order[z]
                if not keep[p] or extra[p] > extra[o] or in_flight[p] < in_flight[o]:
                    continue
                if not better[kind[p], kind[o]]:
                    continue
                if (use[p] > use[o]).any() or (peaks[p] > peaks[o]).any():
                    continue
                if (send_time[p] > send_time[o]).any() or (send_extra[p] > send_extra[o]).any():
                    continue
                keep[o] = False
                break
    return keep

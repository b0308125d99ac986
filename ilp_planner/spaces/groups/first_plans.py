"""A good plan at once, before any bound and before a part's candidates are there.

Pipelines of equal groups: every device type has one kind of group, as many of them as its nodes
seat, and the types follow each other in some order. From the last layer to the first, each group
takes as many layers as memory and a slowest stage allow; the least slowest stage is found by
bisection, and slower ones, with fewer stages to fill, are tried as well. Kinds of groups and orders
are changed one at a time as long as that helps. All of this is on the best links that groups can
have; the judge prices what comes of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ilp_planner.costs.group_network import group_class
from ilp_planner.evaluate import evaluate
from ilp_planner.spaces.groups.equal_cuts import Stages, cheapest_cuts
from ilp_planner.spaces.groups.place import GroupChoice, place
from ilp_planner.spaces.groups.seating import Seating, seat_all
from ilp_planner.spaces.groups.work import work_bounds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ilp_planner.costs.groups import GroupOption, GroupTables, OptionTables
    from ilp_planner.deadline import Deadline
    from ilp_planner.plan import GroupPlan
    from ilp_planner.problem import Problem
    from ilp_planner.search.group_search import GroupSearch, PartState
    from ilp_planner.spaces.groups.parts import GroupPart

SECONDS, SHARE = 0.6, 0.5  # to look in, and at most that part of the time
ROUNDS = 8  # of choosing kinds of groups by what the others are
TINY = 1e-12  # seconds: what takes no time is no faster
MOST_PACKINGS = 8  # to try where links differ from node to node


class Shape(NamedTuple):
    """A pipeline of equal groups: the device types from the first layer on, and the number of the
    kind of group of each."""

    order: tuple[int, ...]
    kinds: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """Stages from the first layer on, and their seconds on the best links, without the constant."""

    seconds: float
    choices: tuple[GroupChoice, ...]


class Pipelines:
    """The pipelines of equal groups of a part."""

    def __init__(self, part: GroupPart, seating: Seating) -> None:
        self.part, self.problem = part, part.problem
        self.layers = part.layers
        found = list(self._groups(seating))
        self.options = [option for option, _, _ in found]
        self.tables = [table for _, table, _ in found]
        self.most = [most for _, _, most in found]
        types = [np.flatnonzero(option.replicas)[0] for option in self.options]
        self.of_type = [
            [n for n, kind in enumerate(types) if kind == wanted]
            for wanted in range(len(self.problem.cluster.type_names))
        ]
        # models per second of all groups of a kind, as if layers could be parted
        whole = [max(float(table.time[0, -1]), TINY) for table in self.tables]
        self.speed = [most / seconds for most, seconds in zip(self.most, whole, strict=True)]
        self.seen: dict[Shape, Pipeline | None] = {}

    def _groups(self, seating: Seating) -> Iterator[tuple[GroupOption, OptionTables, int]]:
        """Yield the kinds of groups that can hold a layer, and how many of each can be seated."""
        problem, part = self.problem, self.part
        for option in part.single:
            (kind,) = np.flatnonzero(option.replicas)
            most = seating.most(int(kind), option.tp, option.replicas[kind], part.most_stages)
            if not most:
                continue
            table = problem.costs.option_tables(
                option, part.micro_batches, problem.global_batch, problem.cluster
            )
            if table is not None and min(table.samples) > 0 and table.in_flight.any():
                yield option, table, most

    @cached_property
    def stages(self) -> Stages:
        """What the kinds of groups take, and what they pay to send."""
        problem, tables = self.problem, self.tables
        classes = [group_class(option, problem.cluster) for option in self.options]
        known = list(dict.fromkeys(classes))
        sends = [
            [
                problem.costs.send(
                    option, table.samples, self.part.micro_batches, to, problem.cluster
                )
                for to in known
            ]
            for option, table in zip(self.options, tables, strict=True)
        ]
        sent = np.array(sends)
        return Stages(
            time=np.array([table.time for table in tables]),
            extra=np.array([table.extra for table in tables]),
            peaks=np.array([table.peaks for table in tables]),
            held=np.array([table.in_flight for table in tables]),
            send_time=np.ascontiguousarray(sent[:, :, 0]),
            send_extra=np.ascontiguousarray(sent[:, :, 1]),
            own=np.array([known.index(to) for to in classes]),
        )

    def cut(self, shape: Shape) -> Pipeline | None:
        """Return the best pipeline of a shape; None where memory allows none."""
        if shape not in self.seen:
            self.seen[shape] = self._cut(shape)
        return self.seen[shape]

    def _cut(self, shape: Shape) -> Pipeline | None:
        groups = [n for n in reversed(shape.kinds) for _ in range(self.most[n])]
        schedule = self.part.schedule
        needs = np.array([schedule.in_flight(n) for n in range(self.part.most_stages)])
        seconds, kinds, starts = cheapest_cuts(
            self.layers, self.stages, np.array(groups), needs, self.part.weight
        )
        if not starts.size:
            return None
        stops = [self.layers, *starts[:-1].tolist()]
        choices = [
            GroupChoice(
                start=start, stop=stop, option=self.options[n], samples=self.tables[n].samples
            )
            for n, start, stop in zip(kinds.tolist(), starts.tolist(), stops, strict=True)
        ]
        return Pipeline(seconds=float(seconds), choices=tuple(reversed(choices)))

    @property
    def found(self) -> list[Pipeline]:
        """The best pipelines of all shapes that were looked at."""
        return [pipeline for pipeline in self.seen.values() if pipeline is not None]

    def seconds(self, shape: Shape) -> float:
        """Return the seconds of the best pipeline of a shape, inf without one."""
        found = self.cut(shape)
        return np.inf if found is None else found.seconds

    # ---- shapes ---------------------------------------------------------------------------------

    def first(self) -> list[Shape]:
        """Return the shapes to begin with: the types in two orders, each with the groups that use
        its devices best; and each type alone."""
        kinds = [k for k, numbers in enumerate(self.of_type) if numbers]
        best, ratio = {}, 0.0
        # the least seconds of all types together, each in proportion to its speed (Dinkelbach)
        for _ in range(ROUNDS):
            best = {
                k: min(self.of_type[k], key=lambda n: self.most[n] - ratio * self.speed[n])
                for k in kinds
            }
            rate = sum(self.speed[n] for n in best.values())
            ratio = (self.part.weight + sum(self.most[n] for n in best.values())) / max(rate, TINY)
        ordered = tuple(sorted(kinds, key=lambda k: -self.speed[best[k]]))
        orders = {ordered, ordered[::-1], *((k,) for k in kinds)}
        shapes = [Shape(order, tuple(best[k] for k in order)) for order in sorted(orders) if order]
        roomy = {k: max(self.of_type[k], key=lambda n: self._room(n)) for k in kinds}
        return [*shapes, Shape(ordered, tuple(roomy[k] for k in ordered))] if kinds else []

    def _room(self, n: int) -> tuple[int, float]:
        """Return the layers that a type's groups of a kind hold at most, and their speed."""
        held = self.tables[n].in_flight
        longest = max(int((row > 0).sum()) for row in held)
        return min(longest * self.most[n], self.layers), self.speed[n]

    def near(self, shape: Shape) -> Iterator[Shape]:
        """Yield shapes that differ in the order of two types, in one type's kind of group, or that
        have one type more or less."""
        order, kinds = shape
        for a, b in combinations(range(len(order)), 2):
            turned = list(range(len(order)))
            turned[a], turned[b] = b, a
            yield Shape(tuple(order[p] for p in turned), tuple(kinds[p] for p in turned))
        for at, kind in enumerate(order):
            before, after = kinds[:at], kinds[at + 1 :]
            for n in self.of_type[kind]:
                if n != kinds[at]:
                    yield Shape(order, (*before, n, *after))
            if after or before:
                yield Shape((*order[:at], *order[at + 1 :]), (*before, *after))
        for kind, numbers in enumerate(self.of_type):
            if kind not in order:
                for n in numbers:
                    for at in range(len(order) + 1):
                        yield Shape((*order[:at], kind, *order[at:]), (*kinds[:at], n, *kinds[at:]))

    def improve(self, moment: Deadline) -> None:
        """Change one thing of a shape at a time, as long as that helps and there is time."""
        current = min(self.first(), key=self.seconds, default=None)
        while current is not None:
            best = current
            for shape in self.near(current):
                if not moment.goon():
                    return
                if self.seconds(shape) < self.seconds(best):
                    best = shape
                    break
            current = best if best != current else None


def placed(
    problem: Problem[GroupTables], micro_batches: int, pipeline: Pipeline, seating: Seating
) -> GroupPlan | None:
    """Return the plan of a pipeline on devices; None where it cannot be placed."""
    if problem.cluster.symmetric:
        return seat_all(problem, micro_batches, pipeline.choices, seating)
    return place(problem, micro_batches, pipeline.choices, most_packings=MOST_PACKINGS).plan


def look_first(search: GroupSearch[GroupPart]) -> None:
    """Bound all parts by their work, then look for a first plan in them, the least bound first: as
    long as there is no plan, and for a moment."""
    bounds = work_bounds(search.problem, search.states[0].part.degrees) if search.states else {}
    for state in search.states:
        state.raise_bound(bounds[state.part.micro_batches], "work")
    search.report()
    moment = search.deadline.within(min(SECONDS, SHARE * search.deadline.left))
    seating = Seating(search.problem.cluster)
    found: list[tuple[float, PartState[GroupPart], Pipeline]] = []
    for state in sorted(search.states, key=lambda s: s.bound):
        search.check_time()
        if not moment.goon():
            _take(search, found, seating, moment)
            if search.plan is not None:
                return
            found = []
        if not search.closed(state):
            pipelines = Pipelines(state.part, seating)
            pipelines.improve(moment)
            found += [(state.part.constant + p.seconds, state, p) for p in pipelines.found]
    _take(search, found, seating, moment)


def _take(
    search: GroupSearch[GroupPart],
    found: list[tuple[float, PartState[GroupPart], Pipeline]],
    seating: Seating,
    moment: Deadline,
) -> None:
    """Judge pipelines, the fastest first: true links may be slower than the best ones."""
    for seconds, state, pipeline in sorted(found, key=lambda each: each[0]):
        if search.plan is not None and (seconds >= search.objective or not moment.goon()):
            return
        search.check_time()
        plan = placed(search.problem, state.part.micro_batches, pipeline, seating)
        if plan is not None and evaluate(search.problem, plan).legal:
            search.accept(plan, state)

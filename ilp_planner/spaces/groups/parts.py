"""The planner's own space: any groups of devices in any order along the pipeline, devices may idle.

A part is one number of micro-batches B. Its candidates are all (range of layers, group option) that
memory allows; on the best links that a group can have, their costs are lower bounds for all
placements.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from itertools import combinations, islice
from typing import TYPE_CHECKING, Any

import numpy as np

from ilp_planner.base.numerics import ROUNDING
from ilp_planner.costs.group_network import best_ring, group_class
from ilp_planner.evaluate import evaluate
from ilp_planner.optimize.search.parts import OpenGraph, Placed, SpacePart
from ilp_planner.schedule.batches import Batches
from ilp_planner.schedule.formulas import OneForwardOneBackward
from ilp_planner.spaces.groups.candidates import Candidates, Catalogue, build_catalogue
from ilp_planner.spaces.groups.graphs import explicit_graph, level_begins, leveled_graph
from ilp_planner.spaces.groups.options import (
    MOST_SHORT,
    all_mixed_options,
    mixed_options,
    most_mixed,
    single_type_options,
    spread_options,
)
from ilp_planner.spaces.groups.place import GroupChoice, place
from ilp_planner.spaces.groups.seat_chain import SeatChains
from ilp_planner.spaces.groups.seating import Seating, seat_all

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from numpy.typing import NDArray

    from ilp_planner.costs.groups import GroupOption, GroupTables
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.optimize.bounds.group_chain import GroupChain
    from ilp_planner.optimize.search.group_search import GroupSearch, PartState
    from ilp_planner.plan import GroupPlan


# ---- parts ---------------------------------------------------------------------------------------


AT_ONCE = 2**18  # candidates whose seconds are added up at once, of millions


class GroupPart(SpacePart):
    """All plans with one number of micro-batches.

    samples: of a micro-batch. alone: only plans with groups of one device type each.
    """

    boxable = True

    def __init__(
        self, problem: Problem[GroupTables], micro_batches: int, *, alone: bool = False
    ) -> None:
        cluster, costs = problem.cluster, problem.costs
        self.problem = problem
        self.micro_batches = micro_batches
        batches = Batches(problem.global_batch, micro_batches)
        self.name = f"{micro_batches} micro-batches"
        self.constant = costs.constant(micro_batches)
        self.layers = len(costs.chain)
        self.schedule = OneForwardOneBackward(micro_batches, part=batches.part)
        self.weight = self.schedule.weight
        self.most_stages = min(problem.max_stages, self.layers)
        self.samples, uneven = batches.size, costs.uneven
        known = costs.degrees()
        self.degrees = [
            tuple(
                tp
                for tp in known.get(name, ())
                if tp <= min(problem.max_tp, max(cluster.node_sizes(name)))
            )
            for name in cluster.type_names
        ]
        counts = cluster.type_counts
        self.single = tuple(single_type_options(counts, self.degrees, self.samples, uneven=uneven))
        self.several, self.complete = ((), True) if alone else self._several_types()
        self.complete_unlike = True
        if costs.mixed_tp and not alone:
            unlike, self.complete_unlike = self._several_types(unlike=True)
            self.several += unlike
        sizes = [cluster.node_sizes(name) for name in cluster.type_names]
        self._spread = tuple(spread_options(self.single, sizes)) if costs.spread else ()
        self.seats = Seating(cluster) if cluster.symmetric else None
        self.forget()

    def forget(self) -> None:
        """Free the candidates, and all that is made of them."""
        for name in ("catalogue", "seat_chains", "_seat_tables"):
            self.__dict__.pop(name, None)
        self._kept_below, self._kept = -np.inf, np.zeros(0, np.int64)
        self._chained_below, self._chained = -np.inf, np.zeros(0, np.int64)

    def _several_types(self, *, unlike: bool = False) -> tuple[tuple[GroupOption, ...], bool]:
        """Return the groups of several types that are tried, and whether these are all. unlike:
        those whose types differ in their tensor-parallel degree."""
        of = (self.problem.cluster.type_counts, self.degrees, self.samples)
        if self.schedule.short:
            return all_mixed_options(*of, MOST_SHORT, unlike=unlike)
        return mixed_options(*of, most_mixed(self.layers), unlike=unlike)

    def shares(self, option: GroupOption) -> list[list[int]] | None:
        """Return the samples of the replicas of each type, sorted, of a group that is tried; None
        if it is not."""
        if not any(option in tried for tried in (self.single, self.several, self._spread)):
            return None
        problem = self.problem
        table = problem.costs.option_tables(
            option, self.micro_batches, problem.global_batch, problem.cluster
        )
        if table is None or min(table.samples) == 0:
            return None
        rest = iter(table.samples)
        return [sorted(islice(rest, count)) for count in option.replicas]

    @cached_property
    def catalogue(self) -> Catalogue:
        """All candidates."""
        wanted = (*self.single, *self.several, *self._spread)
        return build_catalogue(
            self.problem, self.micro_batches, wanted, self.degrees, self.check_time
        )

    @cached_property
    def seat_chains(self) -> SeatChains:
        """Chains of candidates that count the seats in a node."""
        return SeatChains(self.catalogue, self.problem, self.most_stages)

    def holds(self, plan: GroupPlan) -> bool:
        """Tell whether a plan has so many micro-batches."""
        return plan.micro_batches == self.micro_batches

    # ---- graphs ---------------------------------------------------------------------------------

    def sketch(self) -> OpenGraph | None:
        """Return the graph of groups of one device type."""
        found = self.catalogue
        alone = np.array(
            [sum(n > 0 for n in option.replicas) == 1 for option in found.options], bool
        )
        kept = self.kept(np.inf)
        return self._graph(kept[alone[found.stages.option[kept]]])

    def outline(self, cutoff: float) -> OpenGraph | None:
        """Return the graph over positions alone: any number of stages after, the best link to any
        group. Of stages that differ in recomputation it has the fastest alone."""
        begins, found = np.zeros(1, np.int64), self.catalogue
        if found.again.any():
            choices = self.below(cutoff, np.flatnonzero(~found.again))
        else:
            choices = self.kept(cutoff)
        return leveled_graph(found, choices, self.most_stages, begins)

    def _with_others(self, choices: NDArray[np.int64], cutoff: float) -> NDArray[np.int64]:
        """Return useful candidates below `cutoff` seconds that differ from some of the outline in
        recomputation."""
        found = self.catalogue
        if not found.again.any():
            return choices
        of = np.isin(found.place, found.place[choices])
        return found.kept(self.below(cutoff, np.flatnonzero(of)))

    def kept(self, cutoff: float) -> NDArray[np.int64]:
        """Return the candidates that can be part of a plan below `cutoff` seconds, but for
        candidates that another one of the same range dominates."""
        if cutoff > self._kept_below:
            everything = np.arange(self.catalogue.stages.option.size)
            self._kept = self.catalogue.kept(self.below(cutoff, everything))
            self._kept_below = cutoff
        return self.below(cutoff, self._kept)

    def unplaced(self, cutoff: float) -> OpenGraph | None:
        """Return the graph of all plans below `cutoff` seconds on the best links."""
        everything = np.arange(self.catalogue.stages.option.size)
        return self._graph(self.below(cutoff, everything))

    def below(self, cutoff: float, choices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the candidates that can be part of a plan below `cutoff` seconds."""
        found, sending, below = self.catalogue, self.catalogue.sending, [choices[:0]]
        for first in range(0, choices.size, AT_ONCE):
            some = choices[first : first + AT_ONCE]
            c = found.stages.only(some)
            row = found.rows(c)
            time = c.time + sending.least_time[row]
            least = self.weight * time + time + c.extra + sending.least_extra[row]
            least += found.outside[c.start, c.stop]
            below.append(some[least < cutoff])
        return np.concatenate(below)

    def graph(self, cutoff: float, choices: NDArray[np.int64] | None) -> OpenGraph:
        """Return the graph over (layer, roughly the stages after), seated if that can be."""
        if choices is None:
            return self._graph(self.kept(cutoff))
        return self._graph(self._with_others(choices, cutoff))

    def _graph(self, choices: NDArray[np.int64]) -> OpenGraph:
        found = self.catalogue
        begins = level_begins(found, choices, self.most_stages)
        opened = leveled_graph(found, choices, self.most_stages, begins)
        if self.seats is None or opened.context is None:
            return opened
        option = found.stages.option[opened.choice]
        rows, single, after, near = self._seat_tables
        context = opened.context._replace(
            demand=rows[option],
            single=single[option],
            after=after,
            near=near,
            rest=self.seats.rest,
            apart=found.sending.apart,
        )
        return replace(opened, seated=context)

    @cached_property
    def _seat_tables(self) -> tuple[NDArray[Any], ...]:
        """Number of each option's demand of each type, its type if it is in one node (else -1), and
        how demands follow each other (`Seating.follow`). Groups that are spread are never seated
        one after the other: their demand fits nowhere."""
        assert self.seats is not None
        options = self.catalogue.options
        demands: dict[tuple[int, int], int] = {}
        rows = [
            [
                demands.setdefault((o.degree(kind), count), len(demands))
                for kind, count in enumerate(o.replicas)
            ]
            for o in options
        ]
        classes = [group_class(o, self.problem.cluster) for o in options]
        single = [c.types[0] if c.within_node else -1 for c in classes]
        after, near = self.seats.follow(tuple(demands))
        demand = np.array(rows, np.int64).reshape(len(options), after.shape[1])
        if self._spread:
            demand[[o.over > 0 for o in options]] = len(after)
            nowhere = np.zeros((1, *after.shape[1:]))
            after = np.concatenate((after, nowhere - 1), dtype=after.dtype, casting="unsafe")
            near = np.concatenate((near, nowhere), dtype=near.dtype, casting="unsafe")
        return demand, np.array(single, np.int64), after, near

    def explicit(self, opened: OpenGraph) -> OpenGraph | None:
        """Return the graph over (layer, stages after, class of the group)."""
        choices = np.unique(opened.choice)
        if not choices.size:
            return opened
        return explicit_graph(self.catalogue, choices, self.most_stages)

    def chain(self, cutoff: float) -> GroupChain:
        """Return the candidates of plans below `cutoff` seconds (without the constant) as a chain
        with states that count the seats in a node."""
        if cutoff > self._chained_below:
            everything = np.arange(self.catalogue.stages.option.size)
            self._chained = self.seat_chains.kept(self.below(cutoff, everything))
            self._chained_below = cutoff
        return self.seat_chains.chain(self.below(cutoff, self._chained))

    # ---- plans ----------------------------------------------------------------------------------

    def plan(self, choices: Sequence[int]) -> GroupPlan | None:
        """Place groups on devices."""
        return self.placed(choices).plan

    def seat(self, choices: Sequence[int]) -> GroupPlan | None:
        """Seat groups one after the other, as the labels of a seated graph do; None if they do not
        fit, or one is spread."""
        assert self.seats is not None
        groups = self._groups(choices)
        if any(choice.option.over for choice in groups):
            return None
        return seat_all(self.problem, self.micro_batches, groups, self.seats)

    def _groups(self, choices: Sequence[int]) -> tuple[GroupChoice, ...]:
        found, c = self.catalogue, self.catalogue.stages
        return tuple(
            GroupChoice(
                start=int(c.start[number]),
                stop=int(c.stop[number]),
                option=found.options[int(c.option[number])],
                samples=found.samples[int(c.option[number])],
                way=int(c.way[number]),
            )
            for number in choices
        )

    def placed(self, choices: Sequence[int]) -> Placed:
        """Place groups on devices; give a lower bound for their placements."""
        placed = place(
            self.problem,
            self.micro_batches,
            self._groups(choices),
            least=self.best_links(choices) + self.constant,
        )
        return replace(placed, bound=placed.bound - self.constant)

    def best_links(self, choices: Sequence[int]) -> float:
        """Return seconds, without the constant, of candidates in a row on the best links that they
        can have; rings of groups that are spread share the network cards that there are."""
        found, sending = self.catalogue, self.catalogue.sending
        c: Candidates = found.stages.only(np.asarray(choices, np.int64))
        row, to = found.rows(c)[:-1], sending.own[c.option[1:]]
        time, extra = c.time.copy(), c.extra.copy()
        time[:-1] += sending.least_time[row] + sending.more_time[row, to]
        extra[:-1] += sending.least_extra[row] + sending.more_extra[row, to]
        peaks = c.peaks.max(axis=1, initial=0.0)
        if self._spread:
            peaks[0] = max(peaks[0], self._least_rings(choices))
        return float(self.weight * time.max() + time.sum() + extra.sum() + peaks.sum())

    def _least_rings(self, choices: Sequence[int]) -> float:
        """Return the seconds that the rings of candidates that are spread take at least on some
        card (`seat_chain`)."""
        problem, taken = self.problem, [0.0] * len(self.degrees)
        for choice in self._groups(choices):
            crossing = problem.costs.crossing(choice.start, choice.stop)
            if choice.option.over and crossing is not None:
                (kind,) = np.flatnonzero(choice.option.replicas).tolist()
                nodes = len(problem.cluster.node_sizes(problem.cluster.type_names[kind]))
                ring = best_ring(choice.option, problem.cluster).seconds(crossing[0])
                taken[kind] += choice.option.over / nodes * ring
        return max(taken)

    def at_least(self, choices: Sequence[int]) -> float:
        """Return seconds, without the constant, as a lower bound of placements of candidates in a
        row."""
        return self.best_links(choices) * (1 - ROUNDING)

    def improve(
        self, search: GroupSearch[Any], state: PartState[Any], choices: Sequence[int]
    ) -> None:
        """Look for better plans like these candidates in a row, if placing them took much longer
        than the path."""
        improve_placed(search, state, choices)

    def family(self, choice: int) -> Hashable:
        """Return the group option of a stage candidate."""
        return self.catalogue.options[int(self.catalogue.stages.option[choice])]


# ---- small moves of a plan at its true times -----------------------------------------------------
# If placing its groups takes more than the stage graph promises: groups swap, merge or part, and
# cuts move.


Rows = list[tuple[int, int, int]]
"""Option, start and stop of each stage."""
ROUNDS = 6
MOST = 400  # placements
WORSE = 1.05  # times the best plan: what stages on the best links may take to be placed at all


def improve_placed(search: GroupSearch[Any], state: PartState[Any], choices: Sequence[int]) -> None:
    """Move to the best neighbour of a plan's stage candidates, until none is better."""
    part: GroupPart = state.part
    seen: set[tuple[int, ...]] = set()
    best, current = np.inf, tuple(choices)
    for _ in range(ROUNDS):
        found = best
        for near in (current, *neighbours(part, current)):
            if near in seen or len(seen) >= MOST:
                continue
            if part.best_links(near) + part.constant >= min(best, WORSE * search.objective):
                continue
            search.check_time()
            seen.add(near)
            plan = part.plan(near)
            if plan is None:
                continue
            evaluation = evaluate(search.problem, plan)
            if evaluation.legal and evaluation.iteration_time < found:
                found, following = evaluation.iteration_time, near
                if found < search.objective:
                    search.accept(plan, state)
        if found >= best:
            return
        best, current = found, following


def neighbours(part: GroupPart, choices: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield rows of candidates with a few changed stages: two have swapped groups, or places, a cut
    has moved by a layer, two share a group of the devices of both, or one is two halves."""
    c = part.catalogue.stages
    use = part.catalogue.use
    rows = [(int(c.option[n]), int(c.start[n]), int(c.stop[n])) for n in choices]
    for stages in (*_swapped(rows), *_cut_anew(rows), *_merged(use, rows), *_halved(use, rows)):
        found = []
        for s, (option, start, stop) in enumerate(stages):
            held = part.schedule.in_flight(len(stages) - 1 - s)
            able = (c.option == option) & (c.start == start) & (c.stop == stop)
            able &= c.in_flight >= held
            found += sorted(np.flatnonzero(able).tolist(), key=lambda n: float(c.time[n]))[:1]
        if len(found) == len(stages):
            yield tuple(found)


def _swapped(rows: Rows) -> Iterator[Rows]:
    for a, b in combinations(range(len(rows)), 2):
        groups = list(rows)
        groups[a], groups[b] = (rows[b][0], *rows[a][1:]), (rows[a][0], *rows[b][1:])
        yield groups
        order = list(rows)
        order[a], order[b] = rows[b], rows[a]
        start, places = 0, []
        for option, first, stop in order:
            places.append((option, start, start + stop - first))
            start += stop - first
        yield places


def _cut_anew(rows: Rows) -> Iterator[Rows]:
    for a in range(len(rows) - 1):
        for step in (-1, 1):
            cut = rows[a][2] + step
            stages = list(rows)
            stages[a], stages[a + 1] = (*rows[a][:2], cut), (rows[a + 1][0], cut, rows[a + 1][2])
            yield stages


def _merged(use: NDArray[np.int64], rows: Rows) -> Iterator[Rows]:
    for a in range(len(rows) - 1):
        both = use[rows[a][0]] + use[rows[a + 1][0]]
        for option in np.flatnonzero((use == both).all(axis=1)).tolist():
            yield [*rows[:a], (option, rows[a][1], rows[a + 1][2]), *rows[a + 2 :]]


def _halved(use: NDArray[np.int64], rows: Rows) -> Iterator[Rows]:
    for a, (whole, start, stop) in enumerate(rows):
        middle = (start + stop) // 2
        for option in np.flatnonzero((2 * use == use[whole]).all(axis=1)).tolist():
            for cut in (middle, middle + 1):
                halves = [(option, start, cut), (option, cut, stop)]
                yield [*rows[:a], *halves, *rows[a + 1 :]]

"""A legal plan at once, before any bound: cuts into stages that are run in one way each.

Every part tries rows of equal groups, and of larger ones before smaller ones, as the first stages
hold most micro-batches. The best cut is then improved: each of its stages gets the configurations
that memory multipliers find for its operators, and operators move from the slowest stage to its
neighbours.
"""

from __future__ import annotations

import itertools
import math
import operator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.base.deadline import Deadline
from ilp_planner.optimize.bounds.arrays import INFINITE
from ilp_planner.optimize.bounds.exact_stage import solve_stage
from ilp_planner.optimize.bounds.rows import first_copy
from ilp_planner.plan import OperatorPlan, OperatorStage, Plan, Strategy
from ilp_planner.spaces.operators.cuts import Cut, fastest_cut, manners, seats

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from ilp_planner.optimize.bounds.exact_stage import StageOptimum
    from ilp_planner.optimize.bounds.operator_part import OperatorPart

PROMISING = 1.05  # of the best cut's seconds: up to there other parts' cuts are improved, too
SHARES = (0.0, 0.25, 0.5, 0.75)  # of the nodes that have larger groups than the others
ROOM = 1e-9  # relative: what adding up in another order may be off by
MOVES = (1, 2, 4, 8)  # operators at once
TRIES = 40  # improvements of one cut


@dataclass(frozen=True, kw_only=True, eq=False)
class FirstPlan:
    """A pipeline of a part. cuts: first operators of its stages, and the number of operators."""

    part: OperatorPart
    sizes: tuple[int, ...]
    cuts: tuple[int, ...]
    ways: tuple[tuple[Strategy, ...], ...]
    times: tuple[float, ...]

    @property
    def seconds(self) -> float:
        """Of an iteration."""
        return self.part.schedule.iteration_time(self.times)

    def plan(self) -> OperatorPlan:
        """Return the plan to judge."""
        stages, device = [], 0
        for s, (size, strategies) in enumerate(zip(self.sizes, self.ways, strict=True)):
            stages.append(
                OperatorStage(
                    start=self.cuts[s], stop=self.cuts[s + 1], first_device=device,
                    device_count=size, strategies=strategies,
                )
            )  # fmt: skip
            device += size
        problem = self.part.problem
        return Plan(
            model=problem.model, global_batch=problem.global_batch,
            micro_batches=self.part.micro_batches, stages=tuple(stages),
        )  # fmt: skip


def first_plan(
    part: OperatorPart, rows: Iterable[tuple[int, ...]] | None = None
) -> FirstPlan | None:
    """Return the best cut of a part into stages of one configuration each, if any is met.

    Parameters
    ----------
    rows: sizes of the stages' groups; None: the rows of `rows_of_groups`.
    """
    problem, chains = part.problem, part.stages.chains
    if not chains:
        return None
    ways = manners(chains)
    per_node, limit = problem.cluster.devices_per_node, problem.memory_limit * (1 - ROOM)
    held = [problem.costs.in_flight(k, part.micro_batches) for k in range(problem.max_stages)]
    best: tuple[Cut, float] | None = None
    for sizes in rows_of_groups(part) if rows is None else rows:
        if len(sizes) > problem.max_stages:
            continue
        found = fastest_cut(ways, seats(sizes, per_node, held), limit, part.weight)
        if found is not None and (best is None or found[1] < best[1]):
            best = found
    if best is None:
        return None
    cut = best[0]
    cuts = (*cut.starts.tolist(), len(problem.costs.chain))
    strategies = []
    for s, c in enumerate(cut.manner.tolist()):
        way = chains[int(ways.devices[c])].tables.options[int(ways.option[c])]
        alike = Strategy(tp=way.tp, dp=way.dp, split=way.split, recompute=bool(ways.again[c]))
        strategies.append((alike,) * (cuts[s + 1] - cuts[s]))
    return FirstPlan(
        part=part, sizes=cut.sizes, cuts=cuts, ways=tuple(strategies), times=tuple(cut.times)
    )


def rows_of_groups(part: OperatorPart) -> Iterator[tuple[int, ...]]:
    """Yield rows of group sizes that fill the devices: everywhere the same, or larger groups on the
    first nodes."""
    cluster, sizes = part.problem.cluster, part.stages.groups
    per_node = cluster.devices_per_node
    nodes = cluster.device_count // per_node
    seen = set()
    for large, small in itertools.combinations_with_replacement(sorted(sizes, reverse=True), 2):
        for share in SHARES:
            first = round(share * nodes)
            row = (
                *_filled(first, per_node, [g for g in sizes if g <= large]),
                *_filled(nodes - first, per_node, [g for g in sizes if g <= small]),
            )
            if sum(row) == cluster.device_count and row not in seen:
                seen.add(row)
                yield row


def _filled(nodes: int, per_node: int, sizes: Sequence[int]) -> tuple[int, ...]:
    """Return group sizes that fill so many nodes, the largest that fit first; fewer if none fill
    them."""
    row: list[int] = []
    for size in sorted((g for g in sizes if g > per_node), reverse=True):
        count, nodes = divmod(nodes, size // per_node)
        row += [size] * count
    node: list[int] = []
    for size in sorted((g for g in sizes if g <= per_node), reverse=True):
        node += [size] * ((per_node - sum(node)) // size)
    return (*row, *node * nodes)


class Improver:
    """Makes plans of one part better, stage by stage, as long as there is time."""

    def __init__(self, part: OperatorPart, deadline: Deadline | None = None) -> None:
        self.part, self.deadline = part, deadline or Deadline(math.inf)
        self.known: dict[tuple[int, ...], StageOptimum] = {}

    def improved(self, plan: FirstPlan) -> FirstPlan:
        """Return a plan that is at least as good."""
        best = self.decoded(plan)
        for _ in range(TRIES):
            better = next(self.better(best), None)
            if better is None or not self.deadline.goon():
                return best
            best = better
        return best

    def along(self, cuts: tuple[int, ...], sizes: tuple[int, ...]) -> FirstPlan:
        """Return the best plan that is met with these stages, and from there; its stages that do
        not fit take INFINITE seconds."""
        unknown = FirstPlan(
            part=self.part, sizes=sizes, cuts=(), ways=((),) * len(sizes),
            times=(INFINITE,) * len(sizes),
        )  # fmt: skip
        found = self.solved(unknown, cuts, set(range(len(sizes))))  # all of them, late as it may be
        return found if max(found.times) >= INFINITE else self.improved(found)

    def better(self, plan: FirstPlan) -> Iterator[FirstPlan]:
        """Yield faster plans: with all stages levelled, or with operators moved from the slowest
        stage to a neighbour."""
        levelled = self.levelled(plan)
        if levelled.seconds < plan.seconds * (1 - ROOM):
            yield levelled
        slowest = max(range(len(plan.times)), key=plan.times.__getitem__)
        for count in MOVES:
            for boundary, by in ((slowest, count), (slowest + 1, -count)):
                if not 0 < boundary < len(plan.sizes) or not self.deadline.goon():
                    continue
                place = plan.cuts[boundary] + by
                if not plan.cuts[boundary - 1] < place < plan.cuts[boundary + 1]:
                    continue
                moved = self.moved(plan, boundary, place)
                if moved.seconds < plan.seconds * (1 - ROOM):
                    yield moved

    def levelled(self, plan: FirstPlan) -> FirstPlan:
        """Return the plan with other cuts: cuts with equal times of all stages, by shares of the
        operators' lower bounds. Stages that have no memory for that keep as many as they have."""
        work = np.cumsum([0.0, *self._least])
        own = np.diff(work[list(plan.cuts)])
        rates, full = own / plan.times, np.zeros(len(own), bool)
        while self.deadline.goon() and rates[~full].sum() > 0:
            rest = rates * (work[-1] - own[full].sum()) / rates[~full].sum()
            ends = np.cumsum(np.where(full, own, rest))
            cuts = (0, *np.searchsorted(work, ends[:-1]).tolist(), len(work) - 1)
            if min(map(operator.sub, cuts[1:], cuts)) < 1:
                break
            moved = self.solved(plan, cuts, set(range(len(own))), late=False)
            filled = np.array(moved.times) >= INFINITE
            if not filled.any():
                return moved
            if (full | ~filled).all():
                break
            full |= filled
        return plan

    @cached_property
    def _least(self) -> NDArray[np.float64]:
        """Seconds that operators take at least: float64 [n], on the groups that take them all."""
        chains = self.part.stages.chains.values()
        least = [chain.operators.compute.min(axis=1) for chain in chains]
        return np.asarray(np.min(least, axis=0), np.float64)

    def moved(self, plan: FirstPlan, boundary: int, place: int) -> FirstPlan:
        """Return the plan with another cut between two stages."""
        cuts = (*plan.cuts[:boundary], place, *plan.cuts[boundary + 1 :])
        return self.solved(plan, cuts, {boundary - 1, boundary})

    def decoded(self, plan: FirstPlan) -> FirstPlan:
        """Return the plan with the best configurations that multipliers find for the operators of
        each stage."""
        better = self.solved(plan, plan.cuts, set(range(len(plan.sizes))))
        return better if better.seconds < plan.seconds else plan

    def solved(
        self, plan: FirstPlan, cuts: tuple[int, ...], stages: set[int], *, late: bool = True
    ) -> FirstPlan:
        """Return the plan with these stages run anew, wherever a cut moved or that is faster.

        Parameters
        ----------
        late: stages with moved cuts are solved anew at any time; otherwise the plan stays as it is
            if no time is left.
        """
        ways, times = list(plan.ways), list(plan.times)
        for s in sorted(stages):
            moved = cuts[s : s + 2] != plan.cuts[s : s + 2]
            if not self.deadline.goon() and not (moved and late):
                if moved:
                    return plan
                continue
            found = self.stage(plan.sizes, s, cuts[s], cuts[s + 1])
            if moved or found.time < times[s]:
                times[s] = found.time
            if found.time <= times[s] < INFINITE:
                ways[s] = self.part.stages.strategies(plan.sizes[s], found)
        return FirstPlan(
            part=plan.part, sizes=plan.sizes, cuts=cuts, ways=tuple(ways), times=tuple(times)
        )

    def stage(self, sizes: tuple[int, ...], s: int, start: int, stop: int) -> StageOptimum:
        """Return the stage found by Lagrange multipliers on memory; the same for its copies."""
        stages, per_node = self.part.stages, self.part.problem.cluster.devices_per_node
        device, size = sum(sizes[:s]), sizes[s]
        enters = device > 0 and device % per_node == 0
        leaves = (device + size) % per_node == 0
        held = stages.costs.in_flight(len(sizes) - 1 - s, self.part.micro_batches)
        key = (size, held, enters, leaves, *first_copy(start, stop - start, stages.rows))
        if key not in self.known:
            self.known[key] = solve_stage(
                stages.chains[size], start, stop, in_flight=held, limit=stages.limit,
                enters_node=enters, leaves_node=leaves, cutoff=INFINITE, effort=0,
            )  # fmt: skip
        return self.known[key]

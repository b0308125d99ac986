"""Heuristics on plan spaces of whole layers: `gradient` and `anneal`.

The heuristic finds choices inside a stage graph (cuts, groups of devices, strategies) there;
simulated annealing also moves the choices of the graph (degrees, orders of device types,
placements: `PartChoices`). A path is decoded by placing its groups on devices.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ilp_planner.base.numerics import NEVER, PROVED
from ilp_planner.evaluate import evaluate
from ilp_planner.optimize.bounds.resource_prices import SPLITS, PricedGraph
from ilp_planner.optimize.result import Stop
from ilp_planner.optimize.search.choice_annealing import ChoiceAnnealing, Nearness
from ilp_planner.optimize.solvers import registry

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from ilp_planner.optimize.graph import StageGraph
    from ilp_planner.optimize.search.group_search import GroupSearch, PartState
    from ilp_planner.optimize.search.parts import OpenGraph
    from ilp_planner.optimize.search.state import SearchState
    from ilp_planner.optimize.solvers.base import GraphSolution


# ---- graphs --------------------------------------------------------------------------------------


SLACKS = (0.15, 0.5)  # relative: how far above the bounds to look, one after the other
MOST_ARCS = 300_000  # of a graph that is searched as a whole
NARROWINGS, ENOUGH = 12, 3  # tries to leave out little; that part of the most is enough
NEAR = 0.05  # relative: a guess so near to the incumbent is the incumbent
FEWER = 4  # of so many starts one, where only a first look is taken
FINALISTS = 1  # parts that all starts are spent on at last


class GraphHunt:
    """Searches the stage graphs of all parts that may hold something better.

    found: seconds of the best plan of each part, by its number; looked: up to how many seconds it
    was searched.
    """

    def __init__(self, search: GroupSearch[Any], states: Sequence[PartState[Any]]) -> None:
        self.search, self.states = search, states
        self.found: dict[int, float] = {}
        self.looked: dict[int, float] = {}

    def run(self) -> None:
        """Look a little above the bounds from one start, then with all if it went best."""
        search = self.search
        for state in self.states:
            search.check_time()
            search.outline(state, min(search.objective, NEVER))
        base = min((s.bound for s in self.states), default=0.0)
        for slack in (*SLACKS, np.inf):
            # Without an outline there are no bounds to begin with, and all is looked at.
            guess = min(base * (1 + slack), NEVER) if base > 0 else NEVER
            if guess * (1 + NEAR) >= search.objective:
                guess = search.objective
            for number in self.order():
                most = min(guess, search.objective)
                far = self.looked.get(number, 0.0) * (1 + NEAR)  # there is nothing new up to that
                if max(self.states[number].bound / (1 - PROVED), far) < most:
                    self.look(number, most, 1)
            if search.objective <= guess:
                break
        self.finish()

    def look_where(self, promise: Mapping[int, float]) -> None:
        """Look for plans better than the best one: the part that promises the fewest seconds first,
        until one has nothing, and parts without results."""
        known = self.search.objective
        for number in sorted(promise, key=promise.__getitem__):
            before = self.search.objective
            self.look(number, before, 1, others=True)
            if self.search.objective >= before:
                break
        for number in self.order():
            if number not in promise:
                self.look(number, self.search.objective, 1, others=True)
        if self.search.objective < known:
            self.finish()

    def finish(self) -> None:
        """Look with all starts if it went best."""
        if self.search.limits.starts > 1:
            for number in self.ranked()[:FINALISTS]:
                self.look(number, self.search.objective, self.search.limits.starts, others=True)

    def ranked(self) -> list[int]:
        """Return the numbers of the parts that have plans, the fastest plan first."""
        return sorted(self.found, key=self.found.__getitem__)

    def order(self) -> list[int]:
        """Return the numbers of all parts, best bound first."""
        return sorted(range(len(self.states)), key=lambda n: self.states[n].bound)

    def look(self, number: int, guess: float, starts: int, *, others: bool = False) -> None:
        """Search one part for plans below `guess` seconds; and for others like the best path if
        placing that takes more than the path."""
        search, state = self.search, self.states[number]
        search.check_time()
        self.looked[number] = guess
        opened, hint = open_below(search, state, guess)
        if opened is None or not opened.graph.arcs:
            return
        search.check_time()
        solution = solve_graph(search, opened.graph, starts, hint)
        if not solution.path:
            return
        choices = opened.choice[list(solution.path)].tolist()
        plan = state.part.plan(choices)
        if plan is None:
            return
        search.accept(plan, state)
        seconds = evaluate(search.problem, plan).iteration_time
        self.found[number] = min(seconds, self.found.get(number, np.inf))
        value = solution.objective + state.part.constant
        if others and seconds > value * (1 + PROVED):
            state.part.improve(search, state, choices)


def open_below(
    search: GroupSearch[Any], state: PartState[Any], guess: float
) -> tuple[OpenGraph | None, tuple[int, ...]]:
    """Return the graph of a part's plans below `guess` seconds, as far as it is not too large: of
    too many candidates, the best ones under the multipliers. None if there is nothing.

    And a path of it to start from: the best one found while searching the multipliers, if any.
    """
    part = state.part
    cutoff = min(guess - part.constant, NEVER)
    choices = search.outline(state, guess)
    if choices is not None and not choices.size:
        return None, ()
    opened = part.graph(cutoff, choices)
    if not opened.graph.arcs:
        return None, ()
    priced = PricedGraph(opened.graph)
    intervals = search.bounded(state, priced, cutoff, SPLITS)
    if not intervals:
        return None, ()
    low, high = intervals[0].bound, min(cutoff, _widest(opened.graph, cutoff))
    best: OpenGraph | None = None
    limit = high
    for _ in range(NARROWINGS):
        search.check_time()
        some = opened.only(priced.open_arcs(intervals, limit))
        explicit = part.explicit(some)
        if explicit is not None and explicit.graph.arcs <= MOST_ARCS:
            best, low = explicit, limit
            if limit >= high or explicit.graph.arcs > MOST_ARCS / ENOUGH:
                break
        else:
            high = limit
        limit = (low + high) / 2
    known = opened.choice[list(priced.path)].tolist()
    return best, () if best is None else path_of_choices(best, known)


def path_of_choices(opened: OpenGraph, choices: Sequence[int]) -> tuple[int, ...]:
    """Return a path of a graph along these candidates, () if it has none."""
    graph = opened.graph
    ends, steps = {graph.sink: -1}, []
    for choice in reversed(choices):
        arcs = np.flatnonzero(opened.choice == choice).tolist()
        steps.append({int(graph.tail[arc]): arc for arc in arcs if int(graph.head[arc]) in ends})
        ends = steps[-1]
    node = next((node for node in ends if node in graph.sources), -1)
    path: list[int] = []
    for step in reversed(steps):
        if node not in step:
            return ()
        path.append(step[node])
        node = int(graph.head[path[-1]])
    return tuple(path) if graph.is_path(path) else ()


def _widest(graph: StageGraph, cutoff: float) -> float:
    """Return seconds above which nothing more can open: the cutoff, or all arcs of the graph at
    their slowest."""
    if cutoff < NEVER:
        return cutoff
    slowest = float(graph.time.max())
    peaks = float(graph.peaks.max(axis=1).sum()) if graph.peaks.size else 0.0
    each = slowest + float(graph.extra.max())
    widest = graph.weight * slowest + graph.operators * each + peaks
    return widest * (1 + PROVED)


def solve_graph(
    search: SearchState, graph: StageGraph, starts: int, hint: tuple[int, ...] = ()
) -> GraphSolution:
    """Let the heuristic look for a path, with so many starts.

    Raises
    ------
    KeyboardInterrupt: the user interrupted it.
    """
    limits = dataclasses.replace(search.exactly, starts=starts)
    solver = registry.get(search.solver)
    solution = solver.solve(graph, limits, hint=hint, deadline=search.deadline)
    if solution.stopped_by is Stop.USER:
        raise KeyboardInterrupt
    return solution


# ---- annealing over parts ------------------------------------------------------------------------
# Moves of simulated annealing besides paths: degrees, placements, orders of device types.


def anneal_parts(search: GroupSearch[Any], rows: Sequence[Sequence[Hashable]]) -> None:
    """Anneal over the parts of a space. rows: features of each; near ones share most."""
    if not search.states:  # nothing is profiled that fits: there is nothing to draw
        return
    choices = PartChoices(search, rows)
    best = ChoiceAnnealing(choices, search.limits, search.goon).run()
    if best is not None:
        search.check_time()
        choices.solve(best, search.limits.starts)


class PartChoices:
    """The parts by number (`choice_annealing.Choices`); a part's plan is a path of its graph."""

    def __init__(self, search: GroupSearch[Any], rows: Sequence[Sequence[Hashable]]) -> None:
        self.search = search
        self.nearness = Nearness(rows)

    def draw(self, random: np.random.Generator) -> int:
        """Return any part."""
        return int(random.integers(len(self.search.states)))

    def near(self, choice: int, random: np.random.Generator) -> int:
        """Return a part that differs in little."""
        return self.nearness.draw(choice, random)

    def least(self, choice: int) -> float:
        """Return the bound of the part, seconds."""
        return self.search.states[choice].bound

    def cost(self, choice: int) -> float:
        """Return the seconds of a path found with few starts."""
        return self.solve(choice, max(1, self.search.limits.starts // FEWER))

    def solve(self, choice: int, starts: int) -> float:
        """Return the seconds of a path found with so many starts; offer its plan."""
        search, state = self.search, self.search.states[choice]
        opened = state.part.graph(np.inf, None)
        solution = solve_graph(search, opened.graph, starts)
        if not solution.path:
            return math.inf
        search.take(state, opened.choice[list(solution.path)].tolist())
        return float(solution.objective + state.part.constant)

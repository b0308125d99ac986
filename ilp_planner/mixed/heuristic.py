"""Heuristics on plan spaces of whole layers: `gradient` and `anneal`.

What is in a stage graph (cuts, groups of devices, strategies) the heuristic finds there; simulated
annealing also moves what decides which graph it is (degrees, orders of device types, placements:
`mixed/heuristic_choices`). A path is decoded by placing its groups on devices.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.bounds.resource_prices import SPLITS, PricedGraph
from ilp_planner.errors import UsageError, interruptible
from ilp_planner.heuristic import PORTFOLIO, plan_and_bound
from ilp_planner.mixed.placed_moves import improve_placed
from ilp_planner.mixed.planner_space import PlannerPart
from ilp_planner.mixed.solve import GroupSearch, OutOfTimeError, solve_groups
from ilp_planner.mixed.space import NEVER
from ilp_planner.result import Stop
from ilp_planner.solvers import registry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.graph import StageGraph
    from ilp_planner.mixed.problem import GroupProblem
    from ilp_planner.mixed.solve import PartState
    from ilp_planner.mixed.space import OpenGraph
    from ilp_planner.result import GroupResult
    from ilp_planner.solvers.base import GraphSolution, Limits, Progress

FIRST = 0.1  # relative: how far above the bound of each part a first plan is looked for
SLACKS = (0.05, 0.15, 0.4, 1.0)  # relative: how far above the bounds to look, one after the other
MOST_ARCS = 300_000  # of a graph that is searched as a whole
NARROWINGS, ENOUGH = 12, 3  # tries to leave out little; that part of the most is enough
NEAR = 0.05  # relative: a guess so near to the incumbent is the incumbent
FEWER = 4  # of so many starts one, where only a first look is taken
FINALISTS = 3  # parts that all starts are spent on at last
PROVED = 1e-9  # relative


def solve_groups_by_heuristic(
    problem: GroupProblem,
    limits: Limits,
    solver: str,
    progress: Progress | None = None,
    top: int = 1,
) -> GroupResult:
    """Return a heuristic's plan of layers, with the portfolio's bound.

    Raises
    ------
    UsageError: more than one plan is asked for: a heuristic cannot tell which ones are the best.
    """
    if top > 1:
        raise UsageError(
            f"--top: found {top} with --solver {solver}, a heuristic, expected --solver auto, as "
            "the order of the best plans takes a proof"
        )

    def find(limits: Limits, progress: Progress | None) -> GroupResult:
        return find_group_plan(problem, limits, solver, progress)

    def prove(limits: Limits, progress: Progress | None) -> GroupResult:
        return solve_groups(problem, limits=limits, solver=PORTFOLIO, progress=progress)

    return plan_and_bound(find, prove, limits, progress)


def find_group_plan(
    problem: GroupProblem, limits: Limits, solver: str, progress: Progress | None = None
) -> GroupResult:
    """Return a heuristic's plan of layers alone; its bound is what was met on the way."""
    search = GroupSearch(problem, limits, solver, progress)
    try:
        with interruptible():
            _hunt(search)
        stop = Stop.HEURISTIC if search.goon() else Stop.TIME
        stop = Stop.PROOF if search.gap_reached() or search.bound >= NEVER else stop
    except OutOfTimeError:
        stop = Stop.TIME
    except KeyboardInterrupt:
        stop = Stop.USER
    return search.result(stop)


def _hunt(search: GroupSearch) -> None:
    """Look for a good plan in the way that suits the space."""
    search.check_time()
    if search.solver == "anneal":
        from ilp_planner.mixed.heuristic_choices import anneal_space

        if anneal_space(search):
            return
    if search.problem.space == "megatron":
        from ilp_planner.mixed.megatron.heuristic import hunt_megatron

        hunt_megatron(search)
        return
    if search.problem.placement == "free":
        search.notes.append(f"{search.solver}: ranks in AMP's own order only; anneal places them")
    GraphHunt(search).run()


class GraphHunt:
    """Searches the stage graphs of all parts that may hold something better.

    found: seconds of the best path of each part, by its number.
    """

    def __init__(self, search: GroupSearch) -> None:
        self.search = search
        self.found: dict[int, float] = {}

    def run(self) -> None:
        """Look a little above the bounds with few starts, then with all where it went best."""
        search = self.search
        few = max(1, search.limits.starts // FEWER)
        for number, state in enumerate(search.states):
            search.check_time()
            search.outline(state, min(search.objective, NEVER))
            near = min(state.bound * (1 + FIRST), search.objective)
            if 0 < state.bound < search.objective * (1 - PROVED):
                self.look(number, near, few)
        base = max(search.bound, min((s.promise for s in search.states), default=0.0))
        for slack in (*SLACKS, np.inf):
            # Without an outline there are no bounds to begin with, and all is looked at.
            guess = min(base * (1 + slack), NEVER) if base > 0 else NEVER
            if guess * (1 + NEAR) >= search.objective:
                guess = search.objective
            for number in self.order():
                state = search.states[number]
                if state.bound < min(guess, search.objective) * (1 - PROVED):
                    self.look(number, min(guess, search.objective), few)
            if search.objective <= guess:
                break
        best = sorted(self.found, key=self.found.__getitem__)[:FINALISTS]
        for number in best if few < search.limits.starts else ():
            self.look(number, search.objective, search.limits.starts, others=True)

    def order(self) -> list[int]:
        """Return the numbers of all parts, those with the least bounds first."""
        states = self.search.states
        return sorted(range(len(states)), key=lambda n: states[n].bound)

    def look(self, number: int, guess: float, starts: int, *, others: bool = False) -> None:
        """Search one part for plans below `guess` seconds; and for others like the best path where
        placing that takes more than the path."""
        search, state = self.search, self.search.states[number]
        search.check_time()
        opened, hint = open_below(search, state, guess)
        if opened is None or not opened.graph.arcs:
            return
        search.check_time()
        solution = solve_graph(search, opened.graph, starts, hint)
        if not solution.path:
            return
        value = solution.objective + state.part.constant
        self.found[number] = min(value, self.found.get(number, np.inf))
        search.take(state, opened.choice[list(solution.path)].tolist())
        if (
            others
            and search.objective > value * (1 + PROVED)
            and isinstance(state.part, PlannerPart)
        ):
            improve_placed(search, state, opened.choice[list(solution.path)].tolist())


def open_below(
    search: GroupSearch, state: PartState, guess: float
) -> tuple[OpenGraph | None, tuple[int, ...]]:
    """Return the graph of a part's plans below `guess` seconds, as far as it is not too large: of
    too many candidates, those that prices like best. None where there is nothing.

    And a path of it to start from: the best one that was met on the way to the prices, if any.
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
    """Return a path of a graph whose arcs are these candidates in a row, () where it has none."""
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
    """Return seconds beyond which nothing more can open: the cutoff, or all arcs of the graph at
    their slowest."""
    if cutoff < NEVER:
        return cutoff
    slowest = float(graph.time.max())
    peaks = float(graph.peaks.max(axis=1).sum()) if graph.peaks.size else 0.0
    each = slowest + float(graph.extra.max())
    return (graph.micro_batches - 1) * slowest + graph.operators * each + peaks


def solve_graph(
    search: GroupSearch, graph: StageGraph, starts: int, hint: tuple[int, ...] = ()
) -> GraphSolution:
    """Let the heuristic look for a path, with so many starts.

    Raises
    ------
    KeyboardInterrupt: the user interrupted it.
    """
    seconds = max(search.seconds_left, 0.0)
    limits = dataclasses.replace(search.limits, seconds=seconds, gap=0.0, starts=starts)
    solution = registry.get(search.solver).solve(graph, limits, hint=hint)
    if solution.stopped_by is Stop.USER:
        raise KeyboardInterrupt
    return solution

"""Simulated annealing on paths: many starts, the poor ones dropped early, colder with each round.

The best one is heated again until that brings nothing better.

A heuristic: it proves nothing but the sum of the least sum, the least bottleneck and the least
peaks of a path, each on its own. (Kirkpatrick, Gelatt and Vecchi, "Optimization by simulated
annealing", Science 1983.)
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.base.numerics import FINE_ROUNDING
from ilp_planner.optimize.result import Stop
from ilp_planner.optimize.solvers import anneal_moves as moves
from ilp_planner.optimize.solvers.anneal_graph import INFINITE, Arcs, Kinds, chance
from ilp_planner.optimize.solvers.backend import Backend
from ilp_planner.optimize.solvers.halving import rungs, successive_halving

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ilp_planner.base.deadline import Deadline
    from ilp_planner.optimize.solvers.backend import Search
    from ilp_planner.optimize.solvers.base import Limits

EFFORT = 60_000  # arcs that a start of the first round looks at, some milliseconds
FEW = 16  # starts that a round's effort is for, at least
SWEEPS, LIMITED = 2, 8  # or so many times all arcs; where devices are limited
PIECE = 20_000_000  # arcs between two looks at the clock
HOT, WARM, COLD = 0.05, 5e-3, 1e-6  # temperature, in costs of the first paths; WARM: again
PATIENCE = 2  # times that heating brought nothing better
NEAR, FAR = 1e-3, 2.0  # relative: how far above the least maxima the first paths aim
MOST_ROOM = 3_000_000  # entries of a table of nodes and stages


class Anneal(Backend):
    """Moves of a few stages at a time, accepted by temperature."""

    name = "anneal"
    proves = False

    def __init__(self, effort: float = 1.0) -> None:
        """Look at so many times the usual number of arcs."""
        self.effort = effort

    def run(self, search: Search, limits: Limits, deadline: Deadline) -> Stop:
        """Look for a good path; the same one for the same seed and starts, if there is time."""
        if not search.graph.arcs:
            search.prove(math.inf)
            return Stop.PROOF
        return _Contest(search, limits, deadline, self.effort).run(search.path)


class _Contest:
    """State of one solve: a path, its best version, multipliers and random numbers of each
    start."""

    def __init__(self, search: Search, limits: Limits, deadline: Deadline, effort: float) -> None:
        self.search, self.limits, self.deadline = search, limits, deadline
        self.graph = graph = search.graph
        self.ended = False
        rank = np.empty(graph.nodes, np.int64)
        rank[graph.topological()] = np.arange(graph.nodes)
        tail, head = rank[graph.tail], rank[graph.head]
        self.order = np.lexsort((head, tail))
        tail = tail[self.order]
        sources = np.zeros(graph.nodes, np.bool_)
        sources[rank] = graph.begins
        self.arcs = Arcs(
            head=head[self.order],
            tail=tail,
            time=graph.time[self.order],
            extra=graph.extra[self.order],
            peaks=np.ascontiguousarray(graph.peaks[:, self.order]),
            use=np.ascontiguousarray(graph.use[self.order]),
            capacity=np.array(graph.capacity, np.int64),
            first=np.searchsorted(tail, np.arange(graph.nodes + 1)).astype(np.int64),
            sources=sources,
            sink=int(rank[graph.sink]),
            weight=graph.weight,
        )
        self.kinds = self.group_kinds()
        sweeps = LIMITED if graph.capacity else SWEEPS
        starts = limits.starts
        each = effort * max(EFFORT, sweeps * graph.arcs)
        self.steps = max(1, int(each * max(1.0, FEW / starts)))
        longest = min(graph.operators, graph.nodes)
        self.paths = np.zeros((starts, longest + 1), np.int64)  # the last entry: how many arcs
        self.bests = np.zeros_like(self.paths)
        self.known = np.full((starts, 1), INFINITE)
        self.prices = np.zeros((starts, self.arcs.capacity.size))
        seeds = np.random.SeedSequence(limits.seed).generate_state(starts, np.uint64)
        self.states = np.maximum(seeds, np.uint64(1))[:, None]

    def group_kinds(self) -> Kinds:
        """Return the kinds of groups; no keys if devices are not limited or there is too much to
        keep."""
        use = self.arcs.use
        none = np.zeros(0, np.int64)
        bases = [2 * int(most) + 1 for most in np.maximum(self.arcs.capacity, use.max(axis=0))]
        too_much = self.graph.nodes * self.graph.operators > MOST_ROOM or math.prod(bases) > 2**62
        if not bases or too_much:
            return Kinds(none, none, none)
        digits = np.cumprod([1, *bases[:-1]])
        keys, kind = np.unique(use @ digits, return_inverse=True)
        by_kind = np.lexsort((kind, self.arcs.tail))
        return Kinds(by_kind, kind.astype(np.int64), keys.astype(np.int64))

    def goon(self) -> bool:
        """Tell whether there is time left."""
        return not self.ended and self.deadline.goon()

    def run(self, hint: tuple[int, ...]) -> Stop:
        """Begin, and go on with the better half again and again."""
        least = moves.least_terms(self.arcs)
        if not self.bound(least):
            return Stop.PROOF
        for start in range(self.limits.starts):
            if start and not self.goon():
                self.learn()
                return Stop.TIME
            self.begin(start, least)
        if hint:
            place = np.empty(self.graph.arcs, np.int64)
            place[self.order] = np.arange(self.graph.arcs)
            self.paths[0, : len(hint)] = place[list(hint)]
            self.paths[0, -1] = len(hint)
        costs = [self.cost(start) for start in range(self.limits.starts)]
        self.learn()
        rounds = len(rungs(self.limits.starts, self.steps))
        self.heat = (float(np.median(costs)) * np.geomspace(HOT, COLD, rounds + 1)).tolist()
        self.pool = ThreadPoolExecutor(self.limits.workers)
        try:
            last = successive_halving(
                self.limits.starts, self.advance, steps=self.steps, goon=self.undecided
            )
            self.heat_again(last[:1])
        finally:
            self.ended = True
            self.pool.shutdown(cancel_futures=True)
        return Stop.EFFORT if self.deadline.goon() else Stop.TIME

    def undecided(self) -> bool:
        """Tell whether there is time left, and something to find."""
        return self.goon() and not self.search.closed(self.limits.gap)

    def bound(self, least: NDArray[np.float64]) -> bool:
        """Take the bound of the least terms; tell whether there can be a path."""
        peaks, types = self.arcs.peaks.shape[0], self.arcs.capacity.size
        short = least[2 + peaks :] > self.arcs.capacity if types else np.zeros(0, np.bool_)
        if least[0] >= INFINITE or short.any():
            self.search.prove(math.inf)
            return False
        total = self.arcs.weight * least[1] + least[0] + least[2 : 2 + peaks].sum()
        self.search.prove(float(total) * (1 - FINE_ROUNDING * (self.paths.shape[1] + 2)))
        return True

    def begin(self, start: int, least: NDArray[np.float64]) -> None:
        """Draw a first path: the shortest one at shaken costs under random maxima and
        multipliers."""
        state = self.states[start]
        draws = np.array([chance(state) for _ in range(1 + self.arcs.peaks.shape[0])])
        aim = least[1 : 1 + draws.size] * (1 + NEAR * (FAR / NEAR) ** draws)
        shake = 0.0
        if start:
            shake = float(self.arcs.weight * least[1] + least[0]) * 0.1 * chance(state)
        price = self.prices[start]
        for d in range(price.size):
            share = 10.0 ** (2 * chance(state) - 1.5)
            price[d] = (
                share * (self.arcs.weight * least[1] + least[0]) / max(1, self.arcs.capacity.sum())
            )
        moves.begin(
            self.arcs, aim, shake, price, state, self.paths[start], self.bests[start],
            self.known[start],
        )  # fmt: skip

    def cost(self, start: int) -> float:
        """Judge the path of a start; keep it if it fits."""
        path, length = self.paths[start], int(self.paths[start, -1])
        most = np.empty(1 + self.arcs.peaks.shape[0])
        cost, over = moves.judge(self.arcs, self.prices[start], path, length, most)
        if over == 0 and cost < self.known[start, 0]:
            self.known[start, 0] = cost
            self.bests[start] = path
        return float(cost)

    def heat_again(self, member: NDArray[np.int64]) -> None:
        """Go on from the best path of a start until that brings nothing better."""
        start, steps = int(member[0]), self.steps * self.limits.starts
        cold = self.heat[0]
        failed = 0
        while failed < PATIENCE and self.undecided():
            before = self.known[start, 0]
            if before < INFINITE:
                self.paths[start] = self.bests[start]
            self.heat = [cold * WARM / COLD, cold]
            self.advance(member, steps)
            failed = 0 if self.known[start, 0] < before else failed + 1

    def advance(self, members: NDArray[np.int64], steps: int) -> NDArray[np.float64]:
        """Anneal these starts further (`successive_halving`)."""
        hot, cold = self.heat[:2]
        del self.heat[0]
        pieces = max(1, -(-steps // PIECE))
        edges = np.geomspace(hot, cold, pieces + 1)

        def one(start: int) -> None:
            for piece in range(pieces):
                if not self.goon():
                    return
                moves.anneal(
                    self.arcs, self.kinds, steps // pieces, edges[piece], edges[piece + 1],
                    self.prices[start], self.states[start], self.paths[start], self.bests[start],
                    self.known[start],
                )  # fmt: skip

        list(self.pool.map(one, members.tolist()))
        self.learn()
        scores: NDArray[np.float64] = self.known[members, 0]
        return scores

    def learn(self) -> None:
        """Offer the best path of all starts."""
        start = int(np.argmin(self.known[:, 0]))
        if self.known[start, 0] < INFINITE:
            path = self.order[self.bests[start, : self.bests[start, -1]]]
            self.search.offer([int(arc) for arc in path])

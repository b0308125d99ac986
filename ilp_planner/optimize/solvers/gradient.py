"""Search by gradients: the choices at every node relaxed to probabilities, then hardened.

Many random starts descend on the relaxed objective of `soft_path`, each with its own schedule for
how fast the maxima and the choices harden; by successive halving the poor ones are dropped and the
others gone on with, more slowly. The likeliest path of each is decoded again and again, within the
capacities. Arcs that cannot be on a better path are cut from the graph between rounds. At the end,
a label search over the arcs that the last starts passed most often (the band) joins their pieces. A
heuristic: only cutting the graph proves a bound.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.base.numerics import PROVED
from ilp_planner.optimize.result import Stop
from ilp_planner.optimize.solvers.arc_reduction import reduced
from ilp_planner.optimize.solvers.backend import Backend
from ilp_planner.optimize.solvers.halving import best, successive_halving

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ilp_planner.base.deadline import Deadline
    from ilp_planner.optimize.solvers.backend import Search
    from ilp_planner.optimize.solvers.base import Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """The tuning of the search. A start draws its own schedule: the heat, q and p at first and at
    last and the rate, log-uniformly between two figures each."""

    last: int = 4  # starts in the last rung, whose flows make the band
    steps: int = 12  # of each start in the first rung, at least
    last_steps: int = 192
    first_batch: int = 4  # starts of the first rung between two cuts of the graph
    most_batch: int = 256
    most_kept: int = 200_000_000  # logits of all starts, 0.8 GB, and as many sums of flows
    noise: float = 1.0  # of the first logits, beside the logarithm of how many paths go that way
    decode: int = 4  # steps between two decodings of a start
    decode_noise: tuple[float, ...] = (0.0, 0.5)  # see `decode`
    steepest: float = 8.0  # see `sweep_back`
    price_rates: tuple[float, float] = (5.0, 10.0)  # see `descend`
    beam: int = 2_000  # arcs that one start passed most often
    beam_width: int = 30  # labels per node
    bands: tuple[int, ...] = (3_000, 1_000, 6_000)  # arcs that the best starts passed most often
    band_width: int = 300
    effort: float = 3e8  # comparisons of labels in a second, and in the band
    cut: float = 0.8  # the graph is made anew when so much of it or less is left
    heat_first: tuple[float, float] = (0.01, 0.05)
    heat_last: tuple[float, float] = (1e-4, 2e-3)
    q_last: tuple[float, float] = (1.5, 8.0)
    p_first: tuple[float, float] = (2.0, 8.0)
    p_last: tuple[float, float] = (20.0, 200.0)
    rate: tuple[float, float] = (0.05, 0.3)


TUNED = Tuning()


class Gradient(Backend):
    """Differentiable search with many random starts."""

    name = "gradient"
    proves = False

    def __init__(self, tuning: Tuning = TUNED) -> None:
        self.tuning = tuning

    def run(self, search: Search, limits: Limits, deadline: Deadline) -> Stop:
        """Look for a good path; the bound comes from reducing the graph."""
        return _Descent(search, limits, deadline, self.tuning).run()


class _Hardening:
    """How one start goes from soft to hard: q and p grow, the heat falls, all geometrically."""

    def __init__(self, draw: np.random.Generator, tuning: Tuning) -> None:
        def between(least: float, most: float) -> float:
            return float(np.exp(draw.uniform(math.log(least), math.log(most))))

        self.q = (1.0, between(*tuning.q_last))
        self.p = (between(*tuning.p_first), between(*tuning.p_last))
        self.heat = (between(*tuning.heat_first), between(*tuning.heat_last))
        self.rate = between(*tuning.rate)

    def steps(self, count: int) -> NDArray[np.float64]:
        """Return q, p and heat of each step ([count, 3])."""
        return np.stack([np.geomspace(*ends, count) for ends in (self.q, self.p, self.heat)], 1)


class _Descent:
    """State of one search; `logits`, `prices` and `visits` by the number of the start."""

    def __init__(
        self, search: Search, limits: Limits, deadline: Deadline, tuning: Tuning = TUNED
    ) -> None:
        self.search, self.limits, self.deadline, self.tuning = search, limits, deadline, tuning
        self.stopping = False
        starts = max(limits.starts, 1)
        self.draws: dict[int, np.random.Generator] = {}
        self.schedules: dict[int, _Hardening] = {}
        self.logits: dict[int, NDArray[np.float32]] = {}
        self.prices: dict[int, NDArray[np.float64]] = {}
        self.visits: dict[int, NDArray[np.float32]] = {}
        self.cutoff = math.inf  # seconds, at which the graph was cut last
        self.value = np.full(starts, math.inf)  # seconds, of each start's best path
        self.path: list[tuple[int, ...]] = [()] * starts
        self.rung = 0

    def goon(self) -> bool:
        """Tell whether there is time and reason to go on."""
        return not self.search.closed(self.limits.gap) and self.deadline.goon()

    def run(self) -> Stop:
        """Search until the contest is over, the time is up or nothing better is left."""
        from ilp_planner.optimize.solvers.soft_graph import soft_graph

        clean = reduced(self.search.graph, self._better())
        self.search.prove(clean.bound)
        if not clean.graph.arcs or self.search.closed(self.limits.gap):
            return Stop.PROOF
        self.graph, self.arcs, self.scale = clean.graph, clean.arcs, clean.bound
        self.soft = soft_graph(self.graph, self.arcs, self.scale)
        starts, tuned = self.value.size, self.tuning
        steps = max(tuned.steps, tuned.last_steps * tuned.last // max(starts, tuned.last))
        with ThreadPoolExecutor(max(self.limits.workers, 1)) as self.pool:
            try:
                last = successive_halving(
                    starts, self.advance, steps=steps, last=tuned.last, goon=self.goon
                )
            except KeyboardInterrupt:
                self.search.progress = None  # keep what was found without calling the caller again
                raise
            finally:
                self.stopping = True
                for path in self.path:
                    self.search.offer(path)
        for most in tuned.bands:
            self._join(last, most)
        if self.search.closed(self.limits.gap):
            return Stop.PROOF
        return Stop.EFFORT if self.deadline.goon() else Stop.TIME

    def _better(self) -> float:
        """Return the cost below which a path is better than the best one, seconds."""
        return self.search.objective * (1 - PROVED / 2)

    def advance(self, members: NDArray[np.int64], steps: int) -> NDArray[np.float64]:
        """Take the members through one more schedule of so many steps; return their best costs."""
        batches = [members]
        if not self.logits:
            # The first starts cut the graph for those that begin after them.
            first, most = self.tuning.first_batch, self.tuning.most_batch
            sizes = np.cumsum(np.minimum(first * 2 ** np.arange(20), most))
            ends = np.concatenate([sizes, np.arange(sizes[-1], members.size, most)])
            batches = np.split(members, ends[ends < members.size])
        self._forget(members)
        for batch in batches:
            if not self.graph.arcs or (batch is not batches[0] and not self.goon()):
                break
            self._begin([number for number in batch.tolist() if number not in self.logits])
            jobs = [self.pool.submit(self._descend, number, steps) for number in batch.tolist()]
            for number, job in zip(batch.tolist(), jobs, strict=True):
                job.result()
                self.search.offer(self.path[number])
            self._cut()
            if self.soft.capacity.size and (not self.search.path or batch is batches[-1]):
                self._join(best(members, self.value[members], members.size), self.tuning.bands[0])
            self._forget(members)
        self.rung += 1
        return self.value[members]

    def _forget(self, members: NDArray[np.int64]) -> None:
        """Free the arrays of starts outside of the contest, and of the worst if they are many.

        Remaining ones begin anew, with other numbers, later.
        """
        kept, most = members, self.tuning.most_kept
        if len(self.logits) * self.soft.size > most:
            count = max(self.tuning.last, most // self.soft.size)
            kept = best(members, self.value[members], count)
        for rows in (self.logits, self.visits):
            for number in set(rows).difference(kept.tolist()):
                del rows[number]

    def _begin(self, members: list[int]) -> None:
        """Draw the first logits of some starts: about any path as likely as any other."""
        from ilp_planner.optimize.solvers.soft_graph import path_counts

        soft = self.soft
        ways = path_counts(soft)[soft.head].astype(np.float32)
        for number in members:
            if number not in self.draws:
                draw = np.random.default_rng([self.limits.seed % 2**64, number])
                self.draws[number], self.schedules[number] = draw, _Hardening(draw, self.tuning)
            noise = self.draws[number].standard_normal(soft.size, np.float32)
            self.logits[number] = ways + self.tuning.noise * noise
            self.prices[number] = np.zeros(soft.share.size)

    def _descend(self, number: int, steps: int) -> None:
        """Take one start through its schedule, decoding every few steps; in a thread."""
        from ilp_planner.optimize.solvers.soft_path import (
            Steps,
            decode,
            descend,
            path_cost,
            scratch,
        )

        s, room, plan = self.soft, scratch(self.soft), self.schedules[number]
        tuned = self.tuning
        logits, prices = self.logits[number], self.prices[number]
        visits = self.visits[number] = np.zeros(s.size, np.float32)
        schedule = plan.steps(steps)
        for begin in range(0, steps, tuned.decode):
            if self.stopping or not self.deadline.goon():
                if number or self.rung:
                    return
                if begin:  # the very first steps are always taken, and their path looked for
                    break
            rows = schedule[begin : begin + tuned.decode]
            how = Steps(rows, plan.rate, tuned.price_rates, tuned.steepest)
            descend(s, logits, prices, how, visits, room)
            for attempt, noise in enumerate(tuned.decode_noise):
                seed = (((number * 64 + self.rung) * 4096 + begin) * 8 + attempt) % 2**31
                path = decode(s, logits, noise, seed)
                value = path_cost(s, path) * s.scale
                if path.size and value < self.value[number]:
                    self.value[number], self.path[number] = value, s.path(path)
        if s.capacity.size:
            self._beam(number)

    def _beam(self, number: int) -> None:
        """Search the arcs that a start passed most often by a few labels.

        Where devices are shared, what is likeliest at each node on its own seldom fits together.
        """
        from ilp_planner.optimize.bounds.resource_paths import search_resource_paths

        arcs = self._passed([number], self.tuning.beam)
        graph = self.search.graph.only(arcs)
        width = self.tuning.beam_width
        found = search_resource_paths(graph, cutoff=self.value[number], width=width)
        if found.path:
            self.value[number] = found.value
            self.path[number] = tuple(arcs[list(found.path)].tolist())

    def _passed(self, members: list[int], most: int) -> NDArray[np.int64]:
        """Return the arcs (sorted numbers of the graph to solve) that the members passed most."""
        often = np.sum([self.visits[number] for number in members], axis=0)
        real = np.flatnonzero(self.soft.arcs >= 0)
        picked = np.argsort(-often[real], kind="stable")[:most]
        return np.sort(self.soft.arcs[real[picked]])

    def _cut(self) -> None:
        """Drop the arcs that no better path can use, from the graph and from the logits."""
        from ilp_planner.optimize.solvers.soft_graph import soft_graph

        if self._better() >= self.cutoff:
            return
        self.cutoff = self._better()
        rest = reduced(self.graph, self.cutoff)
        self.search.prove(rest.bound)
        if rest.graph.arcs > self.tuning.cut * self.graph.arcs:
            return
        self.graph, self.arcs = rest.graph, self.arcs[rest.arcs]
        if not self.graph.arcs:
            return
        before, self.soft = self.soft, soft_graph(self.graph, self.arcs, self.scale)
        offset = self.graph.nodes  # the arcs added before the sources have negative numbers
        place = np.zeros(offset + self.search.graph.arcs, np.int64)
        place[before.arcs + offset] = np.arange(before.size)
        kept = place[self.soft.arcs + offset]
        for rows in (self.logits, self.visits):
            for number, row in rows.items():
                rows[number] = row[kept]

    def _join(self, members: NDArray[np.int64], most: int) -> None:
        """Search `most` arcs that the first of these members passed most often, by many labels."""
        from ilp_planner.optimize.bounds.resource_paths import search_resource_paths
        from ilp_planner.optimize.bounds.resource_prices import PricedGraph

        if not self.graph.arcs or not self.goon():
            return
        known = [number for number in members.tolist() if number in self.visits]
        band = self._passed(known[: self.tuning.last], most)
        graph = self.search.graph.only(band)
        priced, effort = PricedGraph(graph), self.tuning.effort
        intervals = priced.sweep(self.search.objective, goon=self.goon)
        self.search.offer(band[list(priced.path)].tolist())
        if intervals:  # otherwise that was the cheapest path of the band
            found = search_resource_paths(
                graph, cutoff=self.search.objective, width=self.tuning.band_width,
                intervals=intervals, effort=min(self.deadline.effort(effort), effort),
            )  # fmt: skip
            self.search.offer(band[list(found.path)].tolist())
        self._cut()

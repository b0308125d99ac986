"""The search of a heuristic for plans of operators: it proves nothing."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from ilp_planner.base.numerics import NEVER, PROVED
from ilp_planner.optimize.result import Stop, relative_gap
from ilp_planner.spaces.operators.search import LAST_SLACK, OperatorSearch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.optimize.bounds.operator_part import OperatorPart
    from ilp_planner.optimize.graph import StageGraph
    from ilp_planner.optimize.solvers.base import GraphSolution

SLACK = 0.1  # relative: how far above the bound to look for a first plan; doubled while none is
PATIENCE = 4  # rounds without a better plan
FEWER = 8  # of so many starts one, to go on from a path that is known


class OperatorHunt(OperatorSearch):
    """A search that looks for good plans and proves nothing.

    The stage graphs hold bounds of stages: the heuristic's path is decoded by solving its stages
    exactly, which raises them in the graph, until the heuristic finds nothing better there.
    """

    def work(self) -> Stop:
        """Look through the parts, a little above their bounds at first."""
        looked: dict[int, float] = {}
        slack = SLACK
        while self.plan is None and self.bound < NEVER:
            guess = self.bound * (1 + slack) if slack < LAST_SLACK else NEVER
            self.look_below(guess, looked)
            if guess >= NEVER:
                break
            slack *= 2
        self.look_below(self.objective, looked)
        proved = relative_gap(self.objective, self.bound) <= PROVED
        return Stop.PROOF if proved or self.bound >= NEVER else Stop.HEURISTIC

    def look_below(self, guess: float, looked: dict[int, float]) -> None:
        """Look through all parts that may have a plan below `guess` seconds.

        looked: seconds up to which parts were searched, by micro-batch.
        """
        for part in sorted(self.parts, key=lambda p: p.bound):
            cutoff = min(guess, self.objective, NEVER)
            if part.bound >= cutoff * (1 - PROVED) or self.gap_reached():
                continue
            if looked.get(part.micro_batch, 0.0) >= cutoff:
                continue
            self.check_time()
            looked[part.micro_batch] = cutoff
            part.bound_by_stages(cutoff)
            self.improve(part, cutoff)

    def improve(self, part: OperatorPart, cutoff: float) -> None:
        """Look for plans of one part, until a few rounds have found nothing better."""
        graph = part.expand(cutoff).graph
        path: tuple[int, ...] = ()
        failed = 0
        while failed < PATIENCE:
            self.check_time()
            solution = self.cheapest(graph, path)
            path = solution.path
            if solution.stopped_by is Stop.USER:
                self.last_words(part, path)
            if not path or graph.path_time(path) >= min(cutoff, self.objective):
                return
            self.check_time()
            learned = part.refine(path, self.deadline.left)
            better = self.take(part, path)
            better |= self.take(part, part.best_known_path(self.objective))
            failed = 0 if better else failed + 1
            if not learned:
                return

    def cheapest(self, graph: StageGraph, hint: Sequence[int]) -> GraphSolution:
        """Return a good path of a graph; with a known one, after fewer starts."""
        starts = max(1, self.limits.starts // FEWER) if hint else self.limits.starts
        limits = dataclasses.replace(self.exactly, starts=starts)
        return self.backend.solve(graph, limits, hint=tuple(hint), deadline=self.deadline)

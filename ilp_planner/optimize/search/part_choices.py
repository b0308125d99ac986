"""Moves of simulated annealing besides paths: degrees, placements, orders of device types."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ilp_planner.optimize.search.choice_annealing import ChoiceAnnealing, Nearness
from ilp_planner.optimize.search.graph_hunt import FEWER, solve_graph

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from ilp_planner.optimize.search.group_search import GroupSearch


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

"""Simulated annealing over choices: degrees, orders of device types, placements.

As AMP does it (Li et al., "AMP: automatically finding model parallel strategies with heterogeneity
awareness", NeurIPS 2022): a move changes a choice a little, and the layers are split anew for it.
Many starts, the poor half dropped after each round; the last one is heated again until that brings
nothing better. Every round looks at about as many choices, however few the starts are.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import numpy as np

from ilp_planner.optimize.solvers.halving import rungs, successive_halving

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from numpy.typing import NDArray

    from ilp_planner.optimize.solvers.base import Limits

MOVES = 256  # of all starts of a round
FIRST = 16  # choices that all starts begin with the best of
HOT, WARM, COLD = 0.2, 0.02, 1e-3  # temperature, relative to the present cost; WARM: again
PATIENCE = 2  # times that heating brought nothing better
CLOSER = 4.0  # a choice that differs in one thing less is so many times as likely

Choice = TypeVar("Choice", bound="Hashable")


class Choices(Protocol[Choice]):
    """The possible choices."""

    def draw(self, random: np.random.Generator) -> Choice:
        """Return any choice."""

    def near(self, choice: Choice, random: np.random.Generator) -> Choice:
        """Return one that differs a little."""

    def least(self, choice: Choice) -> float:
        """Return a quick lower bound in seconds of a choice's plans."""

    def cost(self, choice: Choice) -> float:
        """Return the seconds of a good plan, inf if none was found."""


class ChoiceAnnealing(Generic[Choice]):
    """State of one search. costs: seconds of every choice that was looked at."""

    def __init__(self, choices: Choices[Choice], limits: Limits, goon: Callable[[], bool]) -> None:
        self.choices, self.goon = choices, goon
        self.starts = limits.starts
        self.steps = max(1, MOVES // self.starts)
        seeds = np.random.SeedSequence(limits.seed).spawn(self.starts)
        self.random = [np.random.default_rng(seed) for seed in seeds]
        self.costs: dict[Choice, float] = {}
        self.state: list[Choice] = []
        self.best: list[Choice] = []
        rounds = len(rungs(self.starts, self.steps))
        self.heat = np.geomspace(HOT, COLD, rounds + 1).tolist()

    def run(self) -> Choice | None:
        """Return the best choice found, None if none has a plan."""
        for start in range(self.starts):
            if start and not self.goon():
                break
            self.state.append(self.first(start))
        self.best = list(self.state)
        if len(self.state) == self.starts:
            last = successive_halving(self.starts, self.advance, steps=self.steps, goon=self.goon)
            start = int(last[0])
            self.heat_again(self.best[start], start)
        found = min(self.costs, key=self.costs.__getitem__, default=None)
        return None if found is None or math.isinf(self.costs[found]) else found

    def first(self, start: int) -> Choice:
        """Draw the beginning of a start: with few starts, the best of several choices."""
        found = self.choices.draw(self.random[start])
        for _ in range(FIRST // self.starts - 1):
            if not self.goon():
                break
            other = self.choices.draw(self.random[start])
            found = min(found, other, key=self.cost)
        self.cost(found)
        return found

    def heat_again(self, choice: Choice, start: int) -> None:
        """Go on from a choice, with the random numbers of a start, until that brings nothing
        better."""
        failed = 0
        while failed < PATIENCE and self.goon():
            found = self.anneal(choice, choice, start, MOVES, WARM, COLD)[1]
            failed = 0 if self.cost(found) < self.cost(choice) else failed + 1
            choice = found

    def cost(self, choice: Choice) -> float:
        """Return the cost of a choice; each is looked at once."""
        if choice not in self.costs:
            self.costs[choice] = self.choices.cost(choice)
        return self.costs[choice]

    def advance(self, members: NDArray[np.int64], steps: int) -> NDArray[np.float64]:
        """Move these starts (`successive_halving`)."""
        hot, cold = self.heat[:2]
        del self.heat[0]
        for start in members.tolist():
            state, best = self.state[start], self.best[start]
            self.state[start], self.best[start] = self.anneal(state, best, start, steps, hot, cold)
        return np.array([self.cost(self.best[start]) for start in members.tolist()])

    def anneal(
        self, state: Choice, best: Choice, start: int, steps: int, hot: float, cold: float
    ) -> tuple[Choice, Choice]:
        """Make so many moves, colder and colder; return the final and the best choice."""
        for warm in np.geomspace(hot, cold, steps).tolist():
            if not self.goon():
                break
            state = self.move(state, self.random[start], warm)
            best = min(best, state, key=self.cost)
        return state, best

    def move(self, state: Choice, random: np.random.Generator, warm: float) -> Choice:
        """Return the result of a move; the quick bound rules some out."""
        current = self.cost(state)
        if math.isinf(current):  # nothing to be near to
            return self.choices.draw(random)
        found = self.choices.near(state, random)
        most = current * (1.0 - warm * math.log(1.0 - random.random()))  # accepted up to that
        return found if self.choices.least(found) <= most and self.cost(found) <= most else state


class Nearness:
    """Rows of features, and how to draw one that differs in little from another."""

    def __init__(self, rows: Sequence[Sequence[Hashable]]) -> None:
        columns = []
        for column in zip(*rows, strict=True):
            numbers: dict[Hashable, int] = {}
            columns.append([numbers.setdefault(value, len(numbers)) for value in column])
        self.features = np.array(columns, np.int64).T

    def draw(self, row: int, random: np.random.Generator) -> int:
        """Return the number of another row; itself if there is no other."""
        if len(self.features) == 1:
            return row
        weight = CLOSER ** -(self.features != self.features[row]).sum(axis=1).astype(np.float64)
        weight[row] = 0.0
        sums = weight.cumsum()
        return int(np.searchsorted(sums, random.random() * sums[-1], side="right"))

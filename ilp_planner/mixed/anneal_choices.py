"""Simulated annealing over choices: degrees, orders of device types, placements.

As AMP does it (Li et al., "AMP: automatically finding model parallel strategies with heterogeneity
awareness", NeurIPS 2022): a move changes a choice a little, and the layers are split anew for it.
Many starts, the poor half dropped after each round.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import numpy as np

from ilp_planner.solvers.halving import rungs, successive_halving

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from numpy.typing import NDArray

    from ilp_planner.solvers.base import Limits

MOVES = 4  # of a start in the first round
HOT, COLD = 0.2, 1e-3  # temperature, relative to the present cost
CLOSER = 4.0  # a choice that differs in one thing less is so many times as likely

Choice = TypeVar("Choice", bound="Hashable")


class Choices(Protocol[Choice]):
    """What there is to choose from."""

    def draw(self, random: np.random.Generator) -> Choice:
        """Return any choice."""

    def near(self, choice: Choice, random: np.random.Generator) -> Choice:
        """Return one that differs a little."""

    def least(self, choice: Choice) -> float:
        """Return seconds that no plan of a choice undercuts, quickly."""

    def cost(self, choice: Choice) -> float:
        """Return the seconds of a good plan, inf where none was found."""


class ChoiceAnnealing(Generic[Choice]):
    """State of one search. costs: seconds of every choice that was looked at."""

    def __init__(self, choices: Choices[Choice], limits: Limits, goon: Callable[[], bool]) -> None:
        self.choices, self.goon = choices, goon
        self.starts = limits.starts
        seeds = np.random.SeedSequence(limits.seed).spawn(self.starts)
        self.random = [np.random.default_rng(seed) for seed in seeds]
        self.costs: dict[Choice, float] = {}
        self.state: list[Choice] = []
        self.best = [math.inf] * self.starts
        rounds = len(rungs(self.starts, MOVES))
        self.schedule = iter(HOT * (COLD / HOT) ** np.linspace(0.0, 1.0, rounds))

    def run(self) -> Choice | None:
        """Return the best choice found, None where none has a plan."""
        for start in range(self.starts):
            if start and not self.goon():
                break
            self.state.append(self.choices.draw(self.random[start]))
            self.best[start] = self.cost(self.state[start])
        if len(self.state) == self.starts:
            successive_halving(self.starts, self.advance, steps=MOVES, goon=self.goon)
        found = min(self.costs, key=self.costs.__getitem__, default=None)
        return None if found is None or math.isinf(self.costs[found]) else found

    def cost(self, choice: Choice) -> float:
        """Return what a choice costs; each is looked at once."""
        if choice not in self.costs:
            self.costs[choice] = self.choices.cost(choice)
        return self.costs[choice]

    def advance(self, members: NDArray[np.int64], steps: int) -> NDArray[np.float64]:
        """Move these starts (`halving.Advance`)."""
        warm = next(self.schedule)
        for start in members.tolist():
            for _ in range(steps):
                if not self.goon():
                    break
                self.move(start, warm)
        return np.array([self.best[start] for start in members.tolist()])

    def move(self, start: int, warm: float) -> None:
        """Try a move; what the quick bound rules out is not looked at."""
        random = self.random[start]
        found = self.choices.near(self.state[start], random)
        current = self.cost(self.state[start])
        most = current * (1.0 - warm * math.log(1.0 - random.random()))  # accepted up to that
        if self.choices.least(found) > most:
            return
        cost = self.cost(found)
        if cost <= most:
            self.state[start] = found
            self.best[start] = min(self.best[start], cost)


class Nearness:
    """Rows of features, and how to draw one that differs in little from another."""

    def __init__(self, rows: Sequence[Sequence[Hashable]]) -> None:
        columns = []
        for column in zip(*rows, strict=True):
            numbers: dict[Hashable, int] = {}
            columns.append([numbers.setdefault(value, len(numbers)) for value in column])
        self.features = np.array(columns, np.int64).T

    def draw(self, row: int, random: np.random.Generator) -> int:
        """Return the number of another row; itself where there is no other."""
        if len(self.features) == 1:
            return row
        weight = CLOSER ** -(self.features != self.features[row]).sum(axis=1).astype(np.float64)
        weight[row] = 0.0
        sums = weight.cumsum()
        return int(np.searchsorted(sums, random.random() * sums[-1], side="right"))

"""Objectives: the time of an iteration, its price, or both.

A plan on some nodes has two figures: its seconds, and the price per hour of these nodes. The price
of an iteration is their product. So the fastest plan on each set of nodes is all that any of the
objectives needs, and a bound on the seconds of a set bounds the price of its plans.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from ilp_planner.base.errors import UsageError
from ilp_planner.base.numerics import NEVER, PROVED
from ilp_planner.base.units import HOUR

if TYPE_CHECKING:
    from collections.abc import Iterable


class Point(NamedTuple):
    """A plan, or a bound on all plans on a set of nodes: seconds of an iteration, and the price of
    the nodes per hour."""

    seconds: float
    hourly: float

    @property
    def price(self) -> float:
        """The price of an iteration."""
        return self.seconds * self.hourly / HOUR


class Objective(ABC):
    """An objective. Frozen; it holds no state.

    name: in results and plan files. figures: minimised ones, each by itself: `seconds`, `price` of
    a `Point`.
    """

    name: ClassVar[str]
    figures: ClassVar[tuple[str, ...]]

    def turns(self, sets: int) -> list[int]:
        """Return the order in which sets of nodes, by their numbers from the cheapest to the
        dearest, are looked at first: spread over all, so that one of the first has a good plan. The
        largest power of two that divides a number from 1 on says when it is due."""
        return sorted(range(sets), key=lambda place: (-((place + 1) & -(place + 1)), -place))

    def values(self, point: Point) -> tuple[float, ...]:
        """Return the minimised figures, each by itself."""
        return tuple(getattr(point, figure) for figure in self.figures)

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of the objectives that it minimises, each by itself."""
        return (self.name,)

    @abstractmethod
    def seconds_to_beat(self, found: Point, hourly: float) -> float:
        """Return the cutoff in seconds for plans on nodes of that price: slower ones are no better
        than a found one, in any of the figures."""

    def cutoff(self, found: Iterable[Point], hourly: float) -> float:
        """Return the cutoff in seconds for plans on nodes of that price, beside all found plans;
        NEVER if nothing was."""
        return min((self.seconds_to_beat(point, hourly) for point in found), default=NEVER)

    def best(self, found: Iterable[Point]) -> list[Point]:
        """Return the points that no other one dominates, the fastest first: one, or the Pareto
        front; of equal ones the first."""
        front: list[Point] = []
        for point in sorted(found, key=lambda p: (*self.values(p), p.hourly)):
            if point.seconds < self.cutoff(front, point.hourly) * (1 - PROVED):
                front.append(point)
        return front


class Time(Objective):
    """Seconds of an iteration."""

    name = "time"
    figures = ("seconds",)

    def turns(self, sets: int) -> list[int]:
        """Return the dearest sets first: more nodes are faster as a rule."""
        return list(range(sets))[::-1]

    def seconds_to_beat(self, found: Point, hourly: float) -> float:
        """Return the seconds of the plan that was found."""
        return found.seconds


class Price(Objective):
    """The price of an iteration, and so of a token."""

    name = "price"
    figures = ("price",)

    def seconds_to_beat(self, found: Point, hourly: float) -> float:
        """Return the seconds at which these nodes cost as much."""
        return found.seconds * found.hourly / hourly


class Both(Objective):
    """Time and price: all plans that no other one dominates."""

    name = "both"
    figures = ("seconds", "price")

    @property
    def parts(self) -> tuple[str, ...]:
        """Time, and price."""
        return (TIME.name, PRICE.name)

    def seconds_to_beat(self, found: Point, hourly: float) -> float:
        """Return the cutoff in seconds above which a plan is slower and dearer."""
        return max(one.seconds_to_beat(found, hourly) for one in (TIME, PRICE))


TIME, PRICE, BOTH = Time(), Price(), Both()
OBJECTIVES: dict[str, Objective] = {one.name: one for one in (TIME, PRICE, BOTH)}
EXPECTED = "time, price, or both of them as time,price"


def objective_named(said: str) -> Objective:
    """Return an objective by its name, or by the names of its parts: `time,price` is `both`.

    Raises
    ------
    UsageError: there is none of this name.
    """
    names = {part.strip() for part in ("time,price" if said == "both" else said).split(",")}
    for objective in OBJECTIVES.values():
        if names in ({objective.name}, {*objective.parts}):
            return objective
    raise UsageError(f"objective: found {said!r}, expected {EXPECTED}")

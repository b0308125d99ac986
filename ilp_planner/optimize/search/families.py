"""Plans of a space with the same shares of a model on devices, for all cuts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ilp_planner.plan import AnyPlan

Cut = TypeVar("Cut")


class Family(ABC, Generic[Cut]):
    """A choice of degrees, order of ranks and sharding, with every possible schedule and setting.
    Its cuts have the ends of stages, and their ranks."""

    @property
    @abstractmethod
    def plan(self) -> AnyPlan:
        """One of the plans, legal or not: the ends of its stages do not matter."""

    @abstractmethod
    def cuts(self, before: AnyPlan) -> Iterator[tuple[Cut, AnyPlan]]:
        """Yield the cuts that are tried by name, each with one of its plans, legal or not: the cuts
        of a plan of before, if there are as many stages, and of equal stages."""

    @abstractmethod
    def fastest_of(self, cut: Cut, limit: float, goon: Callable[[], bool]) -> AnyPlan | None:
        """Return the fastest legal plan with a cut that takes at most `limit` seconds; None if
        there is none, or was none in time."""

    @abstractmethod
    def fastest(self, limit: float, goon: Callable[[], bool]) -> AnyPlan | None:
        """Return the fastest legal plan of all that takes less than `limit` seconds, likewise."""

"""Plans of a space whose devices hold the same shares of a model, wherever stages end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ilp_planner.plan import AnyPlan

Cut = TypeVar("Cut")


class Family(ABC, Generic[Cut]):
    """A choice of degrees, of the order of ranks and of what they share, with every schedule and
    setting that goes with it. Its cuts say where stages end, and on which ranks they are."""

    @property
    @abstractmethod
    def plan(self) -> AnyPlan:
        """One of the plans, legal or not: where its stages end says nothing."""

    @abstractmethod
    def cuts(self, before: AnyPlan) -> Iterator[tuple[Cut, AnyPlan]]:
        """Yield the cuts that are tried by name, each with one of its plans, legal or not: those of
        a plan of before, where there are as many stages, and those of equal stages."""

    @abstractmethod
    def fastest_of(self, cut: Cut, limit: float, goon: Callable[[], bool]) -> AnyPlan | None:
        """Return the fastest legal plan with a cut that takes at most `limit` seconds; None where
        there is none, or was none in time."""

    @abstractmethod
    def fastest(self, limit: float, goon: Callable[[], bool]) -> AnyPlan | None:
        """Return the fastest legal plan of all that takes less than `limit` seconds, likewise."""

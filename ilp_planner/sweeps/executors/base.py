"""What a place that solves points does."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from ilp_planner.sweeps.work import Outcome, Task


class Done(NamedTuple):
    """A point that is no longer worked on. outcome: None where its worker was lost. why: how."""

    number: int
    outcome: Outcome | None
    why: str = ""


class Executor(Protocol):
    """A place that solves points, begun when it is made.

    slots: how many points it works on at once; it is given no more.
    """

    slots: int

    def submit(self, task: Task) -> None:
        """Begin with a point."""

    def collect(self, seconds: float) -> list[Done]:
        """Wait for a point that ends, for so many seconds at most; return all that have ended."""

    def cancel(self) -> None:
        """End all that is under way, and leave nothing behind."""

"""The contract of executors."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from ilp_planner.faces.sweeps.work import Chunk, Solved


class Done(NamedTuple):
    """A chunk that is no longer worked on, by its number. solved: None if its worker was lost.
    why: how."""

    number: int
    solved: Solved | None
    why: str = ""


class Executor(Protocol):
    """A place that solves points, begun when it is made.

    slots: how many chunks of points it works on at once; it is given no more.
    """

    slots: int

    def submit(self, chunk: Chunk) -> None:
        """Begin with the points of a chunk."""

    def collect(self, seconds: float) -> list[Done]:
        """Wait for a chunk that ends, for so many seconds at most; return all that have ended."""

    def cancel(self) -> None:
        """End all that is under way, and leave nothing behind."""

"""The contract of executors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from ilp_planner.faces.sweeps.work import Work


class Done(NamedTuple):
    """Work that is no longer under way, by its number. solved: its result; None if its worker was
    lost. why: how."""

    number: int
    solved: Any
    why: str = ""


class Executor(Protocol):
    """A place for work, begun when it is made.

    slots: how much of it is under way at once; it is given no more.
    """

    slots: int

    def submit(self, work: Work) -> None:
        """Begin with work."""

    def collect(self, seconds: float) -> list[Done]:
        """Wait for work that ends, for so many seconds at most; return all that have ended."""

    def cancel(self) -> None:
        """End all that is under way, and leave nothing behind."""

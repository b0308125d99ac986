"""What every backend that solves a stage graph promises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ilp_planner.graph import StageGraph
    from ilp_planner.result import Status, Stop


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When to stop. seconds: wall clock. gap: stop once 1 - bound / objective is at most this.

    starts: random points that a heuristic begins from.
    """

    seconds: float = 200.0
    gap: float = 0.0
    workers: int = 2
    seed: int = 0
    starts: int = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSolution:
    """A backend's answer.

    path: arc numbers from a source to the sink, empty when none was found.
    objective: seconds, computed from the graph's own float times (inf without a path).
    bound: seconds, proved for every path of the graph (inf when proved that there is none).
    """

    path: tuple[int, ...]
    objective: float
    bound: float
    status: Status
    stopped_by: Stop
    solver: str


Progress = Callable[[float, float], None]
"""Called with (objective, bound) whenever either improves; may raise KeyboardInterrupt."""


class GraphSolver(Protocol):
    """A backend. `hint`: a path to start from (arc numbers).

    proves: its answer is the optimum, if there is time; a heuristic's is a good path.
    """

    name: str
    proves: bool

    def available(self) -> bool:
        """Probe cheaply whether the backend can run here."""

    def solve(
        self,
        graph: StageGraph,
        limits: Limits,
        *,
        hint: tuple[int, ...] = (),
        progress: Progress | None = None,
    ) -> GraphSolution:
        """Solve the graph within the limits; never lose a bound."""

"""The contract of every backend that solves a stage graph."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.base.children import cores
from ilp_planner.base.deadline import Deadline
from ilp_planner.base.errors import UsageError
from ilp_planner.base.limits import beyond
from ilp_planner.base.resident import MemoryLimit

if TYPE_CHECKING:
    from ilp_planner.optimize.result import Status, Stop


PREFER_PLAIN = 0.02  # relative: what users of a runtime give up for a plainer plan, unless they say
"""Less than what times are expected to be off by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When to stop. seconds: wall clock. gap: stop once 1 - bound / objective is at most this.
    memory: bytes that the process and its solvers' may hold. workers: processes or threads at once,
    as many as there are cores unless it is said; no result depends on it, but for the time.

    starts: random points that a heuristic begins from. prefer_plain: of plans for a training
    runtime that take up to this share longer than the fastest one, the plainest is taken; 0: the
    fastest. tie: the former name of prefer_plain. require_gap: and only one with at most this gap.
    Raises UsageError for impossible limits.
    """

    seconds: float = 200.0
    gap: float = 0.0
    workers: int = field(default_factory=cores)
    seed: int = 0
    starts: int = 64
    prefer_plain: float = 0.0
    require_gap: float = 1.0
    memory: float = math.inf
    tie: InitVar[float | None] = None

    def __post_init__(self, tie: float | None) -> None:
        if tie is not None:
            object.__setattr__(self, "prefer_plain", tie)
        if not self.memory > 0:
            raise UsageError(f"memory: found {self.memory}, expected bytes, at least 1")
        if not self.seconds >= 0:
            raise UsageError(f"seconds: found {self.seconds}, expected at least 0")
        if not 0 <= self.gap < 1:
            raise UsageError(f"gap: found {self.gap}, expected a fraction from 0 to below 1")
        if not 0 <= self.prefer_plain < 1:
            raise UsageError(
                f"prefer_plain: found {self.prefer_plain}, expected a fraction from 0 to below 1"
            )
        for name in ("workers", "starts"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name}: found {getattr(self, name)}, expected at least 1")
        for name in ("workers", "starts", "seed"):
            if expected := beyond(name, getattr(self, name)):
                raise UsageError(f"{name}: found {getattr(self, name)}, expected {expected}")

    def deadline(self, started: float | None = None, *, steady: bool = False) -> Deadline:
        """Return the end of a search within these limits. started, steady: as `Deadline` has
        them."""
        memory = MemoryLimit(self.memory) if math.isfinite(self.memory) else None
        return Deadline(self.seconds, started=started, steady=steady, memory=memory)


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


class Task(NamedTuple):
    """How a problem is to be searched. deadline: of a search that this one is a part of; by the
    limits without."""

    limits: Limits
    solver: str
    progress: Progress | None = None
    deadline: Deadline | None = None

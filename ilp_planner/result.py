"""What a solve returns: plan, status, reason for stopping, numbers and provenance, kept apart."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.units import format_percent, format_seconds

if TYPE_CHECKING:
    from ilp_planner.evaluate import Evaluation
    from ilp_planner.plan import Plan


CERTIFICATE_VERSION = 1


class Status(StrEnum):
    """What is known about the plan."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNKNOWN = "unknown"


class Stop(StrEnum):
    """Why the search ended."""

    PROOF = "proof"
    GAP = "gap"
    TIME = "time"
    MEMORY = "memory"
    EFFORT = "effort"
    HEURISTIC = "heuristic"
    USER = "user"
    ERROR = "error"


def relative_gap(objective: float, bound: float) -> float:
    """Return 1 - bound / objective, 0 when the bound meets the objective, inf without a plan."""
    if not math.isfinite(objective) or math.isnan(bound):
        return math.inf
    return max(0.0, 1.0 - bound / objective)


class Moment(NamedTuple):
    """What a search knew at one moment. after: seconds since it began. objective, bound: seconds
    per iteration, inf without a plan, 0.0 without a bound."""

    after: float
    objective: float
    bound: float


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """One of the best plans. bound: seconds; no plan that is not listed before it takes less."""

    plan: Plan[Any]
    evaluation: Evaluation
    bound: float


@dataclass(frozen=True, kw_only=True, repr=False)
class Result:
    """A plan, how it was judged, and what is known at the end of a search.

    objective, bound: seconds per iteration (inf without a plan; 0.0 without a bound).
    bound_source: which argument proved the bound. among: the plans that it is about. wall: seconds.
    certificate: JSON-ready record of what was enumerated and how each part was closed.
    notes: one-line remarks for the user (what was left out, which solver fell back).
    reason: for an infeasible problem, what fits nowhere and by how many bytes.
    confirmed_by: which other solver found the same optimum in what the proof leaves open; empty
    where none was asked (`notes` say why).
    ranking: the best plans in order, the plan itself first, when more than one was asked for.
    history: what was known from moment to moment, each improvement once.
    """

    plan: Plan[Any] | None
    evaluation: Evaluation | None = None
    status: Status
    stopped_by: Stop
    objective: float
    bound: float
    bound_source: str
    wall: float
    solver: str
    seed: int
    certificate: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    reason: str = ""
    among: str = ""
    confirmed_by: str = ""
    ranking: tuple[Ranked, ...] = ()
    history: tuple[Moment, ...] = ()

    @property
    def gap(self) -> float:
        """Share of the objective that the bound leaves open; inf without a plan."""
        return relative_gap(self.objective, self.bound)

    def __repr__(self) -> str:
        if self.plan is None:
            return f"<Result {self.status}, no plan>"
        stages = self.plan.ranks
        gap = format_percent(self.gap) if self.gap else "0 %"
        return (
            f"<Result {self.status} {format_seconds(self.objective)}, gap {gap}, "
            f"{stages} stage{'s' if stages > 1 else ''}>"
        )

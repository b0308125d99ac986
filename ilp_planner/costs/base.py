"""The protocol between cost models and the judge of plans; optimisers ask for more (`operators`,
`groups`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ilp_planner.costs.profiles.shares import Share
    from ilp_planner.costs.profiles.table import Provenance
    from ilp_planner.plan import Plan
    from ilp_planner.schedule.engine import StageTimes
    from ilp_planner.specs.cluster import ClusterSpec


@dataclass(frozen=True, kw_only=True)
class StageCost:
    """One stage judged. time: seconds per micro-batch. memory: bytes per device at the stage's
    peak, one entry per replica, or one for all. unprofiled: missing rows, one text each.
    forward: seconds of the time that are the forward pass; None: not known."""

    time: float
    memory: tuple[float, ...]
    time_terms: Mapping[str, float]
    memory_terms: Mapping[str, float]
    unprofiled: tuple[str, ...] = ()
    forward: float | None = field(default=None, compare=False)


@dataclass(frozen=True, kw_only=True)
class PlanCost:
    """A plan priced. iteration_time: seconds. terms: seconds by name; they add up to it. passing:
    seconds of them that micro-batches spend in stages; none if a cost model does not tell. passes:
    of a micro-batch through every stage, if the plan's schedule was run with them; None: the time
    is by a formula."""

    iteration_time: float
    stages: tuple[StageCost, ...]
    terms: Mapping[str, float]
    passing: tuple[str, ...] = ()
    passes: StageTimes | None = field(default=None, compare=False)


class Costs(Protocol):
    """Prices the plans of one space, of one model on one cluster with one profile."""

    @property
    def name(self) -> str:
        """Its name on the command line."""

    @property
    def chain(self) -> tuple[str, ...]:
        """Names of the operators or layers that stages are made of, in order."""

    def plan_cost(self, plan: Plan[Any], cluster: ClusterSpec) -> PlanCost:
        """Judge a plan on the devices that it names, in plain floating point."""

    def shares(self, plan: Plan[Any], cluster: ClusterSpec) -> dict[Provenance, Share]:
        """Return the shares of the iteration time by source of its figures."""

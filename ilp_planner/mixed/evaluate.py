"""The judge of layer-level plans: named checks, and time and memory recomputed. Imports no solver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ilp_planner.costs.groups import PlanCost
    from ilp_planner.evaluate import Violation


@dataclass(frozen=True, kw_only=True)
class GroupEvaluation:
    """A plan judged.

    cost: None when the plan is too broken to be priced. violations: empty for a legal plan.
    idle: devices that are in no stage.
    """

    cost: PlanCost | None
    violations: tuple[Violation, ...]
    idle: tuple[int, ...]

    @property
    def iteration_time(self) -> float:
        """Seconds; nan when the plan cannot be priced."""
        return float("nan") if self.cost is None else self.cost.iteration_time

    @property
    def legal(self) -> bool:
        """No rule is broken."""
        return not self.violations

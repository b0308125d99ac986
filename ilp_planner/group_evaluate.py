"""The judge of layer-level plans: named checks, and time and memory recomputed. Imports no
solver."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ilp_planner.coverage import NOT_LEGAL, Coverage
from ilp_planner.evaluate import Violation, evaluation_frame, verdict_text
from ilp_planner.spaces.registry import space_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    from ilp_planner.costs.groups import PlanCost
    from ilp_planner.group_problem import GroupProblem
    from ilp_planner.plan import GroupPlan
    from ilp_planner.profiles.shares import Share
    from ilp_planner.profiles.table import Provenance


@dataclass(frozen=True, kw_only=True, repr=False)
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
        return math.nan if self.cost is None else self.cost.iteration_time

    @property
    def legal(self) -> bool:
        """No rule is broken."""
        return not self.violations

    def __repr__(self) -> str:
        return f"<GroupEvaluation {verdict_text(self.iteration_time, self.violations)}>"

    def frame(self, table: str = "stages") -> pd.DataFrame:
        """Return a table; see `evaluation_frame`."""
        return evaluation_frame(table, self.cost.stages if self.cost else (), self.violations)


def evaluate_groups(problem: GroupProblem, plan: GroupPlan) -> GroupEvaluation:
    """Judge a plan: every broken rule, and time and memory recomputed in floating point."""
    used = {d for stage in plan.stages for d in stage.devices}
    idle = tuple(d for d in range(problem.cluster.device_count) if d not in used)
    broken = (
        *check_model(problem, plan),
        *check_layers_covered_once(problem, plan),
        *check_devices_used_once(problem, plan),
        *check_samples(problem, plan),
    )
    space = space_of(problem)
    broken = (*broken, *space.check_settings(plan)) or tuple(space.check_kind(plan))
    if broken:
        return GroupEvaluation(cost=None, violations=broken, idle=idle)
    cost = problem.costs.plan_cost(plan, problem.cluster)
    violations = (
        *check_stage_count(problem, plan),
        *check_degrees(problem, plan),
        *check_profiled(cost),
        *space.check_samples(plan),
        *space.check_memory(plan, cost),
        *check_idle(space.idles, idle),
    )
    return GroupEvaluation(cost=cost, violations=violations, idle=idle)


def group_coverage(problem: GroupProblem, plan: GroupPlan, *, legal: bool) -> Coverage:
    """Return where a plan of layers stands."""
    space = space_of(problem)
    return Coverage(space.describe(), space.outside(plan) if legal else NOT_LEGAL)


def group_shares(
    problem: GroupProblem, plan: GroupPlan, evaluation: GroupEvaluation
) -> dict[Provenance, Share]:
    """Return the shares of the iteration time by where its figures come from; none of a plan that
    has no price, or where the cost model does not say."""
    shares = getattr(problem.costs, "shares", None)
    if evaluation.cost is None or shares is None:
        return {}
    return dict(shares(plan, problem.cluster))


def check_model(problem: GroupProblem, plan: GroupPlan) -> Iterator[Violation]:
    """The plan is for this model and batch."""
    if plan.model != problem.model:
        yield Violation("model", "plan", plan.model, problem.model)
    if plan.global_batch != problem.global_batch:
        have = f"{plan.global_batch} samples"
        yield Violation("global batch", "plan", have, str(problem.global_batch))
    if plan.micro_batches < 1 or plan.global_batch % plan.micro_batches:
        have = f"{plan.micro_batches} micro-batches"
        yield Violation("micro-batches", "plan", have, f"a divisor of {plan.global_batch}")


def check_layers_covered_once(problem: GroupProblem, plan: GroupPlan) -> Iterator[Violation]:
    """Stages cover all layers, in order, each once and none empty."""
    position = 0
    for s, stage in enumerate(plan.stages):
        if stage.start != position or stage.stop <= stage.start:
            have = f"layers {stage.start} to {stage.stop - 1}"
            yield Violation("layers covered once", f"stage {s}", have, f"from layer {position} on")
            return
        position = stage.stop
    if position != len(problem.costs.layers):
        limit = f"{len(problem.costs.layers)} layers"
        yield Violation("layers covered once", "plan", f"{position} layers", limit)


def check_devices_used_once(problem: GroupProblem, plan: GroupPlan) -> Iterator[Violation]:
    """Every device exists and is in one place of one stage; virtual stages share theirs."""
    seen: set[int] = set()
    for s, stage in enumerate(plan.stages):
        if s >= plan.ranks:
            if stage.replicas != plan.stages[s % plan.ranks].replicas:
                limit = f"those of stage {s % plan.ranks}"
                yield Violation("devices used once", f"stage {s}", "other devices", limit)
            continue
        for device in stage.devices:
            if not 0 <= device < problem.cluster.device_count:
                limit = f"0 to {problem.cluster.device_count - 1}"
                yield Violation("devices used once", f"stage {s}", f"device {device}", limit)
            elif device in seen:
                have = f"device {device} again"
                yield Violation("devices used once", f"stage {s}", have, "every device once")
            seen.add(device)


def check_samples(problem: GroupProblem, plan: GroupPlan) -> Iterator[Violation]:
    """The replicas of every stage share each micro-batch."""
    for s, stage in enumerate(plan.stages):
        shared = sum(replica.samples for replica in stage.replicas)
        if shared != plan.micro_batch:
            limit = f"{plan.micro_batch}, the micro-batch"
            yield Violation("samples", f"stage {s}", f"{shared} samples", limit)


def check_stage_count(problem: GroupProblem, plan: GroupPlan) -> Iterator[Violation]:
    """No more stages than allowed."""
    if plan.ranks > problem.max_stages:
        yield Violation("stages", "plan", str(plan.ranks), f"at most {problem.max_stages}")


def check_degrees(problem: GroupProblem, plan: GroupPlan) -> Iterator[Violation]:
    """The tensor degree is allowed, and replicas of equal devices take equally many samples.

    Metis shares a micro-batch otherwise, and may leave a replica without samples.
    """
    cp = 1 if plan.settings is None else plan.settings.cp
    for s, stage in enumerate(plan.stages):
        if stage.tp > problem.max_tp * cp:
            limit = f"at most {problem.max_tp}"
            yield Violation("degrees", f"stage {s}", f"tp {stage.tp}", limit)


def check_profiled(cost: PlanCost) -> Iterator[Violation]:
    """Everything that the plan does is in the profile."""
    for s, stage in enumerate(cost.stages):
        for missing in stage.unprofiled:
            yield Violation("profiled", f"stage {s}", missing, "a row of the profile")


def check_idle(idles: bool, idle: tuple[int, ...]) -> Iterator[Violation]:
    """Every device is used where the space has no idle ones."""
    if idle and not idles:
        yield Violation("devices used once", "plan", f"{len(idle)} idle devices", "none idle")

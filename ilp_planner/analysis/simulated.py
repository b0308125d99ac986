"""A plan's iteration, operation by operation, beside the judge's time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.base.errors import PlanError, UsageError
from ilp_planner.schedule.engine import StageTimes, least_seconds, simulate
from ilp_planner.schedule.orders import placed
from ilp_planner.schedule.schedules import schedule_orders

if TYPE_CHECKING:
    from ilp_planner.costs.base import PlanCost
    from ilp_planner.evaluate import Evaluation
    from ilp_planner.plan import AnyPlan
    from ilp_planner.schedule.engine import Timeline

FORWARD_SHARE = 1 / 3  # of a stage's seconds: a backward pass has twice the arithmetic
MOST_OPERATIONS = 60_000  # that are run beside a formula, in a tenth of a second


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """A plan's iteration by a schedule.

    timeline: of the pipeline. outside: seconds of the iteration outside of the schedule, as of
    gradient reduction. judged: seconds of the whole iteration as the judge has them, by the plan's
    own schedule (`by_formula` is False) or by a formula. least: lower bound of the pipeline in
    seconds, over orders of these passes.
    """

    schedule: str
    timeline: Timeline
    outside: float
    judged: float
    by_formula: bool
    least: float

    @property
    def seconds(self) -> float:
        """Return the seconds of the whole iteration."""
        return self.timeline.seconds + self.outside

    @property
    def bubble(self) -> float:
        """Return the share of the iteration in which a rank waits, in the mean of all
        (`throughput`)."""
        return self.timeline.bubble * self.timeline.seconds / self.seconds if self.seconds else 0.0


def stage_times(cost: PlanCost) -> StageTimes:
    """Return the times of a plan's stages, forward and backward.

    Other cost models than Megatron's have one time per stage and micro-batch, both passes together;
    times of layers have no separate forward pass. Messages to the next stage are a part of it, so
    that they take no time of their own here.
    """
    if cost.passes is not None:
        return cost.passes
    seconds = np.array([stage.time for stage in cost.stages])
    shares = [FORWARD_SHARE * s.time if s.forward is None else s.forward for s in cost.stages]
    forward = np.array(shares)
    half, nothing = (seconds - forward) / 2, np.zeros(len(seconds) - 1)
    return StageTimes(forward, seconds - forward, half, half, nothing, nothing)


def simulated(plan: AnyPlan, evaluation: Evaluation, schedule: str | None = None) -> Simulated:
    """Run a plan's iteration; a short last micro-batch counts as the judge counts it, outside.

    Parameters
    ----------
    schedule: of `SCHEDULES`; the plan's own, if None. Others run the same stages in another order,
        and on other ranks if one of both places stages in a V.

    Raises
    ------
    PlanError: the plan has no times. UsageError: the schedule is none for such a pipeline.
    """
    cost = evaluation.cost
    if cost is None or not math.isfinite(sum(stage.time for stage in cost.stages)):
        why = f": {evaluation.violations[0]}" if evaluation.violations else ""
        raise PlanError(f"plan: its stages have no times to simulate{why}")
    name = schedule or plan.schedule.name
    try:
        orders = schedule_orders(name, plan.ranks, plan.schedule.whole.micro_batches, plan.virtual)
    except ValueError as error:
        raise UsageError(f"schedule: {error}") from None
    times = stage_times(cost)
    return Simulated(
        schedule=name,
        timeline=simulate(orders, times, blocking=_blocking(plan, cost, name)),
        outside=cost.iteration_time - _pipeline_seconds(plan, cost, times),
        judged=cost.iteration_time,
        by_formula=cost.passes is None,
        least=least_seconds(
            times, placed(orders), plan.schedule.whole.micro_batches, split=orders.split
        ),
    )


def by_schedule(plan: AnyPlan, evaluation: Evaluation) -> float | None:
    """Return the seconds of an iteration whose time is by the formula, as its schedule runs it.

    1F1B of equal stages takes what the formula says, that of stages which are no slower than one of
    them at most what they have in hand less. None if the plan has no times, if they are by the
    schedule already, if a single stage waits for nobody, and where there is too much to run.
    """
    cost = evaluation.cost
    if cost is None or cost.passes is not None or plan.ranks == 1:
        return None
    if 2 * len(plan.stages) * plan.micro_batches > MOST_OPERATIONS:
        return None
    try:
        return simulated(plan, evaluation).seconds
    except (PlanError, UsageError):
        return None


def _blocking(plan: AnyPlan, cost: PlanCost, schedule: str) -> bool:
    """Tell whether both ends wait for messages: in 1F1B as Megatron runs it."""
    return cost.passes is not None and plan.virtual == 1 and schedule == "1f1b"


def _pipeline_seconds(plan: AnyPlan, cost: PlanCost, times: StageTimes) -> float:
    """Return what the judge takes the pipeline for: by its schedule, or by the formula."""
    if cost.passes is None:
        return plan.schedule.whole.iteration_time(plan.per_rank([s.time for s in cost.stages]))
    own = plan.schedule.name
    orders = schedule_orders(own, plan.ranks, plan.schedule.whole.micro_batches, plan.virtual)
    return simulate(orders, times, blocking=_blocking(plan, cost, own)).seconds

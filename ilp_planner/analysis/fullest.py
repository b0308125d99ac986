"""The device of a plan with the largest share of its memory in use."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ilp_planner.job.verdict import verdict_of

if TYPE_CHECKING:
    from ilp_planner.costs.base import StageCost
    from ilp_planner.evaluate import Evaluation
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.job.verdict import Verdict
    from ilp_planner.plan import AnyPlan, Stage


def fullest_device(problem: Problem[Any], stage: Stage, cost: StageCost) -> tuple[float, float]:
    """Return (bytes used, bytes allowed) of the stage's device with the largest share in use."""
    used, name = fullest_replica(problem, stage, cost)
    return used, problem.memory_limits[name]


def fullest_replica(problem: Problem[Any], stage: Stage, cost: StageCost) -> tuple[float, str]:
    """Return (bytes used, device type) of the stage's device with the largest share in use."""
    limits, types = problem.memory_limits, problem.cluster.type_of
    parts = stage.parts(len(cost.memory))
    return max(
        (
            (used, min((types[device] for device in devices), key=limits.__getitem__))
            for devices, used in zip(parts, cost.memory, strict=True)
        ),
        key=lambda pair: pair[0] / limits[pair[1]],
    )


def fullest_of(problem: Problem[Any], plan: AnyPlan, evaluation: Evaluation) -> tuple[float, float]:
    """Return (bytes used, bytes allowed) of the device of a priced plan with the largest share in
    use; nan if memory is not modelled."""
    if not any(cost.memory_terms or any(cost.memory) for cost in evaluation.stages):
        return math.nan, math.nan
    pairs = zip(plan.stages, evaluation.stages, strict=True)
    return max(
        (fullest_device(problem, stage, cost) for stage, cost in pairs),
        key=lambda pair: pair[0] / pair[1],
    )


def plan_verdict(
    problem: Problem[Any], plan: AnyPlan, evaluation: Evaluation
) -> tuple[Verdict, float] | None:
    """Return whether a priced plan of a training runtime fits its devices, and the bytes that are
    left on its fullest one; None if its memory is not modelled as a training job."""
    if plan.settings is None:
        return None
    used, limit = fullest_of(problem, plan, evaluation)
    return None if math.isnan(used) else (verdict_of(used, limit), limit - used)

"""What `--json` prints of layer-level plans: seconds and bytes."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from ilp_planner.coverage import proved_gap
from ilp_planner.report.groups import fullest_device, hourly_price
from ilp_planner.report.json_report import outcome_object
from ilp_planner.report.shares import share_object

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.evaluate import Evaluation
    from ilp_planner.plan import GroupPlan
    from ilp_planner.problem import Problem
    from ilp_planner.result import Result
    from ilp_planner.specs.cluster import ClusterSpec


def group_result_object(problem: Problem[Any], result: Result) -> dict[str, Any]:
    """Return a result."""
    return {
        **outcome_object(result),
        **group_problem_object(problem),
        **group_plan_object(problem, result.plan, result.evaluation),
        "ranking": [
            {
                "objective_s": entry.evaluation.iteration_time,
                "bound_s": entry.bound,
                "gap": proved_gap(entry.evaluation.iteration_time, entry.bound),
                **group_plan_object(problem, entry.plan, entry.evaluation),
            }
            for entry in result.ranking
        ],
        "reason": result.reason,
        "notes": list(dict.fromkeys((*problem.notes, *result.notes))),
    }


def group_problem_object(problem: Problem[Any]) -> dict[str, Any]:
    """Return what was planned."""
    return {
        "model": problem.model,
        "layers": list(problem.costs.chain),
        "cluster": problem.cluster.name,
        "profile": problem.profile_source,
        "cost_model": problem.costs.name,
        "space": problem.space,
        "memory_rule": problem.memory_rule,
        "placement": problem.placement,
        "global_batch": problem.global_batch,
        "memory_limit_bytes": dict(problem.memory_limits),
    }


def group_plan_object(
    problem: Problem[Any], plan: GroupPlan | None, evaluation: Evaluation | None
) -> dict[str, Any]:
    """Return a plan with what the evaluator finds; no stages without a plan."""
    from ilp_planner.evaluate import time_shares  # needs numpy, `--help` does not

    if plan is None:
        return {"micro_batch": None, "micro_batches": None, "stages": [], "violations": []}
    cost = None if evaluation is None else evaluation.cost
    stages = []
    for s, stage in enumerate(plan.stages):
        found: dict[str, Any] = {
            "start": stage.start,
            "stop": stage.stop,
            "tp": stage.tp,
            "dp": stage.dp,
            "replicas": [
                {"devices": list(replica.devices), "samples": replica.samples}
                for replica in stage.replicas
            ],
        }
        if cost is not None:
            for replica, entry, memory in zip(
                stage.replicas, found["replicas"], cost.stages[s].memory, strict=True
            ):
                entry |= _place(problem.cluster, replica.devices)
                entry["memory_bytes"] = memory
            used, limit = fullest_device(problem, stage, cost.stages[s])
            found |= {
                "time_s": cost.stages[s].time,
                "time_terms_s": dict(cost.stages[s].time_terms),
                "memory_bytes": used,
                "memory_limit_bytes": limit,
                "memory_terms_bytes": dict(cost.stages[s].memory_terms),
            }
        stages.append(found)
    runtime = {}
    if plan.settings is not None:
        runtime = {"settings": dataclasses.asdict(plan.settings), "virtual": plan.virtual}
    return {
        "micro_batch": plan.micro_batch_size,
        "micro_batches": plan.micro_batches,
        **runtime,
        "stages": stages,
        "idle": [] if evaluation is None else list(evaluation.idle),
        "terms_s": {} if cost is None else dict(cost.terms),
        **share_object({} if evaluation is None else time_shares(problem, plan, evaluation)),
        "price_per_hour": None if cost is None else hourly_price(problem, plan),
        "violations": [] if evaluation is None else list(map(str, evaluation.violations)),
    }


def _place(cluster: ClusterSpec, devices: Sequence[int]) -> dict[str, Any]:
    """Return nodes and types of devices that exist."""
    return {
        "nodes": sorted({cluster.node_of[d] for d in devices}),
        "types": list(dict.fromkeys(cluster.type_of[d] for d in devices)),
    }


def group_evaluation_object(
    problem: Problem[Any], plan: GroupPlan, evaluation: Evaluation
) -> dict[str, Any]:
    """Return an evaluator's verdict."""
    return {
        "legal": evaluation.legal,
        "iteration_time_s": evaluation.iteration_time,
        **group_problem_object(problem),
        **group_plan_object(problem, plan, evaluation),
    }

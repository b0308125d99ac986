"""The result of one point of a sweep: a row of its table."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

from ilp_planner.analysis.fullest import plan_verdict
from ilp_planner.faces.report.expected import expected_object
from ilp_planner.faces.report.parallelism import parallelism, parallelism_object
from ilp_planner.faces.report.rates import rates_object
from ilp_planner.faces.report.stages import describe_training
from ilp_planner.faces.report.tables import span
from ilp_planner.plan import is_of_groups
from ilp_planner.spaces.throughput import throughput
from ilp_planner.specs.prices import nodes_of

if TYPE_CHECKING:
    from ilp_planner.evaluate import Evaluation
    from ilp_planner.optimize.result import Result
    from ilp_planner.plan import AnyPlan
    from ilp_planner.problem import Problem
    from ilp_planner.specs.cluster import ClusterSpec

Row = dict[str, Any]

REFUSED, FAILED, LOST = "refused", "failed", "lost"  # besides what a search can end with
RATES = (
    "samples_per_s", "tokens_per_s", "tokens_per_s_per_gpu", "tflops_per_gpu", "mfu", "hfu",
    "bubble",
)  # fmt: skip
NO_PLAN = ("infeasible", "unknown", REFUSED, FAILED, LOST)


def row_of(problem: Problem[Any], result: Result, asked: ClusterSpec | None = None) -> Row:
    """Return the result of a problem, ready for JSON: seconds, bytes, and None for unknown values.

    Parameters
    ----------
    asked: the cluster of all nodes; None: that of the problem.
    """
    row: Row = {
        **devices_of(asked or problem.cluster),
        "status": str(result.status),
        "stopped_by": str(result.stopped_by),
        "bound_s": _known(result.bound) or None,
        "wall_s": result.wall,
    }
    if result.plan is None or result.evaluation is None:
        return row | {"reason": result.reason or "no plan was found in time"}
    plan, evaluation = result.plan, result.evaluation
    row |= {
        "step_s": evaluation.iteration_time,
        **_expected(problem, plan, evaluation.iteration_time),
        "gap": _known(result.gap),
        "peak_memory_bytes": _known(evaluation.memory),
        "verdict": _verdict(problem, plan, evaluation),
        **parallelism_object(parallelism(problem, plan, evaluation)),
        "gpus_used": len(plan.used),
        "plan": plan_line(plan),
        "billed": billed(problem.cluster, plan),
    }
    rates = rates_object(throughput(problem, plan, evaluation)) or {}
    return row | {name: rates[name] for name in rates if name in RATES}


def billed(cluster: ClusterSpec, plan: AnyPlan) -> list[list[Any]]:
    """Return the billed devices, of all nodes that a plan uses: type, how many, price per hour and
    spot price."""
    found: Counter[tuple[Any, ...]] = Counter()
    for node in nodes_of(cluster, plan.used):
        device = cluster.device_types[cluster.node_types[node]]
        found[device.type, device.price, device.spot_price] += cluster.devices_of_nodes[node]
    return [[name, count, *prices] for (name, *prices), count in found.items()]


def devices_of(cluster: ClusterSpec) -> Row:
    """Return the number and the kinds of GPUs of a cluster."""
    kinds = dict.fromkeys(cluster.device_types[name].type for name in cluster.type_of)
    return {"gpus": cluster.device_count, "gpu": " + ".join(kinds)}


def plan_line(plan: AnyPlan) -> str:
    """Return a plan on one line: degrees, micro-batches, layers of every rank, how ranks train."""
    parts = [f"pp {plan.ranks}"]
    if is_of_groups(plan):
        degrees = (tp // plan.cp for stage in plan.stages for tp in stage.degrees)
        parts.append(f"tp {span(degrees)}")
        parts.append(f"dp {span(stage.dp for stage in plan.stages)}")
        unit = "layers"
    else:
        unit = "operators"
    count = plan.micro_batches
    batches = f"{count} micro-batch{'es' * (count > 1)} of {plan.micro_batch_size}"
    if plan.ranks > 1:
        sizes = plan.per_rank([stage.stop - stage.start for stage in plan.stages])
        batches += f", {unit} {'-'.join(map(str, sizes))}"
    parts.append(batches)
    return ", ".join([*parts, *filter(None, [describe_training(plan)])])


def _expected(problem: Problem[Any], plan: AnyPlan, seconds: float) -> Row:
    found = expected_object(problem, plan, seconds)
    ends = found["expected_interval"] or dict.fromkeys(("low_s", "high_s"))
    return {
        "expected_error": found["expected_error"],
        **{f"expected_{name}": value for name, value in ends.items()},
        "expected_basis": found["expected_basis"],
    }


def _verdict(problem: Problem[Any], plan: AnyPlan, evaluation: Evaluation) -> str | None:
    found = plan_verdict(problem, plan, evaluation)
    return None if found is None else str(found[0])


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None

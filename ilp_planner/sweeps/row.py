"""What is known of one point of a sweep: a row of its table."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

from ilp_planner.plan import is_of_groups, is_of_operators
from ilp_planner.report.stages import describe_training
from ilp_planner.report.tables import span
from ilp_planner.specs.prices import nodes_of
from ilp_planner.throughput import throughput
from ilp_planner.units import TERA

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ilp_planner.plan import AnyPlan
    from ilp_planner.problem import Problem
    from ilp_planner.result import Result
    from ilp_planner.specs.cluster import ClusterSpec

Row = dict[str, Any]

REFUSED, FAILED, LOST = "refused", "failed", "lost"  # besides what a search can end with
NO_PLAN = ("infeasible", "unknown", REFUSED, FAILED, LOST)


def row_of(problem: Problem[Any], result: Result) -> Row:
    """Return what was found of a problem, JSON-ready: seconds, bytes, and None for what is not
    known."""
    row: Row = {
        **devices_of(problem.cluster),
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
        "gap": _known(result.gap),
        "peak_memory_bytes": _known(evaluation.memory),
        **degrees(plan),
        "plan": plan_line(plan),
        "billed": billed(problem.cluster, plan),
    }
    done = throughput(problem, plan, evaluation)
    if done is not None:
        row |= {
            "samples_per_s": done.samples,
            "tokens_per_s": done.tokens or None,
            "tokens_per_s_per_gpu": done.tokens / done.devices or None,
            "tflops_per_gpu": done.flops / TERA,
            "mfu": done.utilisation,
        }
    return row


def billed(cluster: ClusterSpec, plan: AnyPlan) -> list[list[Any]]:
    """Return the devices of all nodes that a plan uses, which are billed whole: type, how many,
    price per hour and spot price."""
    found: Counter[tuple[Any, ...]] = Counter()
    for node in nodes_of(cluster, plan.used):
        device = cluster.device_types[cluster.node_types[node]]
        found[device.type, device.price, device.spot_price] += cluster.devices_of_nodes[node]
    return [[name, count, *prices] for (name, *prices), count in found.items()]


def devices_of(cluster: ClusterSpec) -> Row:
    """Return how many GPUs a cluster has, and of which kinds."""
    kinds = dict.fromkeys(cluster.device_types[name].type for name in cluster.type_of)
    return {"gpus": cluster.device_count, "gpu": " + ".join(kinds)}


def degrees(plan: AnyPlan) -> dict[str, int | None]:
    """Return the degrees of parallelism that all stages have in common, None for those that they
    have not, and the samples of a micro-batch per replica."""
    tp: list[int] = []
    dp: list[int] = []
    samples: list[int] = []
    if is_of_groups(plan):
        tp = [stage.tp // plan.cp for stage in plan.stages]
        dp = [stage.dp for stage in plan.stages]
        samples = [replica.samples for stage in plan.stages for replica in stage.replicas]
    elif is_of_operators(plan):
        every = [strategy for stage in plan.stages for strategy in stage.strategies]
        tp, dp = [one.tp for one in every], [one.dp for one in every]
        samples = [plan.micro_batch_size // number for number in dp]
    return {
        "tp": _same(tp),
        "pp": plan.ranks,
        "cp": plan.cp,
        "ep": 1 if plan.settings is None else plan.settings.ep,
        "dp": _same(dp),
        "virtual_stages": plan.virtual,
        "micro_batch": _same(samples),
        "micro_batches": plan.micro_batches,
    }


def plan_line(plan: AnyPlan) -> str:
    """Return a plan on one line: degrees, micro-batches, layers of every rank, how ranks train."""
    parts = [f"pp {plan.ranks}"]
    if is_of_groups(plan):
        parts.append(f"tp {span(stage.tp // plan.cp for stage in plan.stages)}")
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


def _same(values: Iterable[int]) -> int | None:
    """Return what all values are; None where they differ."""
    distinct = {*values}
    return distinct.pop() if len(distinct) == 1 else None


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None

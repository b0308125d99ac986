"""The object of `--json`: seconds and bytes, null for a number that does not exist."""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, Any

from ilp_planner.analysis.fullest import fullest_device
from ilp_planner.base.files import to_json
from ilp_planner.base.printable import printable_json
from ilp_planner.evaluate import time_shares
from ilp_planner.faces.report.aim import aim_object
from ilp_planner.faces.report.expected import expected_object, share_object
from ilp_planner.faces.report.rates import worth_object
from ilp_planner.faces.report.shortlist import condition_text
from ilp_planner.faces.report.tables import finite
from ilp_planner.faces.schemas import headed
from ilp_planner.formats.plan_json import encode_plan
from ilp_planner.optimize.coverage import proved_gap
from ilp_planner.plan import GroupStage, OperatorStage
from ilp_planner.spaces.throughput import physical_bound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.costs.base import StageCost
    from ilp_planner.evaluate import Evaluation
    from ilp_planner.formats.saved_check import Judgement
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.optimize.certificate import CertificateCheck
    from ilp_planner.optimize.result import Result
    from ilp_planner.plan import AnyPlan, Stage
    from ilp_planner.specs.cluster import ClusterSpec


def result_object(
    problem: Problem[Any], result: Result, tokens: float | None = None
) -> dict[str, Any]:
    """Return a result. tokens: of a training run; None: nothing is said of one."""
    return {
        **headed("solve"),
        "status": str(result.overall),
        "stopped_by": str(result.stopped_by),
        "objective": aim_object(problem, result.aim),
        "objective_s": result.objective,
        "bound_s": result.bound,
        "gap": result.gap,
        "physical_bound_s": physical_bound(problem) or None,
        "bound_source": result.bound_source,
        "among": result.among,
        "confirmed_by": result.confirmed_by,
        "wall_s": result.wall,
        "solver": result.solver,
        "seed": result.seed,
        **problem_object(problem),
        **plan_object(problem, result.plan, result.evaluation, tokens),
        "prefer_plain": finite(result.prefer_plain),
        "fastest": fastest_object(problem, result, tokens),
        "ranking": [
            {
                "objective_s": entry.evaluation.iteration_time,
                "bound_s": entry.bound,
                "gap": proved_gap(entry.evaluation.iteration_time, entry.bound),
                **plan_object(problem, entry.plan, entry.evaluation, tokens),
            }
            for entry in result.ranking
        ],
        "shortlist": shortlist_object(problem, result, tokens),
        "reason": result.reason,
        "notes": list(dict.fromkeys((*problem.notes, *result.notes))),
    }


def fastest_object(
    problem: Problem[Any], result: Result, tokens: float | None = None
) -> dict[str, Any] | None:
    """Return the fastest plan beside a plainer one; None if the plan is the fastest. tokens: as in
    `result_object`."""
    fastest = result.fastest
    if fastest is None:
        return None
    return {
        "status": str(fastest.status),
        "objective_s": fastest.objective,
        "gap": proved_gap(fastest.objective, result.bound),
        **plan_object(problem, fastest.plan, fastest.evaluation, tokens),
    }


def shortlist_object(
    problem: Problem[Any], result: Result, tokens: float | None = None
) -> dict[str, Any] | None:
    """Return the plans to try; None if none were asked for. tokens: as in `result_object`."""
    found = result.shortlist
    if found is None:
        return None
    return {
        "plans": [
            {
                "objective_s": one.seconds,
                "less_plain": one.less_plain,
                "worst_regret": one.worst,
                "condition": condition_text(one) if number else "wins as assumed",
                "wins": [
                    [
                        {"constant": each.name, "assumed": each.assumed, "value": each.value}
                        for each in together
                    ]
                    for together in one.wins
                ],
                **plan_object(problem, one.plan, one.evaluation, tokens),
            }
            for number, one in enumerate(found.plans)
        ],
        "worst_regret": list(found.worst),
        "mean_regret": list(found.mean),
        "asked": found.asked,
        "scenarios": found.scenarios,
        "searched": found.searched,
        "candidates": found.candidates,
        "proved": found.proved,
    }


def problem_object(problem: Problem[Any]) -> dict[str, Any]:
    """Return the planned problem."""
    return {
        "model": problem.model,
        f"{problem.space.unit}s": list(problem.costs.chain),
        "cluster": problem.cluster.name,
        "profile": problem.profile_source,
        "cost_model": problem.costs.name,
        "space": problem.space.name,
        **problem.space.options(),
        "global_batch": problem.global_batch,
        "memory_limit_bytes": problem.limits_of_types,
    }


def plan_object(
    problem: Problem[Any],
    plan: AnyPlan | None,
    evaluation: Evaluation | None,
    tokens: float | None = None,
) -> dict[str, Any]:
    """Return a plan with its evaluation; no stages without a plan. tokens: as in
    `result_object`."""
    from ilp_planner.analysis.simulated import by_schedule

    if plan is None:
        return {"micro_batch": None, "micro_batches": None, "stages": [], "violations": []}
    costs = () if evaluation is None else evaluation.stages
    stages = []
    for s, (stage, known) in enumerate(zip(plan.stages, encode_plan(plan)["stages"], strict=True)):
        cost = costs[s] if s < len(costs) else None
        shape = _shape(problem.cluster, stage, known, cost, cp=plan.cp)
        stages.append(shape | (_judged(problem, stage, cost) if cost is not None else {}))
    runtime = {}
    if plan.settings is not None:
        runtime = {"settings": dataclasses.asdict(plan.settings), "virtual": plan.virtual}
    return {
        "micro_batch": plan.micro_batch_size,
        "micro_batches": plan.micro_batches,
        **runtime,
        "stages": stages,
        "idle": [] if evaluation is None else list(evaluation.idle),
        "terms_s": dict(evaluation.cost.terms) if evaluation and evaluation.cost else {},
        "schedule_s": None if evaluation is None else by_schedule(plan, evaluation),
        **share_object(time_shares(problem, plan, evaluation)),
        **expected_object(problem, plan, None if evaluation is None else evaluation.iteration_time),
        **worth_object(problem, plan, evaluation, tokens),
        "violations": [] if evaluation is None else list(map(str, evaluation.violations)),
    }


def _shape(
    cluster: ClusterSpec, stage: Stage, known: dict[str, Any], cost: StageCost | None, *, cp: int
) -> dict[str, Any]:
    """Return the decisions of a stage. known: the stage as it is saved. cp: of the plan."""
    if isinstance(stage, OperatorStage):
        return {
            **known,
            "tp": sorted({x.tp for x in stage.strategies}),
            "dp": sorted({x.dp for x in stage.strategies}),
            "split": sorted({x.split for x in stage.strategies}),
            "recompute": sum(x.recompute for x in stage.strategies),
        }
    assert isinstance(stage, GroupStage)
    tp = [degree // cp for degree in stage.degrees]
    replicas = []
    for r, replica in enumerate(stage.replicas):
        entry: dict[str, Any] = {"devices": list(replica.devices), "samples": replica.samples}
        if cost is not None:
            entry |= _place(cluster, replica.devices)
            entry["memory_bytes"] = cost.memory[r]
        replicas.append(entry)
    return {
        "start": stage.start,
        "stop": stage.stop,
        "tp": tp[0] if len(tp) == 1 else tp,
        "cp": cp,
        "dp": stage.dp,
        **({"recompute": known["recompute"]} if "recompute" in known else {}),
        "replicas": replicas,
    }


def _judged(problem: Problem[Any], stage: Stage, cost: StageCost) -> dict[str, Any]:
    used, limit = fullest_device(problem, stage, cost)
    return {
        "time_s": cost.time,
        "time_terms_s": dict(cost.time_terms),
        "memory_bytes": used,
        "memory_limit_bytes": limit,
        "memory_terms_bytes": dict(cost.memory_terms),
    }


def _place(cluster: ClusterSpec, devices: Sequence[int]) -> dict[str, Any]:
    """Return nodes and types of devices that exist."""
    nodes = dict.fromkeys(map(cluster.node_of.__getitem__, devices))
    return {
        "nodes": sorted(nodes),
        "types": list(dict.fromkeys(map(cluster.called.__getitem__, nodes))),
    }


def judgement_object(judgement: Judgement, tokens: float | None = None) -> dict[str, Any]:
    """Return an evaluator's verdict, and the check of the certificate, if there was one.
    tokens: as in `result_object`."""
    problem, plan, evaluation = judgement.problem, judgement.saved.plan, judgement.evaluation
    value: dict[str, Any] = {
        **headed("evaluate"),
        "legal": evaluation.legal,
        "iteration_time_s": evaluation.iteration_time,
        **problem_object(problem),
        **plan_object(problem, plan, evaluation, tokens),
        **judgement.coverage._asdict(),
        "holds": judgement.holds,
        "faults": list(judgement.faults),
        "notes": list(problem.notes),
    }
    if judgement.certificate is not None:
        value["certificate"] = certificate_object(
            judgement.certificate,
            evaluation.iteration_time,
            problem.space.part_key,
            outside=judgement.coverage.outside,
        )
    if judgement.aim is not None:
        value["objective"] = dataclasses.asdict(judgement.aim) | {
            "gap": judgement.aim.gap,
            "holds": judgement.aim.holds,
        }
    return value


def certificate_object(
    check: CertificateCheck,
    iteration_time: float,
    parts: str = "part",
    *,
    outside: str | None = None,
) -> dict[str, Any]:
    """Return the check of a certificate.

    iteration_time: seconds, as evaluated. parts: their key in the certificate.
    outside: why the bound is not about the plan; of one that it is about, it may not be above the
    time (`proved_gap`).
    """
    return {
        "holds": check.holds,
        "bound_s": check.bound,
        "gap": None if outside else proved_gap(iteration_time, check.bound),
        "parts": [
            {
                parts: part.part,
                "claimed_s": part.claimed,
                "rederived_s": part.rederived,
                "by": part.by,
                "holds": part.holds,
            }
            for part in check.parts
        ],
    }


def print_json(value: dict[str, Any]) -> None:
    """Print one object to stdout."""
    print(printable_json(to_json(value), sys.stdout.encoding), end="")

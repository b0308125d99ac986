"""What `--json` prints: one object, seconds and bytes, null for a number that does not exist."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ilp_planner.coverage import proved_gap
from ilp_planner.evaluate import time_shares
from ilp_planner.files import to_json
from ilp_planner.formats.plan_json import encode_plan
from ilp_planner.report.shares import share_object

if TYPE_CHECKING:
    from ilp_planner.certificate import CertificateCheck
    from ilp_planner.evaluate import Evaluation
    from ilp_planner.plan import OperatorPlan
    from ilp_planner.problem import Problem
    from ilp_planner.result import Outcome, Result


def result_object(problem: Problem, result: Result) -> dict[str, Any]:
    """Return a result."""
    return {
        **outcome_object(result),
        **problem_object(problem),
        **plan_object(problem, result.plan, result.evaluation),
        "reason": result.reason,
        "notes": list(dict.fromkeys((*problem.notes, *result.notes))),
    }


def outcome_object(result: Outcome) -> dict[str, Any]:
    """Return what is known at the end of a search, whatever the plan looks like."""
    return {
        "status": str(result.status),
        "stopped_by": str(result.stopped_by),
        "objective_s": result.objective,
        "bound_s": result.bound,
        "gap": result.gap,
        "bound_source": result.bound_source,
        "among": result.among,
        "confirmed_by": result.confirmed_by,
        "wall_s": result.wall,
        "solver": result.solver,
        "seed": result.seed,
    }


def problem_object(problem: Problem) -> dict[str, Any]:
    """Return what was planned."""
    return {
        "model": problem.model.name,
        "cluster": problem.cluster.name,
        "profile": problem.profile.source,
        "cost_model": problem.costs.name,
        "global_batch": problem.global_batch,
        "memory_limit_bytes": problem.memory_limit,
    }


def plan_object(
    problem: Problem, plan: OperatorPlan | None, evaluation: Evaluation | None
) -> dict[str, Any]:
    """Return a plan with what the evaluator finds; no stages without a plan."""
    if plan is None:
        return {"micro_batch": None, "micro_batches": None, "stages": [], "violations": []}
    costs = () if evaluation is None else evaluation.stages
    stages = []
    for s, stage in enumerate(encode_plan(plan)["stages"]):
        strategies = plan.stages[s].strategies
        stages.append(
            {
                "start": stage["start"],
                "stop": stage["stop"],
                "first_device": stage["first_device"],
                "devices": stage["devices"],
                "tp": sorted({x.tp for x in strategies}),
                "dp": sorted({x.dp for x in strategies}),
                "split": sorted({x.split for x in strategies}),
                "recompute": sum(x.recompute for x in strategies),
                "time_s": costs[s].time if s < len(costs) else None,
                "memory_bytes": costs[s].memory if s < len(costs) else None,
                "strategies": stage["strategies"],
            }
        )
    return {
        "micro_batch": plan.micro_batch_size,
        "micro_batches": plan.micro_batches,
        "stages": stages,
        **share_object({} if evaluation is None else time_shares(problem, plan, evaluation)),
        "violations": [] if evaluation is None else list(map(str, evaluation.violations)),
    }


def evaluation_object(
    problem: Problem, plan: OperatorPlan, evaluation: Evaluation
) -> dict[str, Any]:
    """Return an evaluator's verdict."""
    return {
        "legal": evaluation.legal,
        "iteration_time_s": evaluation.iteration_time,
        **problem_object(problem),
        **plan_object(problem, plan, evaluation),
    }


def certificate_object(
    check: CertificateCheck,
    iteration_time: float,
    parts: str = "part",
    *,
    outside: str | None = None,
) -> dict[str, Any]:
    """Return what became of a certificate.

    Parameters
    ----------
    iteration_time: seconds, as evaluated. parts: the key of what the certificate calls them.
    outside: why the bound is not about the plan.

    Raises
    ------
    SolverError: the bound is above the time of a plan that it is about.
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
    print(to_json(value), end="")

"""Plans put beside each other on one problem, each judged by it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ilp_planner.analysis.compare.entry import Entry
from ilp_planner.analysis.compare.sources import (
    Asked,
    Candidate,
    OtherProblemError,
    read_candidate,
)
from ilp_planner.analysis.fullest import fullest_of
from ilp_planner.base.errors import PlanError, PlannerError
from ilp_planner.base.numerics import ROUNDING
from ilp_planner.evaluate import evaluate
from ilp_planner.plan import is_of_groups, on_devices
from ilp_planner.specs.prices import nodes_of
from ilp_planner.specs.subcluster import shown

if TYPE_CHECKING:
    from ilp_planner.evaluate import Evaluation
    from ilp_planner.plan import AnyPlan
    from ilp_planner.problem import Problem

# A bound holds for all plans of a problem only when these are the same of it; what to call each.
SAME_SPACE = {
    "space": "plans",
    "node_numbers": "nodes",
    "micro_batches": "micro-batches",
    "max_stages": "stages",
    "max_tp": "tensor-parallel degrees",
    "constraints": "constraints",
}


def plan_entry(problem: Problem[Any], asked: Asked, *, proofs: bool = True) -> Entry:
    """Judge one plan on the problem, or say why it cannot be compared.

    Parameters
    ----------
    proofs: derive the bounds of its certificate again.
    """
    try:
        candidate = read_candidate(asked, problem)
    except OtherProblemError as error:
        return Entry(name=asked.text, remark=f"another problem: {error}")
    except PlannerError as error:
        return Entry(name=asked.text, remark=str(error).removeprefix(f"{asked.text}: "))
    bound, remark = _proved(problem, candidate) if proofs else (0.0, "")
    return candidate_entry(problem, candidate, bound=bound, remark=remark)


def _proved(problem: Problem[Any], candidate: Candidate) -> tuple[float, str]:
    """Return the bound that the certificate of a plan proves when it is derived again, and why
    there is none."""
    from ilp_planner.optimize.certificate import check_certificate

    if candidate.saved is None or not candidate.saved.certificate:
        return 0.0, ""
    # A bound holds for the space it was proved for: fewer micro-batches or stages prove less.
    theirs = candidate.theirs
    other = next((k for k in SAME_SPACE if getattr(problem, k) != getattr(theirs, k)), None)
    if other is not None:
        return 0.0, f"its bound is for another choice of {SAME_SPACE[other]}"
    try:
        return check_certificate(problem, candidate.saved.certificate).bound, ""
    except PlanError as error:
        return 0.0, str(error)


def candidate_entry(
    problem: Problem[Any], candidate: Candidate, *, bound: float = 0.0, remark: str = ""
) -> Entry:
    """Judge a plan by the rules of its own problem, with the same costs as the compared one and
    possibly more plans; plans that the compared one leaves out are outside of its proofs."""
    theirs, plan = candidate.theirs, candidate.plan
    evaluation = evaluate(theirs, plan)
    found = entry(theirs, candidate.name, plan, evaluation, bound=bound, remark=remark)
    if not evaluation.legal:
        return found
    return replace(found, outside=_outside(problem, candidate, found.time))


def _outside(problem: Problem[Any], candidate: Candidate, seconds: float) -> str | None:
    """Return why proofs on a problem are not about a plan that is legal on its own, and takes so
    many seconds there; None if they are. Both are of one cluster, and each may use other nodes of
    it."""
    plan, theirs = candidate.plan, candidate.theirs
    if problem.node_numbers != theirs.node_numbers:
        used = {theirs.node_numbers[node] for node in nodes_of(theirs.cluster, plan.used)}
        others = sorted(used.difference(problem.node_numbers))
        if others or not is_of_groups(plan):
            return f"nodes: found {shown(sorted(used))}, only {shown(problem.node_numbers)} tried"
        ours = {number: device for device, number in enumerate(problem.device_numbers)}
        plan = on_devices(plan, [ours.get(number, -1) for number in theirs.device_numbers])
    here = evaluate(problem, plan)
    if here.violations:
        return str(here.violations[0])
    if not math.isclose(here.iteration_time, seconds, rel_tol=ROUNDING):
        there = f"{here.iteration_time:.7g} s by those compared on"
        return f"time: found {seconds:.7g} s by its own inputs, {there}"
    return problem.space.outside(problem, plan)


def entry(
    problem: Problem[Any],
    name: str,
    plan: AnyPlan | None,
    evaluation: Evaluation | None,
    *,
    bound: float,
    remark: str,
    wall: float = math.nan,
    heuristic: bool = False,
) -> Entry:
    """Return the entry of a plan, if there is one, and of a bound."""
    found = Entry(name=name, bound=bound, wall=wall, remark=remark, heuristic=heuristic)
    if plan is None or evaluation is None:
        return found
    found = replace(
        found,
        problem=problem,
        plan=plan,
        stages=len(plan.stages),
        micro_batch=plan.micro_batch_size,
    )
    cost = evaluation.cost
    if cost is not None:
        used, limit = fullest_of(problem, plan, evaluation)
        found = replace(found, memory=used, limit=limit)
    others = [broken for broken in evaluation.violations if broken.rule != "memory"]
    if others or cost is None:
        why = f"not legal: {(others or evaluation.violations)[0]}"
        return replace(found, remark=why)
    found = replace(
        found,
        time=evaluation.iteration_time,
        evaluation=evaluation,
        seconds=dict(problem.space.seconds(problem, plan, cost)),
    )
    if not evaluation.legal:
        return replace(found, excess=found.memory - found.limit)
    return replace(found, outside=problem.space.outside(problem, plan))

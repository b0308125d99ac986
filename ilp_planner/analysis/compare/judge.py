"""Plans put beside each other on one problem, each judged by it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ilp_planner.analysis.compare.entry import Entry
from ilp_planner.analysis.fullest import fullest_of
from ilp_planner.errors import PlanError, PlannerError
from ilp_planner.evaluate import evaluate
from ilp_planner.formats.saved_json import read_saved
from ilp_planner.formats.saved_problem import problem_of
from ilp_planner.units import format_bytes

if TYPE_CHECKING:
    from pathlib import Path

    from ilp_planner.evaluate import Evaluation
    from ilp_planner.formats.saved_plan import SavedPlan
    from ilp_planner.plan import AnyPlan
    from ilp_planner.problem import Problem

# Plans are of one problem when these fields of their requests are the same, and what each device
# may hold ...
SAME = (
    "cost_model",
    "memory_rule",
    "placement",
    "experiment",
    "global_batch",
    "hidden",
    "sequence",
    "vocabulary",
)
# ... and a bound holds for all of them only when these of their problems are, too; what to call
# each.
SAME_SPACE = {
    "space": "plans",
    "micro_batches": "micro-batches",
    "max_stages": "stages",
    "max_tp": "tensor-parallel degrees",
}


def plan_entry(problem: Problem[Any], file: Path, *, accept_changed: bool) -> Entry:
    """Judge one plan on the problem, or say why it cannot be compared."""
    try:
        saved = read_saved(file)
        theirs = problem_of(saved, file, accept_changed=accept_changed)
        difference = other_problem(problem, theirs)
        if difference:
            return Entry(name=str(file), remark=f"another problem: {difference}")
        return judged(problem, theirs, saved, str(file))
    except PlannerError as error:
        return Entry(name=str(file), remark=str(error).removeprefix(f"{file}: "))


def other_problem(problem: Problem[Any], theirs: Problem[Any]) -> str:
    """Return how another problem differs from the one compared on, empty if it does not."""
    if problem.space.unit != theirs.space.unit:
        return f"its stages are of {theirs.space.unit}s, not of {problem.space.unit}s"
    ours, other = problem.request, theirs.request
    assert ours is not None
    assert other is not None
    for kind in dict.fromkeys((*ours.files, *other.files)):
        mine, found = ours.files.get(kind), other.files.get(kind)
        if mine is None or found is None:
            return f"{kind} is {'not given' if found is None else found.name}"
        if (mine.sha256 or mine.name) != (found.sha256 or found.name):
            named = f"{mine.name} differs" if mine.name == found.name else ""
            return f"{kind} {named}" if named else f"{kind} is {found.name}, not {mine.name}"
    for key in SAME:
        value, has = getattr(ours, key), getattr(other, key)
        if value != has:
            return f"{key.replace('_', ' ')} is {has or 'another'}, not {value or 'that'}"
    for name, limit in problem.limits_of_types.items():
        allowed = theirs.limits_of_types[name]
        if allowed != limit:
            return f"memory limit of {name} is {format_bytes(allowed)}, not {format_bytes(limit)}"
    return ""


def judged(problem: Problem[Any], theirs: Problem[Any], saved: SavedPlan, name: str) -> Entry:
    """Evaluate a plan; its bound counts when its certificate can be derived again."""
    from ilp_planner.certificate import check_certificate
    evaluation = evaluate(problem, saved.plan)
    remark = "" if evaluation.legal else f"not legal: {evaluation.violations[0]}"
    bound = 0.0
    if saved.certificate:
        # A bound holds for the space it was proved for: fewer micro-batches or stages prove less.
        others = (k for k in SAME_SPACE if getattr(problem, k) != getattr(theirs, k))
        other = next(others, None)
        if other is not None:
            remark = remark or f"its bound is for another choice of {SAME_SPACE[other]}"
        else:
            try:
                bound = check_certificate(problem, saved.certificate).bound
            except PlanError as error:
                remark = remark or str(error)
    return entry(problem, name, saved.plan, evaluation, bound=bound, remark=remark)


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
    """Return what there is to say of a plan, if there is one, and of a bound."""
    legal = plan is not None and evaluation is not None and evaluation.legal
    used, limit = math.nan, math.nan
    if plan is not None and evaluation is not None and evaluation.cost is not None:
        used, limit = fullest_of(problem, plan, evaluation)
    return Entry(
        name=name,
        time=evaluation.iteration_time if evaluation is not None and legal else math.inf,
        memory=used,
        limit=limit,
        bound=bound,
        stages=None if plan is None else len(plan.stages),
        micro_batch=None if plan is None else plan.micro_batch_size,
        wall=wall,
        remark=remark,
        heuristic=heuristic,
        outside=problem.space.outside(problem, plan) if plan is not None and legal else None,
    )

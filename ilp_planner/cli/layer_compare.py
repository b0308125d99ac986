"""`ilp-plan compare` for plans of whole layers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ilp_planner.cli.layer_evaluate import rederive_layers
from ilp_planner.cli.layer_inputs import rebuild_layer_case
from ilp_planner.cli.layer_solve import search_layers
from ilp_planner.cli.values import with_bound
from ilp_planner.errors import PlanError, PlannerError
from ilp_planner.formats.groups_json import read_saved
from ilp_planner.formats.saved_groups import SavedGroups
from ilp_planner.report.comparison import (
    HEURISTIC,
    Entry,
    best_bound,
    check_consistent,
    comparison_lines,
    comparison_object,
    comparison_table,
)
from ilp_planner.report.console import print_report
from ilp_planner.report.groups import fullest_device, group_problem_lines
from ilp_planner.report.groups_json import group_problem_object
from ilp_planner.report.json_report import print_json
from ilp_planner.report.live import Progress
from ilp_planner.report.tables import STOPS, summary
from ilp_planner.result import Stop
from ilp_planner.solvers.registry import is_heuristic

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ilp_planner.cli.layer_inputs import LayerCase
    from ilp_planner.evaluate import Evaluation
    from ilp_planner.plan import GroupPlan
    from ilp_planner.problem import Problem
    from ilp_planner.result import Result
    from ilp_planner.solvers.base import Limits

# Plans are of one problem when these are the same ...
SAME_VALUES = (
    "cost_model",
    "memory_rule",
    "placement",
    "experiment",
    "global_batch",
    "memory_limit",
)
SAME_SIZES = ("hidden", "sequence", "vocabulary")
# ... and a bound holds for all of them only when these are, too.
SAME_SPACE = ("space", "micro_batch_sizes", "max_stages", "max_tp", "max_cp")


def compare_layers(
    first: SavedGroups,
    files: list[Path],
    solvers: list[str],
    limits: Limits,
    *,
    accept_changed: bool,
    as_json: bool,
) -> None:
    """Put plans and solvers side by side on the first plan's problem, and print them.

    Raises
    ------
    SolverError: a bound is above the time of a plan that it is about.
    """
    case = rebuild_layer_case(first, files[0], accept_changed=accept_changed)
    entries = [plan_entry(case, file) for file in files]
    entries += solver_entries(case, with_bound(solvers, best_bound(entries)), limits)
    check_consistent(entries)
    problem = case.problem
    if as_json:
        print_json(comparison_object(group_problem_object(problem), entries))
        return
    lines = comparison_lines(group_problem_lines(problem), problem.notes, entries)
    print_report(summary(lines), comparison_table(entries))


def plan_entry(case: LayerCase, file: Path) -> Entry:
    """Judge one plan on the problem, or say why it cannot be compared."""
    try:
        saved = read_saved(file)
        if not isinstance(saved, SavedGroups):
            return Entry(name=str(file), remark="another problem: a plan of operators")
        difference = other_problem(case, saved, file)
        if difference:
            return Entry(name=str(file), remark=f"another problem: {difference}")
        return judged(case, saved, file)
    except PlannerError as error:
        return Entry(name=str(file), remark=str(error).removeprefix(f"{file}: "))


def other_problem(case: LayerCase, saved: SavedGroups, file: Path) -> str:
    """Return how the problem of a plan differs from the one compared on, empty if it does not."""
    ours, theirs = case.inputs, rebuild_layer_case(saved, file, accept_changed=True).inputs
    for kind in dict.fromkeys((*ours.files, *theirs.files)):
        mine, other = ours.files.get(kind), theirs.files.get(kind)
        if mine is None or other is None:
            return f"{kind} is {'not given' if other is None else other.name}"
        if (mine.sha256 or mine.name) != (other.sha256 or other.name):
            return f"{kind} is {other.name}, not {mine.name}"
    for key in (*SAME_VALUES, *SAME_SIZES):
        value, found = getattr(ours, key), getattr(theirs, key)
        if value != found:
            return f"{key.replace('_', ' ')} is {found}, not {value}"
    return ""


def judged(case: LayerCase, saved: SavedGroups, file: Path) -> Entry:
    """Evaluate a plan; its bound counts when its certificate can be derived again."""
    from ilp_planner.evaluate import evaluate

    evaluation = evaluate(case.problem, saved.plan)
    remark = "" if evaluation.legal else f"not legal: {evaluation.violations[0]}"
    bound = 0.0
    if saved.certificate:
        if all(getattr(saved.inputs, key) == getattr(case.inputs, key) for key in SAME_SPACE):
            bound, failure = _proved(case, saved, file)
            remark = remark or failure
        elif not remark:
            remark = "its bound is for another choice of plans"
    return _entry(case.problem, str(file), saved.plan, evaluation, bound=bound, remark=remark)


def _proved(case: LayerCase, saved: SavedGroups, file: Path) -> tuple[float, str]:
    """Return the bound that the certificate proves, and why it proves none."""
    try:
        return rederive_layers(case.problem, saved, file).bound, ""
    except PlanError as error:
        return 0.0, str(error).removeprefix(f"{file}: ")


def solver_entries(case: LayerCase, names: list[str], limits: Limits) -> Iterator[Entry]:
    """Run solvers one after the other; Ctrl-C ends the one that runs, and leaves out the rest."""
    for name in names:
        entry, stop = solver_entry(case, name, limits)
        yield entry
        if stop is Stop.USER:
            return


def solver_entry(case: LayerCase, name: str, limits: Limits) -> tuple[Entry, Stop]:
    """Run one solver on the problem; return also why it stopped."""
    heuristic = is_heuristic(name)
    try:
        result = (look_for_layers if heuristic else search_layers)(case, limits, name)
    except PlannerError as error:
        return Entry(name=f"solver {name}", remark=str(error)), Stop.ERROR
    remarks = list(result.notes if result.plan else [result.reason or "no plan found"])
    if result.stopped_by not in (Stop.PROOF, Stop.HEURISTIC):
        remarks.insert(0, STOPS[result.stopped_by])
    if heuristic:
        remarks.insert(0, HEURISTIC)
    entry = _entry(
        case.problem,
        f"solver {name}",
        result.plan,
        result.evaluation,
        bound=0.0 if heuristic else result.bound,
        remark="; ".join(note for note in remarks if note not in case.problem.notes),
        wall=result.wall,
        heuristic=heuristic,
    )
    return entry, result.stopped_by


def look_for_layers(case: LayerCase, limits: Limits, name: str) -> Result:
    """Let a heuristic look for a plan, without a bound, with the live line."""
    from ilp_planner.search.graph_hunt import find_group_plan

    with Progress() as progress:
        return find_group_plan(case.problem, limits, name, progress)


def _entry(
    problem: Problem[Any],
    name: str,
    plan: GroupPlan | None,
    evaluation: Evaluation | None,
    *,
    bound: float,
    remark: str,
    wall: float = math.nan,
    heuristic: bool = False,
) -> Entry:
    from ilp_planner.evaluate import coverage_of

    used, limit = math.nan, math.nan
    if plan is not None and evaluation is not None and evaluation.cost is not None:
        used, limit = max(
            (
                fullest_device(problem, stage, cost)
                for stage, cost in zip(plan.stages, evaluation.cost.stages, strict=True)
            ),
            key=lambda pair: pair[0] / pair[1],
        )
    legal = evaluation is not None and evaluation.legal
    outside = coverage_of(problem, plan, legal=True).outside if plan and legal else None
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
        outside=outside,
    )

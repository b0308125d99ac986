"""`ilp-plan compare`."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ilp_planner.cli import options as o
from ilp_planner.cli.completion import plans
from ilp_planner.cli.help import SOLVER
from ilp_planner.cli.inputs import Case, rebuild_case
from ilp_planner.cli.layer_compare import compare_layers
from ilp_planner.cli.solve import search
from ilp_planner.cli.values import solve_limits, solver_names, with_bound
from ilp_planner.coverage import coverage_of
from ilp_planner.errors import PlannerError, SolverError
from ilp_planner.formats.groups_json import read_saved
from ilp_planner.formats.plan_json import read_plan
from ilp_planner.formats.saved_groups import SavedGroups
from ilp_planner.formats.saved_plan import Inputs, SavedPlan
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
from ilp_planner.report.json_report import print_json, problem_object
from ilp_planner.report.live import Progress
from ilp_planner.report.tables import STOPS, problem_lines, summary
from ilp_planner.result import Stop
from ilp_planner.solvers.registry import is_heuristic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ilp_planner.problem import Problem
    from ilp_planner.result import Result
    from ilp_planner.solvers.base import Limits

SAME = ("model", "cluster", "profile")
SAME_VALUES = ("cost_model", "global_batch", "memory_limit")


def compare(
    plan_files: Annotated[
        list[Path],
        typer.Argument(
            metavar="PLAN...",
            help="Saved plans; the first is the problem.",
            autocompletion=plans,
        ),
    ],
    solvers: Annotated[
        str, o.option(SOLVER, "--solvers", "Solvers to run on the problem.", "NAME,...")
    ] = "",
    starts: o.Starts = None,
    time_limit: o.TimeLimit = 200.0,
    workers: o.Workers = 2,
    seed: o.Seed = 0,
    accept_changed: o.AcceptChanged = False,
    as_json: o.Json = False,
) -> None:
    """Put plans and solvers side by side on one problem: time, memory, gap to the best bound.

    Heuristics run for their plan alone; where nothing else proves a bound, auto does.
    """
    names = solver_names(solvers)
    limits = solve_limits(time_limit, 0.0, None, workers, seed, starts=starts, solvers=names)
    first = read_saved(plan_files[0])
    if isinstance(first, SavedGroups):
        compare_layers(
            first, plan_files, names, limits, accept_changed=accept_changed, as_json=as_json
        )
        return
    case = rebuild_case(first, plan_files[0], accept_changed=accept_changed)
    entries = [plan_entry(case, file) for file in plan_files]
    entries += solver_entries(case, with_bound(names, best_bound(entries)), limits)
    check_consistent(entries)
    show(case.problem, entries, as_json=as_json)


def plan_entry(case: Case, file: Path) -> Entry:
    """Judge one plan on the problem, or say why it cannot be compared."""
    try:
        saved = read_plan(file)
        difference = other_problem(case, saved, file)
        if difference:
            return Entry(name=str(file), remark=f"another problem: {difference}")
        return judged(case, saved, str(file))
    except PlannerError as error:
        return Entry(name=str(file), remark=str(error).removeprefix(f"{file}: "))


def other_problem(case: Case, saved: SavedPlan, file: Path) -> str:
    """Return how the problem of a plan differs from the one compared on, empty if it does not."""
    theirs: Inputs = rebuild_case(saved, file, accept_changed=True).inputs
    for key in SAME:
        ours, other = getattr(case.inputs, key), getattr(theirs, key)
        if (ours.sha256 or ours.name) != (other.sha256 or other.name):
            return f"{key} is {other.name}, not {ours.name}"
    for key in SAME_VALUES:
        mine, other = getattr(case.inputs, key), getattr(theirs, key)
        if mine != other:
            return f"{key.replace('_', ' ')} is {other}, not {mine}"
    return ""


def judged(case: Case, saved: SavedPlan, name: str) -> Entry:
    """Evaluate a plan; its bound counts when its certificate can be derived again."""
    from ilp_planner.evaluate import evaluate

    evaluation = evaluate(case.problem, saved.plan)
    remark = "" if evaluation.legal else f"not legal: {evaluation.violations[0]}"
    bound = 0.0
    if saved.certificate:
        # A bound holds for the space it was proved for: fewer micro-batches or stages prove less.
        if (saved.inputs.micro_batches, saved.inputs.max_stages) == (
            case.inputs.micro_batches,
            case.inputs.max_stages,
        ):
            from ilp_planner.certificate import check_certificate

            bound = check_certificate(case.problem, saved.certificate).bound
        elif not remark:
            remark = "its bound is for another choice of micro-batches or stages"
    return Entry(
        name=name,
        time=evaluation.iteration_time if evaluation.legal else math.inf,
        memory=max((cost.memory for cost in evaluation.stages), default=math.nan),
        limit=case.problem.memory_limit,
        bound=bound,
        stages=len(saved.plan.stages),
        micro_batch=saved.plan.micro_batch_size,
        remark=remark,
        outside=coverage_of(case.problem, saved.plan, legal=True).outside,
    )


def solver_entries(case: Case, names: list[str], limits: "Limits") -> "Iterator[Entry]":
    """Run solvers one after the other; Ctrl-C ends the one that runs, and leaves out the rest."""
    for name in names:
        entry, stop = solver_entry(case, name, limits)
        yield entry
        if stop is Stop.USER:
            return


def solver_entry(case: Case, name: str, limits: "Limits") -> tuple[Entry, Stop]:
    """Run one solver on the problem; return also why it stopped."""
    heuristic = is_heuristic(name)
    try:
        result = look(case, limits, name) if heuristic else search(case, limits, name)
    except SolverError as error:
        return Entry(name=f"solver {name}", remark=str(error)), Stop.ERROR
    found = result.evaluation
    remarks = list(result.notes if result.plan else [result.reason or "no plan found"])
    if result.stopped_by not in (Stop.PROOF, Stop.HEURISTIC):
        remarks.insert(0, STOPS[result.stopped_by])
    if heuristic:
        remarks.insert(0, HEURISTIC)
    entry = Entry(
        name=f"solver {name}",
        time=result.objective,
        memory=math.nan if found is None else max(cost.memory for cost in found.stages),
        limit=case.problem.memory_limit,
        bound=0.0 if heuristic else result.bound,
        stages=None if result.plan is None else len(result.plan.stages),
        micro_batch=None if result.plan is None else result.plan.micro_batch_size,
        wall=result.wall,
        remark="; ".join(note for note in remarks if note not in case.problem.notes),
        heuristic=heuristic,
    )
    return entry, result.stopped_by


def look(case: Case, limits: "Limits", name: str) -> "Result":
    """Let a heuristic look for a plan, without a bound, with the live line."""
    from ilp_planner.spaces.operators.hunt import find_plan

    with Progress() as progress:
        return find_plan(case.problem, limits, name, progress)


def show(problem: "Problem", entries: list[Entry], *, as_json: bool) -> None:
    """Print the comparison."""
    if as_json:
        print_json(comparison_object(problem_object(problem), entries))
        return
    lines = comparison_lines(problem_lines(problem), problem.notes, entries)
    print_report(summary(lines), comparison_table(entries))

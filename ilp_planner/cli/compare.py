"""`ilp-plan compare`."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from ilp_planner.cli import options as o
from ilp_planner.cli.completion import plans
from ilp_planner.cli.help import SOLVER
from ilp_planner.cli.values import (
    Solver,
    idle_workers,
    names_in,
    solve_limits,
    was_typed,
    with_bound,
)
from ilp_planner.errors import PlanError, PlannerError, UsageError
from ilp_planner.formats.saved_json import read_saved
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
from ilp_planner.report.lines import problem_lines
from ilp_planner.report.live import Progress
from ilp_planner.report.stages import fullest_of
from ilp_planner.report.tables import STOPS, summary
from ilp_planner.result import Stop
from ilp_planner.solvers.registry import is_heuristic
from ilp_planner.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ilp_planner.evaluate import Evaluation
    from ilp_planner.formats.saved_plan import SavedPlan
    from ilp_planner.plan import AnyPlan
    from ilp_planner.problem import Problem
    from ilp_planner.solvers.base import Limits

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

OF_SOLVERS = ("time_limit", "workers", "seed")


def compare(
    ctx: typer.Context,
    plan_files: Annotated[
        list[Path],
        typer.Argument(
            metavar="PLAN...", help="Saved plans; the first is the problem.", autocompletion=plans
        ),
    ],
    solvers: Annotated[
        str, o.option(SOLVER, "--solvers", "Solvers to run on the problem.", "NAME,...")
    ] = "",
    starts: o.Starts = None,
    time_limit: o.TimeLimit = 200.0,
    workers: o.Workers = None,
    seed: o.Seed = None,
    accept_changed: o.AcceptChanged = False,
    as_json: o.Json = False,
) -> None:
    """Put plans and solvers side by side on one problem: time, memory, gap to the best bound.

    Heuristics run for their plan alone; where nothing else proves a bound, auto does.
    """
    from ilp_planner.formats.saved_problem import problem_of

    names = names_in("--solvers", solvers, get_args(Solver))
    for name in OF_SOLVERS:
        if not names and was_typed(ctx, name):
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"{option}: found no --solvers, expected some that it is for")
    limits = solve_limits(time_limit, 0.0, None, workers, seed, starts=starts, solvers=names)
    problem = problem_of(read_saved(plan_files[0]), plan_files[0], accept_changed=accept_changed)
    problem = idle_workers(problem, workers, names)
    entries = [plan_entry(problem, file, accept_changed=accept_changed) for file in plan_files]
    entries += solver_entries(problem, with_bound(names, best_bound(entries)), limits)
    check_consistent(entries)
    if as_json:
        print_json(comparison_object(problem_object(problem), entries))
        return
    lines = comparison_lines(problem_lines(problem), problem.notes, entries)
    print_report(summary(lines), comparison_table(entries))


def plan_entry(problem: "Problem[Any]", file: Path, *, accept_changed: bool) -> Entry:
    """Judge one plan on the problem, or say why it cannot be compared."""
    from ilp_planner.formats.saved_problem import problem_of

    try:
        saved = read_saved(file)
        theirs = problem_of(saved, file, accept_changed=accept_changed)
        difference = other_problem(problem, theirs)
        if difference:
            return Entry(name=str(file), remark=f"another problem: {difference}")
        return judged(problem, theirs, saved, str(file))
    except PlannerError as error:
        return Entry(name=str(file), remark=str(error).removeprefix(f"{file}: "))


def other_problem(problem: "Problem[Any]", theirs: "Problem[Any]") -> str:
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


def judged(problem: "Problem[Any]", theirs: "Problem[Any]", saved: "SavedPlan", name: str) -> Entry:
    """Evaluate a plan; its bound counts when its certificate can be derived again."""
    from ilp_planner.certificate import check_certificate
    from ilp_planner.evaluate import evaluate

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


def solver_entries(
    problem: "Problem[Any]", names: list[str], limits: "Limits"
) -> "Iterator[Entry]":
    """Run solvers one after the other; Ctrl-C ends the one that runs, and leaves out the rest."""
    for name in names:
        found, stop = solver_entry(problem, name, limits)
        yield found
        if stop is Stop.USER:
            return


def solver_entry(problem: "Problem[Any]", name: str, limits: "Limits") -> tuple[Entry, Stop]:
    """Run one solver on the problem; return also why it stopped."""
    from ilp_planner.heuristic import find_plan
    from ilp_planner.solve import solve

    heuristic = is_heuristic(name)
    try:
        with Progress() as progress:
            if heuristic:
                result = find_plan(problem, limits, name, progress)
            else:
                result = solve(problem, limits=limits, solver=name, progress=progress)
    except PlannerError as error:
        return Entry(name=f"solver {name}", remark=str(error)), Stop.ERROR
    remarks = list(result.notes if result.plan else [result.reason or "no plan found"])
    if result.stopped_by not in (Stop.PROOF, Stop.HEURISTIC):
        remarks.insert(0, STOPS[result.stopped_by])
    if heuristic:
        remarks.insert(0, HEURISTIC)
    found = entry(
        problem,
        f"solver {name}",
        result.plan,
        result.evaluation,
        bound=0.0 if heuristic else result.bound,
        remark="; ".join(note for note in remarks if note not in problem.notes),
        wall=result.wall,
        heuristic=heuristic,
    )
    return found, result.stopped_by


def entry(
    problem: "Problem[Any]",
    name: str,
    plan: "AnyPlan | None",
    evaluation: "Evaluation | None",
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

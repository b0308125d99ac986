"""`ilp-plan compare`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from ilp_planner.analysis.compare.entry import Entry, best_bound, check_consistent
from ilp_planner.base.errors import PlannerError, UsageError
from ilp_planner.faces.cli import job_options as j
from ilp_planner.faces.cli import options as o
from ilp_planner.faces.cli.completion import plans
from ilp_planner.faces.cli.help import SOLVER
from ilp_planner.faces.cli.values import (
    Solver,
    idle_workers,
    names_in,
    number_of_tokens,
    settings_given,
    solve_limits,
    was_typed,
    with_bound,
)
from ilp_planner.faces.report.comparison import (
    HEURISTIC,
    comparison_lines,
    comparison_object,
    comparison_table,
    detail_tables,
)
from ilp_planner.faces.report.console import print_report
from ilp_planner.faces.report.json_report import print_json
from ilp_planner.faces.report.lines import problem_lines
from ilp_planner.faces.report.live import Progress
from ilp_planner.faces.report.tables import STOPS
from ilp_planner.formats.saved_json import read_saved
from ilp_planner.optimize.result import Stop
from ilp_planner.optimize.solvers.registry import is_heuristic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ilp_planner.inputs.problem import Problem
    from ilp_planner.optimize.solvers.base import Limits

OF_SOLVERS = ("time_limit", "workers", "seed")


def compare(
    ctx: typer.Context,
    plan_files: Annotated[
        list[str],
        typer.Argument(
            metavar="PLAN...",
            help="A saved plan, which says the problem; then other saved plans, launch scripts and "
            "configurations of training systems, which are read, not run, jobs of `ilp-plan "
            "capture`, or aceso:FILE.",
            autocompletion=plans,
        ),
    ],
    solvers: Annotated[
        str, o.option(SOLVER, "--solvers", "Solvers to run on the problem.", "NAME,...")
    ] = "",
    starts: o.Starts = None,
    time_limit: o.TimeLimit = 200.0,
    workers: o.Workers = None,
    seed: o.Seed = None,
    tokens: o.Tokens = None,
    set_values: j.SetValues = None,
    accept_changed: o.AcceptChanged = False,
    as_json: o.Json = False,
) -> None:
    """Put plans and solvers side by side on one problem: time, memory, gap to the best bound, what
    they decide differently and where their seconds go.

    Heuristics run for their plan alone; where nothing else proves a bound, auto does.
    """
    from ilp_planner.analysis.compare.judge import Asked, plan_entry
    from ilp_planner.formats.saved_problem import problem_of

    names = names_in("--solvers", solvers, get_args(Solver))
    for name in OF_SOLVERS:
        if not names and was_typed(ctx, name):
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"{option}: found no --solvers, expected some that it is for")
    limits = solve_limits(time_limit, 0.0, None, workers, seed, starts=starts, solvers=names)
    run_tokens = number_of_tokens(tokens)
    first, given = Path(plan_files[0]), settings_given(set_values)
    problem = problem_of(read_saved(first), first, accept_changed=accept_changed)
    problem = idle_workers(problem, workers, names)
    words = o.script_arguments(ctx)
    asked = [Asked(text, given, accept_changed, words) for text in plan_files]
    entries = [plan_entry(problem, one) for one in asked]
    entries += solver_entries(problem, with_bound(names, best_bound(entries)), limits)
    check_consistent(entries)
    if as_json:
        print_json(comparison_object(problem, entries, run_tokens))
        return
    lines = comparison_lines(problem_lines(problem), problem.notes, entries)
    tables = (comparison_table(entries), *detail_tables(entries, run_tokens))
    print_report(lines, *tables)


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
    from ilp_planner.analysis.compare.judge import entry
    from ilp_planner.optimize.heuristic import find_plan
    from ilp_planner.optimize.solve import solve

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

"""`ilp-plan solve`."""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ilp_planner.base.errors import InfeasibleError, ProfileError, UsageError
from ilp_planner.base.files import check_writable
from ilp_planner.base.resident import uncollected
from ilp_planner.faces.cli import objective as j
from ilp_planner.faces.cli import options as o
from ilp_planner.faces.cli.help import SOLVER
from ilp_planner.faces.cli.options import taking
from ilp_planner.faces.cli.request_options import request_options
from ilp_planner.faces.cli.terminal import echo, finish
from ilp_planner.faces.cli.values import (
    Solver,
    idle_workers,
    input_files,
    memory_to_hold,
    number_of_tokens,
    solve_limits,
)
from ilp_planner.faces.report.brief import brief_lines, next_steps
from ilp_planner.faces.report.console import print_brief, tell_of_compiling
from ilp_planner.faces.report.json_report import print_json, result_object
from ilp_planner.faces.report.lines import result_lines
from ilp_planner.faces.report.live import Progress
from ilp_planner.faces.report.stages import result_tables
from ilp_planner.faces.report.tables import describe_gap
from ilp_planner.formats.saved_json import keep_saved
from ilp_planner.formats.saved_plan import INDEPENDENT, saved_result
from ilp_planner.formats.saved_start import read_start
from ilp_planner.formats.versions import versions
from ilp_planner.inputs.files import InputFiles
from ilp_planner.inputs.request import Request
from ilp_planner.optimize.result import Result, Status
from ilp_planner.optimize.search.preference import check_preference
from ilp_planner.optimize.solvers.base import PREFER_PLAIN, Limits, Task
from ilp_planner.spaces.objectives.objective import TIME, objective_named

if TYPE_CHECKING:
    from ilp_planner.inputs.problem import Problem

NO_PLAN = 4
GAP_TOO_LARGE = 5


@dataclass(frozen=True, kw_only=True)
class Aim:
    """What is minimised, and over which nodes."""

    all_devices: j.AllDevices = False
    objective: j.Objective = "time"
    max_price_per_hour: j.MaxPricePerHour = None


@dataclass(frozen=True, kw_only=True)
class Search:
    """How, and how long, it is searched."""

    top: o.Top = None
    shortlist: o.Shortlist = 1
    time_limit: o.TimeLimit = 200.0
    max_memory: o.MaxMemory = None
    gap: o.GapLimit = 0.0
    require_gap: Annotated[
        float | None,
        o.option(SOLVER, "--require-gap", "Exit with 5 when the gap stays larger.", "FRACTION"),
    ] = None
    prefer_plain: o.PreferPlain = None
    solver: Annotated[
        Solver,
        o.option(
            SOLVER,
            "--solver",
            "What solves; auto combines. gradient and anneal are heuristics: their plan, with the "
            "bound of auto.",
            default=True,
        ),
    ] = "auto"
    starts: o.Starts = None
    start: o.Start = None
    workers: o.Workers = None
    seed: o.Seed = None

    def limits(self) -> Limits:
        """Return the limits of the search; a UsageError if they contradict each other."""
        limits = solve_limits(
            self.time_limit, self.gap, self.require_gap, self.workers, self.seed,
            starts=self.starts, solvers=(self.solver,),
        )  # fmt: skip
        return replace(
            limits,
            prefer_plain=PREFER_PLAIN if self.prefer_plain is None else self.prefer_plain,
            require_gap=1.0 if self.require_gap is None else self.require_gap,
            memory=memory_to_hold(self.max_memory),
        )


@dataclass(frozen=True, kw_only=True)
class Shown:
    """How a result is kept and printed. tokens: to say how long training on them takes; None: on
    10^12."""

    output: o.Output = None
    reproducible: o.Reproducible = False
    check: o.Check = False
    as_json: o.Json = False
    verbose: o.Verbose = False
    tokens: o.Tokens = None

    def __post_init__(self) -> None:
        if self.reproducible and self.output is None:
            raise UsageError(
                "--reproducible: found no --output, expected the file that it is about"
            )
        if self.check and (self.output is None or self.as_json):
            found = "--json" if self.as_json else "no --output"
            raise UsageError(
                f"--check: found {found}, expected an --output that it is about, and no --json"
            )
        number_of_tokens(self.tokens)


@taking(request=request_options(), aim=Aim, search=Search, shown=Shown)
@uncollected()  # to its end: a collection after a large search takes half a second
def solve(
    ctx: typer.Context,
    request: Request,
    num_layers: o.NumLayers = None,
    *,
    aim: Aim,
    search: Search,
    shown: Shown,
) -> None:
    """Find the fastest plan, and prove how far from the best possible it can be.

    Decoder-only models are planned as Megatron-LM can run them. Of other models, and with Aceso's
    costs or profiles, operators are planned; whole layers where devices differ, and where the
    profile or the cost model is of layers.
    """
    from ilp_planner.analysis.shortlist.shortlist import (
        check_shortlist,
        time_for_plan,
        with_shortlist,
    )
    from ilp_planner.spaces.objectives.any_nodes import build_for_any_nodes, solve_on_any_nodes

    aimed, limits, solver, top = (
        objective_named(aim.objective),
        search.limits(),
        search.solver,
        search.top,
    )
    on_sets = aimed is not TIME or aim.max_price_per_hour is not None
    if shown.output is not None:
        check_writable(shown.output, input_files(file.name for file in request.files.values()))
    begin = None if search.start is None else read_start(search.start)
    tell_of_compiling()
    problem = build(request) if aim.all_devices else build_for_any_nodes(InputFiles(request))
    check_num_layers(problem, num_layers)
    problem = idle_workers(problem, search.workers, (solver,))
    check_preference(problem, search.prefer_plain, top=top or 1, solver=solver)
    check_shortlist(problem, search.shortlist, top=top or 1, solver=solver, objective=on_sets)
    deadline = limits.deadline(ctx.obj, steady=shown.reproducible)
    if on_sets:
        problem, result = j.on_sets(
            problem, aimed, aim.max_price_per_hour, Task(limits, solver, None, deadline),
            {"top": top, "start": search.start, "all_devices": aim.all_devices or None},
        )  # fmt: skip
    else:
        with Progress() as progress:
            problem, result = solve_on_any_nodes(
                problem, limits=limits, solver=solver, progress=progress, top=top or 1,
                start=begin, deadline=time_for_plan(deadline, search.shortlist),
                all_devices=aim.all_devices,
            )  # fmt: skip
            result = with_shortlist(
                problem, result, search.shortlist, limits=limits, deadline=deadline
            )
    finish()
    save_and_show(problem, result, shown)
    raise typer.Exit(verdict(result, search.require_gap))


def build(request: Request) -> "Problem[Any]":
    """Read all inputs and build the problem."""
    # Imported here: cost models need numpy, and `ilp-plan --help` does not.
    from ilp_planner.inputs.files import InputFiles
    from ilp_planner.spaces.registry import build_problem

    return build_problem(InputFiles(request))


def check_num_layers(problem: "Problem[Any]", layers: int | None) -> None:
    """Refuse another number of layers than `--num-layers` says, and any if none are planned."""
    have, unit = len(problem.costs.chain), problem.space.unit
    if layers is not None and unit != "layer":
        raise UsageError(
            f"--num-layers: found {unit}s to plan, expected whole layers: --space groups plans "
            "these"
        )
    if layers not in (None, have):
        raise ProfileError(
            f"{problem.profile_source}: --num-layers: found {layers}, expected {have}, which the "
            "profile has, embedding and head included"
        )


def save_and_show(problem: "Problem[Any]", result: Result, shown: Shown) -> None:
    """Save the plan, if there is one and a path, and print the result in any case: it may have cost
    hours."""
    saved_to, tokens, unproved = None, number_of_tokens(shown.tokens), ""
    try:
        if shown.output is not None and result.plan is not None:
            known = None if shown.reproducible else versions()
            saved = saved_result(problem, result, known)
            keep_saved(shown.output, saved)
            saved_to = shown.output
            if shown.check and INDEPENDENT not in saved.certificate:
                unproved = _unproved(problem, result)
    finally:
        if shown.as_json:
            print_json(result_object(problem, result, tokens))
        else:
            steps = next_steps(problem, result, saved_to)
            lines = brief_lines(problem, result, tokens, steps)
            tables = result_tables(problem, result, every=shown.verbose)
            details = result_lines(problem, result, tokens) if shown.verbose else ()
            print_brief(lines, tables, details)
    if shown.check and saved_to is not None:
        from ilp_planner.faces.cli.evaluate import tell_checked

        tell_checked(saved_to, unproved)


def _unproved(problem: "Problem[Any]", result: Result) -> str:
    """Return what a result has no independent proof of."""
    if result.aim is not None and not result.aim.usual:
        return "another objective than time"
    return problem.space.unproved(problem, result.bound)


def verdict(result: Result, require_gap: float | None) -> int:
    """Return the exit code, after a line on stderr when it is not 0.

    Raises
    ------
    InfeasibleError: proved that there is no plan.
    """
    if result.status is Status.INFEASIBLE:
        raise InfeasibleError(f"infeasible: {result.reason or 'no plan fits'}")
    if result.plan is None:
        echo(f"ilp-plan: no plan found in {result.wall:.1f} s", err=True)
        return NO_PLAN
    gap = result.gap if result.aim is None else result.aim.gap
    if require_gap is not None and gap > require_gap:
        found = describe_gap(gap) if math.isfinite(gap) else "open plans of the front"
        expected = f"{100 * require_gap:g} %"
        echo(f"ilp-plan: gap: found {found}, --require-gap expects {expected}", err=True)
        return GAP_TOO_LARGE
    return 0

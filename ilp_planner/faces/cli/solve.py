"""`ilp-plan solve`."""

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ilp_planner.base.errors import InfeasibleError, ProfileError, UsageError
from ilp_planner.base.files import check_writable
from ilp_planner.faces.cli import constraint_options as c
from ilp_planner.faces.cli import objective as j
from ilp_planner.faces.cli import options as o
from ilp_planner.faces.cli.echo import echo
from ilp_planner.faces.cli.help import SOLVER
from ilp_planner.faces.cli.signals import finish
from ilp_planner.faces.cli.values import (
    Solver,
    idle_workers,
    input_files,
    memory_limit,
    memory_to_hold,
    number_of_tokens,
    references,
    solve_limits,
    whole_numbers,
)
from ilp_planner.faces.report.brief import brief_lines, next_steps
from ilp_planner.faces.report.console import print_brief, tell_of_compiling
from ilp_planner.faces.report.json_report import print_json, result_object
from ilp_planner.faces.report.lines import result_lines
from ilp_planner.faces.report.live import Progress
from ilp_planner.faces.report.stages import result_tables
from ilp_planner.faces.report.tables import describe_gap
from ilp_planner.formats.saved_json import keep_saved
from ilp_planner.formats.saved_plan import saved_result
from ilp_planner.formats.saved_start import read_start
from ilp_planner.formats.versions import versions
from ilp_planner.inputs.files import InputFiles, cluster_or_gpus
from ilp_planner.inputs.request import Request
from ilp_planner.optimize.result import Result, Status
from ilp_planner.optimize.search.preference import check_preference
from ilp_planner.optimize.solvers.base import PREFER_PLAIN, Task
from ilp_planner.spaces.objectives.objective import TIME, objective_named

if TYPE_CHECKING:
    from ilp_planner.problem import Problem

NO_PLAN = 4
GAP_TOO_LARGE = 5


@c.constrained()
def solve(
    ctx: typer.Context,
    model_name: o.ModelName = None,
    cluster_name: o.ClusterName = None,
    model: o.MaybeModel = None,
    text_only: o.TextOnly = False,
    cluster: o.MaybeCluster = None,
    gpus: o.Gpus = None,
    hostfile: o.Hostfile = None,
    clusterfile: o.Clusterfile = None,
    profile: o.AnyProfile = o.DEFAULT_PROFILE,
    experiment: o.Experiment = None,
    cost_model: o.AnyCostModel = "native",
    space: o.Space = None,
    runtime: o.Runtime = None,
    memory_rule: o.MemoryRule = None,
    placement: o.Placement = None,
    shares: o.Shares = None,
    stage_tp: o.StageTp = None,
    seats: o.Seats = None,
    global_batch: o.AnyGlobalBatch = None,
    micro_batch: o.MicroBatchSizes = None,
    memory: o.MemoryLimit = None,
    max_stages: o.MaxStages = None,
    max_tp: o.MaxTp = None,
    max_cp: o.MaxCp = None,
    max_stage_nodes: o.MaxStageNodes = None,
    demands: Any = None,
    all_devices: j.AllDevices = False,
    objective: j.Objective = "time",
    max_price_per_hour: j.MaxPricePerHour = None,
    price: j.Price = None,
    tokens: o.Tokens = None,
    precision: o.Precision = None,
    hidden_size: o.HiddenSize = None,
    sequence_length: o.SequenceLength = None,
    vocab_size: o.VocabSize = None,
    num_layers: o.NumLayers = None,
    top: o.Top = None,
    time_limit: o.TimeLimit = 200.0,
    max_memory: o.MaxMemory = None,
    gap: Annotated[
        float,
        o.option(SOLVER, "--gap", "Stop once the gap is this small.", "FRACTION", default=True),
    ] = 0.0,
    require_gap: Annotated[
        float | None,
        o.option(SOLVER, "--require-gap", "Exit with 5 when the gap stays larger.", "FRACTION"),
    ] = None,
    prefer_plain: o.PreferPlain = None,
    solver: Annotated[
        Solver,
        o.option(
            SOLVER,
            "--solver",
            "What solves; auto combines. gradient and anneal are heuristics: their plan, with the "
            "bound of auto.",
            default=True,
        ),
    ] = "auto",
    starts: o.Starts = None,
    start: o.Start = None,
    workers: o.Workers = None,
    seed: o.Seed = None,
    output: o.Output = None,
    reproducible: o.Reproducible = False,
    as_json: o.Json = False,
    verbose: o.Verbose = False,
) -> None:
    """Find the fastest plan, and prove how far from the best possible it can be.

    Decoder-only models are planned as Megatron-LM can run them. Of other models, and with Aceso's
    costs or profiles, operators are planned; whole layers where devices differ, and where the
    profile or the cost model is of layers.
    """
    from ilp_planner.spaces.objectives.any_nodes import build_for_any_nodes, solve_on_any_nodes

    if reproducible and output is None:
        raise UsageError("--reproducible: found no --output, expected the file that it is about")
    aimed, run_tokens = objective_named(objective), number_of_tokens(tokens)
    limits = solve_limits(
        time_limit, gap, require_gap, workers, seed, starts=starts, solvers=(solver,)
    )
    limits = replace(
        limits,
        prefer_plain=PREFER_PLAIN if prefer_plain is None else prefer_plain,
        require_gap=1.0 if require_gap is None else require_gap,
        memory=memory_to_hold(max_memory),
    )
    request = Request(
        files=references(
            model=named_once("--model", model, model_name),
            cluster=cluster_or_gpus(named_once("--cluster", cluster, cluster_name), gpus),
            hostfile=hostfile,
            clusterfile=clusterfile,
            profile=profile,
        ),
        cost_model=cost_model,
        space=chosen_space(space, runtime),
        memory_rule=memory_rule or "",
        placement=placement or "",
        shares=shares or "",
        stage_tp=stage_tp or "",
        seats=seats or "",
        experiment=experiment or "",
        price=price or "",
        global_batch=global_batch,
        micro_batch=whole_numbers(o.MANY, micro_batch),
        memory_limit=memory_limit(memory),
        max_stages=max_stages,
        max_tp=max_tp,
        max_cp=max_cp,
        max_stage_nodes=max_stage_nodes,
        precision=precision or "",
        hidden=hidden_size,
        sequence=sequence_length,
        vocabulary=vocab_size,
        text_only=text_only,
        constraints=demands,
    )
    if output is not None:
        check_writable(output, input_files(file.name for file in request.files.values()))
    begin = None if start is None else read_start(start)
    tell_of_compiling()
    problem = build(request) if all_devices else build_for_any_nodes(InputFiles(request))
    check_num_layers(problem, num_layers)
    problem = idle_workers(problem, workers, (solver,))
    check_preference(problem, prefer_plain, top=top or 1, solver=solver)
    deadline = limits.deadline(ctx.obj, steady=reproducible)
    if aimed is not TIME or max_price_per_hour is not None:
        problem, result = j.on_sets(
            problem, aimed, max_price_per_hour, Task(limits, solver, None, deadline),
            {"top": top, "start": start, "all_devices": all_devices or None},
        )  # fmt: skip
    else:
        with Progress() as progress:
            problem, result = solve_on_any_nodes(
                problem, limits=limits, solver=solver, progress=progress, top=top or 1,
                start=begin, deadline=deadline, all_devices=all_devices,
            )  # fmt: skip
    finish()
    known = None if reproducible else versions()
    shown = Shown(as_json=as_json, verbose=verbose, tokens=run_tokens)
    save_and_show(problem, result, output, known, shown)
    raise typer.Exit(verdict(result, require_gap))


def build(request: Request) -> "Problem[Any]":
    """Read all inputs and build the problem."""
    # Imported here: cost models need numpy, and `ilp-plan --help` does not.
    from ilp_planner.inputs.files import InputFiles
    from ilp_planner.spaces.registry import build_problem

    return build_problem(InputFiles(request))


def named_once(option: str, said: str | None, position: str | None) -> str | None:
    """Return the name given by an option or an argument; both may not name two things."""
    if said is not None and position not in (None, said):
        raise UsageError(f"{option}: found {said} and, without an option, {position}: expected one")
    return said or position


def chosen_space(space: str | None, runtime: str | None) -> str:
    """Return the plan space of two options, which may not contradict each other; empty when neither
    does."""
    if runtime and space not in (None, runtime):
        raise UsageError(
            f"--space: found {space} with --runtime {runtime}, expected none or {runtime}"
        )
    return runtime or space or ""


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


class Shown(NamedTuple):
    """How a result is printed. tokens: to say how long training on them takes; None: on 10^12."""

    as_json: bool
    verbose: bool
    tokens: float | None


def save_and_show(
    problem: "Problem[Any]",
    result: Result,
    output: Path | None,
    known: dict[str, str] | None,
    shown: Shown,
) -> None:
    """Save the plan, if there is one and a path, and print the result in any case: it may have cost
    hours.

    known: package -> version, to be saved with the time that the search took; None: neither.
    """
    saved_to = None
    try:
        if output is not None and result.plan is not None:
            keep_saved(output, saved_result(problem, result, known))
            saved_to = output
    finally:
        show(problem, result, saved_to, shown)


def show(problem: "Problem[Any]", result: Result, saved_to: Path | None, shown: Shown) -> None:
    """Print a result. saved_to: where its plan is; None: nowhere."""
    if shown.as_json:
        print_json(result_object(problem, result, shown.tokens))
        return
    steps = next_steps(problem, result, saved_to)
    lines = brief_lines(problem, result, shown.tokens, steps)
    tables = result_tables(problem, result, every=shown.verbose)
    details = result_lines(problem, result, shown.tokens) if shown.verbose else ()
    print_brief(lines, tables, details)


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

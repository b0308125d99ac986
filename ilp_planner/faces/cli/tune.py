"""`ilp-plan tune`."""

import hashlib
import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ilp_planner.base.errors import UsageError
from ilp_planner.faces.cli import options as o
from ilp_planner.faces.cli.completion import plans, targets
from ilp_planner.faces.cli.help import SOLVER
from ilp_planner.faces.cli.job_options import Job
from ilp_planner.faces.cli.options import option, script_arguments, solving, taking
from ilp_planner.faces.cli.sweep import ExecutorName
from ilp_planner.faces.cli.terminal import echo
from ilp_planner.faces.cli.values import option_seconds, solve_limits
from ilp_planner.faces.cli.wording import as_typed

if TYPE_CHECKING:
    from ilp_planner.faces.tuning.rows import Tried
    from ilp_planner.faces.tuning.session import Ended, Session
    from ilp_planner.formats.exports import Target
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.plan import AnyPlan

RUNS = "Runs"
ran = partial(option, RUNS)


@dataclass(frozen=True, kw_only=True)
class Runs:
    """How plans are run."""

    run: Annotated[
        str | None,
        ran(
            "--run",
            "The command that runs a plan: {script} stands for the path of its script or "
            "configuration, {steps} for their number. Run by your shell.",
            "COMMAND",
        ),
    ] = None
    ask: Annotated[bool, ran("--ask", "Run nothing: write the next script, and say it.")] = False
    log: Annotated[Path | None, ran("--log", "The log of the script that --ask wrote.", "FILE")] = (
        None
    )
    failed: Annotated[
        bool, ran("--failed", "The script that --ask wrote does not run; it is not tried again.")
    ] = False
    steps: Annotated[int, o.number(RUNS, "--steps", "Steps of a run.", True, least=5)] = 20
    budget: Annotated[
        str | None, ran("--budget", "Time of all runs together, as 2h or 90 min.", "TIME")
    ] = None
    to: Annotated[
        str | None,
        ran(
            "--to",
            "The training system of the scripts, as `ilp-plan export` takes it; that of the job.",
            "SYSTEM",
            autocompletion=targets,
        ),
    ] = None
    folder: Annotated[
        Path, ran("--folder", "Where scripts, logs and the journal are kept.", default=True)
    ] = Path("tune")
    executor: Annotated[
        ExecutorName,
        ran("--executor", "What runs the command: this machine, or a scheduler.", default=True),
    ] = "local"
    scheduler: Annotated[
        str,
        ran("--scheduler", "An address of Dask or Ray, or a partition of Slurm.", "ADDRESS"),
    ] = ""


@taking(job=Job, runs=Runs)
def tune(
    ctx: typer.Context,
    job_file: Annotated[
        Path | None,
        typer.Argument(
            metavar="JOB",
            help="A saved plan, whose set of plans is tuned in; or, with all settings free, a "
            "launch script or a configuration, which is read, not run; a job of `ilp-plan "
            "capture`; or a model, the same as --model.",
            show_default=False,
            autocompletion=plans,
        ),
    ] = None,
    *,
    job: Job,
    runs: Runs,
    gap: Annotated[
        float,
        option(
            SOLVER,
            "--gap",
            "End once the best run is proved to be within this share of every plan.",
            "FRACTION",
            default=True,
            min=0.0,
        ),
    ] = 0.02,
    time_limit: Annotated[
        float,
        solving("--time-limit", "Seconds of searching between runs.", "S", default=True, min=1.0),
    ] = 120.0,
    accept_changed: o.AcceptChanged = False,
    as_json: o.Json = False,
) -> None:
    """Find the fastest plan by short runs of a few, and end with a proof.

    Plans are run for a few steps, and logs read. Constants are calibrated, and all plans are
    searched again, until none that was not run can be faster by more than the gap.
    """
    from ilp_planner.faces.report.console import print_report
    from ilp_planner.faces.report.json_report import print_json
    from ilp_planner.faces.report.tune import (
        ended_lines,
        ended_object,
        run_table,
    )
    from ilp_planner.faces.tuning.command import executor_of, words_of
    from ilp_planner.faces.tuning.session import Asked, Session

    check_way(runs)
    limits = solve_limits(time_limit, gap, None, None, None)
    if runs.run is not None:
        words_of(runs.run, runs.folder, runs.steps)
    said = {**vars(job), "devices_per_node": None, "accept_changed": accept_changed}
    said["script_arguments"] = script_arguments(ctx)
    problem, target, first = problem_to_tune(ctx, job_file, said)
    system = runs.to or problem.space.name.partition("@")[0]
    asked = Asked(
        problem=problem,
        target=target,
        system=system,
        folder=runs.folder,
        run=runs.run or "",
        steps=runs.steps,
        budget=math.inf if runs.budget is None else option_seconds("--budget", runs.budget),
        executor=None if runs.ask else executor_of(vars(runs)),
        heading=heading(problem, target, system),
    )
    session = Session(asked, limits.gap, limits.seconds, first)
    ended = followed(session, runs, quiet=as_json)
    table = session.keep_table()
    if as_json:
        print_json(ended_object(problem, asked, ended, gap))
        return
    lines = [(name, as_typed(text)) for name, text in ended_lines(asked, ended, gap)]
    if table is not None:
        lines.append(("calibrate", f"{table}: `ilp-plan calibrate {table} --cluster FILE`"))
    print_report(lines, run_table(problem, ended.tried))


def followed(session: "Session", runs: Runs, *, quiet: bool) -> "Ended":
    """Run plans, or ask for the next run; say each as it comes."""
    from ilp_planner.faces.report.tune import begun_text, outcome_text
    from ilp_planner.faces.tuning.rows import BEGUN

    def tell(one: "Tried") -> None:
        if quiet:
            return
        begins = one.row["status"] == BEGUN
        text = begun_text(session.asked.problem, one) if begins else f"  {outcome_text(one)}"
        echo(text, err=True)

    try:
        if runs.ask:
            return session.ask(runs.log, failed=runs.failed)
        return session.finish(tell)
    finally:
        session.close()


def check_way(runs: Runs) -> None:
    """Refuse options of which one says a person runs the scripts, and one that a command does.

    Raises
    ------
    UsageError: with the contradiction.
    """
    if runs.ask == (runs.run is not None):
        found = "--run too" if runs.ask else "neither"
        raise UsageError(
            f"--ask: found {found}, expected --run COMMAND, which runs the scripts, or --ask, by "
            "which you run them"
        )
    for name, said in (("--log", runs.log), ("--failed", runs.failed or None)):
        if said is not None and not runs.ask:
            raise UsageError(f"{name}: found --run, expected --ask, whose script it is about")
    if runs.log is not None and runs.failed:
        raise UsageError("--failed: found --log too, expected one of them")


def problem_to_tune(
    ctx: typer.Context, file: Path | None, said: dict[str, Any]
) -> "tuple[Problem[Any], Target, AnyPlan | None]":
    """Return the problem of a job, the target of its scripts, and the plan to run first, if one is
    said.

    Raises
    ------
    PlannerError: an unreadable or impossible value, or a job without constants to calibrate.
    """
    from ilp_planner.analysis.calibration.calibrate import check_cluster
    from ilp_planner.analysis.fit.fit import free_problem
    from ilp_planner.evaluate import evaluate
    from ilp_planner.faces.cli.analyze_sources import source_by_kind
    from ilp_planner.faces.cli.fit_sources import read_job
    from ilp_planner.formats.exports import Target
    from ilp_planner.formats.saved_json import read_saved
    from ilp_planner.formats.saved_problem import problem_of

    said = said | source_by_kind(file, said)
    asked = read_job(ctx, said)
    first = None
    if said["plan_file"] is not None:
        saved = read_saved(said["plan_file"])
        changed = said["accept_changed"]
        problem = problem_of(saved, said["plan_file"], accept_changed=changed)
        legal = evaluate(problem, saved.plan).legal
        first = saved.plan if legal and problem.space.contains(problem, saved.plan) else None
        target = Target(asked.model, problem.cluster, None, saved.inputs)
    else:
        judge = asked.judge()
        problem = free_problem(judge, asked.job.world)
        target = Target(asked.model, problem.cluster)
    name = file or "--model"
    if not (asked.timed and problem.space.graded):
        raise UsageError(f"{name}: found no job of a training system, expected one that runs it")
    if problem.profile_source != "analytic":
        raise UsageError(
            f"{name}: found profile {problem.profile_source}, whose times no constants of machines "
            "change, expected none"
        )
    check_cluster(problem.cluster)
    return problem, target, first


def heading(problem: "Problem[Any]", target: "Target", system: str) -> dict[str, str]:
    """Return what the runs of a job have in common, as texts by name."""
    cluster = problem.cluster
    texts = (repr(target.model.architecture), problem.space.describe(problem))
    shape, plans_there = (hashlib.sha256(text.encode()).hexdigest()[:12] for text in texts)
    kinds = ", ".join(cluster.device_types[name].type for name in cluster.type_names)
    return {
        "model": target.model.name,
        "dimensions": shape,
        "GPUs": f"{cluster.device_count} x {kinds}",
        "samples": str(problem.global_batch),
        "system": system,
        "set of plans": plans_there,
    }

"""`ilp-plan export`."""

from pathlib import Path
from typing import Annotated

import typer

from ilp_planner.base.errors import PlanError
from ilp_planner.base.files import check_writable
from ilp_planner.base.parts import part
from ilp_planner.faces.cli import options as o
from ilp_planner.faces.cli.completion import targets
from ilp_planner.faces.cli.terminal import echo
from ilp_planner.formats.exports import EXPORTS, PROGRAMS, TARGETS, runtime_of
from ilp_planner.formats.saved_json import read_saved
from ilp_planner.formats.saved_plan import SavedPlan


def export(
    plan_file: o.PlanFile,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="SYSTEM",
            help=f"One of {', '.join(TARGETS)}: a training system, as torchtitan, its newest "
            "release, or torchtitan@0.2.2; a scheduler around it, as slurm:torchtitan; or the "
            "integer program that the plan solves (lp, mps).",
            autocompletion=targets,
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            metavar="FILE",
            help="Where to write it; what else a training system needs goes beside it.",
        ),
    ],
    nearest: Annotated[
        bool,
        typer.Option(
            "--nearest",
            help="Where the training system cannot run the plan, write the nearest one that it "
            "runs, and say what differs.",
        ),
    ] = False,
    accept_changed: o.AcceptChanged = False,
) -> None:
    """Write a saved plan for a training system, or as an integer program."""
    runtime_of(to, "--to")
    saved = read_saved(plan_file)
    system = runtime_of(to, "--to", _own(saved)).system
    if system not in EXPORTS:
        check_writable(output, [plan_file])
    try:
        if system in PROGRAMS:
            said = export_program(saved, plan_file, to, output, accept_changed=accept_changed)
        else:
            asked = {"accept_changed": accept_changed, "nearest": nearest}
            said = export_run(saved, plan_file, to, output, **asked)
    except PlanError as error:
        text = str(error).removeprefix(f"{plan_file}: ")
        raise PlanError(f"{plan_file}: {text}") from None
    if saved.verdict is not None and not saved.verdict.legal:
        echo(f"ilp-plan: note: {plan_file} breaks {saved.verdict.violations[0]}", err=True)
    echo(said, err=True)


def export_run(
    saved: SavedPlan,
    plan_file: Path,
    to: str,
    output: Path,
    *,
    accept_changed: bool,
    nearest: bool,
) -> str:
    """Write the files that run a plan; return the written files."""
    from ilp_planner.formats.exports import Target, write_runtime
    from ilp_planner.formats.saved_problem import model_and_cluster

    say_what_differs(saved, plan_file, accept_changed=accept_changed)
    model, cluster = model_and_cluster(saved, plan_file, accept_changed=accept_changed)
    if model is None:
        raise PlanError(
            "inputs.model: found none, expected the model file of the plan, which says the "
            "dimensions that a training system needs"
        )
    runtime = runtime_of(to, "--to", _own(saved))
    if runtime.system not in EXPORTS:
        part("peers.aceso.formats:save_aceso")(output, saved.plan, model)
        return f"{output}: {len(saved.plan.stages)} stages of {model.name} for {to}"
    time = saved.verdict.iteration_time if saved.verdict else None
    target = Target(model, cluster, time, saved.inputs)
    written = write_runtime(saved.plan, target, to, output, plan_file, nearest=nearest)
    for note in written.notes:
        echo(f"ilp-plan: note: {note}", err=True)
    names = ", ".join(map(str, written.files))
    return f"{names}: {written.ranks} pipeline ranks of {model.name} for {runtime}"


def _own(saved: SavedPlan) -> str:
    """Return the plan space of a saved plan."""
    return saved.inputs.space


def say_what_differs(saved: SavedPlan, plan_file: Path, *, accept_changed: bool) -> None:
    """Note the files that differ today from the plan's, unless today's are accepted."""
    from ilp_planner.formats.saved_problem import differing_today

    for note in () if accept_changed else differing_today(saved, plan_file):
        echo(f"ilp-plan: note: {note}", err=True)


def export_program(
    saved: SavedPlan, plan_file: Path, to: str, output: Path, *, accept_changed: bool
) -> str:
    """Write the residual integer program of a proof; return the written files."""
    from ilp_planner.formats.program import write_program
    from ilp_planner.formats.saved_problem import problem_of

    say_what_differs(saved, plan_file, accept_changed=accept_changed)
    problem = problem_of(saved, plan_file, accept_changed=accept_changed)
    arcs = write_program(problem, saved.plan, saved.certificate, to, output)
    return f"{output}: {arcs} stage candidates of {saved.plan.model}"

"""`ilp-plan replan`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ilp_planner.base.errors import UsageError
from ilp_planner.faces.cli import constraint_options as c
from ilp_planner.faces.cli import options as o
from ilp_planner.faces.cli.options import taking
from ilp_planner.faces.cli.values import solve_limits
from ilp_planner.inputs.table import PROBLEM

if TYPE_CHECKING:
    from ilp_planner.analysis.replan.replan import Replanned

Lost = Annotated[
    list[str] | None,
    c.asked(
        "--without",
        "A node that is lost with all that it held, by its number from 0 in the cluster, or all of "
        "a group by its name; several are parted by commas, or the option is repeated.",
        "NODE",
    ),
]


@taking(demands=c.constraint_options(without=Lost))
def replan(
    ctx: typer.Context,
    plan_file: o.PlanFile,
    cluster: Annotated[
        str | None,
        o.problem(
            "--cluster",
            "Another cluster to train on, by its name or file; as many of its nodes as are like "
            "those of before are the same machines.",
            "CLUSTER",
        ),
    ] = None,
    gpus: o.Gpus = None,
    global_batch: Annotated[
        int | None,
        o.number(PROBLEM, "--global-batch-size", "Samples per iteration.", "as before"),
    ] = None,
    slack: Annotated[
        float,
        o.solving(
            "--slack",
            "How much longer than the fastest plan found the one that moves least may take.",
            "FRACTION",
            default=True,
        ),
    ] = 0.05,
    time_limit: Annotated[
        float,
        o.solving(
            "--time-limit",
            "Seconds for both plans, from the start of the command on.",
            "S",
            default=True,
            min=0.0,
        ),
    ] = 60.0,
    workers: o.Workers = None,
    seed: o.Seed = None,
    output_fastest: Annotated[
        Path | None, o.shown("--output-fastest", "Where to save the fastest plan.", "FILE")
    ] = None,
    output_least: Annotated[
        Path | None, o.shown("--output-least", "Where to save the plan that moves least.", "FILE")
    ] = None,
    accept_changed: o.AcceptChanged = False,
    as_json: o.Json = False,
    demands: Any = None,
) -> None:
    """Plan again when nodes are lost or added: the fastest plan, and the one that moves least.

    Both begin from a saved plan, and say how many bytes of weights and optimiser states devices
    get from each other, and how many only a checkpoint still has.
    """
    from ilp_planner.analysis.replan.changes import Changes
    from ilp_planner.analysis.replan.replan import replan as ask
    from ilp_planner.analysis.why.why import read_case
    from ilp_planner.faces.cli.terminal import finish
    from ilp_planner.faces.report.console import tell_of_compiling
    from ilp_planner.faces.report.live import Progress
    from ilp_planner.inputs.files import cluster_or_gpus

    if not 0 <= slack < 1:
        raise UsageError(f"--slack: found {slack}, expected a fraction from 0 to below 1")
    outputs = [file for file in (output_fastest, output_least) if file is not None]
    check_outputs(outputs, plan_file)
    limits = solve_limits(time_limit, 0.0, None, workers, seed)
    deadline = limits.deadline(ctx.obj)
    named = cluster_or_gpus(cluster, gpus)
    changes = Changes(demands=demands, cluster=named or "", global_batch=global_batch)
    case = read_case(plan_file, limits.workers, accept_changed=accept_changed)
    if not as_json:
        tell_of_compiling()
    with Progress() as progress:
        found = ask(case, changes, deadline=deadline, slack=slack, limits=limits, progress=progress)
    finish()
    save_and_show(found, output_fastest, output_least, as_json=as_json)


def check_outputs(outputs: list[Path], plan_file: Path) -> None:
    """See that both plans can be written, each to a file of its own."""
    from ilp_planner.base.files import check_writable, resolved

    if len({resolved(file) for file in outputs}) < len(outputs):
        raise UsageError(
            f"--output-least: found {outputs[0]}, the file of the fastest plan, expected another"
        )
    for file in outputs:
        check_writable(file, [plan_file])


def save_and_show(
    found: "Replanned", output_fastest: Path | None, output_least: Path | None, *, as_json: bool
) -> None:
    """Save both plans and print them; leave with the exit code of a search that finds none."""
    from ilp_planner.analysis.replan.replan import FASTEST, LEAST
    from ilp_planner.faces.cli.solve import verdict
    from ilp_planner.faces.report.console import print_report
    from ilp_planner.faces.report.json_report import print_json
    from ilp_planner.faces.report.replan import replan_lines, replan_object, replan_tables
    from ilp_planner.formats.saved_json import keep_saved
    from ilp_planner.formats.saved_plan import saved_result
    from ilp_planner.formats.versions import versions

    code = verdict(found.result, None)
    saved = {FASTEST: output_fastest, LEAST: output_least}
    try:
        for name, plan in found.plans.items():
            file = saved[name]
            if file is not None:
                result = found.result_of(plan)
                keep_saved(file, saved_result(found.problem, result, versions()))
    finally:
        if as_json:
            print_json(replan_object(found))
        elif found.plans:
            print_report(replan_lines(found, saved), *replan_tables(found), verdict=True)
    raise typer.Exit(code)

"""`ilp-plan sweep`."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from ilp_planner.base.limits import POINTS
from ilp_planner.faces.cli import constraint_options as c
from ilp_planner.faces.cli import options as o
from ilp_planner.faces.cli.echo import echo
from ilp_planner.faces.cli.help import OUTPUT, SOLVER, SWEEP
from ilp_planner.faces.cli.objective import AllDevices
from ilp_planner.faces.cli.solve import chosen_space, named_once
from ilp_planner.faces.cli.sweep_request import asked_sweep, asked_wish
from ilp_planner.faces.cli.values import memory_limit, references, solve_limits
from ilp_planner.faces.cli.wording import as_typed
from ilp_planner.inputs.request import Request
from ilp_planner.optimize.solvers.base import PREFER_PLAIN

ExecutorName = Literal["local", "slurm", "dask", "ray"]
swept = partial(o.option, SWEEP)


def sweep(
    model_name: o.ModelName = None,
    cluster_name: o.ClusterName = None,
    model: o.MaybeModel = None,
    text_only: o.TextOnly = False,
    cluster: o.MaybeCluster = None,
    gpus: Annotated[
        str | None,
        swept(
            "--gpus",
            "Instead of a cluster: powers of two from one number to another, or a list, of GPUs of "
            "the table, as 8..256xH100 or 8,16,24xH100.",
            "COUNTSxGPU",
        ),
    ] = None,
    vary: Annotated[
        list[str] | None,
        swept(
            "--vary",
            "A field and its values, as global_batch=256,512 or pp=2..8: keywords of "
            "ilp_planner.problem, or keys of the model's or the cluster's file, as layers or "
            "inter_node.bandwidth. May be repeated; values with commas are parted by semicolons.",
            "FIELD=VALUES",
        ),
    ] = None,
    profile: o.AnyProfile = o.DEFAULT_PROFILE,
    cost_model: o.AnyCostModel = "native",
    space: o.Space = None,
    runtime: o.Runtime = None,
    global_batch: o.AnyGlobalBatch = None,
    memory: o.MemoryLimit = None,
    constraints: c.ConstraintsFile = None,
    all_devices: AllDevices = False,
    objective: Annotated[
        str,
        swept(
            "--objective",
            "Which points are marked: the best in time, in price, or those on the front of both "
            "(time,price): per step and hour, or of a run of --tokens.",
            "NAMES",
            default=True,
        ),
    ] = "time",
    tokens: Annotated[
        str | None,
        swept(
            "--tokens", "Tokens of a training run, as 15e12 or 15T: its days and price.", "TOKENS"
        ),
    ] = None,
    price: Annotated[
        str | None,
        swept(
            "--price",
            "What a device costs per hour instead of what the cluster says, as 2.5, or of every "
            "type, as H100-80GB=2.5,A100-80GB=1.5.",
            "PRICE",
        ),
    ] = None,
    yes: Annotated[bool, swept("--yes", f"More than {POINTS:,} points are meant.")] = False,
    executor: Annotated[
        ExecutorName,
        swept(
            "--executor",
            "What solves the points: processes of this machine, or a scheduler.",
            default=True,
        ),
    ] = "local",
    scheduler: Annotated[
        str,
        swept(
            "--scheduler",
            "Where it is: an address of Dask or Ray, or a partition of Slurm.",
            "ADDRESS",
        ),
    ] = "",
    fallback: Annotated[
        bool, swept("--fallback", "Solve on this machine where the scheduler cannot be reached.")
    ] = False,
    workers: Annotated[
        int | None,
        o.number(SWEEP, "--workers", "Points that are solved at once.", "one per core"),
    ] = None,
    time_limit: Annotated[
        float,
        o.solving("--time-limit", "Seconds for each point, at most.", "S", default=True, min=0.0),
    ] = 200.0,
    gap: Annotated[
        float,
        o.option(
            SOLVER, "--gap", "Stop a point once its gap is this small.", "FRACTION", default=True
        ),
    ] = 0.0,
    prefer_plain: o.PreferPlain = None,
    output: Annotated[
        Path | None,
        o.shown(
            "--output",
            "Where to save the table, .csv or .parquet; a journal beside it lets the same command "
            "go on where it was ended.",
            "FILE",
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        o.option(OUTPUT, "--plot", "Where to draw lines, or the front, .png or .svg.", "FILE"),
    ] = None,
    as_json: o.Json = False,
) -> None:
    """Plan every combination of values: one point per core, in a table that is kept.

    A point without a plan is a row that says why.
    """
    from ilp_planner.faces.cli.progress import measuring_bar
    from ilp_planner.faces.report.console import print_report
    from ilp_planner.faces.report.json_report import print_json
    from ilp_planner.faces.report.tables import summary
    from ilp_planner.faces.sweeps.axes import parse_axis
    from ilp_planner.faces.sweeps.shown import sweep_lines, sweep_tables
    from ilp_planner.faces.sweeps.sweep import Files, Place, check_size, run_sweep, sweep_object

    request = Request(
        files=references(
            model=named_once("--model", model, model_name),
            cluster=named_once("--cluster", cluster, cluster_name),
            profile=profile,
        ),
        cost_model=cost_model,
        space=chosen_space(space, runtime),
        global_batch=global_batch,
        memory_limit=memory_limit(memory),
        text_only=text_only,
        constraints=c.demanded(constraints, {}),
    )
    share = PREFER_PLAIN if prefer_plain is None else prefer_plain
    limits = replace(solve_limits(time_limit, gap, None, 1, None), prefer_plain=share)
    axes = [parse_axis(text) for text in vary or ()]
    asked = asked_sweep(request, gpus, axes, limits, all_devices=all_devices)
    check_size(asked, yes=yes)
    wish = asked_wish(asked, objective, tokens, price)
    place = Place(executor=executor, workers=workers, scheduler=scheduler, fallback=fallback)
    files = Files(output=output, plot=plot)
    with measuring_bar(asked.size) as tell:
        ended = run_sweep(asked, wish, place, files, tell, _note)
    if as_json:
        print_json(sweep_object(asked, ended.rows, wish))
    else:
        said = sweep_lines(asked, ended.rows, wish, output)
        lines = summary([(name, as_typed(text)) for name, text in said])
        print_report(lines, *sweep_tables(asked, ended.rows, wish))
    if ended.interrupted:
        raise KeyboardInterrupt


def _note(text: str) -> None:
    """Tell the user something on a line of its own."""
    echo(f"ilp-plan: note: {as_typed(text)}", err=True)

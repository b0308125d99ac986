"""`ilp-plan sweep`."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from ilp_planner.base.limits import POINTS
from ilp_planner.faces.cli import options as o
from ilp_planner.faces.cli.help import OUTPUT, SOLVER, SWEEP
from ilp_planner.faces.cli.objective import AllDevices
from ilp_planner.faces.cli.options import taking
from ilp_planner.faces.cli.request_options import SWEEP as SWEPT
from ilp_planner.faces.cli.request_options import request_options
from ilp_planner.faces.cli.sweep_request import asked_sweep, asked_wish
from ilp_planner.faces.cli.terminal import echo
from ilp_planner.faces.cli.values import solve_limits
from ilp_planner.faces.cli.wording import as_typed
from ilp_planner.inputs.request import Request
from ilp_planner.optimize.solvers.base import PREFER_PLAIN, Limits

ExecutorName = Literal["local", "slurm", "dask", "ray"]
swept = partial(o.option, SWEEP)


@dataclass(frozen=True, kw_only=True)
class Points:
    """What is varied, and how its points are compared."""

    gpus: Annotated[
        str | None,
        swept(
            "--gpus",
            "Instead of a cluster: powers of two from one number to another, or a list, of GPUs of "
            "the table, as 8..256xH100 or 8,16,24xH100.",
            "COUNTSxGPU",
        ),
    ] = None
    vary: Annotated[
        list[str] | None,
        swept(
            "--vary",
            "A field and its values, as global_batch=256,512 or pp=2..8: keywords of "
            "ilp_planner.problem, or keys of the model's or the cluster's file, as layers or "
            "inter_node.bandwidth. May be repeated; values with commas are parted by semicolons.",
            "FIELD=VALUES",
        ),
    ] = None
    objective: Annotated[
        str,
        swept(
            "--objective",
            "Which points are marked: the best in time, in price, or those on the front of both "
            "(time,price): per step and hour, or of a run of --tokens.",
            "NAMES",
            default=True,
        ),
    ] = "time"
    tokens: Annotated[
        str | None,
        swept(
            "--tokens", "Tokens of a training run, as 15e12 or 15T: its days and price.", "TOKENS"
        ),
    ] = None
    price: Annotated[
        str | None,
        swept(
            "--price",
            "What a device costs per hour instead of what the cluster says, as 2.5, or of every "
            "type, as H100-80GB=2.5,A100-80GB=1.5.",
            "PRICE",
        ),
    ] = None
    yes: Annotated[bool, swept("--yes", f"More than {POINTS:,} points are meant.")] = False


@dataclass(frozen=True, kw_only=True)
class Where:
    """What solves the points."""

    executor: Annotated[
        ExecutorName,
        swept(
            "--executor",
            "What solves the points: processes of this machine, or a scheduler.",
            default=True,
        ),
    ] = "local"
    scheduler: Annotated[
        str,
        swept(
            "--scheduler",
            "Where it is: an address of Dask or Ray, or a partition of Slurm.",
            "ADDRESS",
        ),
    ] = ""
    fallback: Annotated[
        bool, swept("--fallback", "Solve on this machine where the scheduler cannot be reached.")
    ] = False
    workers: Annotated[
        int | None,
        o.number(SWEEP, "--workers", "Points that are solved at once.", "one per core"),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Search:
    """How long each point is searched."""

    all_devices: AllDevices = False
    time_limit: Annotated[
        float,
        o.solving("--time-limit", "Seconds for each point, at most.", "S", default=True, min=0.0),
    ] = 200.0
    gap: Annotated[
        float,
        o.option(
            SOLVER, "--gap", "Stop a point once its gap is this small.", "FRACTION", default=True
        ),
    ] = 0.0
    prefer_plain: o.PreferPlain = None

    def limits(self) -> Limits:
        """Return the limits of a point; a UsageError if they contradict each other."""
        share = PREFER_PLAIN if self.prefer_plain is None else self.prefer_plain
        limits = solve_limits(self.time_limit, self.gap, None, 1, None)
        return replace(limits, prefer_plain=share)


@dataclass(frozen=True, kw_only=True)
class Kept:
    """Where the table and its picture are kept."""

    output: Annotated[
        Path | None,
        o.shown(
            "--output",
            "Where to save the table, .csv or .parquet; a journal beside it lets the same command "
            "go on where it was ended.",
            "FILE",
        ),
    ] = None
    plot: Annotated[
        Path | None,
        o.option(OUTPUT, "--plot", "Where to draw lines, or the front, .png or .svg.", "FILE"),
    ] = None


@taking(points=Points, request=request_options(*SWEPT), where=Where, search=Search, kept=Kept)
def sweep(
    points: Points,
    request: Request,
    where: Where,
    search: Search,
    kept: Kept,
    as_json: o.Json = False,
) -> None:
    """Plan every combination of values: one point per core, in a table that is kept.

    A point without a plan is a row that says why.
    """
    from ilp_planner.faces.cli.terminal import measuring_bar
    from ilp_planner.faces.report.console import print_report
    from ilp_planner.faces.report.json_report import print_json
    from ilp_planner.faces.sweeps.axes import parse_axis
    from ilp_planner.faces.sweeps.shown import sweep_lines, sweep_tables
    from ilp_planner.faces.sweeps.sweep import Files, Place, check_size, run_sweep, sweep_object

    axes = [parse_axis(text) for text in points.vary or ()]
    asked = asked_sweep(request, points.gpus, axes, search.limits(), all_devices=search.all_devices)
    check_size(asked, yes=points.yes)
    wish = asked_wish(asked, points.objective, points.tokens, points.price)
    place, files = Place(**vars(where)), Files(**vars(kept))
    with measuring_bar(asked.size) as tell:
        ended = run_sweep(asked, wish, place, files, tell, _note)
    if as_json:
        print_json(sweep_object(asked, ended.rows, wish))
    else:
        said = sweep_lines(asked, ended.rows, wish, kept.output)
        lines = [(name, as_typed(text)) for name, text in said]
        print_report(lines, *sweep_tables(asked, ended.rows, wish))
    if ended.interrupted:
        raise KeyboardInterrupt


def _note(text: str) -> None:
    """Tell the user something on a line of its own."""
    echo(f"ilp-plan: note: {as_typed(text)}", err=True)

"""`ilp-plan capture`."""

from pathlib import Path
from typing import Annotated

import typer

from ilp_planner.faces.cli.help import OUTPUT
from ilp_planner.faces.cli.options import number, option, shown


def capture(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="COMMAND...",
            help="Starts the script as for a real run: bash run.sh ARGS, or sbatch run.sh.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path, shown("--output", "Where to save the job.", "FILE", default=True)
    ] = Path("job.json"),
    only_print: Annotated[
        bool, shown("--print", "Say what would run and what would not, and run nothing.")
    ] = False,
    allow: Annotated[
        list[str] | None,
        option(
            OUTPUT, "--allow", "A program that runs though it is not listed; repeatable.", "NAME"
        ),
    ] = None,
    gpus_per_node: Annotated[
        int | None,
        number(OUTPUT, "--gpus-per-node", "What commands that count GPUs say; this machine's."),
    ] = None,
    launch: Annotated[
        int | None,
        number(OUTPUT, "--launch", "The launch that is meant, of several."),
    ] = None,
    time_limit: Annotated[
        float,
        option(
            OUTPUT,
            "--time-limit",
            "Seconds after which the script is ended.",
            "S",
            default=True,
            min=0.1,
        ),
    ] = 60.0,
) -> None:
    """Run a launch script, record what it would launch, and launch nothing.

    The script itself is run, by its own shell. Launches are recorded and end there; so do all
    programs but those that only tell something. `ilp-plan fit`, `analyze` and `compare` take the
    file.
    """
    from ilp_planner.faces.cli.capture_run import Limits, print_programs, run
    from ilp_planner.faces.cli.values import finite_seconds

    seconds = finite_seconds(time_limit)
    if only_print:
        print_programs(command or [], allow or [])
        return
    limits = Limits(tuple(allow or ()), seconds, gpus_per_node)
    run(command or [], output, limits, launch)

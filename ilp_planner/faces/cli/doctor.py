"""`ilp-plan doctor`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ilp_planner.base.errors import PlannerError, UsageError
from ilp_planner.base.printable import printable_lines
from ilp_planner.faces.cli import options as o
from ilp_planner.faces.cli.completion import plans
from ilp_planner.faces.cli.help import OUTPUT
from ilp_planner.faces.cli.job_options import ABOUT, Job
from ilp_planner.faces.cli.options import number, option, shown, solving, taking
from ilp_planner.faces.cli.terminal import echo
from ilp_planner.faces.cli.wording import as_typed

if TYPE_CHECKING:
    from ilp_planner.faces.cli.fit_sources import Asked
    from ilp_planner.formats.logs.base import RunLog


@taking(job=Job)
def doctor(
    ctx: typer.Context,
    logs: Annotated[
        list[Path],
        typer.Argument(
            metavar="LOG...",
            help="The log of a run; beside it, or alone, a trace of torch.profiler of one rank, "
            "or a memory snapshot.",
        ),
    ],
    job_file: Annotated[
        Path | None,
        typer.Option(
            "--job",
            metavar="JOB",
            help="What ran: a job that `capture` recorded; a launch or a configuration, as `fit` "
            "takes it, which is read, not run; a saved plan; or a model, the same as --model. "
            "Else what the log prints.",
            show_default=False,
            rich_help_panel=ABOUT,
            autocompletion=plans,
        ),
    ] = None,
    *,
    job: Job,
    run: Annotated[
        int | None,
        number(ABOUT, "--run", "Of several runs in the log, from 1.", least=1),
    ] = None,
    unit: Annotated[
        Literal["s", "ms", "us"],
        option(ABOUT, "--unit", "Of a step's time, where the log names none.", default=True),
    ] = "s",
    time_limit: Annotated[
        float,
        solving(
            "--time-limit",
            "Seconds of searching the best plan; 0: none is searched.",
            "S",
            default=True,
            min=0.0,
        ),
    ] = 10.0,
    top: Annotated[int, number(OUTPUT, "--top", "Causes and changes to show.", True)] = 3,
    accept_changed: o.AcceptChanged = False,
    as_json: Annotated[bool, shown("--json", "Print JSON.")] = False,
) -> None:
    """Tell why a training run takes as long as it does, by its log, and what would be faster."""
    from ilp_planner.analysis.doctor.doctor import UNITS, diagnose
    from ilp_planner.faces.cli.analyze_output import output_width
    from ilp_planner.faces.report.doctor import diagnosis_lines, diagnosis_object
    from ilp_planner.faces.report.json_report import print_json
    from ilp_planner.formats.logs.base import RunLog
    from ilp_planner.formats.logs.read import read_log

    files = [read_log(path, run) for path in logs]
    files = [_in_unit(one, UNITS[unit]) if isinstance(one, RunLog) else one for one in files]
    said = {
        **vars(job),
        "devices_per_node": None,
        "accept_changed": accept_changed,
        "script_arguments": (),
    }
    log = next((one for one in files if isinstance(one, RunLog)), None)
    asked = asked_job(ctx, job_file, said, log)
    found = diagnose(
        files,
        None if asked is None else asked.judge(),
        writer=None if asked is None else asked.writer,
        seconds=time_limit,
    )
    notes = () if asked is None else asked.notes
    if as_json:
        print_json(diagnosis_object(found, notes))
        return
    width, _ = output_width()
    lines = diagnosis_lines(
        found, notes, words="" if asked is None else asked.words, top=top, width=width
    )
    echo(printable_lines(map(as_typed, lines)))


def asked_job(
    ctx: typer.Context, file: Path | None, said: dict[str, Any], log: "RunLog | None"
) -> "Asked | None":
    """Return the job that ran: as asked for, else as its log prints it; None if nothing says it.

    Raises
    ------
    PlannerError: an unreadable or impossible value, with a repair.
    """
    from ilp_planner.faces.cli.analyze_sources import source_by_kind
    from ilp_planner.faces.cli.fit_sources import read_job
    from ilp_planner.formats.logs.metrics import printed_arguments

    asked = said | source_by_kind(file, said)
    sources = ("plan_file", "model", "megatron_args", "megatron_script")
    if any(asked[name] is not None for name in sources):
        found = read_job(ctx, asked)
        if not found.timed:
            raise UsageError(f"{file or '--model'}: no training system runs it, expected one")
        return found
    if asked["cluster"] is None and asked["gpus"] is None:
        return None
    try:
        printed = None if log is None else printed_arguments(log)
    except PlannerError as error:
        raise UsageError(
            f"--job: expected the job, as the log's arguments cannot be read: {error}"
        ) from None
    if printed is None:
        raise UsageError(
            f"{'--cluster' if asked['cluster'] else '--gpus'}: found no job, expected --job JOB or "
            "--model beside it, or a log that prints its arguments"
        )
    from shlex import join

    return read_job(ctx, asked | {"megatron_args": join(printed.argv), "world_size": printed.world})


def _in_unit(log: "RunLog", factor: float) -> "RunLog":
    """Return a log whose seconds are in another unit."""
    from dataclasses import replace

    return log if factor == 1 else replace(log, seconds=log.seconds * factor)

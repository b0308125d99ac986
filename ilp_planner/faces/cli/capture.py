"""`ilp-plan capture`."""

from __future__ import annotations

import shlex
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from ilp_planner.base.errors import PlannerError, UsageError
from ilp_planner.base.files import check_writable
from ilp_planner.faces.cli.help import OUTPUT
from ilp_planner.faces.cli.options import number, option, shown
from ilp_planner.faces.cli.terminal import echo
from ilp_planner.formats.captured.job_file import CapturedJob, files_of, launch_of, write_job
from ilp_planner.formats.captured.programs import (
    HARMLESS,
    LAUNCHES,
    PLACING,
    SHELLS,
    TELLING,
    name_of,
)
from ilp_planner.formats.captured.recording import check_command, record

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ilp_planner.formats.captured.guard import Started
    from ilp_planner.formats.captured.recording import Recording


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
    from ilp_planner.faces.cli.values import finite_seconds

    seconds = finite_seconds(time_limit)
    if only_print:
        print_programs(command or [], allow or [])
        return
    limits = Limits(tuple(allow or ()), seconds, gpus_per_node)
    run(command or [], output, limits, launch)


SHOWN = 100  # characters of a command
MOST_NOTED = 12  # programs to name
WIDTH = 100


class Limits(NamedTuple):
    """allow: programs that run though they are not listed. seconds: after which the script is
    ended. gpus: of a node, as commands that count them are told."""

    allow: tuple[str, ...]
    seconds: float
    gpus: int | None


def run(command: Sequence[str], output: Path, limits: Limits, launch: int | None) -> None:
    """Record the launches of a command, and save them. launch: the number of the one that is
    meant.

    Raises
    ------
    PlannerError: it cannot be run here, or it ends without a launch. UsageError: it launches more
    than once, and nobody says which is meant.
    """
    if not command:
        raise UsageError(
            "capture: found no command, expected the one that starts the script: "
            "`ilp-plan capture -- bash run.sh`"
        )
    for name in limits.allow:
        if name in LAUNCHES or name in PLACING:
            raise UsageError(
                f"--allow: found {name}, which starts training, expected another program"
            )
    check_writable(output, [Path(word) for word in command])
    check_command(command)
    echo(
        f"ilp-plan: capture: `{shlex.join(command)}` itself is run now; launches are recorded and "
        "do not start, and neither do programs that are not listed (`ilp-plan capture --print`)",
        err=True,
    )
    found = record(command, allowed=limits.allow, seconds=limits.seconds, gpus=limits.gpus)
    for line in remarks(found, limits.seconds):
        echo(f"ilp-plan: note: {line}", err=True)
    if not found.launches:
        raise PlannerError(without_launch(command, found, limits.seconds))
    count = len(found.launches)
    if launch is not None and launch > count:
        raise UsageError(f"--launch: found {launch}, expected one of 1 to {count}")
    launches = tuple(map(launch_of, found.launches))
    files, long = files_of(launches)
    if long:
        echo(f"ilp-plan: note: too long to keep in the job: {', '.join(long)}", err=True)
    chosen = launch or (1 if count == 1 else None)
    job = CapturedJob(
        command=tuple(command),
        folder=str(Path.cwd()),
        launches=launches,
        launch=chosen,
        not_run=tuple(dict.fromkeys(one.words for one in found.noted)),
        files=files,
    )
    write_job(output, job)
    for k, (one, kept) in enumerate(zip(found.launches, launches, strict=True), 1):
        ranks = f"{kept.world} ranks" if kept.world else "ranks not said"
        echo(f"launch {k}: {text_of(one)} ({len(one.words)} words, {ranks}, in {one.folder})")
    if chosen is None:
        raise UsageError(
            f"{output}: holds {count} launches, and a job is one of them: --launch 1 to "
            f"--launch {count} says which, or its number as `launch` in the file"
        )
    echo(f"{output}: the job: `ilp-plan fit {output} --gpus NxGPU` judges it", err=True)


def text_of(one: Started) -> str:
    """Return the words of a program, shortened."""
    words = (name_of(one.words[0]), *one.words[1:])
    return textwrap.shorten(shlex.join(words), SHOWN, placeholder=" ...")


def remarks(found: Recording, seconds: float) -> Iterator[str]:
    """Yield what else came of a run, a line each."""
    words = dict.fromkeys(text_of(one) for one in found.noted)
    if words:
        more = f" and {len(words) - MOST_NOTED} more" if len(words) > MOST_NOTED else ""
        named = "; ".join(list(words)[:MOST_NOTED])
        yield f"not run: {named}{more} (--allow NAME lets a program run)"
    if any(one.words[0].startswith("-") for one in found.noted):
        yield (
            "a line of the script begins with an option: if it goes on the one above, that one "
            "lacks its \\ at the end"
        )
    read = dict.fromkeys(name_of(one.words[0]) for one in found.noted if one.piped)
    if read:
        yield f"{', '.join(read)}: not run, so that what the script reads of them is empty"
    if found.counted:
        yield "the script counted this machine's GPUs: --gpus-per-node N says those of its nodes"
    if found.kept:
        yield f"put back as they were before the script wrote to them: {', '.join(found.kept)}"
    if found.left and not found.late:
        yield f"{found.left} background processes of the script were ended"
    if found.launches and found.late:
        yield f"the script still ran after {seconds:g} s (--time-limit), and was ended"
    elif found.launches and found.status:
        yield f"the script {ending(found.status)}, after its first launch or beside it"


def ending(status: int) -> str:
    """Return how a command has ended. status: below 0 by a signal."""
    return f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"


def without_launch(command: Sequence[str], found: Recording, seconds: float) -> str:
    """Return why there is nothing to save."""
    what = shlex.join(command)
    asked = "; it read its standard input, which is closed" if found.asked else ""
    if found.late:
        return (
            f"{what}: still ran after {seconds:g} s without a launch{asked}, and was ended, "
            "expected a launch by then: --time-limit S waits longer"
        )
    if found.status:
        return (
            f"{what}: {ending(found.status)} before any launch{asked}; what it printed stands "
            "above, expected a script that launches as it is called here"
        )
    return (
        f"{what}: ended without a launch{asked}, expected one by torchrun, srun, mpirun, "
        "deepspeed, accelerate, ray or python; `ilp-plan capture --print` lists what counts"
    )


def print_programs(command: Sequence[str], allow: Sequence[str]) -> None:
    """Print which programs are recorded, which run, and which do not."""
    launches = sorted(name for name in (*LAUNCHES, "sbatch") if "." not in name)
    always = {*TELLING.split(), *SHELLS, *allow}
    limited = sorted(HARMLESS.keys() - always)
    rows = (
        ("recorded, and not started", ", ".join(launches), "and files and modules of python"),
        ("run", ", ".join(sorted(always)), "and scripts of shells, python -c"),
        ("run if they only tell something", ", ".join(limited), ""),
        ("not run", "all other programs", "pkill, rm, pip, conda, docker, ssh, curl, sudo, ..."),
        ("not done by any program", "reaching another host; a signal to a process of others", ""),
        ("", "removing or renaming a file that was there before", "files written to are put back"),
    )
    if command:
        echo(f"would run: {shlex.join(command)}")
    for title, names, more in rows:
        text = f"{title + ': ' if title else ''}{names}{'; ' + more if more else ''}"
        lines = textwrap.fill(text, WIDTH, subsequent_indent="    ", break_on_hyphens=False)
        echo(lines)

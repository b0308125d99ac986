"""`ilp-plan profile measure-links`."""

import os
import signal
from pathlib import Path
from typing import Annotated, Literal

from ilp_planner.base.errors import MeasureError, PlannerError, UsageError
from ilp_planner.base.files import check_writable
from ilp_planner.base.units import counted
from ilp_planner.faces.cli import options as o
from ilp_planner.faces.cli.terminal import echo
from ilp_planner.faces.cli.values import finite_seconds, names_in, option_size
from ilp_planner.profiler.measure.links_plan import OPERATIONS, ROWS, LinkSettings, default_sizes
from ilp_planner.profiler.measure.links_rank import launch_links, under_torchrun
from ilp_planner.profiler.measure.machine import need_torch

COMMAND = "profile measure-links"
Backend = Literal["nccl", "gloo"]
LARGEST = {"nccl": "1GiB", "gloo": "64MiB"}
FEWEST = 2  # processes, on a machine without GPUs


def measure_links(
    output: o.TableOutput,
    backend: Annotated[
        Backend | None,
        o.plain(
            "--backend",
            "nccl between GPUs, gloo between processors.",
            default="nccl where there are GPUs",
        ),
    ] = None,
    processes: Annotated[
        int | None,
        o.count(
            "--processes",
            "Ranks to start on this machine; under torchrun they are there already.",
            "one per GPU, or 2",
            least=2,
        ),
    ] = None,
    sizes: Annotated[
        list[str] | None,
        o.plain(
            "--sizes",
            "Of the whole tensor, as 1KiB 1MiB 64MiB.",
            "SIZE...",
            default="256B, 1KiB, 4KiB ... --max-size",
        ),
    ] = None,
    largest: Annotated[
        str | None,
        o.plain(
            "--max-size",
            "The largest of the default sizes.",
            "SIZE",
            default="1GiB by nccl, 64MiB by gloo",
        ),
    ] = None,
    operations: Annotated[
        str, o.plain("--operations", "Which to measure.", "NAME,...", default="all")
    ] = ",".join(OPERATIONS),
    device_name: Annotated[
        str,
        o.plain(
            "--device-name",
            "What the table calls the devices, as the cluster file does.",
            "NAME",
            default="their own names",
        ),
    ] = "",
    repeats: Annotated[int, o.count("--repeats", "Of each row at most.", True, least=3)] = 20,
    time_limit: Annotated[
        float,
        o.plain(
            "--time-limit",
            "Seconds, about; what would take too long is left out.",
            "S",
            default=True,
            min=0.0,
        ),
    ] = 600.0,
) -> None:
    """Measure collectives and messages between the devices of this machine, or of several.

    Started plainly it starts its own ranks on this machine. For several machines start it on each
    as torchrun wants: `torchrun --nnodes 2 --nproc-per-node 8 ... --no-python ilp-plan profile
    measure-links --output links.csv`; the first rank writes the table.
    """
    if sizes and largest:
        raise UsageError("--sizes and --max-size: expected one of them")
    seconds = finite_seconds(time_limit)
    wanted = _sizes(sizes)
    names = names_in("--operations", operations, OPERATIONS)
    if not names:
        raise UsageError(f"--operations: found none, expected some of {', '.join(OPERATIONS)}")
    need_torch(COMMAND)
    together = under_torchrun()
    if together and processes is not None:
        raise UsageError("--processes: under torchrun expected its own --nproc-per-node")
    chosen: Backend = backend or ("nccl" if _gpus() else "gloo")
    count = 0 if together else _processes(chosen, processes)
    settings = LinkSettings(
        output=str(output),
        backend=chosen,
        sizes=wanted or default_sizes(option_size("--max-size", largest or LARGEST[chosen])),
        operations=names,
        repeats=repeats,
        seconds=seconds,
        device_name=device_name.strip(),
    )
    writes = not together or os.environ["RANK"] == "0"
    if writes:
        check_writable(output)
    before = _mark(output)
    if together:
        # At once: Python would ask only after the collective that is under way.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        if together:
            from ilp_planner.profiler.measure.links import measure_links as measure_as_rank

            measure_as_rank(settings)
        else:
            launch_links(settings, count)
    except KeyboardInterrupt:
        if writes and _mark(output) != before:
            echo(f"interrupted: {_rows_in(output)}", err=True)
        raise
    except PlannerError as error:
        if not writes:
            raise
        kept = _rows_in(output) if _mark(output) != before else f"no row was written to {output}"
        raise MeasureError(f"{error}; {kept}") from None
    if writes and output.is_file():
        _show(output)


def _sizes(texts: list[str] | None) -> tuple[int, ...]:
    """Return bytes of `--sizes 1KiB 1MiB`, ascending."""
    values = [text.strip() for text in ",".join(texts or ()).split(",") if text.strip()]
    return tuple(sorted({option_size("--sizes", text) for text in values}))


def _gpus() -> int:
    import torch

    return int(torch.cuda.device_count()) if torch.cuda.is_available() else 0


def _processes(backend: Backend, asked: int | None) -> int:
    """Return how many ranks to start."""
    if backend == "gloo":
        return asked or max(_gpus(), FEWEST)
    count = _gpus()
    if count < FEWEST or (asked or 0) > count:
        need = asked or FEWEST
        raise UsageError(
            f"--backend nccl: found {counted(count, 'GPU')} on this machine, "
            f"expected at least {need}: --backend gloo measures between processors"
            + (f", --processes {count} uses those there are" if count >= FEWEST else "")
        )
    return asked or count


def _mark(path: Path) -> tuple[int, int, int] | None:
    """Return a mark of a file that changes when it is written."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _rows_in(path: Path) -> str:
    from ilp_planner.costs.profiles.measurements import read_measurements

    try:
        count = len(read_measurements(path).frame)
    except PlannerError as error:
        return str(error)
    return f"{counted(count, 'row')} measured until then: {path}"


def _show(path: Path) -> None:
    from ilp_planner.costs.profiles.measurements import read_measurements
    from ilp_planner.faces.report.console import print_report
    from ilp_planner.profiler.report.measuring import links_table

    table = read_measurements(path)
    found, planned = len(table.frame), int(table.machine.get(ROWS, "0"))
    lines = [("measured", f"{found} rows; ranks: {table.machine.get('ranks', '-')}")]
    if planned > found:
        lines.append(("left out", f"{planned - found} rows that would have taken too long"))
    if "left out" in table.machine:
        lines.append(("left out", table.machine["left out"]))
    print_report([*lines, ("table", str(path))], links_table(table))

"""A whole sweep: from the request to its rows, its table and its picture.

Its journal lies beside the table, `sweep.csv.jsonl` beside `sweep.csv`.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.base.errors import SchedulerError, UsageError
from ilp_planner.base.files import check_writable
from ilp_planner.base.interrupts import postponed
from ilp_planner.base.limits import POINTS
from ilp_planner.faces.schemas import headed
from ilp_planner.faces.sweeps.executors.registry import LOCAL, open_executor
from ilp_planner.faces.sweeps.journal import Journal, Kind
from ilp_planner.faces.sweeps.plot import check_plot, write_plot
from ilp_planner.faces.sweeps.run import Run
from ilp_planner.faces.sweeps.table import check_output, check_row, frame_of, rows_of, write_table
from ilp_planner.formats.inputs_json import encode_inputs
from ilp_planner.formats.versions import OWN, versions

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ilp_planner.faces.sweeps.executors.base import Executor
    from ilp_planner.faces.sweeps.points import Sweep
    from ilp_planner.faces.sweeps.row import Row
    from ilp_planner.faces.sweeps.table import Wish


# ---- journal -------------------------------------------------------------------------------------


SUFFIX = ".jsonl"
JOURNAL = Kind(
    "sweep", "a table of another sweep", "`output` begins a table of its own", beside=True
)
DIGITS = 12  # of a hash, that people are shown


def journal_file(output: Path) -> Path:
    """Return the path of a table's journal."""
    return output.with_name(output.name + SUFFIX)


def heading(sweep: Sweep) -> dict[str, str]:
    """Return the common data of all points of a sweep, as texts by name."""
    base, found = encode_inputs(sweep.base), dict[str, str]()
    for name, value in base.items():
        if isinstance(value, dict) and "name" in value:
            found[name] = value["name"]
            content = sweep.content(name)
            found |= {f"content of {name}": content[:DIGITS]} if content else {}
        elif isinstance(value, dict):
            found |= {key: str(text) for key, text in value.items()}
        else:
            found[name] = str(value)
    found |= {name: f"{value:g}" for name, value in sweep.limits_record.items()}
    varied = ", ".join(sorted(field.name for field in sweep.fields))
    return found | {"varied fields": varied, OWN: versions()[OWN]}


# ---- sweep ---------------------------------------------------------------------------------------


class Ended(NamedTuple):
    """The result of a sweep. interrupted: by a Ctrl-C, before all points were done."""

    rows: list[Row]
    interrupted: bool


@dataclass(frozen=True, kw_only=True)
class Place:
    """The executor of points.

    executor: one of `EXECUTORS`. workers: points at once; None: as many as there are cores.
    scheduler: its address. fallback: solve on this machine if it cannot be reached.
    """

    executor: str = LOCAL
    workers: int | None = None
    scheduler: str = ""
    fallback: bool = False


@dataclass(frozen=True, kw_only=True)
class Files:
    """The files of a sweep. output: its table, with a journal beside it. plot: a picture of it."""

    output: Path | None = None
    plot: Path | None = None


def check_size(sweep: Sweep, *, yes: bool) -> None:
    """Refuse a sweep of very many points that nobody has confirmed.

    Raises
    ------
    UsageError: says how many there are.
    """
    if sweep.size > POINTS and not yes:
        sizes = " x ".join(
            f"{len(axis):,} of {field.name}"
            for field, axis in zip(sweep.fields, sweep.axes, strict=True)
        )
        raise UsageError(
            f"vary: found {sweep.size:,} points ({sizes}), expected at most {POINTS:,} unless "
            "`yes` says that so many are meant"
        )


def run_sweep(
    sweep: Sweep,
    wish: Wish,
    place: Place,
    files: Files,
    tell: Callable[[int, str], None],
    note: Callable[[str], None],
) -> Ended:
    """Solve what the journal does not have, write the files, and return the rows.

    A Ctrl-C ends it with the present rows.

    Parameters
    ----------
    tell: called with the number of finished points, and their outcomes. note: called with remarks
        for the user, on one line.

    Raises
    ------
    UsageError: impossible files, or a table of another sweep. PlanError: a row that was changed.
    SchedulerError: the scheduler cannot be reached. OutputError: the system refuses.
    """
    check_files(files, sweep, wish)
    path = None if files.output is None else journal_file(files.output)
    if files.output is not None and path is not None:
        _check_begun(files.output, path)
    with closing(Journal(path, heading(sweep), JOURNAL)) as journal:
        interrupted = False
        for row in journal.read():
            check_row(row)
        try:
            Run(sweep, opened(place, note), journal, tell).finish()
        except KeyboardInterrupt:
            interrupted = True
        finally:
            with postponed():
                rows = rows_of(sweep, journal.latest(), wish)
                write_files(files, sweep, rows, wish)
    return Ended(rows, interrupted)


def check_files(files: Files, sweep: Sweep, wish: Wish) -> None:
    """Find out before hours of work whether the files can be written.

    Raises
    ------
    UsageError, OutputError: with the obstacle.
    """
    if files.output is not None:
        check_output(files.output)
        check_writable(files.output)
    if files.plot is not None:
        check_plot(files.plot, sweep, wish)
        check_writable(files.plot)


def _check_begun(output: Path, journal: Path) -> None:
    """Refuse to write over a file that no sweep has written.

    Raises
    ------
    UsageError: it is there without a journal.
    """
    if output.exists() and not journal.exists():
        raise UsageError(
            f"{output}: found a file without the journal of a sweep beside it ({journal.name}), "
            "expected another `output`"
        )


def write_files(files: Files, sweep: Sweep, rows: list[Row], wish: Wish) -> None:
    """Write the table and the picture of the points that are done."""
    if files.output is not None:
        write_table(files.output, frame_of(sweep, rows))
    if files.plot is not None:
        write_plot(files.plot, sweep, rows, wish)


def opened(place: Place, note: Callable[[str], None]) -> Executor:
    """Return the requested executor, or this machine if it may stand in for it.

    Raises
    ------
    SchedulerError: it cannot be reached, and nothing may.
    """
    try:
        return open_executor(place.executor, workers=place.workers, scheduler=place.scheduler)
    except SchedulerError as error:
        if not place.fallback:
            raise type(error)(f"{error}; `fallback` solves on this machine instead") from None
        note(f"{error}; solved on this machine instead")
        return open_executor(LOCAL, workers=place.workers)


def sweep_object(sweep: Sweep, rows: list[Row], wish: Wish) -> dict[str, Any]:
    """Return a sweep as one JSON object."""
    return {
        **headed("sweep"),
        "points": sweep.size,
        "done": len(rows),
        "varied": {
            field.name: len(axis) for field, axis in zip(sweep.fields, sweep.axes, strict=True)
        },
        "objectives": wish.columns,
        "rows": rows,
    }

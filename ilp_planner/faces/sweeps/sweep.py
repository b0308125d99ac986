"""A whole sweep: from the request to its rows, its table and its picture.

The journal of a sweep: a line of JSON for each point that is done, on disk before the next one.

It lies beside the table, `sweep.csv.jsonl` beside `sweep.csv`, and only ever grows. The first line
has the common data of all points, so that a later run continues the same sweep only.
"""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.base.errors import OutputError, SchedulerError, UsageError
from ilp_planner.base.files import check_writable
from ilp_planner.base.growing import append
from ilp_planner.base.interrupts import postponed
from ilp_planner.base.limits import POINTS
from ilp_planner.faces.schemas import headed
from ilp_planner.faces.sweeps.executors.registry import LOCAL, open_executor
from ilp_planner.faces.sweeps.plot import check_plot, write_plot
from ilp_planner.faces.sweeps.row import LOST
from ilp_planner.faces.sweeps.run import Run
from ilp_planner.faces.sweeps.table import check_output, frame_of, rows_of, write_table
from ilp_planner.formats.inputs_json import encode_inputs
from ilp_planner.formats.versions import OWN, versions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from ilp_planner.faces.sweeps.executors.base import Executor
    from ilp_planner.faces.sweeps.points import Sweep
    from ilp_planner.faces.sweeps.row import Row
    from ilp_planner.faces.sweeps.table import Wish


# ---- journal -------------------------------------------------------------------------------------


SUFFIX = ".jsonl"
VERSION = 1  # of the format
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


class Journal:
    """Rows by the key of their point, in memory and on disk.

    path: None: in memory alone.
    """

    def __init__(self, path: Path | None, about: Mapping[str, str]) -> None:
        """Go on with a journal, or begin one.

        Raises
        ------
        UsageError: it is another sweep's, or another process works on it. OutputError: it cannot be
        read or written.
        """
        self.path = path
        self.rows: dict[str, Row] = {}
        self._handle = None if path is None else _opened(path)
        if path is not None and self._handle is not None:
            try:
                self._go_on(path, self._handle, about)
            except BaseException:
                self.close()
                raise

    def add(self, rows: Iterable[Row]) -> None:
        """Write rows, each with its `key`, and see them onto the disk.

        Raises
        ------
        OutputError: the system refuses.
        """
        lines = []
        for row in rows:
            self.rows[row["key"]] = row
            lines.append(_line(row))
        if self._handle is not None and lines:
            self._write("".join(lines))

    def known(self, key: str) -> Row | None:
        """Return the row of a point of this sweep, from now on the latest one; None if the point
        is not done."""
        row = self.rows.pop(key, None)
        if row is not None:
            self.rows[key] = row
        return row

    def latest(self) -> list[Row]:
        """Return a row for each set of values: of equal ones the latest. Others are of inputs that
        have changed since, as a GPU's constants."""
        return list({_values(row): row for row in self.rows.values()}.values())

    def close(self) -> None:
        """Let go of the file; no row is lost without it."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _write(self, text: str) -> None:
        assert self._handle is not None
        assert self.path is not None
        append(self.path, self._handle, text.encode())

    def _go_on(self, path: Path, handle: int, about: Mapping[str, str]) -> None:
        """Take the rows that are there; cut off a last line that is not whole."""
        first = _line({"sweep": VERSION, "about": dict(about)})
        with os.fdopen(os.dup(handle), "rb") as file:
            head, end = file.readline(), 0
            if head.endswith(b"\n"):
                _check_same(path, head, about)
                end = len(head)
                for line in file:
                    row = _row(line)
                    if row is None:
                        break
                    end += len(line)
                    if row["status"] != LOST:  # is tried again
                        self.rows[row["key"]] = row
        os.ftruncate(handle, end)
        if end == 0:
            self._write(first)


def _opened(path: Path) -> int:
    """Open a journal for this process alone.

    Raises
    ------
    OutputError: the system refuses. UsageError: another process has it.
    """
    try:
        handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror}") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise UsageError(
            f"{path}: another process is at work on this sweep, expected its end, or another "
            "`output`"
        ) from None
    except OSError:  # a file system without locks
        return handle
    return handle


def _check_same(path: Path, head: bytes, about: Mapping[str, str]) -> None:
    """Refuse the journal of another sweep.

    Raises
    ------
    UsageError: with the differences.
    """
    try:
        there = json.loads(head)["about"]
        found = {str(name): str(text) for name, text in there.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UsageError(
            f"{path}: found no journal of a sweep, expected one, or no file; another `output` "
            "begins one"
        ) from None
    unlike = [
        f"{name} {found.get(name, 'none')} there, {about.get(name, 'none')} here"
        for name in (*about, *(name for name in found if name not in about))
        if found.get(name) != about.get(name)
    ]
    if unlike:
        table = path.with_suffix("")
        raise UsageError(
            f"{table}: a table of another sweep: {'; '.join(unlike)}; another `output` begins a "
            "table of its own"
        )


def _line(value: Mapping[str, Any]) -> str:
    return json.dumps(value, allow_nan=False, ensure_ascii=False) + "\n"


def _values(row: Row) -> str:
    return json.dumps(row["values"], sort_keys=True)


def _row(line: bytes) -> Row | None:
    """Return the row of a line; None if it is incomplete."""
    try:
        row: Row = json.loads(line)
        return row if line.endswith(b"\n") and isinstance(row["values"], dict) else None
    except (ValueError, KeyError, TypeError):
        return None


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
    UsageError: impossible files, or a table of another sweep.
    SchedulerError: the scheduler cannot be reached. OutputError: the system refuses.
    """
    check_files(files, sweep, wish)
    path = None if files.output is None else journal_file(files.output)
    if files.output is not None and path is not None:
        _check_begun(files.output, path)
    journal = Journal(path, heading(sweep))
    interrupted = False
    try:
        Run(sweep, opened(place, note), journal, tell).finish()
    except KeyboardInterrupt:
        interrupted = True
    finally:
        with postponed():
            rows = rows_of(sweep, journal.latest(), wish)
            write_files(files, sweep, rows, wish)
            journal.close()
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

"""The journal of a sweep: a line of JSON for each point that is done, on disk before the next one.

It lies beside the table, `sweep.csv.jsonl` beside `sweep.csv`, and only ever grows. The first line
has the common data of all points, so that a later run continues the same sweep only.
"""

from __future__ import annotations

import fcntl
import json
import os
from typing import TYPE_CHECKING, Any

from ilp_planner.base.errors import OutputError, UsageError
from ilp_planner.base.growing import append
from ilp_planner.faces.sweeps.row import LOST
from ilp_planner.formats.inputs_json import encode_inputs
from ilp_planner.formats.versions import OWN, versions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from ilp_planner.faces.sweeps.points import Sweep
    from ilp_planner.faces.sweeps.row import Row

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


def _row(line: bytes) -> Row | None:
    """Return the row of a line; None if it is incomplete."""
    try:
        row: Row = json.loads(line)
        return row if line.endswith(b"\n") and isinstance(row["values"], dict) else None
    except (ValueError, KeyError, TypeError):
        return None

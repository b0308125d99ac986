"""A table that grows on disk: every row is there as soon as it is measured, and a later run
continues an earlier one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ilp_planner.base.errors import OutputError, ProfileError
from ilp_planner.base.files import append, write_text
from ilp_planner.costs.profiles.measurements import (
    Measurements,
    RowStatus,
    head_lines,
    read_measurements,
    row_line,
    rows_of,
    write_measurements,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

RowKey = tuple[str, str, str, int, int, int, int, int, int, int]
SAME = ("device", "model", "architecture", "dtype", "links")  # lines that must not differ


class Journal:
    """Rows on their way to a file; it is a whole native table after each of them.

    The former content of the file stays until the first row is there.

    machine: for the lines above the rows.
    append: go on after the rows that the file has.
    """

    def __init__(self, path: Path, machine: Mapping[str, str], *, append: bool = False) -> None:
        self.path = path
        self.machine = machine
        self.rows = 0
        self._handle = self._open() if append else None

    def add(self, row: Mapping[str, Any]) -> None:
        """Write a row, and see it onto the disk.

        Raises
        ------
        OutputError: the system refuses.
        """
        line = row_line({"status": "ok", "provenance": "measured", **row}) + "\n"
        if self._handle is None:
            write_text(self.path, "\n".join(head_lines(self.machine)) + "\n" + line)
            self._handle = self._open()
        else:
            append(self.path, self._handle, line.encode())
        self.rows += 1

    def close(self) -> None:
        """Let go of the file; no row is lost without it."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _open(self) -> int:
        try:
            return os.open(self.path, os.O_WRONLY | os.O_APPEND)
        except OSError as error:
            raise OutputError(f"{self.path}: cannot be written: {error.strerror}") from None


def row_key(row: Mapping[str, Any]) -> RowKey:
    """Return the key of a row in a table: record, name, layers, tp, split, micro-batch, sequence,
    cp, ep, etp."""
    named = ("tp", "split", "micro_batch", "sequence", "cp", "ep", "etp")
    numbers = (row.get(name) for name in named)
    tp, split, micro_batch, sequence, cp, ep, etp = (
        -1 if value is None or value != value else int(value) for value in numbers
    )
    return (
        str(row.get("record", "")),
        str(row.get("name", "")),
        str(row.get("layers", "")),
        tp,
        split,
        micro_batch,
        sequence,
        cp,
        ep,
        etp,
    )


def begun(path: Path, machine: Mapping[str, str]) -> dict[RowKey, RowStatus]:
    """Return the present rows of a table; none if there is no file.

    Rows that failed are taken out of it, to be tried again, and so is half a last line.

    Raises
    ------
    ProfileError: it is no native table, or of another device, model or precision, or with other
        messages in its times.
    OutputError: it cannot be written.
    """
    if not path.exists():
        return {}
    _cut_torn_line(path)
    table = read_measurements(path)
    for key in SAME:
        there = table.machine.get(key)
        if there != machine.get(key):
            raise ProfileError(
                f"{path}: {key}: found {there!r}, expected {machine.get(key)!r} to go on with it; "
                "another `output` begins a table of its own"
            )
    kept = table.frame[table.frame["status"] != RowStatus.FAILED]
    if len(kept) < len(table.frame):
        rest = Measurements(frame=kept, source=table.source, machine=table.machine)
        write_measurements(path, rest)
    return {row_key(row): RowStatus(row["status"]) for row in rows_of(kept)}


def _cut_torn_line(path: Path) -> None:
    """Take the end off that a full disk or a power cut left unfinished."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read: {error.strerror}") from None
    whole, newline, rest = text.rpartition(b"\n")
    if rest and newline:
        try:
            write_text(path, (whole + newline).decode())
        except UnicodeDecodeError:
            raise ProfileError(f"{path}: must be a UTF-8 text, found other bytes") from None

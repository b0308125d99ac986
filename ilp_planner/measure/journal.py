"""A table that grows on disk: every row is there as soon as it is measured."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ilp_planner.errors import OutputError
from ilp_planner.files import write_text
from ilp_planner.profiles.measurements import head_lines, row_line

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class Journal:
    """Rows on their way to a file, which is a whole native table after each of them.

    What the file held before stays until the first row is there.

    Parameters
    ----------
    machine: what is measured on, for the lines above the rows.
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
            try:
                # In one call: a kill leaves a whole line or none.
                os.write(self._handle, line.encode())
                os.fsync(self._handle)
            except OSError as error:
                raise OutputError(f"{self.path}: cannot be written: {error.strerror}") from None
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

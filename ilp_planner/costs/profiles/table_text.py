"""The text of a native table: its lines about the machine, its names of columns, its cells."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from ilp_planner.base.errors import ProfileError
from ilp_planner.base.file_kinds import FileKind, refuse_other_kind
from ilp_planner.base.files import lines_of, read_text
from ilp_planner.base.limits import TABLE_BYTES, check_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

COMMENT = "#"
VERSION = 1
WORDS = 4  # that the name of a column may have
TITLE = "ilp-plan profile, version"  # stands before the number in the first line


@dataclass(frozen=True, slots=True, kw_only=True)
class TableText:
    """machine: from the lines above the header. names: of the columns. columns: their cells, one
    for each row in each of them, without rows that are empty. lines: first line of each row, from
    1."""

    machine: Mapping[str, str]
    names: list[str]
    columns: list[list[str]]
    lines: list[int]

    def column(self, name: str) -> list[str]:
        """Return the cells of a column that is there."""
        return self.columns[self.names.index(name)]


def read_table_text(path: Path) -> TableText:
    """Read the cells of a file.

    Raises
    ------
    ProfileError: not there, no CSV, no native table, too long, or rows of another length than the
    header.
    """
    text = read_text(path, ProfileError, "utf-8-sig", TABLE_BYTES)  # spreadsheets mark it
    refuse_other_kind(path, FileKind.PROFILE, ProfileError)
    check_lines(text, path, ProfileError)
    lines, head = lines_of(text), []
    first = ""
    for first in lines:
        if not first.startswith(COMMENT) and first.strip():
            break
        head.append(first)
    else:
        raise ProfileError(f"{path}: expected a header with the columns record, ..., found none")
    machine = _machine(head, path)
    rows = _cells(chain((first,), lines), len(head), path)
    begin, names = next(rows)
    if "record" not in names:
        prose = any(len(name.split()) > WORDS for name in names)
        there = f"a sentence in line {begin}" if prose else ", ".join(names[:6])
        raise ProfileError(
            f"{path}: column 'record' is missing, found {there}: expected a native table "
            "(`ilp-plan profile import` makes one of other formats)"
        )
    columns, begins = _columns(rows, len(names), path)
    return TableText(machine=machine, names=names, columns=columns, lines=begins)


def _columns(
    rows: Iterator[tuple[int, list[str]]], width: int, path: Path
) -> tuple[list[list[str]], list[int]]:
    """Return the cells of each column, and the lines of the rows. A text that is there many times,
    as most are, is held once."""
    columns: list[list[str]] = [[] for _ in range(width)]
    begins: list[int] = []
    known: dict[str, str] = {}
    for line, row in rows:
        if not any(row):
            continue
        if len(row) != width:
            raise ProfileError(f"{path}: line {line}: {width} fields expected, found {len(row)}")
        begins.append(line)
        for column, cell in zip(columns, row, strict=True):
            column.append(known.setdefault(cell, cell))
    return columns, begins


def _cells(lines: Iterable[str], above: int, path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the first line of each row, and its cells: a quoted cell may have several lines.

    above: lines of the file before these.
    """
    reader = csv.reader(lines, strict=True)
    begin = above + 1
    try:
        for row in reader:
            yield begin, [cell.strip() for cell in row]
            begin = above + reader.line_num + 1
    except csv.Error as error:
        raise ProfileError(f"{path}: line {begin}: cannot be read as CSV: {error}") from None


def _machine(lines: list[str], path: Path) -> dict[str, str]:
    """Return the content of `# key: value` lines, and refuse a later version's."""
    machine = {}
    for line in lines:
        words = line.lstrip(COMMENT).strip()
        version = re.fullmatch(rf"{TITLE} ([0-9]{{1,9}})", words)
        if version is not None and int(version[1]) > VERSION:
            raise ProfileError(
                f"{path}: a profile of version {version[1]}, expected version {VERSION}: written "
                "by a later ilp-plan"
            )
        key, colon, value = words.partition(":")
        if colon:
            machine[key.strip()] = value.strip()
    return machine

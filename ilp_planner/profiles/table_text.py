"""The text of a native table: its lines about the machine, its names of columns, its cells."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ilp_planner.errors import ProfileError
from ilp_planner.file_kinds import FileKind, refuse_other_kind
from ilp_planner.files import read_text
from ilp_planner.limits import TABLE_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

COMMENT = "#"
VERSION = 1
WORDS = 4  # that the name of a column may have
TITLE = "ilp-plan profile, version"  # stands before the number in the first line


@dataclass(frozen=True, slots=True, kw_only=True)
class TableText:
    """machine: from the lines above the header. names: of the columns. rows: their cells, as many
    in each as there are names, without rows that are empty. lines: where each begins, from 1."""

    machine: Mapping[str, str]
    names: list[str]
    rows: list[list[str]]
    lines: list[int]


def read_table_text(path: Path) -> TableText:
    """Read the cells of a file.

    Raises
    ------
    ProfileError: not there, no CSV, no native table, or rows of another length than the header.
    """
    text = read_text(path, ProfileError, "utf-8-sig", TABLE_BYTES)  # spreadsheets mark it
    refuse_other_kind(path, FileKind.PROFILE, ProfileError)
    lines = list(io.StringIO(text))
    head = 0
    while head < len(lines) and (lines[head].startswith(COMMENT) or not lines[head].strip()):
        head += 1
    machine = _machine(lines[:head], path)
    if head == len(lines):
        raise ProfileError(f"{path}: expected a header with the columns record, ..., found none")
    names, *rows = _cells(lines[head:], head, path)
    if "record" not in names[1]:
        prose = any(len(name.split()) > WORDS for name in names[1])
        there = f"a sentence in line {names[0]}" if prose else ", ".join(names[1][:6])
        raise ProfileError(
            f"{path}: column 'record' is missing, found {there}: expected a native table "
            "(`ilp-plan profile import` makes one of other formats)"
        )
    filled = [(line, row) for line, row in rows if any(row)]
    for line, row in filled:
        if len(row) != len(names[1]):
            raise ProfileError(
                f"{path}: line {line}: {len(names[1])} fields expected, found {len(row)}"
            )
    return TableText(
        machine=machine,
        names=names[1],
        rows=[row for _, row in filled],
        lines=[line for line, _ in filled],
    )


def _cells(lines: list[str], above: int, path: Path) -> list[tuple[int, list[str]]]:
    """Return the cells of each row and the line where it begins: a quoted cell may have several.

    above: lines of the file before these.
    """
    rows = []
    reader = csv.reader(lines, strict=True)
    begin = above + 1
    try:
        for row in reader:
            rows.append((begin, [cell.strip() for cell in row]))
            begin = above + reader.line_num + 1
    except csv.Error as error:
        raise ProfileError(f"{path}: line {begin}: cannot be read as CSV: {error}") from None
    return rows


def _machine(lines: list[str], path: Path) -> dict[str, str]:
    """Return what `# key: value` lines say, and refuse what a later version has written."""
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

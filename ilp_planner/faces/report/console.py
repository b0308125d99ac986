"""Output of text: its stream, its width, and verdicts on a terminal."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING

from rich.text import Text

from ilp_planner.base.kernels import before_compiling
from ilp_planner.base.plain_console import PlainConsole
from ilp_planner.faces.report.grid import GAP, blocks, headed_lines, narrow, wrapped

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console
    from rich.table import Table

    Lines = Sequence[tuple[str, str]]

COMPILING = "ilp-plan: compiling the numerical kernels, once ..."
BRIEF_WIDTH = 120  # columns of a result at most
PIPE_WIDTH = 200  # columns when nobody's terminal limits them: no cell of a table is ever cut
# What lines of a report say of a plan, and the colour of that.
VERDICTS = {
    r"^PROVED (?!INFEASIBLE)[A-Z]+ .*": "green",
    r"^(WITHIN [<0-9]|NO BOUND|OPEN FRONT|NO PLAN FOUND).*": "yellow",
    r"^PROVED INFEASIBLE.*": "red",
    r"^(claimed )?gap +(?!0 % \(proved|0 %$)[0-9].*": "yellow",
    r"^(claimed )?gap +(0 % \(proved|0 %$).*": "green",
    r"^(NOT LEGAL|NOT AS CLAIMED).*": "red",
    r"^plan +legal\b.*": "green",
    r"^plan +breaks\b.*|^BROKEN RULE\b.*": "red",
    r"^no plan +proved\b.*": "red",
    r"^no plan +none\b.*": "yellow",
}


def open_console(*, stderr: bool = False) -> Console:
    """Return a console for plain text: names with brackets or colons are shown as they are."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or os.environ.get("COLUMNS") else PIPE_WIDTH
    return PlainConsole(file=stream, width=width, markup=False, emoji=False, highlight=False)


def tell_of_compiling() -> None:
    """Say on stderr that kernels are compiled, once and only if they have to be."""
    before_compiling(lambda: print(COMPILING, file=sys.stderr))


def print_report(lines: Text, *tables: Table) -> None:
    """Print tables and then lines to stdout.

    On a terminal the lines are wrapped between words, each aligned with its text.
    """
    console = open_console()
    print_tables(console, tables)
    text = wrapped(lines.plain, console.width) if console.is_terminal else lines.plain
    console.print(coloured(text), soft_wrap=True)


def print_verdict(lines: Text, *tables: Table) -> None:
    """Print lines and then tables to stdout, for reports that begin with the verdict."""
    console = open_console()
    text = wrapped(lines.plain, console.width) if console.is_terminal else lines.plain
    console.print(coloured(text), soft_wrap=True)
    for table in tables:
        console.print()
        console.print(fitted(table, console.width), soft_wrap=True)


def print_brief(lines: Lines, tables: Iterable[Table], details: Lines = ()) -> None:
    """Print lines of a head and a text, then tables, and then details, to stdout: in `BRIEF_WIDTH`
    columns, or in those of a terminal that has fewer."""
    console = open_console()
    write_brief(console, min(console.width, BRIEF_WIDTH), lines, tables, details)


def write_brief(
    console: Console, width: int, lines: Lines, tables: Iterable[Table], details: Lines = ()
) -> None:
    """Write the same to a console."""
    console.print(coloured(headed_lines(lines, width)), soft_wrap=True)
    for table in tables:
        console.print()
        console.print(fitted(table, width), soft_wrap=True)
    if details:
        console.print()
        console.print(headed_lines(details, width), soft_wrap=True)


def print_tables(console: Console, tables: Iterable[Table]) -> None:
    """Print tables as wide as there is room for, an empty line after each."""
    for table in tables:
        console.print(fitted(table, console.width), soft_wrap=True)
        console.print()


def coloured(text: str) -> Text:
    """Return lines with their verdicts in colour."""
    styled = Text(text)
    for pattern, colour in VERDICTS.items():
        styled.highlight_regex(re.compile(pattern, re.MULTILINE), colour)
    return styled


def fitted(table: Table, width: int) -> Table | Text:
    """Return a table in which no word is cut; a block of lines per row where it is too wide.

    Cells are wrapped between words, in the columns that have the longest ones.
    """
    texts = [[str(column.header), *map(str, column.cells)] for column in table.columns]
    least = [max(len(word) for text in column for word in ["", *text.split()]) for column in texts]
    widths = [max(len(line) for text in column for line in text.split("\n")) for column in texts]
    room = width - GAP * len(widths)  # before Rich 15 the last column is followed by a gap, too
    if sum(least) > room:
        titles, *rows = zip(*texts, strict=True)
        return Text(blocks(titles, rows, width))
    narrow(widths, dict(enumerate(least)), room)
    for column, size in zip(table.columns, widths, strict=True):
        column.width = size
    return table

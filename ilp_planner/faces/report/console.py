"""Output of text: its stream, its width, and verdicts on a terminal."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, Literal

from rich.table import Table as Drawn
from rich.text import Text

from ilp_planner.base.kernels import before_compiling
from ilp_planner.base.plain_console import PlainConsole
from ilp_planner.faces.report.grid import GAP, blocks, headed_lines, narrow, wrapped
from ilp_planner.faces.report.tables import summary

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console

    from ilp_planner.faces.report.tables import Lines, Table

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


def print_report(lines: Lines, *tables: Table, verdict: bool = False) -> None:
    """Print tables and then lines to stdout, or the lines first, which then begin with a verdict.

    On a terminal the lines are wrapped between words, each aligned with its text.
    """
    console = open_console()
    text = summary(lines)
    said = coloured(wrapped(text, console.width) if console.is_terminal else text)
    drawn = [fitted(table, console.width) for table in tables]
    _print(console, [said, *drawn] if verdict else [*drawn, said])


def print_brief(lines: Lines, tables: Iterable[Table], details: Lines = ()) -> None:
    """Print lines of a head and a text, then tables, and then details, to stdout: in `BRIEF_WIDTH`
    columns, or in those of a terminal that has fewer."""
    console = open_console()
    write_brief(console, min(console.width, BRIEF_WIDTH), lines, tables, details)


def write_brief(
    console: Console, width: int, lines: Lines, tables: Iterable[Table], details: Lines = ()
) -> None:
    """Write the same to a console."""
    more = [headed_lines(details, width)] if details else []
    drawn = (fitted(table, width) for table in tables)
    _print(console, [coloured(headed_lines(lines, width)), *drawn, *more])


def _print(console: Console, blocks: Iterable[Text | Drawn | str]) -> None:
    """Print blocks of lines with an empty line between them."""
    for n, block in enumerate(blocks):
        if n:
            console.print()
        console.print(block, soft_wrap=True)


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


def fitted(table: Table, width: int) -> Drawn | Text:
    """Return a table in which no word is cut; a block of lines per row where it is too wide.

    Cells are wrapped between words, in the columns that have the longest ones.
    """
    columns = list(zip(table.titles, *table.rows, strict=True))
    least = [max(map(len, ["", *" ".join(texts).split()])) for texts in columns]
    widths = [max(len(line) for text in texts for line in text.split("\n")) for texts in columns]
    room = width - GAP * len(widths)  # before Rich 15 the last column is followed by a gap, too
    if sum(least) > room:
        return Text(blocks(table.titles, table.rows, width))
    narrow(widths, dict(enumerate(least)), room)
    drawn = Drawn(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for n, (title, size) in enumerate(zip(table.titles, widths, strict=True)):
        side: Literal["left", "right"] = "left" if n in table.left else "right"
        drawn.add_column(Text(title), justify=side, overflow="fold", width=size)
    for row in table.rows:
        drawn.add_row(*map(Text, row))
    return drawn

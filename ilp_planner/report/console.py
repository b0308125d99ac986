"""Where text goes, and how wide it may be."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rich.console import Console

from ilp_planner.kernels import before_compiling

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

COMPILING = "compiling the numerical kernels, once ..."
PIPE_WIDTH = 200  # columns when nobody's terminal limits them: no cell of a table is ever cut


def open_console(*, stderr: bool = False) -> Console:
    """Return a console for plain text: names with brackets or colons are shown as they are."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else PIPE_WIDTH
    return Console(file=stream, width=width, markup=False, emoji=False, highlight=False)


def tell_of_compiling() -> None:
    """Say on a terminal that kernels are compiled, once and only if they have to be."""
    if sys.stderr.isatty():
        before_compiling(lambda: print(COMPILING, file=sys.stderr))


def print_report(lines: Text, *tables: Table) -> None:
    """Print tables and then lines to stdout, an empty line after each table."""
    console = open_console()
    for table in tables:
        console.print(table)
        console.print()
    console.print(lines, soft_wrap=True)

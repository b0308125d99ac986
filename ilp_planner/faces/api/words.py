"""Messages in the words of Python: parameters of the planner and options of the command line are
keywords here."""

from __future__ import annotations

import html
import io
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ilp_planner.base.errors import (
    InfeasibleError,
    PlannerError,
    UsageError,
    described,
    with_article,
)
from ilp_planner.base.printable import printable
from ilp_planner.faces.cli.wording import PARAMETER
from ilp_planner.inputs.table import INPUTS, Whole
from ilp_planner.spaces.registry import RUNTIMES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import Console

    from ilp_planner.faces.report.tables import Lines, Table

# Options whose keyword is not their own name with underscores.
KEYWORDS = {
    **{f"--runtime {name}": f'space="{name}"' for name in RUNTIMES},
    "--runtime": "space",
    **{row.typed: row.said for row in INPUTS if row.option},
    "--time-limit": "seconds",
    "--check-certificate": "check()",
    "--not": "instead",
    "--verbose": "details",
    "--set": "set_values",
}
# Parameters of the planner whose keyword has another name.
RENAMED = {row.name: row.said for row in INPUTS if row.keyword}


def in_python(message: str) -> str:
    """Return a message with the keywords of the verbs instead of options, and texts in quotes:
    `space="megatron"`."""
    for option, keyword in KEYWORDS.items():
        message = re.sub(rf"{option}(?![\w-])", keyword, message)
    message = re.sub(r"(?<![\w-])--([a-z][a-z-]*)", lambda m: m[1].replace("-", "_"), message)
    name, colon, rest = message.partition(":")
    if colon and name in RENAMED:
        message = f"{RENAMED[name]}:{rest}"
    return PARAMETER.sub(_keyword, message)


def _keyword(match: re.Match[str]) -> str:
    name, value = RENAMED.get(match[1], match[1]), match[2]
    if value is None:
        return f"`{name}`"
    return f"`{name}={value}`" if value.isdecimal() else f'`{name}="{value}"`'


@contextmanager
def python_words() -> Iterator[None]:
    """Let errors that name an option of the command line name the keyword."""
    try:
        yield
    except PlannerError as error:
        text = str(error)
        if in_python(text) == text:
            raise
        # What explains a conflict is made of demands, not of a text.
        kind = InfeasibleError if isinstance(error, InfeasibleError) else type(error)
        raise kind(in_python(text), excerpt=error.excerpt) from None


class Printed:
    """Objects that a notebook shows as printed."""

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def expect(verb: str, given: object, *kinds: type) -> None:
    """Refuse an object of the wrong kind: a UsageError with the expected kinds."""
    if not isinstance(given, kinds):
        names = " or ".join(with_article(kind.__name__) for kind in kinds)
        raise UsageError(f"{verb}: found {described(given)}, expected {names}")


def positive(name: str, value: object) -> int:
    """Return a whole number of at least 1; refuse other values."""
    return Whole().read(name, value)


def brief_text(lines: Lines, tables: Iterable[Table], details: Lines = ()) -> str:
    """Return lines of a head and a text, then tables, and then details, as the command line prints
    a result."""
    from ilp_planner.faces.report.console import BRIEF_WIDTH, write_brief

    each = ([(in_python(head), in_python(text)) for head, text in one] for one in (lines, details))
    said, more = each
    console = _console(BRIEF_WIDTH)
    with console.capture() as printed:
        write_brief(console, BRIEF_WIDTH, said, tables, more)
    return printed.get().rstrip()


def as_text(lines: Lines, tables: Iterable[Table]) -> str:
    """Return tables and then lines, as the command line prints them into a pipe."""
    from ilp_planner.faces.report.console import PIPE_WIDTH, print_tables
    from ilp_planner.faces.report.tables import summary

    console = _console(PIPE_WIDTH)
    with console.capture() as printed:
        print_tables(console, tables)
    return printed.get() + printable(in_python(summary(lines)))


def _console(width: int) -> Console:
    from ilp_planner.base.plain_console import PlainConsole

    return PlainConsole(
        file=io.StringIO(),
        width=width,
        markup=False,
        emoji=False,
        highlight=False,
        force_jupyter=False,  # a notebook would show the tables at once, and print the lines alone
    )

"""A table as plain text, quickly: long reports would take rich longer to print than to compute."""

from __future__ import annotations

import re
import textwrap
from itertools import zip_longest
from typing import TYPE_CHECKING

from ilp_planner.base.printable import TerminalText, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ilp_planner.faces.report.tables import Table

GAP = 2  # spaces between columns
LEAST = 14  # characters that a line keeps for its text, half of them beside the indentation
STYLES = {
    "bold": "\x1b[1m",
    "dim": "\x1b[2m",
    "italic": "\x1b[3m",
    "green": "\x1b[32m",
    "red": "\x1b[31m",
}
LEFT_OUT = "..."
RESET = "\x1b[0m"


def grid_lines(table: Table, limit: int, *, styled: bool = False) -> list[str]:
    """Return a table, no line longer than the limit: a block per row if a table is impossible.

    Parameters
    ----------
    limit: columns of the terminal. styled: with the terminal's bold, dim and italic.
    """
    rows = [(table.titles, "bold"), *zip(table.rows, table.styles, strict=True)]
    split = [([cell.split("\n") for cell in cells], style) for cells, style in rows]
    widths = [
        max(len(line) for cells, _ in split for line in cells[c]) for c in range(len(table.titles))
    ]
    least = {c: max(_least(line) for cells, _ in split for line in cells[c]) for c in table.left}
    room = limit - GAP * (len(widths) - 1)
    narrow(widths, least, room)
    if sum(widths) > room:
        return blocks(table.titles, table.rows, limit).split("\n")
    found = []
    for number, (cells, style) in enumerate(split):
        columns = [
            [part for line in cell for part in wrap(line, widths[c])]
            for c, cell in enumerate(cells)
        ]
        if number == 0:
            deepest = max(map(len, columns))
            columns = [[""] * (deepest - len(column)) + column for column in columns]
        for parts in zip_longest(*columns, fillvalue=""):
            padded = (
                part.ljust(widths[c]) if c in table.left else part.rjust(widths[c])
                for c, part in enumerate(parts)
            )
            line = (" " * GAP).join(padded).rstrip()
            found.append(styled_text(line, style) if styled and style else line)
    return found


def styled_text(text: str, style: str) -> TerminalText:
    """Return a text in a terminal's style; nothing else in it steers the terminal."""
    return TerminalText(f"{STYLES[style]}{printable(text)}{RESET}")


def _least(line: str) -> int:
    """Return the width that a line can be wrapped to without breaking a name."""
    pieces = re.findall(r"[^ ._]+[._]?|[._]", line)
    return max(map(len, pieces), default=0) + (GAP + _indent(line) if len(pieces) > 1 else 0)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def narrow(widths: list[int], least: dict[int, int], room: int) -> None:
    """Narrow the widest columns of text to the room that there is. least: letters that a column
    keeps."""
    for _ in range(sum(widths) - room):
        wide = [column for column, width in least.items() if widths[column] > width]
        if not wide:
            return
        widths[max(wide, key=widths.__getitem__)] -= 1


def wrap(line: str, width: int) -> list[str]:
    """Return a line in pieces of a width at most, its indentation kept.

    It is broken at spaces, and in a name after a dot or an underscore if it has none.
    """
    if len(line) <= width:
        return [line]
    indent = min(_indent(line), max(0, width - LEAST // 2))
    lead, rest = " " * indent, line.lstrip(" ")
    pieces = []
    while rest:
        room = width - len(lead)
        if len(rest) <= room:
            pieces.append(lead + rest)
            break
        place = rest.rfind(" ", 1, room + 1)
        place = place if place > 0 else max(map(rest[:room].rfind, "._")) + 1 or room
        pieces.append(lead + rest[:place].rstrip())
        rest = rest[place:].lstrip()
        lead = " " * min(indent + GAP, max(0, width - LEAST // 2))
    return pieces


def wrapped(text: str, width: int) -> str:
    """Return lines of a name and a text, wrapped between words and aligned with the text."""
    return "\n".join(part for line in text.split("\n") for part in _aligned(line, width) or [""])


def _aligned(line: str, width: int) -> list[str]:
    name = re.match(r" *\S.*? {2,}", line)
    return textwrap.wrap(
        line,
        width,
        subsequent_indent=" " * (name.end() if name else 0),
        break_long_words=False,
        break_on_hyphens=False,
    )


def blocks(titles: Sequence[str], rows: Iterable[Sequence[str]], width: int) -> str:
    """Return the rows of a table one below the other, a line per cell that has a text."""
    names = [" ".join(title.split()) for title in titles]
    space = max(map(len, names)) + GAP
    return "\n\n".join(
        wrapped(
            "\n".join(
                f"{name:<{space}}{' '.join(text.split())}"
                for name, text in zip(names, row, strict=True)
                if text
            ),
            width,
        )
        for row in rows
    )


def headed_lines(lines: Sequence[tuple[str, str]], width: int) -> str:
    """Return lines of a head and a text, none longer than the width; a long line continues aligned
    with its text.

    It is broken between things that are two spaces apart, as far as each has room, and else between
    words. A word that is too long is shortened in its middle.
    """
    column = max(min(len(head), width // 3) for head, _ in lines) + GAP
    room = max(width - column, LEAST)
    found = []
    for head, text in lines:
        first, *rest = _filled(text, room) or [""]
        found.append(f"{shortened(head, column - GAP):<{column}}{first}".rstrip())
        found += [" " * column + line for line in rest]
    return "\n".join(found)


def _filled(text: str, room: int) -> list[str]:
    """Return a text in lines of at most so many letters."""
    found: list[str] = []
    for item in text.split(" " * GAP):
        words = [item] if len(item) <= room else item.split(" ")
        for n, word in enumerate(words):
            short = shortened(word, room)
            between = " " * (1 if n else GAP)
            if found and len(found[-1]) + len(between) + len(short) <= room:
                found[-1] += between + short
            else:
                found.append(short)
    return found


def shortened(text: str, most: int) -> str:
    """Return a text of at most so many letters: its middle is left out if it has more."""
    if len(text) <= most:
        return text
    half = (most - len(LEFT_OUT)) // 2
    return f"{text[:half]}{LEFT_OUT}{text[len(text) - (most - len(LEFT_OUT) - half) :]}"

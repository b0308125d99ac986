"""A table as plain text, quickly: long reports would take rich longer to print than to compute."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import zip_longest

GAP = 2  # spaces between columns
LEAST = 14  # characters that a column of text keeps, however narrow the terminal
STYLES = {"bold": "\x1b[1m", "dim": "\x1b[2m", "italic": "\x1b[3m"}
RESET = "\x1b[0m"


@dataclass(slots=True)
class Grid:
    """Columns with titles, and rows of cells, each of one or several lines.

    left: numbers of the columns that hold text; only they are wrapped, others align to the right.
    """

    titles: tuple[str, ...]
    left: frozenset[int]
    rows: list[tuple[tuple[str, ...], str]] = field(default_factory=list)

    def add(self, *cells: str, style: str = "") -> None:
        """Add a row."""
        if len(cells) != len(self.titles):
            raise ValueError(f"a row needs {len(self.titles)} cells, got {len(cells)}")
        self.rows.append((cells, style))


def grid_lines(grid: Grid, limit: int, *, styled: bool = False) -> list[str]:
    """Return the table, no line longer than the limit where its text can be wrapped so far.

    Parameters
    ----------
    limit: columns of the terminal. styled: with the terminal's bold, dim and italic.
    """
    rows = [(grid.titles, "bold"), *grid.rows]
    split = [([cell.split("\n") for cell in cells], style) for cells, style in rows]
    widths = [
        max(len(line) for cells, _ in split for line in cells[c]) for c in range(len(grid.titles))
    ]
    _narrow(widths, grid.left, limit)
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
            line = (
                (" " * GAP)
                .join(
                    part.ljust(widths[c]) if c in grid.left else part.rjust(widths[c])
                    for c, part in enumerate(parts)
                )
                .rstrip()
            )
            found.append(f"{STYLES[style]}{line}{RESET}" if styled and style else line)
    return found


def _narrow(widths: list[int], left: frozenset[int], limit: int) -> None:
    """Take from the widest columns of text what the line is too long by."""
    over = sum(widths) + GAP * (len(widths) - 1) - limit
    while over > 0:
        widest = max(left, key=lambda c: widths[c], default=None)
        if widest is None or widths[widest] <= LEAST:
            return
        others = [widths[c] for c in left if c != widest and widths[c] < widths[widest]]
        floor = max([LEAST, *(width for width in others if width > LEAST)])
        step = min(over, max(1, widths[widest] - floor))
        widths[widest] -= step
        over -= step


def wrap(line: str, width: int) -> list[str]:
    """Return a line in pieces of a width at most, broken at spaces, its indentation kept."""
    if len(line) <= width:
        return [line]
    indent = min(len(line) - len(line.lstrip(" ")), max(0, width - LEAST // 2))
    lead, rest = " " * indent, line.lstrip(" ")
    pieces = []
    while rest:
        room = width - len(lead)
        if len(rest) <= room:
            pieces.append(lead + rest)
            break
        place = rest.rfind(" ", 1, room + 1)
        place = place if place > 0 else room
        pieces.append(lead + rest[:place].rstrip())
        rest = rest[place:].lstrip()
        lead = " " * min(indent + GAP, max(0, width - LEAST // 2))
    return pieces

"""The report of a command as a tree: lines of a head and a text, tables, the object of `--json`.

`console` prints it, `faces.api.words` makes a text of it for Python, `faces.page` HTML.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container

Lines = Sequence[tuple[str, str]]  # of a head and a text


class Table:
    """Columns with titles, and rows of cells, each of one or several lines.

    left: numbers of the columns that hold text; others align to the right. styles: of rows, by the
    names of `grid.STYLES`, empty for none.
    """

    def __init__(self, *titles: str, left: Container[str] = ()) -> None:
        """Begin without rows. left: titles of the columns that hold text."""
        self.titles = titles
        self.left = frozenset(n for n, title in enumerate(titles) if title in left)
        self.rows: list[tuple[str, ...]] = []
        self.styles: list[str] = []

    def add(self, *cells: str, style: str = "") -> None:
        """Add a row."""
        if len(cells) != len(self.titles):
            raise ValueError(f"a row needs {len(self.titles)} cells, got {len(cells)}")
        self.rows.append(cells)
        self.styles.append(style)

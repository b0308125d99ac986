"""Plain tables: aligned, wrapped only in text, and never cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.faces.report.grid import grid_lines, wrap
from ilp_planner.faces.report.tables import Table

WORDS = st.lists(st.text("abcdefgh", min_size=1, max_size=12), min_size=1, max_size=6)


def make_grid() -> Table:
    grid = Table("name", "GiB\neach", left=("name",))
    grid.add("first", "1.00")
    grid.add("a name that is long", "12.00", style="bold")
    return grid


def test_text_is_left_and_numbers_right() -> None:
    assert grid_lines(make_grid(), 80) == [
        "                       GiB",
        "name                  each",
        "first                 1.00",
        "a name that is long  12.00",
    ]


def test_text_wraps_where_the_terminal_is_narrow() -> None:
    assert grid_lines(make_grid(), 22) == [
        "                   GiB",
        "name              each",
        "first             1.00",
        "a name that is   12.00",
        "  long",
    ]


def test_styles_are_for_terminals() -> None:
    assert not any("\x1b" in line for line in grid_lines(make_grid(), 80))
    styled = grid_lines(make_grid(), 80, styled=True)
    assert [line.startswith("\x1b[1m") for line in styled] == [True, True, False, True]


def test_a_row_has_as_many_cells_as_columns() -> None:
    with pytest.raises(ValueError, match="a row needs 2 cells, got 1"):
        make_grid().add("alone")


@given(WORDS, st.integers(0, 4), st.integers(8, 30))
def test_nothing_is_lost_in_wrapping(words: list[str], indent: int, width: int) -> None:
    line = " " * indent + " ".join(words)
    pieces = wrap(line, width)
    assert "".join(pieces).replace(" ", "") == line.replace(" ", "")
    assert all(len(piece) <= width for piece in pieces)


@given(st.lists(WORDS, min_size=1, max_size=5), st.integers(30, 120))
def test_lines_are_no_longer_than_asked(rows: list[list[str]], width: int) -> None:
    grid = Table("text", "n", left=("text",))
    for number, words in enumerate(rows):
        grid.add(" ".join(words), str(number))
    assert max(map(len, grid_lines(grid, width))) <= width

"""Tables fit a terminal without cutting words, and verdicts are coloured on a terminal only."""

import io
import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from ilp_planner.faces.report.console import coloured, fitted, open_console
from ilp_planner.faces.report.grid import wrapped
from ilp_planner.faces.report.tables import Table
from tests.examples import for_each

WORDS = st.text("abc123/-:", min_size=1, max_size=20)
CELLS = st.lists(WORDS, max_size=6).map(" ".join)


def printed(rows: list[list[str]], width: int) -> str:
    table = Table(*rows[0])
    for row in rows[1:]:
        table.add(*row)
    out = io.StringIO()
    console = Console(file=out, width=width, markup=False, emoji=False, highlight=False)
    console.print(fitted(table, width), soft_wrap=True)
    return out.getvalue()


@given(
    st.integers(1, 6).flatmap(
        lambda n: st.tuples(
            st.lists(WORDS, min_size=n, max_size=n),
            st.lists(st.lists(CELLS, min_size=n, max_size=n), min_size=1, max_size=3),
        )
    ),
    st.integers(50, 120),
)
def test_no_word_of_a_table_is_cut(content: tuple[list[str], list[list[str]]], width: int):
    titles, rows = content
    text = printed([titles, *rows], width)
    assert max(map(len, text.splitlines())) <= width
    words = {word for row in [titles, *rows] for cell in row for word in cell.split()}
    assert set(text.split()) <= words
    assert {word for row in rows for cell in row for word in cell.split()} <= set(text.split())


def test_a_table_that_fits_is_left_alone():
    rows = [["plan", "time\n(s)"], ["a b", "1.0"]]
    assert [line.split() for line in printed(rows, 80).splitlines()] == [
        ["time"],
        ["plan", "(s)"],
        ["a", "b", "1.0"],
    ]


def test_a_table_that_cannot_fit_has_a_block_per_row():
    rows = [["plan", "time\n(s)", "remark"], ["a", "1.0", ""], ["b", "2.0", "slow"]]
    assert printed(rows, 14).splitlines() == [
        *("plan      a", "time (s)  1.0", ""),
        *("plan      b", "time (s)  2.0", "remark    slow"),
    ]


@given(st.lists(WORDS, min_size=1, max_size=30), st.integers(30, 100))
def test_lines_are_wrapped_below_their_text(words: list[str], width: int):
    first, *rest = wrapped(f"name  {' '.join(words)}", width).split("\n")
    assert first.startswith("name  ")
    assert all(line.startswith("      ") and line[6] != " " for line in rest)
    assert " ".join([first, *rest]).split() == ["name", *words]
    assert max(map(len, [first, *rest])) <= width


@for_each(
    ("line", "colour"),
    [
        ("gap             0 % (proved optimal)", "green"),
        ("gap             1.25 %", "yellow"),
        ("gap             -", None),
        ("claimed gap     0 % (proved optimal); --check-certificate derives it again", "green"),
        ("plan            legal", "green"),
        ("plan            breaks 2 rules", "red"),
        ("BROKEN RULE     memory: stage 0", "red"),
        ("no plan     proved infeasible: nothing fits", "red"),
        ("no plan     none found", "yellow"),
        ("plans           space groups", None),
        ("bound           95.400 s, proved by dp", None),
    ],
)
def test_verdicts_have_a_colour(line: str, colour: str | None):
    styles = {str(span.style) for span in coloured(f"model  a\n{line}\nnote  b").spans}
    assert styles == ({colour} if colour else set())


@pytest.mark.parametrize("variable", ["NO_COLOR", None])
def test_colours_are_for_terminals(variable: str | None, monkeypatch: pytest.MonkeyPatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    if variable:
        monkeypatch.setenv(variable, "1")
    for stream in (Terminal(), io.StringIO()):
        monkeypatch.setattr(sys, "stdout", stream)
        open_console().print(coloured("plan  legal"))
        found = bool(re.search(r"\x1b\[[0-9;]*32m", stream.getvalue()))
        assert found == (stream.isatty() and variable is None)

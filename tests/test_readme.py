"""The README is short, and shows what pages of the manual show: their tests hold it."""

import re
from pathlib import Path

import pytest

from ilp_planner.formats.exports import RELEASES, Runtime
from tests.manual import DOCS, LEFT_OUT, PAGES, README, Step, session

TEXT = README.read_text()
HISTORY = DOCS / "benchmarks" / "history.md"
# Pages that show what the session of another page prints, whose test runs it
QUOTING = (README, DOCS / "explain" / "times.md")
OF_PAGES = [
    step
    for page in PAGES
    if DOCS / page not in QUOTING
    for step in session((DOCS / page).read_text())
]


@pytest.mark.parametrize("step", [step for page in QUOTING for step in session(page.read_text())])
def test_what_is_quoted_is_what_a_page_shows(step: Step) -> None:
    """It may be less; commands are the same word by word, examples begin alike."""
    if step.example:
        assert any(other.example.startswith(step.example) for other in OF_PAGES)
        return
    (page,) = [other for other in OF_PAGES if other.command == step.command]
    assert [line for line in step.shown if line not in (*page.shown, LEFT_OUT)] == []


@pytest.mark.parametrize(
    ("page", "row"),
    [
        (page, row)
        for page in (README, HISTORY)
        for row in re.findall(r"^\|.*\]\([\w/]*\w+\.md.*\|$", page.read_text(), re.MULTILINE)
    ],
)
def test_the_figures_of_a_row_stand_on_the_page_that_it_names(page: Path, row: str) -> None:
    (name,) = re.findall(r"\]\(([\w/]*\w+\.md)", row)
    told = (page.parent / name).read_text()
    figures = re.findall(r"[+-]?\d+\.\d+", row.rpartition("](")[2])
    assert figures
    assert [figure for figure in figures if figure not in told] == []


def test_the_readme_names_all_that_plans_are_written_for() -> None:
    for system in RELEASES:
        for release in RELEASES[system]:
            newest = release == next(iter(RELEASES[system]))
            assert f"`{system if newest else Runtime(system, release)}`: " in TEXT


def test_the_readme_is_short() -> None:
    assert len(TEXT.splitlines()) <= 150

"""The README shows what a page of the manual shows, and is short."""

import pytest

from tests.manual import DOCS, LEFT_OUT, PAGES, README, Step, session

STEPS = session(README.read_text())
OF_PAGES = [step for page in PAGES for step in session((DOCS / page).read_text())]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.command or "Python")
def test_a_page_has_what_the_readme_shows(step: Step) -> None:
    """The tests of the pages run it, once; the README may show less of what it prints."""
    if step.example:
        assert any(step.example in other.example for other in OF_PAGES)
        return
    (page,) = [other for other in OF_PAGES if other.command == step.command]
    assert [line for line in step.shown if line not in (*page.shown, LEFT_OUT)] == []

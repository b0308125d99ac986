"""Names from files steer no terminal, whoever prints them."""

import io
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ilp_planner.base.printable import STEERING
from ilp_planner.faces.api.result import Result
from ilp_planner.faces.api.words import as_text
from ilp_planner.faces.cli.terminal import measuring_bar
from ilp_planner.faces.report.tables import Table
from tests.small import make_plan, make_problem, make_result

NAMES = ["a\x1b]0;title\x07b", "a\x9b31mb", "a\u202eb", "a\x1b[2Jb"]


@pytest.mark.parametrize("name", NAMES)
def test_what_python_prints(name: str) -> None:
    table = Table("plan", "time")
    table.add(name, "1 s")
    text = as_text([("model", name)], [table])
    assert not STEERING.search(text)
    assert text.count("a?") == 2


@pytest.mark.parametrize("name", NAMES)
def test_the_bar_of_what_is_measured(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What moves the bar is Rich's own, and passes; what the name holds does not."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(sys, "stderr", stream)
    with measuring_bar(2) as tell:
        tell(1, name)
    written = stream.getvalue()
    assert "a?" in written
    assert name not in written


def test_models_of_results_in_python(tmp_path: Path) -> None:
    """A name that a file gives, through a verb of Python."""
    problem = replace(make_problem(tmp_path), notes=("note \x1b[2J of a file",))
    found = make_result(problem, make_plan(problem))
    shown = Result(**vars(found), problem=problem).details
    assert not STEERING.search(shown)
    assert "note ?[2J of a file" in shown

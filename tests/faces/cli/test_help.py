"""Help has sections and examples that can be typed, and no line of it breaks inside a word."""

import re
import shlex
from collections.abc import Callable
from typing import Any

import pytest

from ilp_planner.faces.cli.help import EXAMPLES, HELP, _examples, help_text
from ilp_planner.faces.cli.main import COMMANDS, command_line
from ilp_planner.profiler.commands import profile
from tests.examples import for_each
from tests.faces.cli.conftest import Done

EVERY = ["", *COMMANDS, "profile", *(f"profile {name}" for name in profile.COMMANDS)]
WIDTH = 80


def parser_of(words: list[str]) -> tuple[Any, list[str]]:
    """Return the command that a line names, and the words after it."""
    parser, rest = command_line(words), list(words)
    while rest and hasattr(parser, "commands"):
        parser = parser.commands[rest.pop(0)]
    return parser, rest


@pytest.mark.parametrize("command", EVERY)
def test_lines_fit_a_terminal_and_keep_words_whole(
    ilp_plan: Callable[..., Done], command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    monkeypatch.setenv("NO_COLOR", "1")
    done = ilp_plan(*command.split(), "-h")
    assert done.code == 0
    assert done == ilp_plan(*command.split(), "--help")
    assert max(len(line) for line in done.out.splitlines()) <= WIDTH
    words = command.split()
    parser, rest = parser_of(words)
    name = f"ilp-plan {command}".strip()
    context = parser.make_context(name, rest, resilient_parsing=True, help_option_names=HELP)
    whole = help_text(parser, context, 10_000).split()
    assert [word for word in done.out.split() if word != "\\"] == whole


def test_every_command_has_examples() -> None:
    assert set(EXAMPLES) == set(EVERY)


@for_each("command", EVERY)
def test_examples_are_understood(command: str) -> None:
    for line, _ in EXAMPLES[command]:
        shown = "\n".join(_examples([(line, "")], WIDTH - 2)).replace(" \\\n", " ")
        assert shlex.split(shown) == shlex.split(line)
        parser, rest = parser_of(shlex.split(line)[1:])
        if rest != ["--help"]:
            parser.make_context("ilp-plan", rest)


def test_sections_of_solve(ilp_plan: Callable[..., Done]) -> None:
    titles = re.findall(r"^(\S.*):$", ilp_plan("solve", "--help").out, re.MULTILINE)
    assert titles == [
        "Problem",
        "Runtime",
        "Limits",
        "Constraints",
        "Solver",
        "Output",
        "For users of Metis and AMP",
        "Options",
        "Examples",
    ]

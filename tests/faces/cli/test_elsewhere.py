"""Options of other commands are said to be, with what to type instead."""

from collections.abc import Callable

import pytest

from ilp_planner.faces.cli.main import COMMANDS, command_line, options_of
from ilp_planner.faces.cli.unknown_option import INSTEAD, elsewhere, instead_of
from ilp_planner.faces.sweeps.fields import find_field
from ilp_planner.inputs.request import Request
from tests.faces.cli.conftest import Done

Command = Callable[..., Done]
ALL = {name: options_of(one) for name, one in command_line(()).commands.items()}
LACKED = [
    (command, option)
    for command in ("fit", "analyze", "doctor", "tune", "size", "sweep")
    for option in sorted(ALL["solve"] - ALL[command])
    if option.startswith("--")
]


def said_of(command: str, option: str) -> str:
    others = [name for name in COMMANDS if option in ALL[name]]
    return elsewhere(option, f"ilp-plan {command}", ALL[command], others)


@pytest.mark.parametrize(("command", "option"), LACKED)
def test_every_option_of_solve_is_known_to_be_one(command: str, option: str) -> None:
    """The line names commands that have it, and an option of this command that exists."""
    said = said_of(command, option)
    found, _, expected = said.partition(", expected ")
    assert found.startswith(f"{option}: found an option of solve")
    if instead := instead_of(option, ALL[command]):
        assert expected == instead
        assert instead.split()[0].strip(",") in ALL[command]
    else:
        assert expected.endswith(f"an option of `ilp-plan {command} --help`")


@pytest.mark.parametrize("option", [o for c, o in LACKED if c == "sweep"])
def test_an_axis_that_is_named_is_one(option: str) -> None:
    word, _, axis = instead_of(option, ALL["sweep"]).partition(" ")
    if word == "--vary":
        find_field(axis.removesuffix("=VALUES"), (), Request(files={}))


@pytest.mark.parametrize("option", INSTEAD)
def test_every_row_is_of_an_option_and_leads_to_one(option: str) -> None:
    """Every alternative is the first for some command that lacks the option."""
    having = [name for name in COMMANDS if option in ALL[name]]
    lacking = [name for name in COMMANDS if option not in ALL[name]]
    assert having
    for one in INSTEAD[option]:
        assert any(instead_of(option, ALL[name]) == one.option + one.more for name in lacking)


def test_the_commands_are_named_up_to_three() -> None:
    every = [said_of("mcp", option).partition(",")[0] for option in sorted(ALL["solve"])]
    assert not [said for said in every if said and said.count(" and ") > 1]
    assert said_of("fit", "--gap").startswith("--gap: found an option of solve, sweep, size and o")
    assert "option of solve and replan," in said_of("fit", "--keep")
    assert "option of solve, expected that command, or" in said_of("fit", "--check")
    assert elsewhere("--nothing", "ilp-plan fit", ALL["fit"], ()) == ""


@pytest.mark.parametrize(
    ("command", "option", "expected"),
    [
        ("fit", "--runtime", "--megatron-script with a launch or a configuration of the system"),
        ("tune", "--runtime", "--to"),
        ("fit", "--max-tp", "--tp"),
        ("size", "--cluster", "--gpus with the kinds alone"),
        ("sweep", "--tp", "--vary tp=VALUES"),
        ("analyze", "--gap", "one of these commands, or an option of `ilp-plan analyze --help`"),
    ],
)
def test_the_line(ilp_plan: Command, command: str, option: str, expected: str) -> None:
    done = ilp_plan(command, "llama3-8b", option, "2")
    assert (done.code, done.out) == (2, "")
    assert done.err.count("\n") == 1
    assert done.err.startswith(f"ilp-plan: {option}: found an option of ")
    assert f", expected {expected}" in done.err

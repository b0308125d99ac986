"""Every option that is a number has a limit, and whatever is typed ends in time: with a result, or
with one line."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ilp_planner.base.limits import DIMENSION, MOST
from ilp_planner.faces.cli.main import COMMANDS, command_line
from tests.examples import for_each, thinned
from tests.faces.cli.conftest import Done, swapped

CPU_SECONDS = 120  # of one command: for ever, as these take two
HOSTILE = ("0", "-1", "1e-320", "nan", "-inf")
TOO_MUCH = (10**15, 2**31, 2**53 + 1, 2**61, 2**63, 10**30, "inf", "1e308")
QUICK = {
    "capture": ["capture", "--print"],
    "solve": ["solve", "tiny.toml", "pair.toml", "--space", "operators", "--time-limit", "1"],
    "sweep": ["sweep", "tiny.toml", "--gpus", "8xV100-32GB", "--time-limit", "1", "--workers", "1"],
    "supports": ["supports", "llama3.2-1b"],
    "size": [
        *[
            "size",
            "llama3.2-1b",
            "--tokens",
            "1B",
            "--days",
            "1",
            "--gpus",
            "H100",
            "--time-limit",
            "1",
        ]
    ],
    "fit": ["fit", "llama3-8b", "--cluster", "a100-4x8", "--time-limit", "1"],
    "doctor": ["doctor", "steps.csv", "--model", "llama3-8b", "--cluster", "a100-4x8",
     "--time-limit", "0"],
    "tune": ["tune", "llama3-8b", "--cluster", "a100-4x8", "--ask", "--time-limit", "1"],
    "why": ["why", "plan.json", "--time-limit", "1", "--workers", "1"],
    "replan": ["replan", "plan.json", "--time-limit", "1"],
    "analyze": ["analyze", "llama3-8b", "--cluster", "a100-4x8"],
    "import": ["import", "aceso", "tiny.toml", "--output", "imported.json"],
    "compare": ["compare", "plan.json", "--solvers", "dp", "--time-limit", "1"],
    "mcp": ["mcp"],
}  # fmt: skip


def numbers(command: str) -> Iterator[tuple[str, type]]:
    """Yield the options of a command that are one number, and of which kind."""
    yield from options_of(command_line([command]).commands[command])


def options_of(command: Any) -> Iterator[tuple[str, type]]:
    for parameter in command.params:
        kind = parameter.type_descriptor.annotation
        if kind in (int, float):
            yield parameter.opts[0], kind


def most(option: str) -> float:
    return MOST.get(option.strip("-").replace("-", "_"), DIMENSION)


CASES = [(command, *case) for command in COMMANDS for case in numbers(command)]


@pytest.fixture
def bounded() -> Iterator[None]:
    """End the test where a command works for ever, counted in its own seconds."""

    def late(*_: object) -> None:
        pytest.fail("worked for ever")

    before = signal.signal(signal.SIGVTALRM, late)
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_SECONDS)
    yield
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    signal.signal(signal.SIGVTALRM, before)


def well(done: Done) -> None:
    """Hold a command to a result, or one line with what is wrong."""
    assert "bug" not in done.err
    assert done.code in (0, 1, 2, 3, 4, 5)
    if done.code in (1, 2):
        assert done.err.startswith("ilp-plan: ")
        assert done.err.count("\n") == 1


def test_every_command_with_a_number_is_here() -> None:
    assert {command for command, _, _ in CASES} == set(QUICK)
    assert len(CASES) > 60


@pytest.mark.slow
@for_each(("command", "option", "kind"), CASES)
def test_what_is_beyond_its_limit_is_refused(
    ilp_plan: Callable[..., Done], saved: Path, command: str, option: str, kind: type
) -> None:
    for value in (*TOO_MUCH, kind(most(option)) + 1):
        if float(value) > most(option):
            done = ilp_plan(*QUICK[command], option, value)
            well(done)
            assert done.code == 2
            assert option in done.err


def test_commands_of_profiles_have_limits(ilp_plan: Callable[..., Done]) -> None:
    commands = command_line(["profile"]).commands["profile"].commands
    found = [(name, *case) for name, command in commands.items() for case in options_of(command)]
    assert len(found) > 8
    for name, option, kind in found:
        words = ["m.toml"] * ["measure", "import", "export"].count(name)
        done = ilp_plan("profile", name, *words, option, kind(most(option)) + 1)
        assert (done.code, option in done.err) == (2, True), (name, option, done.err)
        assert "at most" in done.err or "x<=" in done.err, done.err


@pytest.mark.slow
@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize(("command", "option", "kind"), list(thinned(CASES[::-1], 36)))
def test_the_least_and_the_most_end_in_time(
    ilp_plan: Callable[..., Done], saved: Path, fake: SimpleNamespace, command: str, option: str,
    kind: type,
) -> None:  # fmt: skip
    with swapped("ilp_planner.optimize.solve", "solve", fake.search):
        for value in (*HOSTILE, kind(most(option))):
            well(ilp_plan(*QUICK[command], option, value))

"""What docs/howto/calibration.md shows is what a user gets."""

import re
from pathlib import Path

import pytest

from ilp_planner.analysis.calibration.free import FREE, NEEDS
from ilp_planner.faces.cli.main import run
from ilp_planner.specs.machine import CONSTANTS

PAGE = (Path(__file__).parents[3] / "docs" / "howto" / "calibration.md").read_text()


def block(kind: str) -> str:
    found = re.search(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)
    assert found
    return found[1]


@pytest.fixture
def printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    """Run the command of the page on its table; return what it prints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    Path("runs.csv").write_text(block("csv"))
    Path("mine.toml").write_text(block("toml"))
    words = block("console").partition("\n")[0].split()
    assert words[:2] == ["$", "ilp-plan"]
    assert run(words[2:]) == 0
    return capsys.readouterr().out


@pytest.mark.slow
def test_the_transcript_is_what_the_command_prints(printed: str) -> None:
    shown = block("console").partition("\n")[2]
    assert [line.split() for line in shown.splitlines() if line] == [
        line.split() for line in printed.splitlines() if line
    ]


def test_every_constant_is_described() -> None:
    described = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", PAGE, re.MULTILINE)
    names = {name for cell in described for name in re.findall(r"\w+", cell)}
    assert set(CONSTANTS) <= names
    assert set(FREE) <= set(CONSTANTS)
    (rows,) = re.findall(r"^\| different runs \|.*?\n\n", PAGE, re.MULTILINE | re.DOTALL)
    for count, text in re.findall(r"^\| +(\d+) +\| (.*) \|$", rows, re.MULTILINE):
        wanted = {name for name, needed in NEEDS.items() if needed == int(count)}
        assert set(re.findall(r"`(\w+)`", text)) == wanted

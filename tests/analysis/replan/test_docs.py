"""What docs/replan.md shows is what a user gets."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from ilp_planner.cli.main import run

PAGE = Path(__file__).parents[3] / "docs" / "replan.md"


@pytest.mark.slow
def test_the_commands_print_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All commands run in one folder, one after the other; `...` stands for lines left out."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "140")
    text = PAGE.read_text()
    session = "".join(re.findall(r"```console\n(.*?)```", text, re.DOTALL))
    blocks = session.split("$ ilp-plan ")[1:]
    assert len(blocks) == 4
    for block in blocks:
        command, *shown = block.splitlines()
        run(shlex.split(command))
        printed = capsys.readouterr()
        lines = [line.split() for line in (printed.out + printed.err).splitlines()]
        assert [line for line in shown if line != "..." and line.split() not in lines] == []
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(example, {})
    assert (tmp_path / "fastest.json").exists()

"""What the README shows is what a user gets: its commands run, its transcript is real."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
CONSOLE = re.findall(r"```console\n(.*?)```", README, re.DOTALL)
DATABASE = ROOT.parent / "shared" / "data" / "aceso" / "eurosys"


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    words = shlex.split(command)
    assert words[0] == "ilp-plan"
    environment = os.environ | {"COLUMNS": "200", "NO_COLOR": "1"}
    return subprocess.run(
        [sys.executable, "-m", "ilp_planner", *words[1:]],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def settled(text: str) -> list[list[str]]:
    """Split into words, leaving out the line that says how long it took."""
    return [line.split() for line in text.splitlines() if line and "stopped by" not in line]


def test_the_opening_transcript_is_what_the_command_prints():
    command, _, shown = CONSOLE[0].partition("\n")
    done = run(command.removeprefix("$ "), ROOT)
    assert done.returncode == 0, done.stderr
    assert settled(done.stdout) == settled(shown)


@pytest.mark.skipif(not DATABASE.exists(), reason="Aceso's profiles are not in ../shared")
def test_the_commands_run_as_written(tmp_path: Path):
    for name in ("models", "clusters"):
        (tmp_path / "main").mkdir(exist_ok=True)
        (tmp_path / "main" / name).symlink_to(ROOT / name)
    (tmp_path / "main" / "solutions").mkdir()
    (tmp_path / "shared").symlink_to(ROOT.parent / "shared")
    commands = [line.removeprefix("$ ") for line in CONSOLE[1].splitlines()]
    assert len(commands) == 6
    for command in commands:
        done = run(command, tmp_path / "main")
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        assert "Traceback" not in done.stderr


def test_the_python_example_runs():
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", example], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("optimal ")

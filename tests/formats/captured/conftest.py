"""A folder with scripts, and with programs that leave a mark where the real ones would do harm."""

import os
import sys
from functools import cache
from pathlib import Path

import pytest

from ilp_planner.base.errors import PlannerError
from ilp_planner.formats.captured import recording
from ilp_planner.formats.captured.guard import Started
from ilp_planner.formats.captured.recording import Recording, record

LAUNCHERS = (
    "torchrun", "python3.99", "srun", "mpirun", "deepspeed", "accelerate", "ray", "megatron",
    "swift", "llamafactory-cli", "sbatch",
)  # fmt: skip
HARMFUL = (
    "pkill", "killall", "rm", "pip", "conda", "docker", "ssh", "scp", "sudo", "curl", "wget",
    "unlisted", "mv", "chmod", "apt-get", "systemctl", "reboot", "dd", "tmux",
)  # fmt: skip
MARKS = "marks"


class Place:
    """A folder to run scripts in. bin: of the programs that leave a mark, first in PATH; python3 is
    this one itself there, as what chooses among several starts dozens of programs."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bin = folder, folder / "bin"
        self.bin.mkdir()
        for name in (*LAUNCHERS, *HARMFUL):
            self.program(self.bin / name)
        (self.bin / "python3").symlink_to(os.path.realpath(sys.executable))

    def program(self, file: Path) -> Path:
        """Write a program that leaves a mark if it ever runs."""
        marks = self.folder / MARKS
        file.write_text(f"#!/bin/sh\necho {file.name} >> {marks}\n")
        file.chmod(0o755)
        return file

    @property
    def marks(self) -> str:
        """Names of the programs that have run."""
        marks = self.folder / MARKS
        return marks.read_text() if marks.exists() else ""

    def record(
        self, text: str, *arguments: str, allowed: tuple[str, ...] = (), seconds: float = 20.0
    ) -> Recording:
        """Record what a script launches, in the folder."""
        script = self.folder / "run.sh"
        script.write_text(text)
        place = f'cd {self.folder} && exec bash ./run.sh "$@"'
        environment = {**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}"}
        with (self.folder / "printed").open("w") as printed:
            return record(
                ["bash", "-c", place, "run.sh", *arguments],
                allowed=allowed,
                seconds=seconds,
                environment=environment,
                output=printed.fileno(),
            )

    @property
    def printed(self) -> str:
        """What the last script printed."""
        return (self.folder / "printed").read_text()


@cache
def unguarded() -> str:
    """Return why no process can be guarded here, as in some containers; empty where one can."""
    try:
        with Path(os.devnull).open("w") as nowhere:
            record(["true"], output=nowhere.fileno())
    except PlannerError as error:
        return str(error)
    return ""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Return a folder whose scripts run without a trial of the guard before each: one of all tests
    has been."""
    if unguarded():
        pytest.skip(unguarded())
    monkeypatch.setattr(recording, "_probe", lambda folder, environment: None)
    return Place(tmp_path)


def words_of(started: tuple[Started, ...]) -> list[tuple[str, ...]]:
    """Return words with the name of each program in place of its path."""
    return [(Path(one.words[0]).name, *one.words[1:]) for one in started]

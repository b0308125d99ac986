"""Standard streams that are full, closed or ASCII: one line and the right exit code."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from ilp_planner.specs.model_writer import model_text
from tests.examples import often
from tests.megatron_cases import small_model
from tests.small import MODEL

COMMAND = f"{sys.executable} -m ilp_planner"


def shell(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    return subprocess.run(
        ["bash", "-c", line.replace("ilp-plan", COMMAND)],
        capture_output=True, text=True, cwd=folder, env=env, check=False, timeout=60,
    )  # fmt: skip


FULL = ("ilp-plan gpus > /dev/full", 1, "standard output: cannot be written: No space left")
CLOSED = ("ilp-plan solve --model nope >&- 2>&- <&-", 1, "")
LITTLE = ("ulimit -v 60000; ilp-plan solve", 1, "address space: found a limit of 58.59 MiB")
STREAMS = (
    ("ilp-plan --version > /dev/full", 1, "standard output: cannot be written: No space left"),
    FULL,
    ("ilp-plan --version >&-", 1, "standard output: cannot be written: Bad file descriptor"),
    ("ilp-plan --version 2>&-", 0, ""),
    CLOSED,
    ("ilp-plan solve --model nope 2> /dev/full", 1, ""),
    LITTLE,
)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("line", "code", "words"), often(STREAMS, FULL, CLOSED, LITTLE, several=True)
)
def test_one_line_and_the_right_code(line: str, code: int, words: str, tmp_path: Path) -> None:
    done = shell(line, tmp_path)
    assert done.returncode == code
    assert words in done.stderr
    assert done.stderr.count("\n") == bool(words)


@pytest.mark.slow
def test_json_on_an_ascii_stream_is_json(tmp_path: Path) -> None:
    model = MODEL.replace('name = "', 'name = "µ\u202e ').replace("layers = 2", "layers = 0")
    (tmp_path / "m.toml").write_text(model)
    done = shell("PYTHONIOENCODING=ascii ilp-plan gpus --json", tmp_path)
    assert json.loads(done.stdout)
    refused = shell("PYTHONIOENCODING=ascii ilp-plan solve --model m.toml", tmp_path)
    assert refused.returncode == 1
    assert refused.stderr.isascii()


@pytest.mark.parametrize(
    "name", often(["a\x1b[31mb.toml", "a\u202eb.toml", "\x9b2J.toml"], "\x9b2J.toml")
)
def test_names_do_not_reach_a_terminal_raw(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("x")
    done = subprocess.run(
        [sys.executable, "-m", "ilp_planner", "solve", "--model", name],
        capture_output=True, text=True, cwd=tmp_path, check=False, timeout=60,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    )  # fmt: skip
    assert "not valid TOML" in done.stderr
    assert not set("\x1b\x9b\u202e") & set(done.stderr)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["fit", "analyze"])
def test_a_terminal_gets_colours_and_no_name_raw(command: str, tmp_path: Path) -> None:
    name = "a\x1b[2Jb"
    (tmp_path / "m.toml").write_text(model_text(replace(small_model(), name=name)))
    terminal, stream = pty.openpty()
    words = [command, "m.toml", "--gpus", "2xA100-40GB", "--micro-batch-size", "1"]
    with subprocess.Popen(
        [sys.executable, "-m", "ilp_planner", *words, *(["--verdict"] * (command == "fit"))],
        stdout=stream, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    ) as process:  # fmt: skip
        os.close(stream)
        said = b""
        with suppress(OSError):  # nobody writes any longer
            while read := os.read(terminal, 65536):
                said += read
    assert process.returncode == 0
    os.close(terminal)
    shown = said.decode()
    assert "\x1b[32mFITS" in shown
    assert "\x1b" not in re.sub("\x1b\\[[0-9]+m", "", shown)
    assert "?[3" not in shown
    assert ("a?[2Jb" in shown) == (command == "analyze")


WRITER = """
import os, signal, sys
from pathlib import Path
from ilp_planner.base import files
files.os.fsync = lambda handle: os.kill(os.getpid(), signal.SIGKILL)
files.write_text(Path("x.json"), "half")
"""


def test_what_a_killed_writer_left_goes_with_the_next_write(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    done = subprocess.run([sys.executable, "-c", WRITER], cwd=tmp_path, env=env, check=False)
    assert done.returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    (tmp_path / ".x.json.notes.tmp").write_text("of somebody else")
    from ilp_planner.base.files import _temporary, write_text

    handle, held = _temporary(tmp_path / "x.json")  # of a writer who is still at it
    write_text(tmp_path / "x.json", "whole")
    os.close(handle)
    assert not left.exists()
    assert held.exists()
    assert {p.name for p in tmp_path.iterdir()} == {"x.json", ".x.json.notes.tmp", held.name}


def test_a_name_as_long_as_a_name_can_be(tmp_path: Path) -> None:
    from ilp_planner.base.files import check_writable, write_text

    for letter in "aé":
        path = tmp_path / (letter * (250 // len(letter.encode())) + ".json")
        check_writable(path)
        write_text(path, "x")
        assert path.read_text() == "x"

"""The command as a process: entry points, help, Ctrl-C, closed pipes, any folder."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ilp_planner.faces.cli import main
from tests.faces.cli.conftest import Done, heard

COMMAND = [sys.executable, "-m", "ilp_planner"]


def test_help_names_every_command(ilp_plan: Callable[..., Done]) -> None:
    for arguments in ([], ["--help"]):
        done = ilp_plan(*arguments)
        assert done.code == 0
        for name in ("solve", "evaluate", "export", "import", "compare"):
            assert f"\n  {name} " in done.out


OPTIONS = {
    "--model", "--cluster", "--profile", "--cost-model", "--global-batch-size",
    "--micro-batch-size", "--memory-limit", "--max-stages", "--time-limit", "--gap",
    "--require-gap", "--solver", "--workers", "--seed", "--output", "--json",
}  # fmt: skip


def test_help_of_solve_has_every_option(ilp_plan: Callable[..., Done]) -> None:
    out = ilp_plan("solve", "--help").out
    assert set(re.findall(r"--[a-z-]+", out)) >= OPTIONS


def test_version(ilp_plan: Callable[..., Done]) -> None:
    assert ilp_plan("--version").out.startswith("ilp-plan 0")


def test_a_traceback_on_request_only(
    ilp_plan: Callable[..., Done],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def broken(**options: object) -> None:
        raise RuntimeError("a\nbug")

    monkeypatch.setattr(main, "command_line", lambda arguments: broken)
    done = ilp_plan("solve")
    assert done.code == 1
    assert done.err.startswith("ilp-plan: this is a bug in ilp-plan: RuntimeError: a bug; ")
    assert done.err.endswith("ILP_PLAN_TRACEBACK=1 shows where\n")
    monkeypatch.setenv("ILP_PLAN_TRACEBACK", "1")
    assert main.run(["solve"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_the_default_works_in_any_folder(tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "solve", "--time-limit", "0"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode in (0, 4), done.stderr
    assert "gpt3-1.3b" in done.stdout
    assert "gpt3-1.3b on 4 x " in done.stdout


def test_the_installed_command_is_this_one() -> None:
    script = Path(sys.executable).with_name("ilp-plan")
    if not script.exists():
        pytest.skip("ilp-plan is not installed here")
    done = subprocess.run([script, "solve", "--gap", "2"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("ilp-plan: --gap")


@pytest.mark.slow
def test_ctrl_c_gives_what_is_known(tmp_path: Path) -> None:
    """At any moment of the search, or before it."""
    for delay in (0.1, 0.6, 1.6):
        process = subprocess.Popen(
            [*COMMAND, "solve", "--model", "gpt3-13b", "--cluster", "v100-32gb-4x8"],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=heard,
        )
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        if "init_import_site" in err:
            continue  # Python itself was about to start
        assert process.returncode in (0, 4, 130, -signal.SIGINT), err
        if process.returncode in (0, 4):
            assert "stopped by" in out


@pytest.mark.slow
def test_a_closed_pipe_is_no_bug(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.Popen(
        [*COMMAND, "solve", "--time-limit", "0"],
        cwd=tmp_path,
        stdout=writer,
        stderr=subprocess.PIPE,
    )
    os.close(writer)
    _, err = process.communicate(timeout=60)
    assert b"Traceback" not in err
    assert b"bug" not in err


def test_only_the_command_that_is_asked_for_is_imported() -> None:
    """A quick command does not wait for the slow ones."""
    code = (
        "import sys; from ilp_planner.faces.cli.main import run; run(['analyze', '--help']); "
        "print(*(name for name in sys.modules if name.startswith('ilp_planner.faces.cli.')), "
        "file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "ilp_planner.faces.cli.analyze" in done.stderr.split()
    assert not {"ilp_planner.faces.cli.solve", "ilp_planner.faces.cli.compare"} & set(
        done.stderr.split()
    )


def test_what_is_registered_for_the_end_runs_and_all_is_written() -> None:
    """Before the process ends, though Python takes nothing apart."""
    lines = (
        "import atexit, sys",
        "from ilp_planner.faces.cli.main import main",
        "class Late:",
        "    def __del__(self): print('taken apart')",
        "late = Late()",
        "late.itself = late",
        "atexit.register(print, 'the end')",
        "sys.argv = ['ilp-plan', 'gpus', 'no-such-gpu']",
        "main()",
    )
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stdout == "the end\n"
    assert done.stderr.startswith("ilp-plan: ")


def test_who_gives_arguments_keeps_the_process() -> None:
    code = "from ilp_planner.faces.cli.main import main\ntry: main(['gpus', 'no-such-gpu'])\n"
    code += "except SystemExit as end: print(end.code)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "2\n"

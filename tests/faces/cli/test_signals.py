"""Whatever asks a solve to end, Ctrl-C, a scheduler, a closed terminal, gets the best plan so far.

Each is a real process. It says on stderr when the search has something, so nothing waits for a
time that a slower machine would need more of.
"""

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ilp_planner.formats.saved_json import read_saved
from tests.faces.cli.conftest import SIGNALS, heard
from tests.small import write_specs

REPOSITORY = Path(__file__).parents[3]

# Runs `ilp-plan solve`, and tells on stderr once there is a plan.
SOLVE = """
import sys
import ilp_planner.faces.report.live as live

class Telling(live.Progress):
    told = False

    def __call__(self, incumbent, bound):
        super().__call__(incumbent, bound)
        if incumbent < float("inf") and not self.told:
            self.told = True
            print("found", file=sys.stderr, flush=True)

live.Progress = Telling
from ilp_planner.faces.cli.main import main
main(["solve", *sys.argv[1:]])
"""
# Searches that go on for long after their first plan.
OPERATORS = [
    *("--space", "operators", "--model", "gpt3-13b", "--cluster", "v100-32gb-4x8"),
    *("--solver", "cp-sat", "--workers", "1"),
]
LAYERS = [
    *("--space", "groups", "--model", "gpt3-13b", "--cluster", "mixed-a100-t4"),
    *("--global-batch-size", "2048"),
    *("--solver", "anneal", "--starts", "1000000"),
]


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    return tmp_path / "plan.json"


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        if process.poll() is None:
            process.kill()
            process.wait()


def start(
    started: list[subprocess.Popen[str]], options: list[str], plan: Path, *before: str
) -> subprocess.Popen[str]:
    """Start a solve and wait until it has a plan."""
    process = subprocess.Popen(
        [*before, sys.executable, "-c", SOLVE, *options, "--output", str(plan)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heard,
    )
    started.append(process)
    assert process.stderr is not None
    assert process.stderr.readline() == "found\n"
    return process


def check_kept(process: subprocess.Popen[str], plan: Path) -> None:
    """The plan is printed and saved with its bound, and nothing is an error."""
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    said = " ".join(out.split())
    assert "stopped by interrupted by the user, after" in said
    assert "this command with --output" not in said
    claim = read_saved(plan).claim
    assert claim is not None
    assert 0 <= claim.bound <= claim.objective


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("SIGINT", OPERATORS),
        pytest.param("SIGTERM", OPERATORS, marks=pytest.mark.slow),
        pytest.param("SIGTERM", LAYERS, marks=pytest.mark.slow),  # below it comes three times
        pytest.param("SIGHUP", LAYERS, marks=pytest.mark.slow),
        pytest.param("SIGUSR1", OPERATORS, marks=pytest.mark.slow),
        pytest.param("SIGUSR2", OPERATORS, marks=pytest.mark.slow),
        pytest.param("SIGXCPU", LAYERS, marks=pytest.mark.slow),  # below it comes again and again
    ],
)
def test_the_best_plan_so_far_is_kept(
    name: str, options: list[str], plan: Path, processes: list[subprocess.Popen[str]]
) -> None:
    process = start(processes, options, plan)
    process.send_signal(getattr(signal, name))
    check_kept(process, plan)


@pytest.mark.slow
def test_the_same_signal_twice_is_one(plan: Path, processes: list[subprocess.Popen[str]]) -> None:
    """As `timeout` sends it: to the process, then to its group."""
    process = start(processes, LAYERS, plan)
    for _ in range(3):
        process.send_signal(signal.SIGTERM)
        time.sleep(0.02)
    check_kept(process, plan)


@pytest.mark.slow
def test_a_spent_limit_of_seconds_is_said_every_second(
    plan: Path, processes: list[subprocess.Popen[str]]
) -> None:
    """As the kernel says it, from a soft limit on; a second one does not end the saving."""
    process = start(processes, OPERATORS, plan)
    for _ in range(3):
        if process.poll() is None:
            process.send_signal(signal.SIGXCPU)
            time.sleep(1.1)
    check_kept(process, plan)


@pytest.mark.skipif(shutil.which("timeout") is None, reason="there is no `timeout`")
def test_timeout_keeps_the_plan(plan: Path, processes: list[subprocess.Popen[str]]) -> None:
    """Its time is over by the alarm that it has set itself, which comes early here."""
    options = [*OPERATORS, "--json"]
    process = start(processes, options, plan, "timeout", "--preserve-status", "-s", "TERM", "600")
    process.send_signal(signal.SIGALRM)
    process.communicate(timeout=120)
    assert process.returncode == 0
    assert read_saved(plan).claim is not None


def test_a_second_signal_ends_it_at_once(
    plan: Path, processes: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    """Here while the plan is saved, into a pipe that nobody reads."""
    code = """
import sys, time
import ilp_planner.faces.cli.terminal as signals
signals.SAME = 0.0
signals.end_like_ctrl_c()
try:
    print("ready", flush=True)
    time.sleep(600)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    time.sleep(600)
"""
    for name in [name for name in SIGNALS if name != "SIGXCPU"]:  # which comes every second
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, preexec_fn=heard
        )
        processes.append(process)
        assert process.stdout is not None
        for line in ("ready\n", "interrupted\n"):
            assert process.stdout.readline() == line
            process.send_signal(getattr(signal, name))
        assert process.wait(timeout=60) == -getattr(signal, name)


def test_what_nohup_ignores_stays_ignored() -> None:
    code = """
import os, signal
signal.signal(signal.SIGHUP, signal.SIG_IGN)
from ilp_planner.faces.cli.terminal import end_like_ctrl_c
end_like_ctrl_c()
os.kill(os.getpid(), signal.SIGHUP)
print("still here")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, preexec_fn=heard
    )
    assert done.stdout == "still here\n"


@pytest.mark.slow
def test_a_terminal_that_is_closed_leaves_the_saved_plan(plan: Path) -> None:
    process, terminal = pty.fork()
    if process == 0:
        heard()
        words = [sys.executable, "-c", SOLVE, *LAYERS, "--output", str(plan)]
        os.execv(words[0], words)
    shown = b""
    while b"found" not in shown:
        shown += os.read(terminal, 4096)
    os.close(terminal)  # the kernel sends SIGHUP
    os.waitpid(process, 0)
    assert read_saved(plan).claim is not None


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("SIGINT", ()),
        pytest.param("SIGTERM", ("--json",), marks=pytest.mark.slow),
        *(pytest.param(name, (), marks=pytest.mark.slow) for name in SIGNALS if name != "SIGINT"),
    ],
)
def test_a_signal_while_the_plan_is_saved_changes_nothing(
    name: str, form: tuple[str, ...], plan: Path
) -> None:
    """The search is over, and may have taken hours: what the signal asks for is happening."""
    code = """
import os, signal, sys
NAME = sys.argv.pop(1)
synced = os.fsync
def interrupted(file):
    os.kill(os.getpid(), getattr(signal, NAME))
    synced(file)
os.fsync = interrupted
from ilp_planner.faces.cli.main import main
main(["solve", *sys.argv[1:]])
"""
    write_specs(plan.parent)
    options = ["--model", "tiny.toml", "--cluster", "pair.toml", "--global-batch-size", "16"]
    done = subprocess.run(
        [sys.executable, "-c", code, name, *options, "--output", str(plan), *form],
        capture_output=True, text=True, check=False, cwd=plan.parent, preexec_fn=heard,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "bound_s" in json.loads(done.stdout) if form else " per step " in done.stdout
    assert read_saved(plan).claim is not None
    assert {file.name for file in plan.parent.iterdir()} == {"tiny.toml", "pair.toml", plan.name}

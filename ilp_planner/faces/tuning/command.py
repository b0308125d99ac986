"""The user's command for one plan: on this machine, or as the work of an executor."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.base.errors import UsageError
from ilp_planner.faces.sweeps.executors.registry import LOCAL, open_executor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ilp_planner.faces.sweeps.executors.registry import Executor

SCRIPT, STEPS = "{script}", "{steps}"
# A command begins when its process is known: that of a planner which is killed before never does.
BEGIN = "read -r _ || exit 1; exec </dev/null; "
MOMENT = 1.0  # seconds after which a wait begins anew
PATIENCE = 10.0  # seconds that a command has to end after it was asked to
LOST = "its worker was lost: "


class Command(NamedTuple):
    """A command that runs a plan.

    words: for the shell. log: where all that it prints goes. steps: that it should take, which
    exported scripts read as TRAIN_ITERS. seconds: after which it is ended. folder: it runs in.
    nodes, devices: that it needs, where an executor gives them.
    """

    number: int
    words: str
    log: str
    steps: int
    seconds: float
    folder: str
    nodes: int = 0
    devices: int = 0

    def done(self) -> int | None:
        """Run it to its end; return its status, below 0 by a signal, None if it was ended."""
        return self.started(lambda process: None)

    def started(self, tell: Callable[[int], None]) -> int | None:
        """Run it to its end. tell: is called with the number of its process."""
        environment = os.environ | {"TRAIN_ITERS": str(self.steps)}
        with Path(self.log).open("ab") as log:
            process = subprocess.Popen(
                [shutil.which("bash") or "sh", "-c", f"{BEGIN}{self.words}"],
                cwd=self.folder,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            tell(process.pid)
            assert process.stdin is not None
            with process.stdin as pipe:
                pipe.write(b"\n")
            return process.wait(self.seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            end_group(process.pid, process)


def end_group(group: int, process: subprocess.Popen[bytes] | None = None) -> None:
    """End what a command has started and left running."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)
            end = time.monotonic() + PATIENCE
            while time.monotonic() < end:
                if process is not None:
                    process.poll()
                os.killpg(group, 0)
                time.sleep(0.05)
    if process is not None:
        process.wait()


def words_of(run: str, script: Path, steps: int) -> str:
    """Return the words of a command for a script.

    Raises
    ------
    UsageError: it takes no script.
    """
    if SCRIPT not in run:
        raise UsageError(
            f"run: found {run!r}, expected {SCRIPT} in it, where the path of a plan's script "
            f"goes, as in 'bash {SCRIPT}'"
        )
    return run.replace(SCRIPT, shlex.quote(str(script))).replace(STEPS, str(steps))


def begun_at(process: int) -> str:
    """Return when a process began, as the system counts; empty if there is none."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
    return text.rpartition(")")[2].split()[19]


def by_executor(command: Command, executor: Executor) -> tuple[int | None, str]:
    """Run a command by an executor; return its status, and why there is none."""
    executor.submit(command)
    while True:
        for done in executor.collect(MOMENT):
            return done.solved, f"{LOST}{done.why}" if done.why else ""


def executor_of(where: Mapping[str, str]) -> Executor | None:
    """Return the executor of commands; None: they run here.

    Raises
    ------
    SchedulerError: it cannot be reached.
    """
    if where["executor"] == LOCAL:
        return None
    return open_executor(where["executor"], workers=1, scheduler=where["scheduler"])

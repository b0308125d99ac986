"""Processes of this machine, one per core.

Each is a Python of its own with a pipe, so that a script that sweeps is not imported again, a
process that dies takes one chunk of points with it and no other, and one without its planner ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from multiprocessing import Pipe, connection
from typing import TYPE_CHECKING

from ilp_planner.base.children import Watched, cores, ended, stopped
from ilp_planner.faces.sweeps.executors.registry import Done
from ilp_planner.faces.sweeps.work import THREADS

if TYPE_CHECKING:
    from ilp_planner.faces.sweeps.work import Work

WORKER = "ilp_planner.faces.sweeps.executors.local_worker"
PATIENCE = 5.0  # seconds that a process has to end after closing its pipe


class Process:
    """One worker, and the number of the chunk that it works on; None if it has none."""

    def __init__(self) -> None:
        self.pipe, theirs = Pipe()
        handle = theirs.fileno()
        self.process = subprocess.Popen(
            [sys.executable, "-m", WORKER, str(handle)],
            env={**os.environ, **THREADS, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(handle,),
        )
        theirs.close()
        self.watched = Watched(self.process.pid)
        self.number: int | None = None

    @property
    def idle(self) -> bool:
        """Whether it has nothing to do, and can begin."""
        return self.number is None and not stopped(self.process.pid)

    def end(self) -> None:
        """End the process."""
        self.pipe.close()
        self.process.kill()
        self.process.wait()

    def status(self) -> int:
        """Return the exit status of a process with a closed end of the pipe."""
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.end()
            return int(self.process.returncode)


class Local:
    """Processes of this machine."""

    def __init__(self, *, workers: int | None = None, scheduler: str = "") -> None:
        self.slots = workers or cores()
        self.processes: list[Process] = []

    def submit(self, work: Work) -> None:
        """Give a chunk to a process that has none; start one if all have."""
        idle = next((process for process in self.processes if process.idle), None)
        if idle is None:
            idle = Process()
            self.processes.append(idle)
        idle.number = work.number
        with suppress(OSError):  # it has died: the end of its pipe says so when it is collected
            idle.pipe.send(work)

    def collect(self, seconds: float) -> list[Done]:
        """Return finished work, after so many seconds at most."""
        busy = [one for one in self.processes if one.number is not None]
        ready = connection.wait([one.pipe for one in busy], seconds)
        frozen = [one for one in busy if one.pipe not in ready and one.watched.frozen]
        return [self._done(one) for one in busy if one.pipe in ready] + [
            self._lost(one) for one in frozen
        ]

    def cancel(self) -> None:
        """End all processes."""
        for process in self.processes:
            process.end()
        self.processes.clear()

    def _done(self, process: Process) -> Done:
        number = process.number
        assert number is not None
        process.number = None
        try:
            return Done(number, process.pipe.recv())
        except (EOFError, OSError):
            self.processes.remove(process)
            return Done(number, None, ended(process.status()))

    def _lost(self, process: Process) -> Done:
        """End a process that stands still; its points are another one's."""
        assert process.number is not None
        self.processes.remove(process)
        process.end()
        return Done(process.number, None, Watched.why)

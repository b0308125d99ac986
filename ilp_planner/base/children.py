"""Processes that this one has started: how one has ended, and whether one stands still."""

from __future__ import annotations

import os
import time

MOMENT = 0.5  # seconds that a process may stand still: whoever stopped it may let it go on


def ended(status: int) -> str:
    """Return how a process has ended. status: below 0 by a signal."""
    how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
    return f"its process {how}" + ", as when memory runs out" * (status == -9)


def stopped(process: int) -> bool:
    """Tell whether a signal such as SIGSTOP keeps a process that this one has started from running.

    That is asked of the system, and not of the clock: a process that is slow because others are at
    work is not stopped. Ended processes are not stopped either.
    """
    try:
        state = os.waitid(os.P_PID, process, os.WSTOPPED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return state is not None


class Watched:
    """A process that this one has started, and since when it stands still."""

    why = "its process was stopped, and did not go on"

    def __init__(self, process: int) -> None:
        self.process = process
        self._since: float | None = None

    @property
    def frozen(self) -> bool:
        """Whether it has stood still for more than a moment, as of the last looks."""
        if not stopped(self.process):
            self._since = None
            return False
        if self._since is None:
            self._since = time.monotonic()
        return time.monotonic() - self._since >= MOMENT

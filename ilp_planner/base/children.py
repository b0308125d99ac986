"""Processes of this one: how many have cores, how one has ended, and whether one stands still."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from math import ceil
from pathlib import Path

MOMENT = 0.5  # seconds that a process may stand still: whoever stopped it may let it go on

# Microseconds of all cores that a container may use, and of each period: of cgroups 2, and 1.
CONTROL = Path("/sys/fs/cgroup")
QUOTAS = ("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")


def cores() -> int:
    """Return how many cores this process may use: those it may be on, and no more than its
    container has time of."""
    own = getattr(os, "sched_getaffinity", None)  # not on every system
    count = len(own(0)) if own else os.cpu_count() or 1
    for names in QUOTAS:
        with suppress(OSError, ValueError, ZeroDivisionError):  # there may be no limit: max
            words = " ".join((CONTROL / name).read_text(encoding="ascii") for name in names)
            quota, period = map(int, words.split())
            count = min(count, ceil(quota / period)) if quota > 0 else count
    return count


def ended(status: int, what: str = "its process") -> str:
    """Return how a process has ended. status: below 0 by a signal. what: it is, in words."""
    how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
    return f"{what} {how}" + ", as when memory runs out" * (status == -9)


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

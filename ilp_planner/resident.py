"""How much memory a search holds, and whether that is too much."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

EVERY = 0.05  # seconds between two looks: one takes some 50 microseconds
PROCESSES = Path("/proc")


def resident(process: int | str = "self") -> int:
    """Return the bytes that a process and those that it has started have in memory; 0 where the
    system does not tell, as only Linux does."""
    total = 0
    with contextlib.suppress(OSError, ValueError, IndexError):
        pages = (PROCESSES / f"{process}/statm").read_text(encoding="ascii").split()[1]
        total = int(pages) * os.sysconf("SC_PAGE_SIZE")
    with contextlib.suppress(OSError, ValueError):
        main = os.getpid() if process == "self" else process
        children = PROCESSES / f"{process}/task/{main}/children"
        total += sum(map(resident, children.read_text(encoding="ascii").split()))
    return total


class MemoryLimit:
    """The most that a search may hold, asked where the clock is asked.

    most: bytes, those of processes that it has started counted. Once they are reached the search
    has to end, whatever is given back on the way.
    """

    def __init__(self, most: float) -> None:
        self.most = most
        self.looked = -EVERY
        self._reached = False

    @property
    def reached(self) -> bool:
        """Whether the limit has been reached, as of the last look."""
        now = time.monotonic()
        if not self._reached and now - self.looked >= EVERY:
            self.looked = now
            self._reached = resident() >= self.most
        return self._reached

"""The memory of a search, and its limit."""

from __future__ import annotations

import contextlib
import gc
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

EVERY = 0.05  # seconds between two looks: one takes some 50 microseconds, and more with children
RARELY = 20  # times as long as a look takes, at least
PROCESSES = Path("/proc")


def resident(process: int | str = "self") -> int:
    """Return the bytes that a process and its children have in memory, of pages that a child shares
    with others its part alone; 0 if the system does not tell; only Linux does."""
    total = 0
    with contextlib.suppress(OSError, ValueError, IndexError):
        if process == "self":
            pages = (PROCESSES / "self/statm").read_text(encoding="ascii").split()[1]
            total = int(pages) * os.sysconf("SC_PAGE_SIZE")
        else:
            sums = (PROCESSES / f"{process}/smaps_rollup").read_text(encoding="ascii")
            total = int(sums.partition("\nPss:")[2].split()[0]) * 1024
    with contextlib.suppress(OSError, ValueError):
        main = os.getpid() if process == "self" else process
        children = PROCESSES / f"{process}/task/{main}/children"
        total += sum(map(resident, children.read_text(encoding="ascii").split()))
    return total


class MemoryLimit:
    """The most that a search may hold, asked whenever the clock is asked.

    most: bytes, with its child processes. Once they are reached the search has to end, even if
    memory is freed later.
    """

    def __init__(self, most: float) -> None:
        self.most = most
        self.looked, self.every = -EVERY, EVERY
        self._reached = False

    @property
    def reached(self) -> bool:
        """Whether the limit has been reached, as of the last look."""
        now = time.monotonic()
        if not self._reached and now - self.looked >= self.every:
            self.looked = now
            self._reached = resident() >= self.most
            self.every = max(EVERY, RARELY * (time.monotonic() - now))
        return self._reached


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Keep the garbage collector from looking through the objects of a search, of which it finds
    hardly any in circles: that takes a sixth of the time. What is left of it afterwards counts as
    old, as the next look at young objects would be one at all of them."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.freeze()
            gc.unfreeze()
            gc.enable()

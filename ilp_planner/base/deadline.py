"""The end of a search: the one clock for everything that takes time or memory."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from ilp_planner.base.resident import MemoryLimit


class OutOfTimeError(Exception):
    """The time limit has passed, or the memory limit is reached."""


def no_limit() -> None:
    """Let whoever asks for the time go on."""


class Deadline:
    """A time limit that begins when it is made, or began before.

    seconds: wall clock, inf for no limit. wanted: says no as soon as whoever asked has enough.
    started: when it began, by `time.monotonic`; None: now. steady: results must not depend on the
    speed of the machine, so nothing gets a moment of its own. memory: ends work as the clock does,
    once it is reached; None: no limit.
    """

    def __init__(
        self,
        seconds: float,
        wanted: Callable[[], bool] = lambda: True,
        started: float | None = None,
        *,
        steady: bool = False,
        memory: MemoryLimit | None = None,
    ) -> None:
        self.seconds, self.wanted, self.steady = seconds, wanted, steady
        self.memory = memory
        self.started = time.monotonic() if started is None else started

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self.started

    @property
    def full(self) -> bool:
        """Whether the memory limit is reached."""
        return self.memory is not None and self.memory.reached

    @property
    def left(self) -> float:
        """Seconds until the end, 0 after it and with full memory."""
        return 0.0 if self.full else max(0.0, self.seconds - self.elapsed)

    def goon(self) -> bool:
        """Tell whether there is time left, and something wanted."""
        return self.left > 0 and self.wanted()

    def check(self) -> None:
        """Go on, or raise OutOfTimeError."""
        if not self.goon():
            raise OutOfTimeError

    def within(self, seconds: float) -> Deadline:
        """Return the end of so many seconds from now on, or this one if it comes first."""
        return Deadline(min(seconds, self.left), self.wanted, memory=self.memory)

    def but(self, seconds: float) -> Deadline:
        """Return an end so many seconds earlier; this one if nothing may depend on the machine."""
        if self.steady:
            return self
        end = max(0.0, self.seconds - seconds)
        return Deadline(end, self.wanted, self.started, memory=self.memory)

    def moment(self, seconds: float) -> Deadline:
        """Return when to turn to something better, after so many seconds; never before this end if
        nothing may depend on the machine."""
        return self if self.steady else self.within(seconds)

    def effort(self, rate: float) -> float:
        """Return the steps that there is time for, at so many in a second."""
        return rate * self.left

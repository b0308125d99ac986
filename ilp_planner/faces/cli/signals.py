"""SIGTERM, SIGHUP and the warnings of schedulers (SIGUSR1, SIGUSR2, SIGXCPU) end a command as
Ctrl-C does: with the results so far."""

import os
import signal
import time
from types import FrameType

from ilp_planner.base.interrupts import REPEATED, SIGNALS, hear

# Seconds in which another signal is the same request: `timeout` sends its signal to the process and
# then to its group, and schedulers to every process that they see.
SAME = 1.0


class Interruption:
    """The effect of a signal: the first one interrupts the command, and a later one ends the
    process at once."""

    def __init__(self) -> None:
        self.first: float | None = None
        self.finishing = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Be called as the handler of a signal."""
        if self.first is None:
            self.first = time.monotonic()
            if not self.finishing:
                hear(number)
                raise KeyboardInterrupt
        elif time.monotonic() - self.first > SAME and number not in REPEATED:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)


def end_like_ctrl_c() -> None:
    """Let the first signal interrupt the command, and a later one end the process at once.

    Signals that whoever started the process wants ignored (`nohup`) stay ignored.
    """
    interruption = Interruption()
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, interruption)


def finish() -> None:
    """Save and print the results in any case: a first signal asks for just that."""
    for number in SIGNALS:
        handler = signal.getsignal(number)
        if isinstance(handler, Interruption):
            handler.finishing = True


def ignore() -> None:
    """Ignore these signals from now on."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)

"""SIGTERM and SIGHUP end a command as Ctrl-C does: with what is known so far."""

import os
import signal
import time
from types import FrameType

from ilp_planner.interrupts import SIGNALS

# Seconds in which another signal is the same request: `timeout` sends its signal to the process and
# then to its group, and schedulers to every process that they see.
SAME = 1.0


def end_like_ctrl_c() -> None:
    """Let the first signal interrupt the command, and a later one end the process at once.

    Signals that whoever started the process wants ignored (`nohup`) stay ignored.
    """
    first: list[float] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        if not first:
            first.append(time.monotonic())
            raise KeyboardInterrupt
        if time.monotonic() - first[0] > SAME:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, interrupt)


def ignore() -> None:
    """Ignore these signals from now on."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)

"""The terminal of a command: its streams, the signals that end it, and a bar while it measures."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import signal
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ilp_planner.base.interrupts import REPEATED, SIGNALS, hear
from ilp_planner.base.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType


# Whoever read our output, a pipe or a terminal, has closed it: nobody is left to tell.
GONE = (errno.EPIPE, errno.EIO)


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print a text to stdout or stderr, as a terminal may show it."""
    print(printable(text), end="\n" * nl, file=sys.stderr if err else sys.stdout)


def open_streams() -> None:
    """Give every standard stream that was closed a place, lest a file that is opened takes it, and
    let no character be one that a stream cannot write.

    Writing to a stdout that was closed is an OSError when it is flushed; to a stderr, nothing.
    """
    for place, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            flag = os.O_WRONLY if place == 2 else os.O_RDONLY
            handle = os.open(os.devnull, flag)
            if handle != place:
                os.dup2(handle, place)
                os.close(handle)
            stream = open(place, "r" if place == 0 else "w", encoding="utf-8", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)
    for output in (sys.stdout, sys.stderr):
        if isinstance(output, io.TextIOWrapper):
            output.reconfigure(errors="backslashreplace")


def drop_output() -> None:
    """Drop all further output to stdout: Python would try again at its end."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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


@contextmanager
def measuring_bar(total: int, *, shown: bool = True) -> Iterator[Callable[[int, str], None]]:
    """Show a bar on stderr, none if that is no terminal; yield a callback for the number of
    finished rows, and the next one.

    total: how many rows there will be. shown: whether this process is the one to show it.
    """
    if not (shown and sys.stderr.isatty()):
        yield lambda done, what: None
        return
    from rich import progress

    from ilp_planner.base.plain_console import PlainConsole

    columns = (
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=PlainConsole(stderr=True), transient=True) as bar:
        task = bar.add_task("measuring", total=total)
        yield lambda done, what: bar.update(task, completed=done, description=what)

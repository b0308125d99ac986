"""Parts of the work that no signal may end in the middle, and whether one has come."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

# Of the keyboard, of whoever ends a job, and of schedulers that say that its time is nearly up.
SIGNALS = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGXCPU,
)
REPEATED = (signal.SIGXCPU,)  # sent every second until the process ends

_heard: list[int] = []


def hear(number: int) -> None:
    """Remember a signal that interrupts work."""
    _heard.append(number)


def interrupted() -> bool:
    """Tell whether a signal has interrupted this process."""
    return bool(_heard)


@contextmanager
def postponed() -> Iterator[None]:
    """Let handlers of these signals wait until the end; nothing is postponed outside the main
    thread.

    For code of others that an exception in the middle would leave half done, or that drops
    exceptions.
    """
    waiting: list[tuple[int, FrameType | None]] = []
    handlers = {}
    if threading.current_thread() is threading.main_thread():
        known = {number: signal.getsignal(number) for number in SIGNALS}
        handlers = {number: handler for number, handler in known.items() if callable(handler)}
    for number in handlers:
        signal.signal(number, lambda *came: waiting.append(came))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for caught, frame in waiting:
            handlers[signal.Signals(caught)](caught, frame)

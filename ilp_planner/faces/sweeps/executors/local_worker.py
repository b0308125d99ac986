"""A process that solves points: reads chunks of them from a pipe, writes the results into it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import TYPE_CHECKING

from ilp_planner.base.interrupts import SIGNALS
from ilp_planner.faces.sweeps.work import done

if TYPE_CHECKING:
    from ilp_planner.faces.sweeps.work import Work


def serve(pipe: Connection) -> None:
    """Solve points until the other end of the pipe is closed, and then end at once, also in the
    middle of one: the planner is gone."""
    chunks: SimpleQueue[Work] = SimpleQueue()

    def listen() -> None:
        while True:
            try:
                chunks.put(pipe.recv())
            except (EOFError, OSError):
                os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    while True:
        pipe.send(done(chunks.get()))


if __name__ == "__main__":
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # the planner hears them, and ends this process
    serve(Connection(int(sys.argv[1])))

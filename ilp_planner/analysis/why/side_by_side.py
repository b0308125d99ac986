"""Several pieces of work at once, each in a process of its own, within one time limit."""

from __future__ import annotations

import multiprocessing
import os
import signal
from contextlib import suppress
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from ilp_planner.base.children import Watched
from ilp_planner.base.deadline import Deadline
from ilp_planner.base.interrupts import SIGNALS, hear

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.connection import Connection
    from types import FrameType

Answer = TypeVar("Answer")
LOOK = 0.5  # seconds between two looks whether a process stands still
LATE = 5.0  # seconds after its deadline, or an interrupt, in which work may still answer


class Failed(NamedTuple):
    """A failure that a process sends instead of an answer."""

    error: BaseException


def side_by_side(
    works: Sequence[Callable[[Deadline], Answer]], workers: int, deadline: Deadline
) -> list[Answer | None]:
    """Return the answer of each piece of work; None of one that was ended before it did.

    With one worker nothing is started: they run one after the other here. Each gets an equal share
    of the remaining time, and an early end leaves its share to the others. An interrupt is handed
    on: running pieces return their present answer, and no more are begun.

    Parameters
    ----------
    works: called with the deadline of each. workers: processes at most.

    Raises
    ------
    Any exception of a piece of work but KeyboardInterrupt.
    """
    if workers == 1 or len(works) == 1:
        return _in_turn(works, deadline)
    run = _Run(works, workers, deadline)
    try:
        return run.answers()
    finally:
        run.end()


def _in_turn(
    works: Sequence[Callable[[Deadline], Answer]], deadline: Deadline
) -> list[Answer | None]:
    found: list[Answer | None] = [None] * len(works)
    with suppress(KeyboardInterrupt):
        for number, work in enumerate(works):
            found[number] = work(deadline.within(deadline.left / (len(works) - number)))
    return found


class _Running(NamedTuple):
    """A process, and the number of the work that it does."""

    number: int
    process: Any
    watched: Watched


class _Run(Generic[Answer]):
    """Processes and their answers."""

    def __init__(
        self, works: Sequence[Callable[[Deadline], Answer]], workers: int, deadline: Deadline
    ) -> None:
        self.works, self.workers, self.deadline = works, workers, deadline
        self.waiting = list(range(len(works)))
        self.running: dict[Connection, _Running] = {}
        self.found: list[Answer | None] = [None] * len(works)

    def answers(self) -> list[Answer | None]:
        """Return all answers."""
        left = self.deadline
        try:
            self._until(lambda: left.left + LATE)
        except KeyboardInterrupt:
            self.waiting.clear()
            for one in self.running.values():
                with suppress(ProcessLookupError):
                    os.kill(one.process.pid, signal.SIGINT)
            last = Deadline(LATE)
            with suppress(KeyboardInterrupt):
                self._until(lambda: last.left)
        return self.found

    def _until(self, left: Callable[[], float]) -> None:
        """Begin waiting work and take answers, until nothing runs or no seconds are left."""
        while self.waiting or self.running:
            while self.waiting and len(self.running) < self.workers:
                self._begin(self.waiting.pop(0))
            remains = left()
            ready = wait(list(self.running), timeout=min(remains, LOOK))
            for connection in ready:
                self._take(connection)  # type: ignore[arg-type]
            self._end_frozen()
            if not ready and remains <= LOOK:
                return

    def _begin(self, number: int) -> None:
        rounds = -(-(len(self.waiting) + 1) // self.workers)
        deadline = self.deadline.within(self.deadline.left / rounds)
        context = multiprocessing.get_context("fork")  # what was read and compiled is there already
        here, there = context.Pipe(duplex=False)
        process = context.Process(
            target=_answer, args=(there, self.works[number], deadline), daemon=True
        )
        process.start()
        assert process.pid is not None
        there.close()
        self.running[here] = _Running(number, process, Watched(process.pid))

    def _take(self, connection: Connection) -> None:
        number, process, _ = self.running.pop(connection)
        try:
            answer = connection.recv()
        except EOFError:
            answer = None  # it was ended
        connection.close()
        process.join()
        if isinstance(answer, Failed):
            raise answer.error
        self.found[number] = answer

    def _end_frozen(self) -> None:
        """End frozen processes: they have no answer, and others have their time."""
        for connection, one in [*self.running.items()]:
            if one.watched.frozen:
                one.process.kill()
                self._take(connection)

    def end(self) -> None:
        """End all running processes."""
        for connection, (_, process, _) in self.running.items():
            process.kill()
            process.join()
            connection.close()


def _hear_once() -> None:
    """Let the first signal interrupt the work of this process, and no later one: a terminal sends
    one to every process, and the parent hands its own on."""
    heard = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal heard
        if not heard:
            heard = True
            hear(number)
            raise KeyboardInterrupt

    for number in SIGNALS:
        signal.signal(number, interrupt)


def _answer(connection: Connection, work: Callable[[Deadline], Any], deadline: Deadline) -> None:
    """Send the answer of a piece of work, or why it has none."""
    with suppress(KeyboardInterrupt, BrokenPipeError):
        _hear_once()
        try:
            connection.send(work(deadline))
        except Exception as error:
            connection.send(Failed(error))

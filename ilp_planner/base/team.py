"""Processes forked from this one, which answer questions beside it about what it holds.

What they answer must follow from the question and from what was there when they were forked. Then
it does not matter which of them answers, nor how many there are, nor whether any is left: questions
of a process that was killed, or that stands still, are answered here.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from contextlib import suppress
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from ilp_planner.base.children import Watched
from ilp_planner.base.interrupts import SIGNALS

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence
    from multiprocessing.connection import Connection

Question = TypeVar("Question")
Answer = TypeVar("Answer")
LOOK = 0.5  # seconds between two looks whether a process stands still
FEW = 3  # questions that are answered sooner than they are sent
MANY = 8  # questions at once, with which it is worth while to ask other processes
ALONE = 0.25  # seconds that everything is answered here
SHARE = 4  # of the questions that wait for a process, it is sent one in so many at once


def together(keys: Sequence[Hashable], most: int) -> list[list[int]]:
    """Return the places of equal keys, so many of them in one group at most."""
    groups: dict[Hashable, list[list[int]]] = {}
    for place, key in enumerate(keys):
        several = groups.setdefault(key, [[]])
        if len(several[-1]) == most:
            several.append([])
        several[-1].append(place)
    return [group for several in groups.values() for group in several]


def may_fork() -> bool:
    """Tell whether this process may have processes of its own: those of others do not."""
    return not multiprocessing.current_process().daemon and threading.active_count() == 1


class Worker(NamedTuple):
    """A process and the pipe to it."""

    connection: Connection
    process: Any
    watched: Watched


class Team(Generic[Question, Answer]):
    """Processes that answer questions with this one, once it has taken a while and there are many.

    answer: called in them and here. count: processes at most, this one included.
    """

    def __init__(self, answer: Callable[[Question], Answer], count: int) -> None:
        self.answer, self.count, self.begun = answer, count, time.monotonic()
        self.workers: list[Worker] = []

    def __enter__(self) -> Team[Question, Answer]:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def _begin_all(self) -> None:
        """Begin the processes: all of them once, or as many as the system gives."""
        count = self.count if may_fork() else 1
        self.count = 1
        with suppress(OSError):
            for _ in range(count - 1):
                self.workers.append(self._begin())

    def _begin(self) -> Worker:
        context = multiprocessing.get_context("fork")  # all that was found is there already
        here, there = context.Pipe()
        ends = [here, *(worker.connection for worker in self.workers)]
        process = context.Process(target=_serve, args=(there, ends, self.answer), daemon=True)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # for ever in the process
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        there.close()
        assert process.pid is not None
        return Worker(here, process, Watched(process.pid))

    def ask(self, questions: Sequence[tuple[Hashable, Question]]) -> list[Answer]:
        """Return the answers, in order.

        questions: each after a key; those with equal keys go to the same process, which has cached
        what they share, unless another one has nothing to do.
        """
        if self.count > 1 and len(questions) >= MANY and time.monotonic() - self.begun > ALONE:
            self._begin_all()
        if len(questions) < FEW or not self.workers:
            return [self.answer(question) for _, question in questions]
        found: dict[int, Answer] = {}
        waiting: list[deque[int]] = [deque() for _ in (*self.workers, self)]
        for place, (key, _) in enumerate(questions):
            waiting[hash(key) % len(waiting)].append(place)
        running: dict[Any, tuple[int, list[int]]] = {}
        try:
            for number in range(len(self.workers)):
                self._send(number, waiting, running, questions)
            while running:
                own = waiting[-1] or max(waiting, key=len)
                if own:
                    place = own.popleft() if own is waiting[-1] else own.pop()
                    found[place] = self.answer(questions[place][1])
                self._receive(found, waiting, running, questions, 0 if own else LOOK)
        except BaseException:  # nobody asks for what the others still answer
            self.end()
            raise
        self.workers = [one for one in self.workers if one.process.is_alive()]
        return [
            found[place] if place in found else self.answer(question)
            for place, (_, question) in enumerate(questions)
        ]

    def _receive(
        self,
        found: dict[int, Answer],
        waiting: list[deque[int]],
        running: dict[Any, tuple[int, list[int]]],
        questions: Sequence[tuple[Hashable, Question]],
        seconds: float,
    ) -> None:
        """Take answers and send more questions; wait for so many seconds, and end processes that
        stand still if there are none."""
        ready = wait(list(running), timeout=seconds)
        for connection in ready:
            number, places = running.pop(connection)
            try:
                answers: list[Answer] = self.workers[number].connection.recv()
            except (EOFError, OSError):
                continue  # it was ended: what it was asked is answered by the one that asks
            found.update(zip(places, answers, strict=False))
            self._send(number, waiting, running, questions)
        for worker in self.workers if seconds and not ready else ():
            if worker.connection in running and worker.watched.frozen:
                worker.process.kill()

    def _send(
        self,
        number: int,
        waiting: list[deque[int]],
        running: dict[Any, tuple[int, list[int]]],
        questions: Sequence[tuple[Hashable, Question]],
    ) -> None:
        """Send a process some of its questions, or else of those that wait for the busiest one."""
        own = waiting[number]
        if own:
            places = [own.popleft() for _ in range(max(1, len(own) // SHARE))]
        else:
            other = max(waiting, key=len)
            if not other:
                return
            places = [other.pop() for _ in range(max(1, len(other) // SHARE))]
        connection = self.workers[number].connection
        try:
            connection.send([questions[place][1] for place in places])
        except OSError:  # it was ended
            return
        running[connection] = number, places

    def end(self) -> None:
        """End all processes."""
        for connection, process, _ in self.workers:
            process.kill()
            process.join()
            connection.close()
        self.workers = []


def _serve(
    connection: Connection, ends: Sequence[Connection], answer: Callable[[Any], Any]
) -> None:
    """Answer questions until there is nobody to ask them.

    ends: of whoever asks, which this process has inherited: while they are open, it cannot notice
    that nobody has them any more.
    """
    for end in ends:
        end.close()
    gc.freeze()  # pages that are shared stay so
    with suppress(EOFError, OSError):
        while True:
            questions, answers = connection.recv(), []
            with suppress(Exception):  # it is raised where the question is asked again
                for question in questions:
                    answers.append(answer(question))
            connection.send(answers)
    os._exit(0)

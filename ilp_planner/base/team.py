"""Processes forked from this one, which answer questions beside it about what it holds.

What they answer must follow from the question and from what was there when they were forked. Then
it does not matter which of them answers, nor how many there are, nor whether any is left: questions
of a process that was killed, or that stands still, are answered here.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import signal
import tempfile
import threading
import time
from contextlib import suppress
from itertools import chain
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from ilp_planner.base.children import Watched
from ilp_planner.base.interrupts import SIGNALS

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence
    from multiprocessing.connection import Connection

Question = TypeVar("Question")
Answer = TypeVar("Answer")
LOOK = 0.5  # seconds between two looks whether a process stands still
FEW = 3  # questions that are answered sooner than they are sent
MANY = 8  # questions at once, with which it is worth while to ask other processes
HEAVY = 2  # likewise, of questions that take long
ALONE = 0.25  # seconds that everything is answered here
SHARE = 8  # runs of questions that each process has of those with equal keys, at most
TICKET = 4  # bytes of the number of a run in a pipe: less than any system takes apart
MOST = 8192  # runs in a pipe at once: it takes so many without a reader


def together(keys: Sequence[Hashable], most: int) -> list[list[int]]:
    """Return the places of equal keys, so many of them in one group at most."""
    groups: dict[Hashable, list[list[int]]] = {}
    for place, key in enumerate(keys):
        several = groups.setdefault(key, [[]])
        if len(several[-1]) == most:
            several.append([])
        several[-1].append(place)
    return [group for several in groups.values() for group in several]


def _nothing() -> None:
    """Do nothing."""


def may_fork() -> bool:
    """Tell whether this process may have processes of its own: those of others do not."""
    return not multiprocessing.current_process().daemon and threading.active_count() == 1


class Worker(NamedTuple):
    """A process, the pipe to it, and its number: that of whoever asks is 0."""

    connection: Connection
    process: Any
    watched: Watched
    number: int


class Board:
    """Questions for several processes, in a file that all have open, in runs of some places; and
    the numbers of the runs that wait, in a pipe for each process. Whoever reads a number first
    answers its questions.

    A file and pipes need no lock, which a process that is killed could leave locked, and nobody who
    writes waits for one that stands still.

    Raises
    ------
    OSError: the system gives no more of them.
    """

    def __init__(self, count: int) -> None:
        self.file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - as long as the processes
        self.pipes = [os.pipe() for _ in range(count)]
        for reading, _ in self.pipes:
            os.set_blocking(reading, False)

    def write(self, written: object) -> int:
        """Write questions in place of those before; return how many bytes they are."""
        found, done = pickle.dumps(written, pickle.HIGHEST_PROTOCOL), 0
        while done < len(found):
            done += os.pwrite(self.file.fileno(), found[done:], done)
        return len(found)

    def read(self, size: int) -> Any:
        """Return what was written, so many bytes."""
        return pickle.loads(os.pread(self.file.fileno(), size, 0))

    def put(self, number: int, runs: Sequence[int]) -> None:
        """Let runs wait for a process."""
        os.write(self.pipes[number][1], b"".join(run.to_bytes(TICKET, "little") for run in runs))

    def take(self, number: int) -> int | None:
        """Return the next run that waits for a process, or else for another one; None if no run
        waits."""
        for reading, _ in (*self.pipes[number:], *self.pipes[:number]):
            with suppress(BlockingIOError):
                return int.from_bytes(os.read(reading, TICKET), "little")
        return None

    def close(self) -> None:
        """Close all."""
        self.file.close()
        for end in chain.from_iterable(self.pipes):
            os.close(end)


class Team(Generic[Question, Answer]):
    """Processes that answer questions with this one, once it has taken a while and there are many.

    Parameters
    ----------
    answer: called in them and here.
    count: processes at most, this one included.
    heavy: questions take so long that two at once are worth while.
    begun: when the work began, by `time.monotonic`; None: now.
    """

    def __init__(
        self,
        answer: Callable[[Question], Answer],
        count: int,
        *,
        heavy: bool = False,
        begun: float | None = None,
    ) -> None:
        self.answer, self.count, self.heavy = answer, count, heavy
        self.begun = time.monotonic() if begun is None else begun
        self.workers: list[Worker] = []
        self.board: Board | None = None
        self.homes: dict[Hashable, int] = {}  # the process that answered questions of a key last

    def __enter__(self) -> Team[Question, Answer]:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def _begin_all(self) -> None:
        """Begin the processes: all of them once, or as many as the system gives."""
        count = self.count if may_fork() else 1
        self.count = 1
        if count > 1:
            with suppress(OSError):
                self.board = Board(count)
                for number in range(1, count):
                    self.workers.append(self._begin(self.board, number))

    def _begin(self, board: Board, number: int) -> Worker:
        context = multiprocessing.get_context("fork")  # all that was found is there already
        here, there = context.Pipe()
        ends = [here, *(worker.connection for worker in self.workers)]
        given = there, ends, self.answer, board, number
        process = context.Process(target=_serve, args=given, daemon=True)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # for ever in the process
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        there.close()
        assert process.pid is not None
        return Worker(here, process, Watched(process.pid), number)

    def ask(
        self,
        questions: Sequence[tuple[Hashable, Question]],
        meanwhile: Callable[[], object] = _nothing,
    ) -> list[Answer]:
        """Return the answers, in order.

        Parameters
        ----------
        questions: each after a key; those with equal keys go to the same process, which has cached
            what they share, unless another one has nothing to do.
        meanwhile: work of this process that comes before its own answers. Others answer already.
        """
        found: dict[int, Answer] = {}
        act = iter([meanwhile])
        many, few = (HEAVY, HEAVY) if self.heavy else (MANY, FEW)
        if not self.workers:
            for place, (_, question) in enumerate(questions):
                left = len(questions) - place
                if self.count > 1 and left >= many and time.monotonic() - self.begun > ALONE:
                    self._begin_all()
                    break
                next(act, _nothing)()
                found[place] = self.answer(question)
        for first in range(len(found), len(questions), MOST):
            some = range(first, min(first + MOST, len(questions)))
            if len(some) >= few and self.workers and self.board is not None:
                self._share(self.board, questions, some, found, next(act, _nothing))
        next(act, _nothing)()
        return [
            found[place] if place in found else self.answer(question)
            for place, (_, question) in enumerate(questions)
        ]

    def _share(
        self,
        board: Board,
        questions: Sequence[tuple[Hashable, Question]],
        places: Sequence[int],
        found: dict[int, Answer],
        meanwhile: Callable[[], object],
    ) -> None:
        """Answer the questions at some places with all processes. Answers are missing that one has
        when it is ended."""
        runs = self._runs(questions, places)
        try:
            asked = self._send(board, questions, runs)
            meanwhile()
            while (number := board.take(0)) is not None:
                answers = {place: self.answer(questions[place][1]) for place in runs[number]}
                self._take(0, answers, questions, found)
            while asked:
                ready = wait([worker.connection for worker in asked], timeout=LOOK)
                for worker in [*asked]:
                    if worker.connection in ready:
                        asked.remove(worker)
                        with suppress(EOFError, OSError):  # else it was ended
                            self._take(worker.number, worker.connection.recv(), questions, found)
                    elif not ready and worker.watched.frozen:
                        worker.process.kill()
        except BaseException:  # nobody asks for what the others still answer
            self.end()
            raise
        self.workers = [one for one in self.workers if one.process.is_alive()]

    def _runs(
        self, questions: Sequence[tuple[Hashable, Question]], places: Sequence[int]
    ) -> list[list[int]]:
        """Return the places of questions with equal keys that one process answers, one after the
        other."""
        most = 1 if self.heavy else max(1, len(places) // (SHARE * (len(self.workers) + 1)))
        groups = together([questions[place][0] for place in places], most)
        return [[places[n] for n in group] for group in groups]

    def _send(
        self,
        board: Board,
        questions: Sequence[tuple[Hashable, Question]],
        runs: Sequence[Sequence[int]],
    ) -> list[Worker]:
        """Let all processes have the questions, and each a first run; return those that answer."""
        everyone = *(worker.number for worker in self.workers), 0
        waiting: dict[int, list[int]] = {number: [] for number in everyone}
        load = dict.fromkeys(waiting, 0)  # this process comes last, as it sends as well
        for number, run in enumerate(runs):
            key = questions[run[0]][0]
            if self.homes.get(key) not in load:
                self.homes[key] = min(load, key=load.__getitem__)
            own = self.homes[key]
            load[own] += len(run)
            waiting[own].append(number)
        firsts = []
        for one in self.workers:
            most = max(waiting.values(), key=len)
            firsts.append((waiting[one.number] or most).pop(0) if most else None)
        size = board.write(([question for _, question in questions], runs))
        for own, numbers in waiting.items():
            board.put(own, numbers)
        asked = []
        for worker, first in zip(self.workers, firsts, strict=True):
            with suppress(OSError):  # else it was ended
                worker.connection.send((size, first))
                asked.append(worker)
        return asked

    def _take(
        self,
        number: int,
        answers: Mapping[int, Answer],
        questions: Sequence[tuple[Hashable, Question]],
        found: dict[int, Answer],
    ) -> None:
        """Take the answers of a process."""
        found.update(answers)
        self.homes.update((questions[place][0], number) for place in answers)

    def end(self) -> None:
        """End all processes."""
        for worker in self.workers:
            worker.process.kill()
            worker.process.join()
            worker.connection.close()
        self.workers = []
        if self.board is not None:
            self.board.close()
            self.board = None


def _serve(
    connection: Connection,
    ends: Sequence[Connection],
    answer: Callable[[Any], Any],
    board: Board,
    number: int,
) -> None:
    """Answer questions until there is nobody to ask them.

    ends: of whoever asks, which this process has inherited: while they are open, it cannot notice
    that nobody has them any more. number: of this process.
    """
    for end in ends:
        end.close()
    gc.freeze()  # pages that are shared stay so
    with suppress(Exception):  # no memory, or nobody asks any more
        while True:
            size, run = connection.recv()
            questions, runs = board.read(size)
            answers: dict[int, Any] = {}
            with suppress(Exception):  # it is raised where the question is asked again
                while run is not None:
                    for place in runs[run]:
                        answers[place] = answer(questions[place])
                    run = board.take(number)
            connection.send(answers)
    os._exit(0)

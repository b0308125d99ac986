"""Solving the points of a sweep, and keeping what is found as soon as it is."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.errors import PlannerError
from ilp_planner.files import Document
from ilp_planner.sweeps.neighbours import Neighbours
from ilp_planner.sweeps.row import LOST, NO_PLAN, REFUSED, Row, devices_of
from ilp_planner.sweeps.work import Task

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from ilp_planner.inputs.request import Request
    from ilp_planner.sweeps.executors.base import Done, Executor
    from ilp_planner.sweeps.journal import Journal
    from ilp_planner.sweeps.points import Point, Sweep

TRIES = 2  # times that a point is begun whose worker is lost
MOMENT = 1.0  # seconds after which a wait begins anew, so that signals are heard
BATCH = 256  # rows of refused points that are written together


class Work(NamedTuple):
    """A point that has to be solved, and the key of its row."""

    point: Point
    key: str
    request: Request


@dataclass
class Run:
    """The way of a sweep through an executor.

    tell: called with the number of points that are done, and what became of them.
    """

    sweep: Sweep
    executor: Executor
    journal: Journal
    tell: Callable[[int, str], None]
    done: int = 0
    tries: Counter[int] = field(default_factory=Counter)
    under_way: dict[int, Work] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.neighbours = Neighbours(self.sweep)
        self.without = 0

    def finish(self) -> None:
        """Solve all points that the journal does not have.

        A Ctrl-C goes through; what is done by then is in the journal.
        """
        waiting = self._to_solve()
        lost: list[Work] = []
        try:
            while True:
                while len(self.under_way) < self.executor.slots:
                    work = lost.pop() if lost else next(waiting, None)
                    if work is None:
                        break
                    self._begin(work)
                if not self.under_way:
                    return
                lost += self._take(self.executor.collect(MOMENT))
        finally:
            self.executor.cancel()
            waiting.close()

    def _to_solve(self) -> Generator[Work, None, None]:
        """Yield the points to solve; those that cannot be asked for are rows at once."""
        refused: list[Row] = []
        try:
            for point in self.sweep.points():
                work = self._asked(point, refused)
                if work is not None:
                    yield work
                if len(refused) == BATCH:
                    self.journal.add(refused)
                    refused.clear()
        finally:
            self.journal.add(refused)

    def _asked(self, point: Point, refused: list[Row]) -> Work | None:
        """Return what there is to solve at a point; None where it is done, or cannot be asked for:
        then its row is added to those that were refused."""
        try:
            request = self.sweep.request(point)
        except PlannerError as error:
            key = self.sweep.key_of_refused(point)
            if key not in self.journal.rows:
                row = {"status": REFUSED, "reason": str(error)}
                refused.append(_complete(row, point, key, None))
            self._count(REFUSED)
            return None
        key = self.sweep.key(request)
        known = self.journal.rows.get(key)
        if known is None and all(key != work.key for work in self.under_way.values()):
            return Work(point, key, request)
        self._count(REFUSED if known is None else known["status"])
        return None

    def _begin(self, work: Work) -> None:
        number = work.point.number
        start = self.neighbours.of(number)
        self.under_way[number] = work
        self.tries[number] += 1
        self.executor.submit(
            Task(number, work.request, self.sweep.limits, start, os.getcwd())  # noqa: PTH109
        )

    def _take(self, ended: list[Done]) -> list[Work]:
        """Keep what was found; return the points whose workers were lost, to be begun again."""
        rows, again = [], []
        for done in ended:
            work = self.under_way.pop(done.number)
            if done.outcome is not None:
                row = done.outcome.row
                self.neighbours.keep(done.number, done.outcome.start)
            elif self.tries[done.number] < TRIES:
                again.append(work)
                continue
            else:
                row = {"status": LOST, "reason": f"its worker was lost {TRIES} times: {done.why}"}
            del self.tries[done.number]
            rows.append(_complete(row, work.point, work.key, work.request))
        self.journal.add(rows)
        for row in rows:
            self._count(row["status"])
        return again

    def _count(self, status: str) -> None:
        self.done += 1
        self.without += status in NO_PLAN
        self.tell(self.done, f"{self.without} without a plan" if self.without else "sweeping")


def _complete(row: Row, point: Point, key: str, request: Request | None) -> Row:
    """Return a row with its key and the values of its point, and with the GPUs of that."""
    known = {"key": key, "values": dict(point.values)}
    return known | ({} if "gpus" in row else _gpus(point, request)) | row


def _gpus(point: Point, request: Request | None) -> Row:
    """Return how many GPUs a point has, and of which kinds, as far as that is known."""
    from ilp_planner.specs.gpu_cluster import FORM

    cluster = None if request is None else request.files.get("cluster")
    if cluster is not None and cluster.text is not None:
        return dict(_devices(cluster.name, cluster.text))
    match = FORM.fullmatch(point.values.get("gpus", ""))
    return {"gpus": int(match[1]), "gpu": match[2]} if match else {"gpus": None, "gpu": None}


@lru_cache(maxsize=256)
def _devices(name: str, text: str) -> Row:
    from ilp_planner.specs.cluster_reader import read_cluster

    return devices_of(read_cluster(Document(name, text)))

"""Solving the points of a sweep, and keeping every result at once."""

from __future__ import annotations

import os
from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.base.errors import PlannerError
from ilp_planner.base.files import Document
from ilp_planner.faces.sweeps.row import LOST, NO_PLAN, REFUSED, Row, devices_of
from ilp_planner.faces.sweeps.work import CHUNK_SECONDS, Chunk, Task

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from ilp_planner.faces.sweeps.executors.base import Done, Executor
    from ilp_planner.faces.sweeps.journal import Journal
    from ilp_planner.faces.sweeps.points import Point, Sweep
    from ilp_planner.inputs.request import Request
    from ilp_planner.optimize.search.start import Start

TRIES = 2  # times that a point is begun whose worker is lost
MOMENT = 1.0  # seconds after which a wait begins anew, so that signals are heard
ROWS = 256  # of refused points that are written together
MOST = 256  # points of a chunk
PLANS = 512  # plans that are kept for neighbours: a hundred kilobytes each
REACH = 3  # steps along an axis within which a point is a neighbour


class Work(NamedTuple):
    """A point that has to be solved, and the key of its row."""

    point: Point
    key: str
    request: Request


@dataclass
class Run:
    """The way of a sweep through an executor.

    tell: called with the number of finished points, and their outcomes.
    """

    sweep: Sweep
    executor: Executor
    journal: Journal
    tell: Callable[[int, str], None]
    done: int = 0
    tries: Counter[int] = field(default_factory=Counter)
    under_way: dict[int, list[Work]] = field(default_factory=dict)
    again: deque[list[Work]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.neighbours = Neighbours(self.sweep)
        self.without = 0
        self.size = 1  # of the next chunk
        self.keys: set[str] = set()  # of the points that are begun and not done

    def finish(self) -> None:
        """Solve all points that the journal does not have.

        A Ctrl-C goes through; finished points are in the journal.
        """
        waiting = self._to_solve()
        try:
            while True:
                while len(self.under_way) < self.executor.slots:
                    works = self.again.popleft() if self.again else [*islice(waiting, self.size)]
                    if not works:
                        break
                    self._begin(works)
                if not self.under_way:
                    return
                self._take(self.executor.collect(MOMENT))
        finally:
            self.executor.cancel()
            waiting.close()

    def _to_solve(self) -> Generator[Work, None, None]:
        """Yield the points to solve; impossible points are rows at once."""
        refused: list[Row] = []
        try:
            for point in self.sweep.points():
                work = self._asked(point, refused)
                if work is not None:
                    yield work
                if len(refused) == ROWS:
                    self.journal.add(refused)
                    refused.clear()
        finally:
            self.journal.add(refused)

    def _asked(self, point: Point, refused: list[Row]) -> Work | None:
        """Return the task of a point; None if it is done, or impossible: then its row is added to
        the refused ones."""
        try:
            request = self.sweep.request(point)
        except PlannerError as error:
            key = self.sweep.key_of_refused(point)
            if self.journal.known(key) is None:
                row = {"status": REFUSED, "reason": str(error)}
                refused.append(_complete(row, point, key, None))
            self._count(REFUSED)
            return None
        key = self.sweep.key(request)
        known = self.journal.known(key)
        if known is None and key not in self.keys:
            self.keys.add(key)
            return Work(point, key, request)
        self._count(REFUSED if known is None else known["status"])
        return None

    def _begin(self, works: list[Work]) -> None:
        folder, limits, tasks = os.getcwd(), self.sweep.limits, list[Task]()  # noqa: PTH109
        for point, _, request in works:
            self.tries[point.number] += 1
            start = self.neighbours.of(point.number)
            whole = self.sweep.all_devices
            tasks.append(Task(point.number, request, limits, start, folder, whole))
        chunk = Chunk(tuple(tasks))
        self.under_way[chunk.number] = works
        self.executor.submit(chunk)

    def _take(self, ended: list[Done]) -> None:
        """Keep the results. Points that their worker did not come to are begun again; so are points
        of a lost worker, each in a chunk of its own, so that it takes no other with it again."""
        rows: list[Row] = []
        for done in ended:
            works = self.under_way.pop(done.number)
            if done.solved is None:
                rows += self._lost(works, done.why)
                continue
            outcomes, left = done.solved.outcomes, works[len(done.solved.outcomes) :]
            for work, outcome in zip(works, outcomes, strict=False):
                self.neighbours.keep(work.point.number, outcome.start)
                rows.append(self._row(work, outcome.row))
            if left:
                self.tries.subtract(work.point.number for work in left)
                self.again.append(left)
            self._learn(len(outcomes), done.solved.seconds)
        self.journal.add(rows)
        for row in rows:
            self._count(row["status"])

    def _lost(self, works: list[Work], why: str) -> Iterator[Row]:
        """Yield the rows of points that are given up; the others are begun again."""
        for work in works:
            if self.tries[work.point.number] < TRIES:
                self.again.append([work])
            else:
                reason = f"its worker was lost {TRIES} times: {why}"
                yield self._row(work, {"status": LOST, "reason": reason})

    def _row(self, work: Work, row: Row) -> Row:
        del self.tries[work.point.number]
        self.keys.discard(work.key)
        return _complete(row, work.point, work.key, work.request)

    def _learn(self, points: int, seconds: float) -> None:
        """Let chunks have as many points as are solved in a moment, by the last ones; they grow
        step by step, as the next points may be harder."""
        fitting = int(CHUNK_SECONDS * points / seconds) if seconds > 0 else MOST
        self.size = max(1, min(2 * self.size, fitting, MOST))

    def _count(self, status: str) -> None:
        self.done += 1
        self.without += status in NO_PLAN
        self.tell(self.done, f"{self.without} without a plan" if self.without else "sweeping")


def _complete(row: Row, point: Point, key: str, request: Request | None) -> Row:
    """Return a row with its key and the values of its point, and with the GPUs of that."""
    known = {"key": key, "values": dict(point.values)}
    return known | ({} if "gpus" in row else _gpus(point, request)) | row


def _gpus(point: Point, request: Request | None) -> Row:
    """Return the number and the kinds of GPUs of a point, as far as known."""
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


# ---- neighbours ----------------------------------------------------------------------------------
# Plans of points that are done, for points beside them to start from.


class Neighbours:
    """The plans of the points that were done last."""

    def __init__(self, sweep: Sweep) -> None:
        self.sweep = sweep
        self.starts: OrderedDict[int, Start] = OrderedDict()

    def keep(self, number: int, start: Start | None) -> None:
        """Keep the plan of a point."""
        if start is not None:
            self.starts[number] = start
            while len(self.starts) > PLANS:
                self.starts.popitem(last=False)

    def of(self, number: int) -> Start | None:
        """Return the plan of the nearest point that differs in one value; None if none is near."""
        return next((self.starts[n] for n in self._near(number) if n in self.starts), None)

    def _near(self, number: int) -> Iterator[int]:
        """Yield the numbers of the points along each axis, the nearest first; of equally near ones,
        along the axis that is varied first."""
        places, stride = self.sweep.places(number), 1
        lines = []
        for axis, place in zip(reversed(self.sweep.axes), reversed(places), strict=True):
            lines.append((len(axis), place, stride))
            stride *= len(axis)
        for steps in range(1, REACH + 1):
            for length, place, stride in lines:
                for way in (-steps, steps):
                    if 0 <= place + way < length:
                        yield number + way * stride

"""A whole sweep: from the request to its rows, its table and its picture.

Its journal lies beside the table, `sweep.csv.jsonl` beside `sweep.csv`.
"""

from __future__ import annotations

import os
from collections import Counter, OrderedDict, deque
from contextlib import closing
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.base.errors import PlannerError, SchedulerError, UsageError
from ilp_planner.base.files import Document, check_writable
from ilp_planner.base.interrupts import postponed
from ilp_planner.base.limits import POINTS
from ilp_planner.faces.schemas import headed
from ilp_planner.faces.sweeps.executors.registry import LOCAL, open_executor
from ilp_planner.faces.sweeps.journal import LOST, NO_PLAN, REFUSED, Journal, Kind, Row, devices_of
from ilp_planner.faces.sweeps.plot import check_plot, write_plot
from ilp_planner.faces.sweeps.table import check_output, check_row, frame_of, rows_of, write_table
from ilp_planner.faces.sweeps.work import CHUNK_SECONDS, Chunk, Task
from ilp_planner.formats.inputs_json import encode_inputs
from ilp_planner.formats.versions import OWN, versions

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path

    from ilp_planner.faces.sweeps.executors.registry import Done, Executor
    from ilp_planner.faces.sweeps.journal import Row
    from ilp_planner.faces.sweeps.points import Point, Sweep
    from ilp_planner.faces.sweeps.table import Wish
    from ilp_planner.inputs.request import Request
    from ilp_planner.optimize.search.start import Start


# ---- journal -------------------------------------------------------------------------------------


SUFFIX = ".jsonl"
JOURNAL = Kind(
    "sweep", "a table of another sweep", "`output` begins a table of its own", beside=True
)
DIGITS = 12  # of a hash, that people are shown


def journal_file(output: Path) -> Path:
    """Return the path of a table's journal."""
    return output.with_name(output.name + SUFFIX)


def heading(sweep: Sweep) -> dict[str, str]:
    """Return the common data of all points of a sweep, as texts by name."""
    base, found = encode_inputs(sweep.base), dict[str, str]()
    for name, value in base.items():
        if isinstance(value, dict) and "name" in value:
            found[name] = value["name"]
            content = sweep.content(name)
            found |= {f"content of {name}": content[:DIGITS]} if content else {}
        elif isinstance(value, dict):
            found |= {key: str(text) for key, text in value.items()}
        else:
            found[name] = str(value)
    found |= {name: f"{value:g}" for name, value in sweep.limits_record.items()}
    varied = ", ".join(sorted(field.name for field in sweep.fields))
    return found | {"varied fields": varied, OWN: versions()[OWN]}


# ---- sweep ---------------------------------------------------------------------------------------


class Ended(NamedTuple):
    """The result of a sweep. interrupted: by a Ctrl-C, before all points were done."""

    rows: list[Row]
    interrupted: bool


@dataclass(frozen=True, kw_only=True)
class Place:
    """The executor of points.

    executor: one of `EXECUTORS`. workers: points at once; None: as many as there are cores.
    scheduler: its address. fallback: solve on this machine if it cannot be reached.
    """

    executor: str = LOCAL
    workers: int | None = None
    scheduler: str = ""
    fallback: bool = False


@dataclass(frozen=True, kw_only=True)
class Files:
    """The files of a sweep. output: its table, with a journal beside it. plot: a picture of it."""

    output: Path | None = None
    plot: Path | None = None


def check_size(sweep: Sweep, *, yes: bool) -> None:
    """Refuse a sweep of very many points that nobody has confirmed.

    Raises
    ------
    UsageError: says how many there are.
    """
    if sweep.size > POINTS and not yes:
        sizes = " x ".join(
            f"{len(axis):,} of {field.name}"
            for field, axis in zip(sweep.fields, sweep.axes, strict=True)
        )
        raise UsageError(
            f"vary: found {sweep.size:,} points ({sizes}), expected at most {POINTS:,} unless "
            "`yes` says that so many are meant"
        )


def run_sweep(
    sweep: Sweep,
    wish: Wish,
    place: Place,
    files: Files,
    tell: Callable[[int, str], None],
    note: Callable[[str], None],
) -> Ended:
    """Solve what the journal does not have, write the files, and return the rows.

    A Ctrl-C ends it with the present rows.

    Parameters
    ----------
    tell: called with the number of finished points, and their outcomes. note: called with remarks
        for the user, on one line.

    Raises
    ------
    UsageError: impossible files, or a table of another sweep. PlanError: a row that was changed.
    SchedulerError: the scheduler cannot be reached. OutputError: the system refuses.
    """
    check_files(files, sweep, wish)
    path = None if files.output is None else journal_file(files.output)
    if files.output is not None and path is not None:
        _check_begun(files.output, path)
    with closing(Journal(path, heading(sweep), JOURNAL)) as journal:
        interrupted = False
        for row in journal.read():
            check_row(row)
        try:
            Run(sweep, opened(place, note), journal, tell).finish()
        except KeyboardInterrupt:
            interrupted = True
        finally:
            with postponed():
                rows = rows_of(sweep, journal.latest(), wish)
                write_files(files, sweep, rows, wish)
    return Ended(rows, interrupted)


def check_files(files: Files, sweep: Sweep, wish: Wish) -> None:
    """Find out before hours of work whether the files can be written.

    Raises
    ------
    UsageError, OutputError: with the obstacle.
    """
    if files.output is not None:
        check_output(files.output)
        check_writable(files.output)
    if files.plot is not None:
        check_plot(files.plot, sweep, wish)
        check_writable(files.plot)


def _check_begun(output: Path, journal: Path) -> None:
    """Refuse to write over a file that no sweep has written.

    Raises
    ------
    UsageError: it is there without a journal.
    """
    if output.exists() and not journal.exists():
        raise UsageError(
            f"{output}: found a file without the journal of a sweep beside it ({journal.name}), "
            "expected another `output`"
        )


def write_files(files: Files, sweep: Sweep, rows: list[Row], wish: Wish) -> None:
    """Write the table and the picture of the points that are done."""
    if files.output is not None:
        write_table(files.output, frame_of(sweep, rows))
    if files.plot is not None:
        write_plot(files.plot, sweep, rows, wish)


def opened(place: Place, note: Callable[[str], None]) -> Executor:
    """Return the requested executor, or this machine if it may stand in for it.

    Raises
    ------
    SchedulerError: it cannot be reached, and nothing may.
    """
    try:
        return open_executor(place.executor, workers=place.workers, scheduler=place.scheduler)
    except SchedulerError as error:
        if not place.fallback:
            raise type(error)(f"{error}; `fallback` solves on this machine instead") from None
        note(f"{error}; solved on this machine instead")
        return open_executor(LOCAL, workers=place.workers)


def sweep_object(sweep: Sweep, rows: list[Row], wish: Wish) -> dict[str, Any]:
    """Return a sweep as one JSON object."""
    return {
        **headed("sweep"),
        "points": sweep.size,
        "done": len(rows),
        "varied": {
            field.name: len(axis) for field, axis in zip(sweep.fields, sweep.axes, strict=True)
        },
        "objectives": wish.columns,
        "rows": rows,
    }


# ---- Solving the points of a sweep, and keeping every result at once -----------------------------

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

"""Work for executors, as solving points of a sweep: the code of every worker."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ilp_planner.base.errors import InfeasibleError, PlannerError
from ilp_planner.faces.sweeps.journal import FAILED, REFUSED, Row

if TYPE_CHECKING:
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.inputs.request import Request
    from ilp_planner.optimize.result import Result
    from ilp_planner.optimize.search.start import Start
    from ilp_planner.optimize.solvers.base import Limits

# What libraries ask for the number of their threads, before they are imported.
THREADS = dict.fromkeys(
    (
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "NUMBA_NUM_THREADS",
        "NUMEXPR_NUM_THREADS",
    ),
    "1",
)


CHUNK_SECONDS = 0.5  # after which a worker tells what it has found


class Work(Protocol):
    """Work that an executor takes, by its number. seconds: that it may take. nodes: that it needs,
    whole, with so many `devices` each; 0: a core does."""

    @property
    def number(self) -> int:  # noqa: D102 - as the class says
        ...

    @property
    def seconds(self) -> float:  # noqa: D102
        ...

    @property
    def nodes(self) -> int:  # noqa: D102
        ...

    @property
    def devices(self) -> int:  # noqa: D102
        ...

    def done(self) -> Any:
        """Do it, and return its result."""


def done(work: Work) -> Any:
    """Do work, and return its result."""
    return work.done()


class Task(NamedTuple):
    """A point for a worker. start: a plan of a neighbour to start from. folder: base of relative
    paths. all_devices: its plans leave no node out."""

    number: int
    request: Request
    limits: Limits
    start: Start | None = None
    folder: str = ""
    all_devices: bool = False


class Chunk(NamedTuple):
    """Points for a worker, one after the other: telling it of each takes longer than some take."""

    tasks: tuple[Task, ...]

    @property
    def number(self) -> int:
        """Of the first point."""
        return self.tasks[0].number

    @property
    def seconds(self) -> float:
        """Of a point, at most."""
        return self.tasks[0].limits.seconds

    @property
    def nodes(self) -> int:
        """None: one core solves them."""
        return 0

    @property
    def devices(self) -> int:
        """None."""
        return 0

    def done(self) -> Solved:
        """Solve the points."""
        return solve_chunk(self)


class Outcome(NamedTuple):
    """A worker's result of a point. start: for neighbours; None if there is nothing."""

    row: Row
    start: Start | None = None


class Solved(NamedTuple):
    """A worker's results of the first points of a chunk. seconds: that they took together."""

    outcomes: tuple[Outcome, ...]
    seconds: float


def solve_chunk(chunk: Chunk) -> Solved:
    """Solve points in one thread, at least the first one; the remaining ones at the end of the
    moment go to another chunk."""
    begun, outcomes = time.monotonic(), list[Outcome]()
    for task in chunk.tasks:
        outcomes.append(solve_point(task))
        if time.monotonic() - begun > CHUNK_SECONDS:
            break
    return Solved(tuple(outcomes), time.monotonic() - begun)


def solve_point(task: Task) -> Outcome:
    """Solve one point in one thread. A failure is a row with the reason."""
    for name, count in THREADS.items():
        os.environ.setdefault(name, count)
    from ilp_planner.faces.sweeps.journal import row_of
    from ilp_planner.inputs.files import InputFiles
    from ilp_planner.inputs.references import named_from
    from ilp_planner.spaces.objectives.any_nodes import build_for_any_nodes, solve_on_any_nodes

    try:
        request = named_from(task.request, Path(task.folder))
        files = InputFiles(request, compared=False)
        asked = build_for_any_nodes(files)
        problem, result = solve_on_any_nodes(
            asked, limits=task.limits, start=task.start, all_devices=task.all_devices
        )
        return Outcome(row_of(problem, result, asked.cluster), _start(problem, result))
    except InfeasibleError as error:
        return Outcome({"status": "infeasible", "reason": str(error)})
    except PlannerError as error:
        return Outcome({"status": REFUSED, "reason": str(error)})
    except MemoryError:
        return Outcome({"status": FAILED, "reason": "out of memory"})
    except Exception as error:
        what = f"this is a bug in ilp-plan: {type(error).__name__}: {error}"
        return Outcome({"status": FAILED, "reason": what})


def _start(problem: Problem[Any], result: Result) -> Start | None:
    """Return the start for a neighbour's search; None if there was none, as of plans that leave
    nothing to choose: their neighbours are mostly like them."""
    if result.plan is None or problem.request is None or result.judged_all:
        return None
    from ilp_planner.formats.saved_plan import saved_result
    from ilp_planner.formats.saved_start import start_of
    from ilp_planner.formats.versions import versions

    return start_of(saved_result(problem, result, versions(), independent=False), "neighbour")

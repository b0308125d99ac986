"""Arc flow as a mixed-integer program, in HiGHS or SCIP through OR-Tools MathOpt."""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import pickle
import re
import subprocess
import sys
import threading
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import numpy as np

from ilp_planner.base.children import Watched, ended, stopped
from ilp_planner.base.deadline import Deadline
from ilp_planner.base.errors import SolverError
from ilp_planner.optimize.result import Stop
from ilp_planner.optimize.solvers.arc_flow import (
    linear_model,
    maxima_of,
    ordered_path,
    solver_scale,
)
from ilp_planner.optimize.solvers.backend import MILP_TOLERANCE, ArcFlow, Search, printed_floor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ilp_planner.optimize.solvers.arc_flow import LinearModel
    from ilp_planner.optimize.solvers.arc_reduction import Reduced
    from ilp_planner.optimize.solvers.base import Limits

GRACE = 5.0
"""Seconds that a solver may take past its time limit before its process is ended."""
LAST_WORDS = 1.0
"""Seconds that a solver has to answer a request to stop."""

# Best bound in a line of the solvers' logs: HiGHS has it after the explored share of the tree, SCIP
# as the third column from the end.
_NUMBER = r"([-+]?(?:\d[\d.]*(?:e[-+]?\d+)?))"
_LOG_BOUND = {
    "highs": re.compile(rf"^ .{{0,2}}\s+\d+\s+\d+\s+\d+\s+[\d.]+%\s+{_NUMBER}\s"),
    "scip": re.compile(rf"\|\s*{_NUMBER}\s*\|[^|]*\|[^|]*\|[^|]*$"),
}
_SOLVER_TYPE = {"highs": "HIGHS", "scip": "GSCIP"}


class Milp(ArcFlow):
    """MILP over one binary per arc, a continuous bottleneck and continuous peaks.

    The bound is the solver's, less its tolerances. When HiGHS is interrupted, the paths that it
    found are lost; its bound is not.
    """

    needs = "ortools"
    tolerance = 2 * MILP_TOLERANCE

    def __init__(self, backend: Literal["highs", "scip"] = "highs", *, reduce: bool = True) -> None:
        super().__init__(reduce=reduce)
        if backend not in _SOLVER_TYPE:
            raise ValueError(f"backend must be 'highs' or 'scip', found {backend!r}")
        self.backend = backend
        self.name = "milp" if backend == "highs" else f"milp-{backend}"

    def solve_reduced(
        self, problem: Reduced, search: Search, limits: Limits, deadline: Deadline
    ) -> Stop:
        """Solve in a process of its own, and listen to it."""
        model = linear_model(problem, scale=solver_scale(problem))
        request = {
            "model": _model_proto(model),
            "solver": _SOLVER_TYPE[self.backend],
            "gap": limits.gap,
            "seed": limits.seed % 2**31,
            "hint": _hint(model, problem, search.path),
        }
        seconds = deadline.left  # a worker may take a second to start
        if not deadline.goon():
            return Stop.TIME
        with _worker() as worker:
            worker.send({**request, "seconds": seconds})
            listener = _Listener(self, model, problem, search, worker)
            try:
                while not listener.done:
                    listener.listen(0.1)
                    if deadline.elapsed > deadline.seconds + GRACE or deadline.full:
                        listener.hush()
            except BaseException:
                search.progress = None  # keep what it still says, without calling the caller again
                listener.hush()
                raise
        return listener.stopped


class _Listener:
    """Passes a worker's messages on to the search."""

    def __init__(
        self, milp: Milp, model: LinearModel, problem: Reduced, search: Search, worker: _Worker
    ) -> None:
        self.milp, self.model, self.problem = milp, model, problem
        self.search, self.worker = search, worker
        self.stopped = Stop.TIME
        self.done = False

    def listen(self, wait: float) -> None:
        """Wait up to `wait` seconds for a message."""
        try:
            kind, content = self.worker.messages.get(timeout=wait)
        except Empty:
            if self.worker.watched.frozen:
                self._fail(Watched.why)
            return
        if kind == "log":
            match = _LOG_BOUND[self.milp.backend].search(content)
            if match:
                self.search.prove(self._seconds(printed_floor(match[1])))
        elif kind == "done":
            self.done = self.worker.idle = True
            self._finish(content)
        else:
            self._fail(content or ended(self.worker.process.wait()))

    def hush(self) -> None:
        """Ask the solver to stop, and end its process when it does not."""
        if self.done:
            return
        self.worker.send(None)
        end = Deadline(LAST_WORDS)
        while not self.done and end.goon():
            self.listen(0.1)
        self.done = True

    def _fail(self, why: str) -> NoReturn:
        self.done = True
        raise SolverError(f"{self.milp.name}: {why}")

    def _seconds(self, claim: float) -> float:
        """Return the safe part of a bound that the solver claims (0.0 when it claims none)."""
        if not math.isfinite(claim):  # also inf: the graph has a path
            return 0.0
        return claim / self.model.scale * (1 - MILP_TOLERANCE)

    def _finish(self, outcome: dict[str, Any]) -> None:
        reason, limit = outcome["reason"], outcome["limit"]
        if reason in ("INFEASIBLE", "INFEASIBLE_OR_UNBOUNDED") and self.search.none_fits():
            self.stopped = Stop.PROOF
            return
        if reason not in ("OPTIMAL", "FEASIBLE", "NO_SOLUTION_FOUND"):
            detail = outcome["detail"]
            raise SolverError(f"{self.milp.name}: {reason.lower()} on a graph with a path {detail}")
        path: tuple[int, ...] = ()
        if outcome["values"]:
            chosen = np.flatnonzero(np.array(outcome["values"][: self.model.arcs]) > 0.5)
            path = ordered_path(self.problem.graph, chosen)
        self.search.update(self.problem.original(path), self._seconds(outcome["bound"]))
        if reason == "OPTIMAL":
            self.stopped = Stop.PROOF
        elif limit not in ("TIME", "INTERRUPTED"):
            self.stopped = Stop.ERROR


def _hint(model: LinearModel, problem: Reduced, path: tuple[int, ...]) -> list[float]:
    """Return the value of each variable on a known path, empty without one."""
    translated = list(problem.translated(path))
    if not translated:
        return []
    values = np.zeros(model.columns)
    values[translated] = 1.0
    values[model.arcs :] = np.array(maxima_of(problem.graph, translated)) * model.scale
    return [float(value) for value in values]


def _model_proto(model: LinearModel) -> bytes:
    """Return the model as a serialised MathOpt ModelProto, column numbers as variable ids."""
    from ortools.math_opt import model_pb2

    proto = model_pb2.ModelProto()
    columns = range(model.columns)
    _, low, high = zip(*model.maxima, strict=True)
    proto.variables.ids.extend(columns)
    proto.variables.lower_bounds.extend([0.0] * model.arcs + list(low))
    proto.variables.upper_bounds.extend([1.0] * model.arcs + list(high))
    proto.variables.integers.extend([True] * model.arcs + [False] * len(low))
    proto.objective.linear_coefficients.ids.extend(columns)
    proto.objective.linear_coefficients.values.extend(model.cost.tolist())
    first = 0
    for rows in model.rows.values():
        proto.linear_constraints.ids.extend(range(first, first + len(rows)))
        proto.linear_constraints.lower_bounds.extend(rows.low.tolist())
        proto.linear_constraints.upper_bounds.extend(rows.high.tolist())
        proto.linear_constraint_matrix.row_ids.extend((rows.row + first).tolist())
        proto.linear_constraint_matrix.column_ids.extend(rows.column.tolist())
        proto.linear_constraint_matrix.coefficients.extend(rows.value.tolist())
        first += len(rows)
    return bytes(proto.SerializeToString())


class _Worker:
    """A process that runs milp_worker.py, and the messages it sent."""

    def __init__(self) -> None:
        script = Path(__file__).with_name("milp_worker.py")
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # SCIP reports interruptions as errors there
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,  # Ctrl-C is for the planner, which then asks for last words
        )
        self.watched = Watched(self.process.pid)
        self.messages: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        self.requests: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
        self.owner = os.getpid()
        self.idle = True
        for work in (self._read, self._write):
            threading.Thread(target=work, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        try:
            while True:
                self.messages.put(pickle.load(self.process.stdout))
        except (EOFError, OSError, ValueError, pickle.UnpicklingError):
            self.messages.put(("gone", ""))

    def _write(self) -> None:
        """Hand requests over: who waited for a process that takes none would wait for ever."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # a dead process is noticed by the reader
            while True:
                pickle.dump(self.requests.get(), self.process.stdin)
                self.process.stdin.flush()

    @property
    def ready(self) -> bool:
        """Whether the process is there and runs."""
        return self.process.poll() is None and not stopped(self.process.pid)

    def send(self, request: dict[str, Any] | None) -> None:
        """Send a request, None to stop the one in progress."""
        self.idle = False
        self.requests.put(request)

    def end(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()
        self.requests.put(None)  # which no process takes any more: nobody waits to hand one over
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


_idle: list[_Worker] = []
_idle_lock = threading.Lock()


@contextlib.contextmanager
def _worker() -> Iterator[_Worker]:
    """Lend a worker, an idle one if possible: starting one takes most of a second."""
    with _idle_lock:
        # A process that was forked from this one must not talk to its parent's workers.
        mine = [w for w in _idle if w.owner == os.getpid()]
        for known in mine:
            _idle.remove(known)
    worker = next((known for known in mine if known.ready), None)
    for known in mine:
        if known is not worker:
            known.end()
    if worker is None:
        worker = _Worker()
    try:
        yield worker
    finally:
        with _idle_lock:
            keep = worker.idle and not _idle
            if keep:
                _idle.append(worker)
        if not keep:
            worker.end()


@atexit.register
def _end_idle() -> None:
    while _idle:
        worker = _idle.pop()
        if worker.owner == os.getpid():
            worker.end()

"""Processes that are killed or stopped while somebody waits for them: the work goes on without."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ilp_planner.analysis.why.side_by_side import side_by_side
from ilp_planner.base import kernels
from ilp_planner.base.deadline import Deadline
from ilp_planner.base.errors import SolverError
from ilp_planner.faces.sweeps.executors import local
from ilp_planner.faces.sweeps.executors.local import Local
from ilp_planner.optimize.result import Status, Stop
from ilp_planner.optimize.solve import solve
from ilp_planner.optimize.solvers import milp, registry
from ilp_planner.optimize.solvers.base import Limits
from ilp_planner.optimize.solvers.cpsat import CpSat
from ilp_planner.optimize.solvers.milp import Milp
from ilp_planner.optimize.solvers.pulp_backend import Pulp
from tests.base.test_children import hold
from tests.faces.sweeps.executor_cases import check_loss, small_sweep
from tests.optimize.solvers.graphs import two_types
from tests.tiny import tight_problem

SIGNALS = {
    signal.SIGKILL: "its process was killed by signal 9, as when memory runs out",
    signal.SIGSTOP: "its process was stopped, and did not go on",
}
WHOLE: dict[str, Any] = {
    "milp": partial(Milp, reduce=False),
    "milp-scip": partial(Milp, "scip", reduce=False),
    "pulp": partial(Pulp, reduce=False),
}


@pytest.fixture
def lost(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Send every process that is started the first of these signals, at once; none is left."""
    numbers: list[int] = []
    begun: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen

    class Lost(real):  # type: ignore[type-arg, valid-type, misc]
        def __init__(self, *words: Any, **options: Any) -> None:
            super().__init__(*words, **options)
            begun.append(self)
            self.send_signal(numbers[0])

    monkeypatch.setattr(subprocess, "Popen", Lost)
    milp._end_idle()
    yield numbers
    assert begun
    for process in begun:
        assert process.wait(10) == -signal.SIGKILL  # who stood still was ended


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("name", WHOLE)
def test_a_solver_without_its_process_fails_at_once(
    name: str, number: int, lost: list[int]
) -> None:
    """At once: the time that it was given is without an end."""
    lost.append(number)
    with pytest.raises(SolverError, match=SIGNALS[number]):  # type: ignore[index]
        WHOLE[name]().solve(two_types(layers=12), Limits(seconds=float("inf")))


@pytest.mark.parametrize("number", SIGNALS)
def test_the_dp_goes_on_and_says_so(
    number: int, lost: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    module, _ = registry.BACKENDS["milp"]
    monkeypatch.setitem(registry.BACKENDS, "milp", (module, {"reduce": False}))  # type: ignore[dict-item]
    lost.append(number)
    problem = tight_problem()
    found = solve(problem, limits=Limits(), solver="milp")
    said = SIGNALS[number]  # type: ignore[index]
    assert f"milp failed (milp: {said}); chain DP alone went on" in found.notes
    assert (found.status, found.stopped_by) == (Status.OPTIMAL, Stop.PROOF)
    assert found.objective == solve(problem, limits=Limits(), solver="dp").objective


def test_a_process_that_stands_still_is_not_lent_again() -> None:
    graph = two_types(layers=16)
    best = Milp(reduce=False).solve(graph, Limits()).objective
    (idle,) = milp._idle
    hold(idle.process.pid)
    assert Milp(reduce=False).solve(graph, Limits()).objective == pytest.approx(best)
    assert idle not in milp._idle
    assert len(milp._idle) == 1
    assert idle.process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("number", SIGNALS)
def test_work_side_by_side_goes_on_without_a_process(number: int) -> None:
    def leave(deadline: Deadline) -> int:
        os.kill(os.getpid(), number)
        return 1

    works = [lambda deadline: 0, leave, lambda deadline: 2]
    assert side_by_side(works, 2, Deadline(float("inf"))) == [0, None, 2]


def test_nobody_waits_for_a_compiler_that_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    helper = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    monkeypatch.setattr(kernels, "_helpers", [helper])
    monkeypatch.setattr(kernels, "LONGEST_WAIT", float("inf"))
    hold(helper.pid)
    kernels.compiled_beside()
    helper.communicate()
    assert helper.returncode == -signal.SIGKILL
    assert kernels._helpers == []


@pytest.mark.slow
def test_a_worker_of_a_sweep_that_stands_still_is_replaced(tmp_path: Path) -> None:
    executor = Local(workers=1)
    check_loss(small_sweep(tmp_path), executor, lambda: hold(executor.processes[0].process.pid))
    assert len(executor.processes) == 0


def test_a_worker_that_stands_still_gets_nothing_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would be sent to it, nobody would read."""
    monkeypatch.setattr(local, "WORKER", "this")  # ends at once, and stays there as a child
    process = local.Process()
    assert process.idle
    monkeypatch.setattr(local, "stopped", lambda number: number == process.process.pid)
    assert not process.idle
    process.end()


def test_cp_sat_ends_though_its_clock_is_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks the time of day; the planner asks a clock that nobody sets."""
    from ortools.sat.python import cp_model

    seconds, real = [], cp_model.CpSolver.solve

    def solve_late(solver: Any, *more: Any) -> Any:
        seconds.append(solver.parameters.max_time_in_seconds)
        solver.parameters.max_time_in_seconds = 1e6
        return real(solver, *more)

    monkeypatch.setattr(cp_model.CpSolver, "solve", solve_late)
    graph = two_types(layers=56, shared=True)
    found = CpSat(reduce=False).solve(graph, Limits(seconds=0.5))
    assert found.stopped_by is Stop.TIME
    assert len(seconds) == 1
    assert seconds[0] <= 0.5
    assert 0 < found.bound <= found.objective

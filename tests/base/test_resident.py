"""Memory as a limit of a search: it ends as at the time limit, with its best plan."""

import gc
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ilp_planner.base import resident as module
from ilp_planner.base.deadline import Deadline, OutOfTimeError
from ilp_planner.base.errors import UsageError
from ilp_planner.base.resident import EVERY, MemoryLimit, resident, uncollected
from ilp_planner.optimize.result import Stop
from ilp_planner.optimize.solve import solve
from ilp_planner.optimize.solvers.base import Limits
from tests.small import make_problem

HELD = "import sys; held = bytearray(b'1' * 50_000_000); print(flush=True); sys.stdin.read()"


def test_what_is_held_counts_processes_that_were_started() -> None:
    before = resident()
    assert before > 2**20
    with subprocess.Popen(
        [sys.executable, "-c", HELD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        child.stdout.readline()
        assert resident() > before + 40_000_000
        child.stdin.close()
    assert resident("no such process") == 0


def test_a_limit_that_was_reached_stays_so(monkeypatch: pytest.MonkeyPatch) -> None:
    held, now = [10], [100.0]
    monkeypatch.setattr(module, "resident", lambda: held[0])
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    limit = MemoryLimit(20)
    deadline = Deadline(1e6, memory=limit)
    assert deadline.goon()
    held[0] = 20
    assert deadline.goon(), "it is looked at now and then"
    now[0] += 2 * EVERY
    assert not deadline.within(5).goon()
    held[0] = 0
    now[0] += 2 * EVERY
    assert deadline.left == 0
    with pytest.raises(OutOfTimeError):
        deadline.check()


@pytest.mark.parametrize("solver", ["auto", "cp-sat", "anneal"])
def test_a_search_ends_with_what_it_has(
    monkeypatch: pytest.MonkeyPatch, solver: str, tmp_path: Path
) -> None:
    problem = make_problem(tmp_path)
    whole = solve(problem, limits=Limits(seconds=60), solver=solver)
    monkeypatch.setattr(module, "resident", lambda: 2**40)
    ended = solve(problem, limits=Limits(seconds=60, memory=2.0**30), solver=solver)
    assert ended.stopped_by is Stop.MEMORY
    assert ended.bound <= whole.objective <= ended.objective


def test_no_more_memory_to_be_had(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What `ulimit -v` does: the best plan is given all the same."""
    problem = make_problem(tmp_path)

    def search(search: object) -> Stop:
        raise MemoryError

    monkeypatch.setattr(type(problem.space), "search", lambda self, state: search(state))
    assert solve(problem, limits=Limits(seconds=60)).stopped_by is Stop.MEMORY


def test_no_limit() -> None:
    with pytest.raises(UsageError, match="memory: found 0"):
        replace(Limits(), memory=0)


@pytest.mark.slow
def test_what_is_left_of_a_search_counts_as_old(unfreezing: None) -> None:
    """The next look at young objects is none at all of it, and nothing is kept for ever."""
    with uncollected():
        made = [[number] for number in range(5000)]
        assert not gc.isenabled()
    old = {id(one) for one in gc.get_objects(generation=2)}
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
    assert all(id(one) in old for one in made)

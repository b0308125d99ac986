"""Questions that other processes answer: whatever happens to these, each has its answer."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ilp_planner.base import team as team_module
from ilp_planner.base.team import Team, may_fork
from tests.examples import for_each

HERE = os.getpid()


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(team_module, "MANY", 1)
    monkeypatch.setattr(team_module, "ALONE", -1.0)
    monkeypatch.setattr(team_module, "FEW", 1)
    monkeypatch.setattr("threading.active_count", lambda: 1)  # not those of the test runner


def elsewhere(act: Callable[[], object]) -> Callable[[int], int]:
    """Return the square of a number, for which other processes do something first from 5 on."""

    def answer(number: int) -> int:
        if number >= 5 and os.getpid() != HERE:
            act()
        return number * number

    return answer


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def frozen() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def failing() -> None:
    raise ValueError("only elsewhere")


def out_of_memory() -> None:
    raise MemoryError


@pytest.mark.slow
@for_each("act", [lambda: None, killed, frozen, failing, out_of_memory, lambda: os._exit(0)])
@for_each("count", [1, 2, 3])
def test_every_question_has_its_answer_in_order(act: Callable[[], object], count: int) -> None:
    team = Team(elsewhere(act), count)
    try:
        for _ in range(2):
            numbers = [*range(20), 3, 3]
            assert team.ask([(n % 4, n) for n in numbers]) == [n * n for n in numbers]
        assert team.ask([]) == []
    finally:
        team.end()


@for_each("count", [1, 2, 3])
@for_each("questions", [0, 1, 20])
def test_other_work_is_done_once_and_first(count: int, questions: int) -> None:
    did: list[int] = []

    def answer(number: int) -> int:
        assert os.getpid() != HERE or did == [1]
        return number

    with Team(answer, count) as team:
        for _ in range(2):
            did.clear()
            asked = [(n % 3, n) for n in range(questions)]
            assert team.ask(asked, lambda: did.append(1)) == [*range(questions)]
            assert did == [1]


def test_several_processes_answer() -> None:
    def answer(_: int) -> int:
        time.sleep(0.01)
        return os.getpid()

    team = Team(answer, 3)
    try:
        found = set(team.ask([(0, n) for n in range(40)]))  # one key: others help
    finally:
        team.end()
    assert len(found) == 3
    assert HERE in found


def test_an_error_here_leaves_no_answer_for_later() -> None:
    """What other processes still answer is no answer to the next questions."""

    def answer(number: int) -> int:
        time.sleep(0.01)
        if number < 100 and os.getpid() == HERE:
            raise KeyboardInterrupt
        return number

    with Team(answer, 2) as team:
        with pytest.raises(KeyboardInterrupt):
            team.ask([(1, 5), *((0, n) for n in range(6, 40))])
        assert team.ask([(n, n) for n in range(100, 140)]) == [*range(100, 140)]


def test_an_error_is_that_of_the_question() -> None:
    def answer(number: int) -> int:
        raise ValueError(f"no {number}")

    team = Team(answer, 2)
    try:
        with pytest.raises(ValueError, match="no 7"):
            team.ask([(0, 7)])
    finally:
        team.end()


def test_signals_are_for_whoever_asks() -> None:
    def answer(_: int) -> int:
        os.kill(os.getpid(), signal.SIGINT)
        return os.getpid()

    team = Team(answer, 2)
    try:
        assert team.ask([(0, 0)]) != [HERE]
    finally:
        team.end()


def test_signals_at_the_very_beginning_are_as_well(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    serve, before = team_module._serve, signal.pthread_sigmask(signal.SIG_BLOCK, ())

    def interrupted(*given: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        serve(*given)

    monkeypatch.setattr(team_module, "_serve", interrupted)
    with Team(lambda _: os.getpid(), 2) as team:
        assert team.ask([(0, 0)]) != [HERE]
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
    assert capfd.readouterr().err == ""


def test_no_process_is_left() -> None:
    team = Team(elsewhere(lambda: None), 3)
    team.ask([(0, 1), (1, 2)])
    assert len(team.workers) == 2
    processes = [worker.process for worker in team.workers]
    team.end()
    assert not any(process.is_alive() for process in processes)


def test_processes_of_others_have_none() -> None:
    def answer(_: int) -> bool:
        return may_fork()

    team = Team(answer, 2)
    try:
        assert team.ask([(0, 0)]) == [False]
    finally:
        team.end()


def test_few_questions_are_answered_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(team_module, "MANY", 3)
    with Team(lambda _: os.getpid(), 2) as team:
        assert team.ask([(0, 0), (1, 1)]) == [HERE, HERE]
        monkeypatch.setattr(team_module, "ALONE", 1e9)
        assert team.ask([(n, n) for n in range(9)]) == [HERE] * 9


def test_processes_end_with_a_process_that_is_killed() -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        team = Team(elsewhere(lambda: None), 3)
        team.ask([(0, 1), (1, 2)])
        os.write(writing, " ".join(str(w.process.pid) for w in team.workers).encode())
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    workers = [int(word) for word in os.read(reading, 100).split()]
    assert len(workers) == 2
    until = time.monotonic() + 20
    while any(map(alive, workers)) and time.monotonic() < until:
        time.sleep(0.02)
    assert not any(map(alive, workers))


def alive(process: int) -> bool:
    """Tell whether a process runs: what has ended may wait to be asked for its status."""
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"

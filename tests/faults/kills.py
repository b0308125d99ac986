"""Commands killed at moments that are spread over their run: no file is broken, nothing is lost or
done twice, and the next run ends as if nothing had been."""

import random
import signal
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.faults.commands import Command, living

LONGEST = 900  # seconds of a run, on a machine that is busy with much else
ORPHANED = 10  # seconds that processes may take to see that their planner is gone
TWICE = 0.3  # of the trials kill the run that goes on as well


class Trial(NamedTuple):
    """When a command is killed. seconds: after it began, of one run or of two."""

    command: Command
    seconds: tuple[float, ...]


class Tried(NamedTuple):
    """What came of a trial. killed: runs that were, the others had ended before. done: what they
    had done by then, in lines of a journal or table. wrong: what does not hold; empty: nothing."""

    trial: Trial
    killed: int
    done: int
    wrong: str


def undisturbed(command: Command) -> float:
    """Let a command learn what a whole run writes; return the seconds that the second one takes,
    when all is compiled."""
    for _ in range(2):
        with tempfile.TemporaryDirectory() as at:
            command.prepare(Path(at))
            begun = time.monotonic()
            _, err = (process := command.begin(Path(at))).communicate(timeout=LONGEST)
            assert process.returncode == 0, err
            command.learn(Path(at))
    return time.monotonic() - begun


def trials(command: Command, seconds: float, count: int, draw: random.Random) -> Iterator[Trial]:
    """Yield trials, one in each part of a run that takes so many seconds."""
    for number in range(count):
        moments = [seconds * (number + draw.random()) / count]
        if draw.random() < TWICE:
            moments.append(seconds * draw.random())
        yield Trial(command, tuple(moments))


def tried(trial: Trial) -> Tried:
    """Kill a command, let it run to its end, and hold its files to what they must be."""
    command, killed, done = trial.command, 0, 0
    with tempfile.TemporaryDirectory() as at:
        folder = Path(at)
        command.prepare(folder)
        given = {path.name for path in folder.iterdir()}
        before: list[str] = []
        try:
            for seconds in trial.seconds:
                killed += _kill(command, folder, seconds)
                command.check_killed(folder)
                before = _kept(command, folder, before)
                done = max(done, len(before))
            _, err = (process := command.begin(folder)).communicate(timeout=LONGEST)
            assert process.returncode == 0, err
            _kept(command, folder, before)
            command.check_done(folder)
            found = {path.name for path in folder.iterdir()} - given
            assert found == command.expected(folder), f"left over: {found}"
        except Exception as error:
            return Tried(trial, killed, done, f"{type(error).__name__}: {str(error)[:500]}")
    return Tried(trial, killed, done, "")


def _kill(command: Command, folder: Path, seconds: float) -> bool:
    """Kill a run after so many seconds; tell whether it had not ended by then."""
    process = command.begin(folder)
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=LONGEST)
    end = time.monotonic() + ORPHANED
    while left := living(folder):
        assert time.monotonic() < end, f"processes that go on: {left}"
        time.sleep(0.05)
    return process.returncode == -signal.SIGKILL


def _kept(command: Command, folder: Path, before: list[str]) -> list[str]:
    """Hold what was done before to being there still, and first; return what is done now."""
    now = command.progress(folder)
    assert now[: len(before)] == before, "what was done is lost"
    return now


def kill_all(commands: tuple[Command, ...], count: int, seed: int, workers: int) -> list[Tried]:
    """Kill each command so many times; print the figures and return what went wrong."""
    wrong: list[Tried] = []
    for command in commands:
        seconds = undisturbed(command)
        planned = trials(command, seconds, count, random.Random(f"{seed} {command.name}"))
        with ThreadPoolExecutor(workers) as pool:
            found = list(pool.map(tried, planned))
        bad = [one for one in found if one.wrong]
        kills = sum(one.killed for one in found)
        midway = sum(one.done > 0 for one in found)
        print(
            f"{command.name:16} {seconds:5.1f} s a run, {kills:4} kills, {midway:4} runs killed "
            f"with something done, {len(bad)} wrong",
            flush=True,
        )
        for one in bad:
            print(f"  {one.trial.seconds}: {one.wrong}")
        wrong += bad
    return wrong

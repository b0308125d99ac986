"""Processes that were started: how many, how they ended, and whether they stand still."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ilp_planner.base import children
from ilp_planner.base.children import Watched, cores, ended, stopped
from tests.examples import for_each


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """Return a process that waits for the end of its input."""
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    yield process
    process.kill()
    process.communicate()


def hold(process: int) -> None:
    """Stop a process, and wait until it is."""
    os.kill(process, signal.SIGSTOP)
    os.waitid(os.P_PID, process, os.WSTOPPED | os.WNOWAIT)


def test_how_a_process_ended_is_told() -> None:
    assert ended(-9) == "its process was killed by signal 9, as when memory runs out"
    assert ended(-15) == "its process was killed by signal 15"
    assert ended(3) == "its process ended with status 3"


def test_a_process_is_stopped_until_it_goes_on(child: subprocess.Popen[bytes]) -> None:
    assert not stopped(child.pid)
    hold(child.pid)
    assert stopped(child.pid)
    assert stopped(child.pid)  # as often as it is asked
    os.kill(child.pid, signal.SIGCONT)
    os.waitid(os.P_PID, child.pid, os.WCONTINUED | os.WNOWAIT)
    assert not stopped(child.pid)


def test_what_has_ended_is_not_stopped_and_keeps_its_status(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not stopped(child.pid)
    assert child.wait() == -signal.SIGKILL
    assert not stopped(child.pid)
    assert not stopped(os.getpid())  # none that this one has started


def test_only_who_stands_still_for_more_than_a_moment_is_frozen(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(children.time, "monotonic", lambda: now)
    watched = Watched(child.pid)
    assert not watched.frozen
    hold(child.pid)
    now += 1000.0  # nobody has looked meanwhile
    assert not watched.frozen
    now += children.MOMENT / 2
    assert not watched.frozen
    now += children.MOMENT / 2
    assert watched.frozen
    os.kill(child.pid, signal.SIGCONT)
    os.waitid(os.P_PID, child.pid, os.WCONTINUED | os.WNOWAIT)
    assert not watched.frozen
    hold(child.pid)
    assert not watched.frozen  # the moment begins anew


@for_each(
    ("files", "found"),
    [
        ({}, 8),
        ({"cpu.max": "max 100000\n"}, 8),
        ({"cpu.max": "150000 100000\n"}, 2),
        ({"cpu.max": "1000 100000\n"}, 1),
        ({"cpu.max": "6400000 100000\n"}, 8),
        ({"cpu.max": "300000 0\n"}, 8),
        ({"cpu.max": ""}, 8),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 8),
        ({"cpu/cpu.cfs_quota_us": "300000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 3),
    ],
)
def test_a_container_has_time_of_so_many_cores(
    files: dict[str, str], found: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / str(len(list(tmp_path.iterdir())))
    for name, text in files.items():
        (own / name).parent.mkdir(parents=True, exist_ok=True)
        (own / name).write_text(text)
    monkeypatch.setattr(children, "CONTROL", own)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert cores() == found

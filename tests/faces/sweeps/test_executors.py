"""Executors, on real processes and real clusters of this machine."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from ilp_planner.base.errors import SchedulerError
from ilp_planner.faces.sweeps.executors.local import Local
from ilp_planner.faces.sweeps.executors.registry import EXECUTORS, open_executor
from ilp_planner.faces.sweeps.sweep import Place, opened
from ilp_planner.faces.sweeps.work import Chunk, Task
from tests.faces.sweeps.executor_cases import PATIENCE, check_executor, check_loss, small_sweep

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_processes_of_this_machine_solve_a_sweep(tmp_path: Path) -> None:
    check_executor(small_sweep(tmp_path), Local(workers=1))


def test_an_executor_without_its_package_says_which_extra_brings_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "ilp_planner.faces.sweeps.executors.ray", raising=False)
    with pytest.raises(SchedulerError) as raised:
        open_executor("ray")
    assert str(raised.value) == (
        "executor: found ray without ray, expected it installed: pip install 'ilp-planner[ray]'"
    )


def test_this_machine_stands_in_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.setitem(sys.modules, "dask", None)
    monkeypatch.delitem(sys.modules, "ilp_planner.faces.sweeps.executors.dask", raising=False)
    notes: list[str] = []
    with pytest.raises(SchedulerError, match=r"; `fallback` solves on this machine instead$"):
        opened(Place(executor="dask"), notes.append)
    assert notes == []
    assert isinstance(opened(Place(executor="dask", fallback=True), notes.append), Local)
    assert [note.endswith("; solved on this machine instead") for note in notes] == [True]


def test_the_extras_are_those_that_messages_name() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    for name, entry in EXECUTORS.items():
        assert not entry.needs or f'\n{name} = ["{entry.needs}>=' in text


def children(pid: int) -> list[int]:
    """Return the processes that a process has begun."""
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return [int(word) for word in found.stdout.split()]


@pytest.mark.slow
def test_a_process_that_is_killed_takes_one_point_with_it(tmp_path: Path) -> None:
    executor = Local(workers=2)
    check_loss(
        small_sweep(tmp_path), executor, lambda: executor.processes[0].process.send_signal(9)
    )


@pytest.mark.slow
def test_processes_end_with_their_planner(tmp_path: Path) -> None:
    """It is killed, and cannot tell them."""
    sweep = small_sweep(tmp_path)
    point = sweep.point(0)
    executor = Local(workers=1)
    executor.submit(Chunk((Task(0, sweep.request(point), sweep.limits),)))
    (worker,) = executor.processes
    worker.pipe.close()  # as the system does when a process ends
    assert worker.process.wait(PATIENCE) == 0


# ---- clusters ------------------------------------------------------------------------------------


def need(package: str, extra: str) -> None:
    """Skip a test where an extra is not installed."""
    pytest.importorskip(package, reason=f"{package}, of the extra `{extra}`, is not installed")


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@contextmanager
def running(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a Python module beside the test, and end all of its processes afterwards."""
    process = subprocess.Popen(
        [sys.executable, "-m", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path[1:]])},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(PATIENCE)


@contextmanager
def dask_cluster() -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Begin a Dask cluster of two workers; yield its address and the process that keeps them."""
    address = f"tcp://127.0.0.1:{free_port()}"
    command = "distributed.cli.dask_scheduler", "--no-dashboard", "--port", address.split(":")[-1]
    workers = (
        "distributed.cli.dask_worker", address, "--no-dashboard", "--nworkers", "2",
        "--nthreads", "1",
    )  # fmt: skip
    with running(*command), running(*workers) as keeper:
        from distributed import Client

        with Client(address, timeout=PATIENCE, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=PATIENCE)
        yield address, keeper


@pytest.mark.slow
def test_a_dask_cluster_solves_a_sweep_though_a_worker_is_killed(tmp_path: Path) -> None:
    need("distributed", "dask")
    with dask_cluster() as (address, keeper):
        executor = open_executor("dask", scheduler=address)
        assert executor.slots == 2

        def kill() -> None:
            workers = [pid for pid in children(keeper.pid) if "spawn_main" in command_of(pid)]
            assert len(workers) == 2
            os.kill(workers[0], signal.SIGKILL)

        check_loss(small_sweep(tmp_path), executor, kill)


@pytest.mark.slow
def test_a_dask_cluster_that_is_not_there_is_told() -> None:
    need("distributed", "dask")
    with pytest.raises(SchedulerError, match=r"^scheduler: found none, expected the address"):
        open_executor("dask")
    nowhere = f"tcp://127.0.0.1:{free_port()}"
    with pytest.raises(SchedulerError, match=rf"^scheduler: found no Dask scheduler at {nowhere}"):
        open_executor("dask", scheduler=nowhere)


def command_of(pid: int) -> str:
    """Return the command line of a process; empty where it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    return ""


@contextmanager
def ray_cluster() -> Iterator[str]:
    """Begin a Ray cluster of this machine; yield its address."""
    port = free_port()
    command = [
        sys.executable, "-m", "ray.scripts.scripts", "start", "--head", f"--port={port}",
        "--num-cpus=2", "--include-dashboard=false", "--disable-usage-stats", "--block",
    ]  # fmt: skip
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd=Path.home(),
    )
    try:
        yield f"127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(PATIENCE)


def ray_executor(address: str):
    """Return the executor of a cluster that is about to begin."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return open_executor("ray", scheduler=address)
        except SchedulerError:
            if time.monotonic() > end:
                raise
            time.sleep(1.0)


@pytest.mark.slow
def test_a_ray_cluster_solves_a_sweep_though_a_worker_is_killed(tmp_path: Path) -> None:
    need("ray", "ray")
    with ray_cluster() as address:
        executor = ray_executor(address)
        assert executor.slots == 2

        def kill() -> None:
            end = time.monotonic() + PATIENCE
            while time.monotonic() < end:
                every = (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())
                busy = [pid for pid in every if command_of(pid).startswith("ray::done")]
                if busy:
                    os.kill(busy[0], signal.SIGKILL)
                    return
                time.sleep(0.05)
            raise AssertionError("no worker of Ray has begun")

        check_loss(small_sweep(tmp_path), executor, kill)


@pytest.mark.slow
def test_a_ray_cluster_that_is_not_there_is_told() -> None:
    need("ray", "ray")
    with pytest.raises(SchedulerError, match=r"^scheduler: found no Ray cluster at auto"):
        open_executor("ray")


@pytest.mark.slow
def test_arrays_of_slurm_solve_a_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By submitit's own stand-in for a cluster, which starts the same jobs on this machine."""
    need("submitit", "slurm")
    from ilp_planner.faces.sweeps.executors.slurm import FOLDER, Slurm

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *sys.path[1:]]))
    executor = Slurm(workers=2, cluster="local")
    check_executor(small_sweep(tmp_path), executor)
    assert not list(tmp_path.glob(f"{FOLDER}*"))


@pytest.mark.slow
def test_a_machine_without_slurm_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("submitit", "slurm")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SchedulerError, match=r"^scheduler: found no Slurm on this machine"):
        open_executor("slurm")
    assert not list(tmp_path.iterdir())

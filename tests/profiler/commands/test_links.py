"""`ilp-plan profile measure-links`, for real between two processes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ilp_planner.costs.profiles.measurements import read_measurements
from ilp_planner.profiler.measure.links_plan import OPERATIONS

ROOT = Path(__file__).parents[3]
QUICK = [
    "--device-name", "Tin Can", "--sizes", "1KiB", "64KiB", "--repeats", "3", "--time-limit", "4",
]  # fmt: skip
LONG = ["--time-limit", "300", "--repeats", "1000", "--backend", "gloo"]
MEASURE = ["profile", "measure-links", "--backend", "gloo", "--output"]
SECONDS = 120  # that a loaded machine may take for it


def environment():
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def start(*arguments, cwd):
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=cwd,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def ranks_of(launcher):
    """Return the pids of the processes that a launcher has started, by rank."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int(folder.joinpath("stat").read_text().rpartition(")")[2].split()[1])
            words = folder.joinpath("environ").read_text().split("\0")
        except (OSError, ValueError):
            continue
        rank = next((w.partition("=")[2] for w in words if w.startswith("RANK=")), "")
        if parent == launcher.pid and rank:
            found[int(rank)] = int(folder.name)
    return found


def wait_for(condition):
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def check_table(path, sizes):
    table = read_measurements(path)
    assert set(table.frame["name"]) == set(OPERATIONS)
    assert set(table.frame["bytes"]) == set(sizes)
    assert set(table.frame["device"]) == {"Tin Can"}
    assert (table.frame["time_s"] > 0).all()
    assert (table.frame["group_size"] == 2).all()
    assert (table.frame["hosts"] == 1).all()
    assert table.machine["backend"] == "gloo"
    assert table.machine["ranks"] == "2 on 1 host"


@pytest.fixture
def torch_is_there():
    pytest.importorskip("torch")


@pytest.mark.slow
@pytest.mark.usefixtures("torch_is_there")
@pytest.mark.parametrize(
    "how",
    [
        pytest.param(["-m", "ilp_planner"], marks=pytest.mark.slow),
        ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "ilp_planner"],
    ],
    ids=["plain", "torchrun"],
)
def test_two_processes(tmp_path, how):
    run = start(*how, *MEASURE, "links.csv", *QUICK, cwd=tmp_path)
    out, err = run.communicate(timeout=SECONDS)
    assert run.returncode == 0, err
    check_table(tmp_path / "links.csv", [1024, 65536])
    assert out.count("send_recv") == 1
    assert "12 rows" in out
    if "torch.distributed.run" not in how:
        assert err == ""


@pytest.mark.usefixtures("torch_is_there")
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds the ranks in /proc")
@pytest.mark.slow
def test_a_rank_that_dies_leaves_a_line_and_the_rows(tmp_path):
    run = start("-m", "ilp_planner", *MEASURE, "links.csv", *LONG, cwd=tmp_path)
    table = tmp_path / "links.csv"
    wait_for(lambda: table.exists() and len(ranks_of(run)) == 2)
    ranks = ranks_of(run)
    os.kill(ranks[1], signal.SIGKILL)
    out, err = run.communicate(timeout=SECONDS)
    assert run.returncode == 1
    assert out == ""
    assert err.count("\n") == 1
    assert "rank 1 died of SIGKILL" in err
    count = len(read_measurements(table).frame)
    assert f"{count} row{'s' * (count > 1)} measured until then: links.csv" in err
    assert not any(Path(f"/proc/{pid}").exists() for pid in ranks.values())


@pytest.mark.usefixtures("torch_is_there")
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds the ranks in /proc")
@pytest.mark.slow
def test_control_c_leaves_no_process(tmp_path):
    run = start("-m", "ilp_planner", *MEASURE, "links.csv", *LONG, cwd=tmp_path)
    wait_for(lambda: (tmp_path / "links.csv").exists() and len(ranks_of(run)) == 2)
    ranks = ranks_of(run)
    run.send_signal(signal.SIGINT)
    _, err = run.communicate(timeout=SECONDS)
    assert run.returncode == 130
    assert "Traceback" not in err
    assert not any(Path(f"/proc/{pid}").exists() for pid in ranks.values())
    assert len(read_measurements(tmp_path / "links.csv").frame) > 0


def refused(done, code, *words):
    assert done.code == code
    assert done.err.count("\n") == 1
    for word in words:
        assert word in done.err
    assert not Path("links.csv").exists()


def test_without_torch(ilp_plan, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    done = ilp_plan("profile", "measure-links", "--output", "links.csv")
    refused(done, 1, "profile measure-links needs PyTorch: pip install 'ilp-planner[torch]'")


@pytest.mark.usefixtures("torch_is_there")
@pytest.mark.parametrize(("gpus", "words"), [(0, "found 0 GPUs"), (1, "found 1 GPU on")])
def test_nccl_needs_two_gpus(ilp_plan, monkeypatch, gpus, words):
    monkeypatch.setattr("ilp_planner.profiler.commands.links._gpus", lambda: gpus)
    done = ilp_plan("profile", "measure-links", "--backend", "nccl", "--output", "links.csv")
    refused(done, 2, words, "expected at least 2", "--backend gloo")


@pytest.mark.usefixtures("torch_is_there")
def test_more_processes_than_gpus(ilp_plan, monkeypatch):
    monkeypatch.setattr("ilp_planner.profiler.commands.links._gpus", lambda: 2)
    done = ilp_plan("profile", "measure-links", "--processes", 4, "--output", "links.csv")
    refused(done, 2, "found 2 GPUs", "expected at least 4", "--processes 2")


@pytest.mark.usefixtures("torch_is_there")
def test_processes_are_torchruns(ilp_plan, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    done = ilp_plan("profile", "measure-links", "--processes", 4, "--output", "links.csv")
    refused(done, 2, "--processes", "--nproc-per-node")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--sizes", "1KiB", "12"], ["--sizes", "unit", "12"]),
        (["--sizes", "-1KiB"], ["--sizes", "positive"]),
        (["--sizes", "1KiB", "--max-size", "1MiB"], ["--max-size", "one of them"]),
        (["--max-size", "big"], ["--max-size", "big"]),
        (["--operations", "all_reduce,scan"], ["'scan'", "all_gather"]),
        (["--operations", ","], ["--operations", "found none"]),
        (["--time-limit", "nan"], ["--time-limit", "nan"]),
        (["--repeats", "1"], ["--repeats"]),
        (["--backend", "mpi"], ["--backend", "mpi"]),
    ],
)
def test_bad_options(ilp_plan, options, words):
    pytest.importorskip("torch")
    done = ilp_plan("profile", "measure-links", "--output", "links.csv", *options)
    refused(done, 2, *words)


def test_a_folder_that_is_not_there(ilp_plan):
    pytest.importorskip("torch")
    done = ilp_plan("profile", "measure-links", "--output", "no/links.csv")
    refused(done, 1, "no/links.csv", "no such folder")

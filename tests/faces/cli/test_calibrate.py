"""`ilp-plan calibrate`: from a table of runs to a cluster file with the machine's constants."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ilp_planner.formats.megatron.arguments import arguments_of_job
from ilp_planner.specs.cluster_reader import read_cluster
from ilp_planner.specs.time_errors import machine_known
from tests.analysis.calibration.machines import DEFAULT, JOBS, TOML, runs_on
from tests.analysis.calibration.test_runs import table
from tests.faces.cli.conftest import Done

Command = Callable[..., Done]
OURS = replace(DEFAULT, sustained=0.65, streaming=0.5)
BASE = ("calibrate", "runs.csv", "--cluster", "mine.toml")


@pytest.fixture
def runs(folder: Path) -> Path:
    """Return a table of six runs on a known machine, beside the file of its cluster, of so many
    tokens that none waits for the host."""
    (folder / "mine.toml").write_text(TOML)
    rows = [
        {
            "run": " ".join(arguments_of_job(run.job).argv),
            "seconds": run.seconds,
            "gpus": 8,
            "name": run.name,
        }
        for run in runs_on(OURS, [replace(one, micro_batch=4) for one in JOBS[:6]])
    ]
    return table(folder, *rows)


@pytest.mark.slow
def test_a_cluster_file_with_its_machine(ilp_plan: Command, runs: Path) -> None:
    done = ilp_plan(*BASE, "--output", "ours.toml")
    assert done.code == 0, done.err
    device = read_cluster(Path("ours.toml")).device_types["H100"]
    assert device.machine.sustained == pytest.approx(0.65, abs=0.04)
    assert device.machine.streaming == pytest.approx(0.5, abs=0.02)
    assert device.machine.runs == 6
    assert Path("ours.toml").read_text().startswith(TOML)
    assert f"expected error  {machine_known(device.machine).text}" in done.out
    assert "(6 runs of this machine, leave-one-out)" in done.out
    assert re.search(r"^not fitted      grouped\b.*: no run has experts", done.out, re.MULTILINE)
    assert "run 5" in done.out


@pytest.mark.slow
def test_a_calibrated_cluster_gets_the_same_machine_again(ilp_plan: Command, runs: Path) -> None:
    assert ilp_plan(*BASE, "--output", "ours.toml").code == 0
    again = ilp_plan("calibrate", runs, "--cluster", "ours.toml", "--output", "same.toml")
    assert again.code == 0
    assert Path("same.toml").read_text() == Path("ours.toml").read_text()


@pytest.mark.few(1)
@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize("named", ["--gpus", "--cluster"])
def test_so_many_gpus_become_a_cluster_file(ilp_plan: Command, named: str) -> None:
    fitted = ("--fit", "sustained", "--output", "ours.toml")
    done = ilp_plan("calibrate", "runs.csv", named, "8xH100", *fitted)
    assert done.code == 0, done.err
    written = read_cluster(Path("ours.toml"))
    assert written.name == "8xH100-80GB"
    assert written.device_count == 8
    (device,) = written.device_types.values()
    assert device.machine.runs == 6
    assert device.memory == read_cluster(Path("mine.toml")).device_types["H100"].memory


@pytest.mark.usefixtures("runs")
def test_no_cluster_is_one_line(ilp_plan: Command) -> None:
    done = ilp_plan("calibrate", "runs.csv")
    assert done.code == 2
    assert done.err.startswith("ilp-plan: --cluster: found none, expected the machine of the runs")


@pytest.mark.usefixtures("runs")
def test_json(ilp_plan: Command) -> None:
    value = json.loads(ilp_plan(*BASE, "--fit", "sustained", "--json").out)
    assert [c["name"] for c in value["constants"] if c["fitted"]] == ["sustained"]
    assert value["calibration_runs"] == len(value["runs"]) == 6
    off = [abs(run["left_out_s"] / run["measured_s"] - 1) for run in value["runs"]]
    assert value["expected_error"] == pytest.approx(sum(off) / 6, abs=1e-4)
    assert value["left_out"] == []


def test_a_run_that_nothing_explains_is_named(ilp_plan: Command, runs: Path) -> None:
    lines = runs.read_text().splitlines()
    words = lines[3].split(",")
    words[-3] = str(10 * float(words[-3]))
    runs.write_text("\n".join([*lines[:3], ",".join(words), *lines[4:]]))
    done = ilp_plan(*BASE, "--fit", "sustained")
    assert done.code == 0
    (line,) = [line for line in done.out.splitlines() if line.startswith("LEFT OUT")]
    assert "runs.csv: line 4: run 2: measured" in line
    assert "x off" in line
    assert "(5 runs of this machine, leave-one-out)" in done.out


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize(
    ("more", "says", "code"),
    [
        (("--fit", "sustaind"), "--fit: found 'sustaind', did you mean 'sustained'?", 2),
        (("--fit", "grouped"), "--fit: no run depends on 'grouped'", 2),
        (("--output", "mine.toml"), "would be written over the input", 1),
        (("--output", "runs.csv"), "would be written over the input", 1),
        (("--cluster", "pair.toml"), 'expected gpu = "..." beside it', 1),
        (("--cluster", "nowhere"), "nowhere: no such file", 1),
    ],
)
def test_what_cannot_be_is_refused(
    ilp_plan: Command, more: tuple[str, ...], says: str, code: int
) -> None:
    done = ilp_plan(*BASE, *more)
    assert done.code == code
    assert says in done.err
    assert done.err.count("\n") == 1


@pytest.mark.slow
def test_a_plan_for_another_gpu_is_named(folder: Path, ilp_plan: Callable[..., Done]) -> None:
    """It says nothing of the machine, though its table of runs names no device."""
    words = ["--gpus", "8xH100", "--runtime", "megatron", "--global-batch-size", "8"]
    assert ilp_plan("solve", "--model", "qwen2.5-7b", *words, "--output", "plan.json").code == 0
    (folder / "runs.csv").write_text("run,seconds\nplan.json,1\n")
    assert ilp_plan("calibrate", "runs.csv", "--cluster", "h100-8x8").code == 0
    done = ilp_plan("calibrate", "runs.csv", "--cluster", "a100-4x8")
    assert done.code == 1
    assert "a plan for H100-80GB, but cluster 'a100-4x8' has A100-80GB" in done.err

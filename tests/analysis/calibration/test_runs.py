"""Tables of runs, read and refused."""

import csv
from pathlib import Path

import pytest

from ilp_planner.analysis.calibration.runs import Run, read_runs
from ilp_planner.base.errors import PlannerError
from ilp_planner.formats.megatron.arguments import arguments_of_job
from ilp_planner.formats.megatron.launch import export_megatron
from ilp_planner.specs.gpu_architectures import HOPPER
from tests.analysis.calibration.machines import h100, job, lab

JOB = job(pp=2)
LINE = " ".join(arguments_of_job(JOB).argv)
SAVED = Path(__file__).parents[2] / "formats" / "saved" / "megatron-v2.json"


def table(folder: Path, *rows: dict[str, object]) -> Path:
    """Write a table of runs."""
    path = folder / "runs.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def read(folder: Path, **row: object) -> Run:
    """Read the only run of a table."""
    (found,) = read_runs(table(folder, row), lab())
    return found


@pytest.mark.parametrize("number", [0, 1])
def test_launch_scripts_and_exported_arguments(tmp_path: Path, number: int) -> None:
    """Both lie beside the table, and say the GPUs themselves."""
    suffix, text = list(export_megatron(JOB, "run").files.items())[number]
    name = f"run{suffix}"
    (tmp_path / name).write_text(text)
    run = read(tmp_path, run=name, seconds=1.5)
    assert run.job == JOB
    assert (run.name, run.seconds, run.weight) == (name, 1.5, 1.0)


def test_launch_lines(tmp_path: Path) -> None:
    run = read(tmp_path, run=LINE, seconds=1.5, gpus=8, name="mine", weight=2)
    assert run.job == JOB
    assert (run.name, run.weight, run.place) == ("mine", 2.0, f"{tmp_path}/runs.csv: line 2")
    everywhere = read(tmp_path, run=LINE, seconds=1.5)
    assert everywhere.job.world == lab().device_count
    assert everywhere.name == "line 2"


def test_saved_plans(tmp_path: Path) -> None:
    """The job is that of the plan, on the devices of this cluster."""
    run = read(tmp_path, run=SAVED, seconds=1.5)
    assert run.job.devices_per_node == 8
    assert run.job.gpu_architecture == HOPPER
    assert run.job.settings.optimizer.sharding == "optimizer"


@pytest.mark.parametrize(
    ("column", "value"), [("seconds", 2), ("milliseconds", 2000), ("tokens_per_second", 32768)]
)
def test_times(tmp_path: Path, column: str, value: float) -> None:
    run = read(tmp_path, run=LINE, gpus=8, **{column: value})
    assert run.seconds == 2.0
    assert run.column == column


def test_devices_of_the_cluster_by_any_name(tmp_path: Path) -> None:
    for name in ("H100", "h100-80gb", "H100 80GB", ""):
        assert read(tmp_path, run=LINE, gpus=8, seconds=1, device=name).job == JOB


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"seconds": "1.5 s"}, "line 2: seconds: found '1.5 s', expected a positive number"),
        ({"seconds": "-1"}, "line 2: seconds: found '-1', expected a positive number"),
        ({"seconds": "0"}, "line 2: seconds: found '0', expected a positive number"),
        ({"seconds": "inf"}, "line 2: seconds: found 'inf', expected a positive number"),
        ({"seconds": ""}, "line 2: seconds: found '', expected a positive number"),
        ({"weight": "much"}, "line 2: weight: found 'much', expected a positive number"),
        ({"gpus": "7.5"}, "line 2: gpus: found '7.5', expected a positive whole number"),
        ({"run": ""}, "line 2: run: found nothing, expected a launch line"),
        ({"run": "none.sh"}, "line 2: run: found 'none.sh', which is no file here or beside"),
        ({"run": "--num-layrs 8"}, "line 2: "),
        ({"gpus": "64"}, "line 2: found a job of 64 GPUs, but cluster 'lab' has 16: expected "
         "count = 8 of its nodes"),
        ({"run": f"torchrun --nproc-per-node 8 pretrain_gpt.py {LINE}", "gpus": "4"},
         "line 2: gpus: found 4, expected 8 as the launch says"),
        ({"device": "A100"}, "line 2: device: found 'A100', but cluster 'lab' has 'H100'"),
    ],
)  # fmt: skip
def test_rows_that_cannot_be_used(tmp_path: Path, row: dict[str, str], says: str) -> None:
    path = table(tmp_path, {"run": LINE, "seconds": 1, "gpus": 8} | row)
    refused(path, says)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "found nothing, expected the columns run,seconds and a row per run"),
        ("\n \n", "found nothing, expected the columns"),
        ("run,seconds\n", "found a header and no rows, expected the columns"),
        ("run,second\na.sh,1\n", "column 'second': did you mean 'seconds'?"),
        ("run,name\na.sh,1\n", "found the columns run, name, expected run, one of seconds, mill"),
        ("seconds\n1\n", "found the columns seconds, expected run, one of seconds"),
        ("run,seconds,milliseconds\na.sh,1,1\n", "expected run, one of seconds, milliseconds"),
        ("run,run,seconds\na.sh,b.sh,1\n", "found the columns run, run, seconds, expected run"),
        ("run,seconds\na.sh\n", "line 2: found 1 fields, expected 2"),
        ('run,seconds\n"a.sh,1\n', "line 2: cannot be read as CSV"),
    ],
)
def test_tables_that_cannot_be_used(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(text)
    refused(path, says)


def test_no_table(tmp_path: Path) -> None:
    refused(tmp_path / "runs.csv", "no such file")


def test_plans_of_others(tmp_path: Path) -> None:
    saved = SAVED.with_name("layers-v2.json")
    refused(table(tmp_path, {"run": saved, "seconds": 1}), "found a plan without settings")


def refused(path: Path, says: str) -> None:
    with pytest.raises(PlannerError) as caught:
        read_runs(path, lab(h100()))
    assert str(caught.value).startswith(str(path))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)

"""Tables and JSON of loggers."""

import json
from pathlib import Path

import pytest

from ilp_planner.formats.logs import metrics as m
from ilp_planner.formats.logs.base import LogError, RunLog
from ilp_planner.formats.logs.read import read_log


def read(folder: Path, name: str, text: str, run: int | None = None) -> RunLog:
    path = folder / name
    path.write_text(text)
    found = read_log(path, run)
    assert isinstance(found, RunLog)
    return found


def test_lines_of_json(tmp_path: Path) -> None:
    rows = [
        {"_step": n, "train": {"step_time": 0.5}, "system.gpu.0.smClock": 1980} for n in range(3)
    ]
    text = "\n".join(map(json.dumps, rows)) + '\n{"_step": 9, "tr'
    found = read(tmp_path, "h.jsonl", text)
    assert found.seconds.tolist() == [0.5] * 3
    assert found.last(m.CLOCK) == 1.98e9
    assert "1 line without a whole object" in found.notes[0]


def test_a_table_of_wandb(tmp_path: Path) -> None:
    head = '"Step","run-7 - perf/step_time","run-7 - perf/step_time__MIN","run-7 - lr"\n'
    found = read(tmp_path, "w.csv", head + "0,0.5,0.1,9\n1,0.75,0.1,9\n")
    assert found.seconds.tolist() == [0.5, 0.75]


def test_a_table_of_two_runs(tmp_path: Path) -> None:
    text = "Step,a - step_time,b - step_time\n1,0.5,2\n2,0.5,2\n3,0.5,2\n"
    with pytest.raises(LogError, match=r"found 2 runs in one table \(a, b\).*`run_number=1`"):
        read(tmp_path, "two.csv", text)
    assert read(tmp_path, "two.csv", text, 2).seconds.tolist() == [2.0] * 3


def test_units_in_names(tmp_path: Path) -> None:
    assert read(tmp_path, "ms.csv", "step,step_time_ms\n1,500\n2,250\n").seconds.tolist() == [
        0.5,
        0.25,
    ]


def test_the_state_of_the_trainer(tmp_path: Path) -> None:
    history = [{"step": n, "loss": 2.0, "epoch": 0.1} for n in (10, 20)]
    history.append({"step": 20, "train_runtime": 30.0, "train_steps_per_second": 0.67})
    found = read(tmp_path, "trainer_state.json", json.dumps({"log_history": history}))
    assert found.count == 20
    assert found.seconds[-1] == pytest.approx(1.5)
    assert "nothing of single steps" in found.notes[0]


@pytest.mark.parametrize(
    "values", [{"1": 5.0, "5": 0.5, "10": 0.5}, {"1": 5.0, "2": "nan", "3": 0.5}]
)
def test_values_of_megatrons_tests(tmp_path: Path, values: dict[str, object]) -> None:
    said = {"iteration-time": {"start_step": 1, "end_step": 50, "values": values}}
    found = read(tmp_path, "golden_values.json", json.dumps(said))
    assert found.seconds[0] == 5.0
    assert found.seconds[-1] == 0.5


def test_values_in_a_list(tmp_path: Path) -> None:
    said = {"iteration-time": {"start_step": 0, "step_interval": 5, "values": [0.5, 0.25]}}
    assert read(tmp_path, "old.json", json.dumps(said)).steps.tolist() == [0, 5]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "found an empty file"),
        ("{}", "found JSON without steps"),
        ('{"a": ', "cannot be read as JSON"),
        ("a,b\n1,2\n", "found no step of a run"),
        ("step,loss\n1,2\n", "found one step alone"),
        ("model,step_time\na,2\nb,3\n", "found 2 rows that say no step, expected a column"),
    ],
)
def test_what_is_no_log(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(LogError, match=says):
        read(tmp_path, "x.json", text)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="no such file"):
        read_log(tmp_path / "none.log")

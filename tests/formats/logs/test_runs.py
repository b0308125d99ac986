"""Several runs in one file, restarts, and files with too little."""

from pathlib import Path

import pytest

from ilp_planner.formats.logs import metrics as m
from ilp_planner.formats.logs.base import LogError, Record, RunLog
from ilp_planner.formats.logs.runs import Found, log_of


def records(*steps: int, seconds: float = 1.0) -> list[Record]:
    return [Record(step, {m.SECONDS: seconds}, place) for place, step in enumerate(steps, 1)]


def log(found: list[Record], run: int | None = None) -> RunLog:
    return log_of(Found(title="a log", records=found), Path("x.log"), run)


def test_two_runs_in_one_file_are_refused_with_a_way_to_take_one() -> None:
    both = [*records(*range(1, 30), seconds=1.0), *records(*range(1, 20), seconds=2.0)]
    with pytest.raises(
        LogError, match=r"found 2 runs in one file .* `run_number=2` takes the last one"
    ):
        log(both)
    assert set(log(both, 1).seconds) == {1.0}
    assert set(log(both, 2).seconds) == {2.0}
    with pytest.raises(LogError, match="`run_number`: found 3, expected at most 2"):
        log(both, 3)


def test_a_restart_goes_on_and_counts_lost_steps() -> None:
    found = log(records(*range(1, 31), *range(21, 41)))
    assert found.steps.tolist() == list(range(1, 41))
    assert "began again at step 21" in found.notes[0]
    assert "10 records before it count as lost" in found.notes[0]


def test_one_step_is_no_measure() -> None:
    with pytest.raises(LogError, match="found one step alone"):
        log(records(5))


def test_no_steps() -> None:
    with pytest.raises(LogError, match="found no step"):
        log([])


def test_a_mean_of_several_steps_counts_as_many() -> None:
    found = log([Record(step, {m.SECONDS: 1.0}, mean=True) for step in (10, 20, 30)])
    assert found.weights.tolist() == [10, 10, 10]
    first = log([Record(step, {m.SECONDS: 1.0}, mean=True) for step in (1, 10, 20)])
    assert first.weights.tolist() == [1, 9, 10]


def test_seconds_follow_from_moments_or_from_samples() -> None:
    moments = log([Record(step, {m.TIME: 100.0 + 2 * step}) for step in (1, 2, 4)])
    assert moments.seconds[1:].tolist() == [2.0, 2.0]
    rates = log([Record(step, {m.SAMPLES_RATE: 32.0, m.BATCH: 64.0}) for step in (1, 2)])
    assert rates.seconds.tolist() == [2.0, 2.0]

"""Hybrids that were published: each is predicted, or refused for a named reason."""

from statistics import median

import pytest

from ilp_planner.job.memory import rank_memory
from ilp_planner.specs.machine import Machine
from tests.benchmarks import hybrids, published
from tests.benchmarks.published import DATA, gpu
from tests.benchmarks.step_times import seconds, shipped


def test_every_row_is_predicted_or_refused_by_name():
    every = hybrids.rows()
    refused = [row for row in every if row["model"] in hybrids.REFUSED]
    assert len(every) == 55
    assert len(refused) + len(hybrids.runs()) == len(every)
    assert len(refused) == 5


def test_the_rate_of_scans_is_that_of_the_median_row():
    off = [hybrids.ratio(run, Machine().scan) for run in hybrids.newest(hybrids.runs())]
    assert median(off) == pytest.approx(1.0, abs=0.01)


def test_runs_are_those_of_shared_data():
    """Given rows of Nemotron 3 Nano are among those of the page, within 15 %, and they fit."""
    if not DATA.is_dir():
        pytest.skip(f"no {DATA}")
    given = [row for row in published.rows() if "hybrid" in row["model"]]
    nano = [run for run in hybrids.runs() if run.model == "nemotron_3_nano"]
    assert len(given) == 15
    for row in given:
        same = [run for run in nano if run.gpu == row["device"]]
        run = min(same, key=lambda run: abs(run.seconds - row["step_time_s"]))
        assert run.seconds == pytest.approx(row["step_time_s"], rel=2e-3)
        assert seconds(run, shipped(run)) == pytest.approx(row["step_time_s"], rel=0.15)
        assert rank_memory(run.job, 0).needed < gpu(run.gpu).memory

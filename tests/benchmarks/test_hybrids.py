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
    unknown = [row for row in refused if hybrids.REFUSED[row["model"]] == hybrids.UNKNOWN]
    assert len(unknown) == 3
    assert {row["model"] for row in refused if row not in unknown} == {"deepseekv4 flash"}


ASKED = 0.15  # relative error
BEYOND = {  # group -> its error with the rate of scans that the other model's runs tell
    "nemotron_3_super GB300 nvfp4 tp 1 ep 64": -0.167,
    "nemotron_3_super B300 mxfp8 tp 1 ep 8": -0.192,
    "nemotron_3_super B300 nvfp4 tp 1 ep 8": -0.236,
}


@pytest.mark.slow
def test_newest_rows_are_within_what_is_asked_but_for_those_of_the_manual():
    each = {run.group: error for run, _, error in hybrids.left_out()}
    assert len(each) == 13
    beyond = {group: error for group, error in each.items() if abs(error) > ASKED}
    assert beyond == pytest.approx(BEYOND, abs=2e-3)


def test_rows_of_all_releases_by_the_rate_that_ships():
    off = [hybrids.ratio(run, Machine().scan) - 1 for run in hybrids.runs()]
    assert (len(off), sum(abs(error) <= ASKED for error in off)) == (50, 42)


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

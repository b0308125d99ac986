"""Injected causes are named first, and none in healthy runs; their words are no part of it."""

from pathlib import Path

import pytest

from ilp_planner.analysis.doctor.doctor import ROWS, diagnose
from ilp_planner.formats.logs.base import RunLog
from ilp_planner.formats.logs.read import read_log
from tests.benchmarks.doctor import first_cause, half
from tests.benchmarks.doctor_logs import HEALTHY, MADE, WELL, Made, judge_of
from tests.examples import thinned

CASES = {made.name: made for made in (*MADE, *WELL)}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", list(thinned(list(CASES), 3)))
def test_the_injected_cause_is_named_first(tmp_path: Path, name: str) -> None:
    made = CASES[name]
    assert first_cause(made.into(tmp_path, 99), made.job) == made.cause


def test_every_cause_is_injected() -> None:
    # Settings have no row, and one row tells a slow link and no overlap.
    assert {row.name for row in ROWS} | {"flag", "overlap"} == {made.cause for made in MADE}
    assert {made.cause for made in WELL} == {HEALTHY}
    assert len(MADE) >= 20


@pytest.mark.slow
@pytest.mark.parametrize("name", ["straggler", "clocks by timers", "slow link by timers"])
def test_seconds_of_causes_are_near_what_was_injected(tmp_path: Path, name: str) -> None:
    """The cause explains most of what its run takes longer than one without the fault."""
    from dataclasses import replace

    from tests.benchmarks.doctor_logs import Fault, run_of

    made: Made = CASES[name]
    log = read_log(made.into(tmp_path, 5))
    assert isinstance(log, RunLog)
    cause = diagnose([log], judge_of(made.job)).causes[0]
    well = run_of(made.job, replace(made.fault, rank=1.0, kernels=1.0, links=1.0), 60, 5)
    ill = run_of(made.job, made.fault, 60, 5)
    lost = float(ill.seconds[1:].mean() - well.seconds[1:].mean())
    assert well.fault == Fault()
    assert cause.seconds == pytest.approx(lost, rel=0.4)


def test_half_a_fault_is_less_of_it() -> None:
    made = half(CASES["straggler"])
    assert made is not None
    assert made.fault.rank == pytest.approx(1.1)
    assert half(CASES["a flag"]) is None

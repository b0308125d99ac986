"""What a search knew from moment to moment is kept, each improvement once."""

from itertools import pairwise
from pathlib import Path

import pytest

from ilp_planner.base.deadline import Deadline
from ilp_planner.optimize.solve import MOST, Recorder, solve
from tests.small import make_problem


def test_what_is_no_news_is_not_kept_and_all_is_told() -> None:
    told: list[tuple[float, float]] = []
    recorder = Recorder(lambda *both: told.append(both), Deadline(10))
    for both in ((3.0, 1.0), (3.0, 1.0), (2.0, 1.0), (2.0, 2.0)):
        recorder(*both)
    assert [moment[1:] for moment in recorder.moments] == [(3.0, 1.0), (2.0, 1.0), (2.0, 2.0)]
    assert len(told) == 4


def test_many_moments_are_thinned_out_from_the_first_to_the_last() -> None:
    recorder = Recorder(None, Deadline(10))
    last = 10 * MOST
    for bound in range(last + 1):
        recorder.keep(1e9, float(bound))
    kept = [moment.bound for moment in recorder.moments]
    assert MOST / 2 <= len(kept) <= MOST
    assert (kept[0], kept[-1]) == (0.0, last)
    assert kept == sorted(kept)


@pytest.mark.parametrize("solver", ["auto", "gradient"])
def test_the_history_of_a_solve_ends_with_its_result(tmp_path: Path, solver: str) -> None:
    result = solve(make_problem(tmp_path), solver=solver)
    assert result.history
    assert result.history[-1][1:] == (result.objective, result.bound)
    for before, after in pairwise(result.history):
        assert before.after <= after.after
        assert before.objective >= after.objective

"""The saved plans in solutions/ are still what they claim to be."""

from pathlib import Path

import pytest

from ilp_planner.evaluate import evaluate
from ilp_planner.formats.saved_json import read_saved
from ilp_planner.formats.saved_problem import problem_of

ROOT = Path(__file__).parents[1]
SOLUTIONS = sorted((ROOT / "solutions").glob("*.json"))
DATABASE = ROOT.parent / "shared" / "data" / "aceso"


def test_there_are_solutions():
    assert SOLUTIONS


@pytest.mark.skipif(not DATABASE.exists(), reason="Aceso's profiles are not in ../shared")
@pytest.mark.parametrize("file", SOLUTIONS, ids=[file.stem for file in SOLUTIONS])
def test_a_saved_plan_is_legal_and_takes_the_time_it_claims(file):
    saved = read_saved(file)
    problem = problem_of(saved, file)
    judged = evaluate(problem, saved.plan)
    assert judged.legal
    assert judged.iteration_time == pytest.approx(saved.claim.objective, rel=1e-9)
    assert saved.claim.bound <= judged.iteration_time * (1 + 1e-9)

"""The saved plans in solutions/ are still what they claim to be."""

from pathlib import Path

import pytest

from ilp_planner.formats.saved_check import judge_saved
from ilp_planner.formats.saved_json import read_saved
from ilp_planner.formats.saved_problem import problem_of

ROOT = Path(__file__).parents[1]
SOLUTIONS = sorted((ROOT / "solutions").glob("*.json"))
DATABASE = ROOT.parent / "shared" / "data" / "aceso"


def test_there_are_solutions():
    assert SOLUTIONS


@pytest.mark.skipif(not DATABASE.exists(), reason="Aceso's profiles are not in ../shared")
@pytest.mark.parametrize("file", SOLUTIONS, ids=[file.stem for file in SOLUTIONS])
def test_a_saved_plan_is_legal_takes_the_time_it_claims_and_has_a_proof(file):
    saved = read_saved(file)
    judged = judge_saved(problem_of(saved, file), saved, certificate=True)
    assert not judged.faults
    assert judged.evaluation.legal
    assert judged.evaluation.iteration_time == pytest.approx(saved.claim.objective, rel=1e-9)
    assert judged.certificate.holds
    assert judged.certificate.bound >= saved.claim.bound * (1 - 1e-9)
    assert judged.certificate.bound <= judged.evaluation.iteration_time * (1 + 1e-9)

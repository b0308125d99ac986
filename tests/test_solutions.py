"""The saved plans in solutions/ are what they claim to be, and so are those of before."""

from pathlib import Path

import pytest

from ilp_planner.base.units import parse_size
from ilp_planner.formats.saved_check import Judgement, judge_saved
from ilp_planner.formats.saved_json import read_saved
from ilp_planner.formats.saved_problem import problem_of
from tests.benchmarks.cases import CASES, DATA, Case
from tests.benchmarks.solutions import KEPT, file_of

ROOT = Path(__file__).parents[1]
SOLUTIONS = sorted((ROOT / "solutions").glob("*.json"))
BEFORE = sorted((ROOT / "tests" / "formats" / "saved" / "solutions").glob("*.json"))
# Whose proof takes seconds to check.
LONG = {"t5-3b--v100-1x4", "t5-770m--v100-1x4-12gb", "scale-layer-64--v100-1x8"}
LONG_CASES = [case for case in KEPT if file_of(case).stem in LONG]
needs_data = pytest.mark.skipif(not DATA.exists(), reason="Aceso's profiles are not in ../shared")


@pytest.fixture(autouse=True)
def in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths of profiles begin here."""
    monkeypatch.chdir(ROOT)


def judge(file: Path, *, certificate: bool) -> Judgement:
    """Judge a plan, with its certificate where that is asked for."""
    saved = read_saved(file)
    return judge_saved(problem_of(saved, file), saved, certificate=certificate)


def judged(file: Path) -> Judgement:
    """Judge a plan with its certificate: it is legal, and its proof holds."""
    found = judge(file, certificate=True)
    assert not found.faults
    assert found.evaluation.legal
    assert found.saved.claim is not None
    assert found.certificate is not None
    assert found.certificate.holds
    assert found.certificate.bound >= found.saved.claim.bound * (1 - 1e-9)
    assert found.certificate.bound <= found.evaluation.iteration_time * (1 + 1e-9)
    return found


def test_there_is_a_solution_of_every_case() -> None:
    assert {file_of(case) for case in KEPT} == set(SOLUTIONS)
    assert {file.name for file in BEFORE} == {file.name for file in SOLUTIONS}
    assert len(KEPT) == len(CASES) - 1  # a plan of 1024 layers is a large file


@pytest.mark.few(2)
@needs_data
@pytest.mark.parametrize("case", KEPT, ids=lambda case: case.name)
def test_a_solution_is_of_its_case_and_proved(case: Case) -> None:
    file = file_of(case)
    check_case(case, judged(file) if file.stem not in LONG else judge(file, certificate=False))


@pytest.mark.slow
@needs_data
@pytest.mark.parametrize("case", LONG_CASES, ids=lambda case: case.name)
def test_a_long_proof_holds(case: Case) -> None:
    check_case(case, judged(file_of(case)))


def check_case(case: Case, found: Judgement) -> None:
    """The plan is legal, of the case, and takes the time that was saved, which is the optimum."""
    assert not found.faults
    assert found.evaluation.legal
    problem = found.problem
    assert (problem.model, problem.cluster.name) == (case.model, case.cluster)
    assert problem.global_batch == case.global_batch
    assert set(problem.memory_limits.values()) == {parse_size(case.memory)}
    assert found.saved.claim is not None
    assert found.saved.claim.gap == 0
    assert found.evaluation.iteration_time == pytest.approx(found.saved.claim.objective, rel=1e-9)


@pytest.mark.few(2)
@needs_data
@pytest.mark.parametrize(
    "file",
    [
        pytest.param(file, id=file.stem, marks=[pytest.mark.slow] * (file.stem in LONG))
        for file in BEFORE
    ],
)
def test_a_solution_of_before_takes_the_time_it_was_saved_with(file: Path) -> None:
    """To the digit, by the cluster that it was saved with."""
    found = judged(file)
    assert found.saved.claim is not None
    assert found.evaluation.iteration_time == found.saved.claim.objective
    assert found.problem.cluster.device.memory == 32 * 2**30

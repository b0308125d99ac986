"""Some of each trial of the checker; the suite `checked-trials` of `tests.benchmarks` runs all."""

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ilp_planner.checker import checker
from tests.checker.claims import REFUSED, TRUE, claim_of, outcome
from tests.checker.instances import SPACES
from tests.checker.trials import bounds, edits, file_of, with_plan
from tests.examples import everything, often

every_space = pytest.mark.parametrize("space", SPACES)
# One engine makes the files of all training runtimes: those of Megatron-LM stand for them.
most_spaces = pytest.mark.parametrize(
    "space", often(SPACES, *(name for name in SPACES if name not in ("torchtitan", "deepspeed")))
)
FIRST = 10**6  # seeds that no slice of the benchmark has
# Seeds whose bounds were above the optimum once: where a single operator takes too long, the stages
# that end before it were left out together with longer ones that end elsewhere.
ABOVE = {"operators": (572,)}


def seeds(few: int, many: int) -> int:
    """Return how many seeds are tried."""
    return many if everything() else few


@pytest.mark.few(3)
@every_space
def test_no_bound_of_an_instance_is_above_the_optimum_of_enumeration(space: str) -> None:
    found = bounds(space, FIRST, seeds(4, 20))
    assert not found["above"]
    assert found["instances"]


@pytest.mark.parametrize(("space", "seed"), [(k, x) for k, of in ABOVE.items() for x in of])
def test_no_bound_is_above_the_optimum_where_one_was(space: str, seed: int) -> None:
    assert not bounds(space, seed, 1)["above"]


@pytest.mark.few(3)
@most_spaces
def test_no_edit_proves_more_without_a_word_or_ends_in_a_traceback(space: str) -> None:
    found = edits(space, FIRST, seeds(20, 300), bases=seeds(1, 8))
    assert not found["accepted"]
    assert not found["broken"]
    assert found["edits"] == seeds(20, 300)


@pytest.mark.few(3)
@every_space
def test_a_claim_is_true_unless_its_file_says_otherwise(space: str) -> None:
    """So that counts of mistakes count what is false."""
    seed = with_plan(space, 0).seed
    record = claim_of(space, seed)
    assert outcome(space, seed, record) == TRUE
    for part, key in (("result", "objective_s"), ("evaluation", "iteration_time_s")):
        slower = copy.deepcopy(record)
        slower[part][key] *= 1.01
        assert outcome(space, seed, slower) == REFUSED
    higher = copy.deepcopy(record)
    higher["result"]["bound_s"] *= 1.01
    higher["certificate"]["independent"]["bound_s"] *= 1.01
    assert outcome(space, seed, higher) == REFUSED


@pytest.mark.slow
@every_space
def test_no_mistake_makes_a_false_claim_that_is_not_noticed(space: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.checker", "mistakes", space, str(FIRST), "8"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "missed" not in json.loads(done.stdout)


# ---- bad files -----------------------------------------------------------------------------------

PROOF = ("certificate", "independent")
GONE = object()
BAD: tuple[tuple[tuple[Any, ...], Any, str], ...] = (
    ((*PROOF, "cases"), [], "missing"),
    ((*PROOF, "version"), 0, "version: found 0, expected"),
    ((*PROOF, "version"), 3, "version: found 3, expected"),
    ((*PROOF, "bound_s"), "1", "bound_s: found '1', expected a number"),
    ((*PROOF, "bound_s"), -1, "bound_s: found -1, expected a number from 0"),
    ((*PROOF, "bound_s"), GONE, "bound_s: missing"),
    ((*PROOF, "set"), GONE, "set: missing"),
    ((*PROOF, "set", "global_batch"), None, "global_batch: found None, expected a whole number"),
    ((*PROOF, "set", "global_batch"), 10**30, "global_batch: found 1000000"),
    ((*PROOF, "table"), [], "table: found a list of 0, expected an object"),
    (("plan", "stages"), {}, "stages: found an object of 0, expected a list"),
)


@pytest.mark.few(3)
@most_spaces
def test_what_is_wrong_in_a_file_is_said_in_one_line(
    space: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, file = file_of(with_plan(space, 0), 1.0), tmp_path / "plan.json"
    for path, value, said in BAD:
        record = copy.deepcopy(whole)
        inner: Any = record
        for key in path[:-1]:
            inner = inner[key]
        if value is GONE:
            del inner[path[-1]]
        else:
            inner[path[-1]] = value
        file.write_text(json.dumps(record))
        assert checker.main([str(file)]) == 1
        out, told = capsys.readouterr()
        assert not out
        assert told.count("\n") == 1
        assert said in told, (path, told)
    deep = json.dumps(whole).replace('"cases": [', '"cases": [' + "[" * 50_000, 1)
    file.write_text(deep)
    assert checker.main([str(file)]) == 1
    assert capsys.readouterr().err.count("\n") == 1

"""The fixed part of `make fuzz`: the first inputs, the same on every machine."""

from pathlib import Path

import pytest

from tests.fuzz.__main__ import made, outcome
from tests.fuzz.readers import READERS, run, seeds

INPUTS = 25  # of each reader
KEPT = sorted((Path(__file__).parent / "inputs").iterdir())


@pytest.mark.few(13)
@pytest.mark.parametrize("name", READERS)
def test_hostile_inputs_are_read_or_refused(name: str) -> None:
    first = list(READERS).index(name)
    numbers = range(first, first + INPUTS * len(READERS), len(READERS))
    assert {made(number)[0] for number in numbers} == {name}
    ends = {number: outcome(number)[1] for number in numbers}
    assert set(ends.values()) <= {"read", "refused"}, ends


@pytest.mark.parametrize("name", READERS)
def test_the_examples_themselves_are_read(name: str) -> None:
    """Or mutants of them would all be refused for the same reason."""
    assert "read" in {run(name, data) for data in seeds(name)[:8]}


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.name)
def test_inputs_that_failed_once_are_read_or_refused(path: Path) -> None:
    """Their names begin with that of the reader."""
    assert run(path.name.partition("--")[0].replace("-", " "), path.read_bytes()) in (
        "read",
        "refused",
    )

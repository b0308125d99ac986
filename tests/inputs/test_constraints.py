"""Constraints are read from numbers, texts and lists, and written as they are read."""

from pathlib import Path

import pytest
from hypothesis import given

from ilp_planner.base.errors import SpecError, UsageError
from ilp_planner.inputs.constraints import ANY, Constraints, constraints_of
from ilp_planner.inputs.constraints_file import read_constraints
from ilp_planner.settings.domains import Numbers
from tests.formats.saved_cases import constraints


@given(made=constraints())
def test_texts_are_read_back(made: Constraints) -> None:
    assert constraints_of(made.texts) == made


@pytest.mark.parametrize(
    ("said", "numbers"),
    [
        (4, {4}),
        ("4", {4}),
        ("2, 4", {2, 4}),
        ([2, 4], {2, 4}),
        ("2..4", {2, 3, 4}),
        (range(2, 5), {2, 3, 4}),
        ("1,3..4", {1, 3, 4}),
    ],
)
def test_degrees(said: object, numbers: set[int]) -> None:
    tp = constraints_of({"tp": said}).tp
    assert isinstance(tp, Numbers)
    assert {number for number in range(10) if number in tp} == numbers
    assert tp.most == max(numbers)


def test_nothing_said_allows_everything() -> None:
    assert constraints_of({"tp": None, "without": []}) == ANY
    assert ANY.allows("tp", 7)
    assert ANY.texts == {}
    assert ANY.describe() == ""


def test_other_names_of_recomputation() -> None:
    asked = constraints_of({"recompute": "uniform,core_attn"})
    assert asked.recompute == ("full", "core_attn")
    assert asked.describe() == "recompute full or core_attn"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("tp", 0, "tp: found '0', expected a whole number of at least 1, a list as 2,4 or a range"),
        ("tp", 1.5, "tp: found 1.5, expected a whole number"),
        ("tp", True, "tp: found True, expected a whole number"),
        ("pp", "2..", "pp: found '2..', expected"),
        ("pp", "8..2", r"pp: found '8..2', expected the smaller number first: 2..8"),
        ("rank_order", "dp", "rank_order: found 'dp', expected some of tp-cp-ep-dp-pp"),
        ("recompute", "all", "recompute: found 'all', expected some of none, selective, full"),
        ("max_devices", "2,4", "max_devices: found '2,4', expected a whole number of at least 1"),
        ("without", "", "without: found '', expected nodes by number, as 3 or node3"),
        ("headroom", "3", "headroom: must have a unit"),
        ("headroom", 0, "headroom: found 0, expected bytes, or a size with its unit"),
    ],
)
def test_what_cannot_be_one(name: str, value: object, words: str) -> None:
    with pytest.raises(UsageError, match=f"^{words}"):
        constraints_of({name: value})


def test_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('[constraints]\ntp = 4\npp = "2..8"\ndp = [1, 2]\nheadroom = "2 GiB"\n')
    assert read_constraints(file).texts == {
        "tp": "4",
        "pp": "2..8",
        "dp": "1,2",
        "headroom": "2 GiB",
    }
    for text, words in (
        ("[constraints]\ntpp = 4", "unknown key 'tpp'"),
        ("[constraints]\ntp = 0", "constraints.tp: found '0', expected a whole number"),
        ("tp = 4", "unknown key 'tp'"),
    ):
        file.write_text(text)
        with pytest.raises(SpecError, match=f"mine.toml: .*{words}"):
            read_constraints(file)

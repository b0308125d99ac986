"""Demands in one text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.errors import UsageError
from ilp_planner.inputs.demand import demanded, names_plan


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tp=8", {"tp": "8"}),
        ("--tp = 8", {"tp": "8"}),
        ("tp=2,4 recompute=none", {"tp": "2,4", "recompute": "none"}),
        ("pp=2..4; rank-order=tp-cp-ep-pp-dp", {"pp": "2..4", "rank_order": "tp-cp-ep-pp-dp"}),
        ("layout=Et*10|t*11|t*11L tp=2", {"layout": "Et*10|t*11|t*11L", "tp": "2"}),
        ("headroom=2 GiB", {"headroom": "2 GiB"}),
    ],
)
def test_demands_are_constraints(text: str, said: dict[str, str]) -> None:
    assert demanded(text, "--not").texts == {**said}


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("tpx=8", "--not: found 'tpx', expected tp", 0),
        ("tp=8 banana=2", "found 'banana', expected one of tp, pp", 5),
        ("tp 8", "found '8' after tp, expected =", 3),
        ("tp>=8", "found '>' after tp, expected =", 2),
        ("tp", "found the end after tp, expected =", 2),
        ("tp=", "found nothing after tp=, expected a value", 3),
        ("pp=2 tp=x", "tp: found 'x', expected a whole number", 8),
        ("tp=8 tp=4", "found tp a second time, expected each name once", 5),
        ("=8", "found '=', expected NAME=VALUE", 0),
        ("", "found nothing, expected NAME=VALUE", 0),
    ],
)
def test_mistakes_are_marked(text: str, message: str, place: int) -> None:
    with pytest.raises(UsageError) as caught:
        demanded(text, "--not")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    shown, mark = caught.value.excerpt.split("\n")
    assert shown == f"  {text}"
    assert mark == " " * (2 + place) + "^"


@given(st.text(alphabet="tp=8, ;.-x\x1b\n\u0301|", max_size=20))
def test_any_text_is_read_or_marked(text: str) -> None:
    try:
        assert demanded(text, "--not").texts
    except UsageError as error:
        shown, mark = error.excerpt.split("\n")
        assert shown.isprintable()
        assert len(mark) <= len(shown) + 1


@pytest.mark.parametrize(
    ("text", "plan"),
    [
        ("tp=8", False),
        ("tp 8", False),
        ("layout=1.2", False),
        ("other.json", True),
        ("some/run", True),
        ("aceso:config", True),
    ],
)
def test_files_are_told_from_demands(text: str, plan: bool) -> None:
    assert names_plan(text) is plan

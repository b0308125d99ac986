"""What the table of growth in docs/benchmarks/speed.md says of runs."""

from typing import Any

import pytest

from tests.benchmarks import growth

LAYERS = growth.CASES[3].name


def cells_of(case: str, **found: Any) -> list[str]:
    """Return the row of a case."""
    row = {"case": case, "limit_s": 90.0, "gap": 0.0, "wall_s": 12.34, "cpu_s": 20.06}
    (cells,) = growth.table([row | {"peak_mib": 900.4} | found]).splitlines()[2:]
    return [cell.strip() for cell in cells.split("|")[1:-1]]


def test_a_gap_that_was_reached_says_when() -> None:
    assert cells_of(LAYERS) == [LAYERS, "0", "30", "12.3", "0", "20.1", "900 of 1024"]


@pytest.mark.parametrize(("gap", "text"), [(0.02, "2.00 %"), (None, "no plan")])
def test_a_gap_that_was_not_reached_says_in_which_time(gap: float | None, text: str) -> None:
    assert cells_of(LAYERS, gap=gap)[3:5] == ["not in 90", text]


def test_a_gap_is_one_of_the_case() -> None:
    """One percent is enough for thousands of devices, not for a thousand layers."""
    first = growth.CASES[0]
    assert cells_of(first.name, gap=0.009)[3] == "12.3"
    assert cells_of(LAYERS, gap=0.009)[3] == "not in 90"


def test_limits_are_above_what_is_asked() -> None:
    assert all(case.limit(None) > case.asked for case in growth.CASES)
    assert {case.limit(7.0) for case in growth.CASES} == {7.0}
    assert len({case.name for case in growth.CASES}) == len(growth.CASES)

"""What the table of growth in docs/benchmarks/speed.md says of runs."""

from typing import Any

import pytest

from tests.benchmarks import growth

LAYERS = growth.CASES[3].name


def cells_of(case: str, before: float | None = 0.0, **found: Any) -> list[str]:
    """Return the row of a case. before: the gap of the older commit; None: it was not run."""
    row = {"case": case, "loop_s": 0.52, "limit_s": 90.0, "gap": 0.0, "wall_s": 12.34}
    row |= {"cpu_s": 20.06, "peak_mib": 900.4}
    row |= {"before": None if before is None else {"gap": before, "cpu_s": 40.12}}
    (cells,) = growth.table([row | found]).splitlines()[2:]
    return [cell.strip() for cell in cells.split("|")[1:-1]]


def test_a_gap_that_was_reached_says_when() -> None:
    told = [LAYERS, "0.5", "0", "30", "12.3", "0", "20.1", "0", "40.1", "0.50", "900 of 1024"]
    assert cells_of(LAYERS) == told


@pytest.mark.parametrize(("gap", "text"), [(0.02, "2.00 %"), (None, "no plan")])
def test_a_gap_that_was_not_reached_says_in_which_time(gap: float | None, text: str) -> None:
    cells = cells_of(LAYERS, gap=gap)
    assert cells[4:6] == ["not in 90", text]
    assert cells[9] == "-"


def test_a_share_is_at_most_that_if_the_older_commit_did_not_reach_the_gap() -> None:
    assert cells_of(LAYERS, 0.01)[7:10] == ["1.00 %", "40.1", "≤ 0.50"]


def test_nothing_is_said_of_an_older_commit_that_was_not_run() -> None:
    assert cells_of(LAYERS, None)[7:10] == ["-", "-", "-"]


def test_a_gap_is_one_of_the_case() -> None:
    """One percent is enough for thousands of devices, not for a thousand layers."""
    first = growth.CASES[0]
    assert cells_of(first.name, gap=0.009)[4] == "12.3"
    assert cells_of(LAYERS, gap=0.009)[4] == "not in 90"


def test_limits_are_above_what_is_asked() -> None:
    assert all(case.limit(None) > case.asked for case in growth.CASES)
    assert {case.limit(7.0) for case in growth.CASES} == {7.0}
    assert len({case.name for case in growth.CASES}) == len(growth.CASES)

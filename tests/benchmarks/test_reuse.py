"""What the tables of saved plans and of sweeps say of runs."""

from typing import Any

import pytest

from tests.benchmarks import reuse


def cells_of(table: str) -> list[str]:
    """Return the cells of the one row of a table."""
    (row,) = table.splitlines()[2:]
    return [cell.strip() for cell in row.split("|")[1:-1]]


def solved(cpu: float, seconds: float | None = 2.0, note: str = "", code: int = 0) -> Any:
    """Return what a solve took and found."""
    found = {"objective_s": seconds, "gap": 0.0, "note": note, "exit_code": code}
    return {"cpu_s": cpu, "wall_s": cpu, **found}


@pytest.mark.parametrize(
    ("warm", "told"),
    [
        (solved(1.0, note=": bounds, not derived again"), ["10 %", "10 %", "the plan, bounds"]),
        (solved(2.0, note=", which is none here"), ["20 %", "10 %", "a plan like it"]),
        (solved(5.0), ["50 %", "10 %", "nothing"]),
    ],
)
def test_a_warm_solve_is_a_share_of_the_cold_one(warm: Any, told: list[str]) -> None:
    row = {"case": "small", "changes": [{"change": "more", "cold": solved(10.0), "warm": warm}]}
    found = cells_of(reuse.warm_table([row]))
    assert found[:3] == ["small", "more", "10.0"]
    assert found[4:] == [*told, "the same"]


def test_answers_that_differ_are_told() -> None:
    assert reuse.answer(solved(1.0), solved(1.0, 2.1)) == "+5.000 %, gaps 0.00 and 0.00 %"
    assert reuse.answer(solved(1.0, None, code=3), solved(1.0, None, code=3)) == "no plan"
    assert reuse.answer(solved(1.0, None, code=3), solved(1.0)) == "differs"


def test_points_are_told_by_their_processors_time() -> None:
    row = {"case": "small", "points": 2000, "wall_s": 3.0, "cpu_s": 5.0}
    assert cells_of(reuse.pinned_table([row])) == ["small", "2,000", "3.0", "5.0", "2.5", "2"]
    alike = {"case": "price", "together": {"points": 4, "cpu_s": 6.0}, "alone_cpu_s": 12.0}
    assert cells_of(reuse.sweep_table([alike])) == ["price", "4", "12.0", "6.0", "0.50"]

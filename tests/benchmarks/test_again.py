"""What the table of recomputation in docs/benchmarks/speed.md says of runs."""

from typing import Any

from tests.benchmarks import again


def run(seconds: float | None, gap: float | None, cpu: float) -> dict[str, Any]:
    """Return what is kept of a solve."""
    return {"wall_s": 1.0, "objective_s": seconds, "gap": gap, "cpu_s": cpu}


def cells(row: dict[str, Any]) -> list[str]:
    return [cell.strip() for cell in again.SUITE.table([row]).splitlines()[-1].split("|")[1:-1]]


def test_a_row_has_both_plans_and_what_the_searches_take() -> None:
    row = {"case": "x y", "none": run(2.0, 0.0, 3.04), "any": run(1.5, 0.0125, 7.0)}
    assert cells(row) == ["x y", "2.000", "0", "3.0", "1.500", "1.25 %", "7.0", "25.00 %"]


def test_a_plan_that_there_is_only_with_recomputation() -> None:
    row = {"case": "x", "none": run(None, None, 1.0), "any": run(1.5, 0.0, 2.0)}
    assert cells(row) == ["x", "no plan", "-", "1.0", "1.500", "0", "2.0", "-"]

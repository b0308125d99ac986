"""What the tables of docs/benchmarks/speed.md say of runs."""

from typing import Any

from tests.benchmarks import anytime


def run_of(plans: list[tuple[float, float]], wall: float = 3.0) -> dict[str, Any]:
    """Return a run with plans, (seconds at which it came, its seconds) each."""
    return {"wall_s": wall, "exit_code": 0, "plans": plans, "bound_at_s": 0.7, "bound_s": 9.0}


def test_the_first_and_the_first_good_plan_are_told_apart() -> None:
    runs = {"10.0": run_of([(0.5, 15.0), (1.5, 10.1), (2.0, 10.0)])}
    row = {"case": "small", "devices": 8, "runs": runs}
    cells = anytime.table([row]).splitlines()[-1].split("|")[1:-1]
    expected = ["`small`", "0.5", "1.5", "50.00 %", "0.7", "1.5", "10.00 %", "3.0"]
    assert [cell.strip() for cell in cells] == expected


def test_a_run_without_a_plan_has_none() -> None:
    row = {"case": "large", "devices": 2048, "runs": {"10.0": run_of([]), "1.0": run_of([], 1.2)}}
    cells = anytime.table([row]).splitlines()[-1].split("|")[1:-1]
    assert [cell.strip() for cell in cells][1:4] == ["-", "3.0", "-"]
    limits = anytime.limits_table([row]).splitlines()
    assert limits[2].split("|")[2].strip() == "1.55"
    assert limits[3].split("|")[2].strip() == "1.20"

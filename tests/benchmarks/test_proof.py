"""What the table of proofs in docs/benchmarks/speed.md says of runs."""

from typing import Any

from tests.benchmarks import proof


def run_of(cpu: float, wall: float, gap: float | None = 0.0) -> dict[str, Any]:
    """Return the figures of a run."""
    return {"cpu_s": cpu, "wall_s": wall, "gap": gap, "peak_mib": 300.4}


def test_seconds_are_shares_of_those_before_and_of_one_core() -> None:
    row = {
        "case": "small",
        "loop_s": 1.04,
        "before": run_of(20.0, 20.0, 0.012),
        "one core": run_of(10.0, 10.0),
        "two cores": run_of(12.0, 6.0) | {"peak_mib": 350.0},
    }
    (cells,) = proof.table([row]).splitlines()[2:]
    told = [cell.strip() for cell in cells.split("|")[1:-1]]
    assert told[:4] == ["`small`", "1.0", "20.0", "1.20 %"]
    assert told[4:] == ["10.0", "0", "0.50", "6.0", "0.30", "0.60", "350"]


def test_a_run_without_a_plan_has_no_gap() -> None:
    assert proof.gap_of(run_of(1.0, 1.0, None)) == "no plan"
    assert proof._median([run_of(1.0, 1.0), run_of(3.0, 2.0, None)])["gap"] is None
    assert proof._median([run_of(1.0, 1.0), run_of(3.0, 2.0)])["cpu_s"] == 2.0


def test_recipes_with_little_time_say_what_is_left() -> None:
    row = {"case": "small", "loop_s": 0.71, **run_of(12.0, 14.96, 0.098)}
    (cells,) = proof.soon_table([row]).splitlines()[2:]
    told = [cell.strip() for cell in cells.split("|")[1:-1]]
    assert told == ["`small`", "0.7", "15.0", "9.80 %", "300"]

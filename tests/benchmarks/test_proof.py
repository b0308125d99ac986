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
    assert told[4:] == ["10.0", "0", "≤ 0.50", "6.0", "≤ 0.30", "0.60", "350"]


def test_shares_are_of_runs_that_ended() -> None:
    own, ended, open_ = run_of(1.0, 1.0), run_of(4.0, 4.0), run_of(4.0, 4.0, 0.01)
    assert proof.share_of(own, ended, "cpu_s") == "0.25"
    assert proof.share_of(own, open_, "cpu_s") == "≤ 0.25"
    assert proof.share_of(open_, ended, "cpu_s") == "-"


def test_a_run_without_a_plan_has_no_gap() -> None:
    assert proof.gap_of(run_of(1.0, 1.0, None)) == "no plan"
    assert proof._median([run_of(1.0, 1.0), run_of(3.0, 2.0, None)])["gap"] is None
    assert proof._median([run_of(1.0, 1.0), run_of(3.0, 2.0)])["cpu_s"] == 2.0


def test_recipes_with_little_time_say_what_is_left() -> None:
    row = {"case": "small", "loop_s": 0.71, **run_of(12.0, 14.96, 0.098)}
    (cells,) = proof.soon_table([row]).splitlines()[2:]
    told = [cell.strip() for cell in cells.split("|")[1:-1]]
    assert told == ["`small`", "0.7", "15.0", "9.80 %", "300"]


def test_sets_of_nodes_say_what_they_cost_and_what_the_bound_covers() -> None:
    among = "plans with tp 1, 2; every device used; on 1-25, 31-32 of these 32 nodes"
    row = {"case": "small", "loop_s": 0.71, "among": among}
    row |= {"all": run_of(4.0, 4.0), "any": run_of(5.0, 5.0)}
    (cells,) = proof.nodes_table([row]).splitlines()[2:]
    told = [cell.strip() for cell in cells.split("|")[1:-1]]
    assert told == ["`small`", "0.7", "4.0", "5.0", "1.25", "1-25, 31-32 of these 32 nodes"]


def test_further_cores_leave_shares_of_one_core() -> None:
    seconds = {"1": 4.0, "serial": 1.04, "2": 2.4, "4": 1.6, "8": 1.2}
    row = {"case": "small", "loop_s": 0.5, "seconds": seconds}
    (cells,) = proof.cores_table([row]).splitlines()[2:]
    told = [cell.strip() for cell in cells.split("|")[1:-1]]
    assert told == ["`small`", "0.5", "4.0", "1.0", "0.60", "0.40", "0.30"]

"""What the tables of judgements, first solves and `why` say of runs."""

from typing import Any

from tests.benchmarks import waits

TIMES = {"loop_s": 0.52, "least_ms": 1.234, "median_ms": 1.5}


def cells_of(table: str) -> list[str]:
    """Return the cells of the one row of a table, which has as many as its head."""
    head, _, row = ([cell.strip() for cell in text.split("|")[1:-1]] for text in table.splitlines())
    assert len(row) == len(head)
    return row


def test_a_judgement_is_told_in_milliseconds() -> None:
    row = {"case": "small", "stages": ", 4 stages", "asked_ms": 2.0, **TIMES}
    assert cells_of(waits.judge_table([row])) == ["small, 4 stages", "0.5", "1.23", "1.50", "2"]


def test_an_iteration_tells_its_operations() -> None:
    row = {"case": "small", "operations": 2048, "asked_ms": None, "order_ms": 0.9, **TIMES}
    told = ["small", "2,048", "0.5", "-", "1.23", "1.50", "0.90"]
    assert cells_of(waits.engine_table([row])) == told


def test_a_first_solve_is_beside_the_next() -> None:
    row = {"case": "solve", "loop_s": 0.52, "asked_s": 12.0, "first_s": 3.64, "again_s": 0.83}
    assert cells_of(waits.first_table([row])) == ["solve", "0.5", "12", "3.6", "0.8"]


def gain(
    least: float | None, most: float | None, by: str = "proof", change: str = "one more"
) -> Any:
    seconds = {"gain_at_least_s": least, "gain_at_most_s": most}
    return {"limit": "nodes", "change": change, "stopped_by": by, **seconds}


def test_the_surest_gain_is_the_one_with_the_highest_least() -> None:
    gains = [gain(1.0, 9.0, "time"), gain(2.0, 2.1, change="two more"), gain(None, 3.0)]
    found = waits.of_gains({"best_s": 10.0, "gains": gains})
    assert found["gained_by"] == "nodes: two more"
    assert (found["changes"], found["closed"]) == (3, 1)
    assert abs(found["widest"] - 0.8) < 1e-12
    row = {"case": "small", "loop_s": 0.52, "wall_s": 5.71, "not": "tp=8", "not_wall_s": 1.6}
    told = ["small", "0.5", "3", "5.7", "1 of 3", "80.0 %", "nodes: two more, 20.0 to 21.0 %"]
    assert cells_of(waits.why_table([row | found])) == [*told, "`tp=8`", "1.6"]

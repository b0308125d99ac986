"""What the table of starts in docs/benchmarks/speed.md says of runs."""

from typing import Any

from tests.benchmarks import warm


def run(wall: float, objective: float | None, note: str = "", gap: float = 0.0) -> dict[str, Any]:
    """Return what is kept of a solve."""
    code = 0 if objective is not None else 3
    return {
        "wall_s": wall, "exit_code": code, "objective_s": objective, "gap": gap, "note": note,
    }  # fmt: skip


def cells_of(cold: dict[str, Any], warm_one: dict[str, Any]) -> list[str]:
    """Return a row of the table after the change."""
    change = {"change": "a limit", "cold": cold, "warm": warm_one}
    row = warm.table([{"case": "small", "changes": [change]}]).splitlines()[-1]
    return [cell.strip() for cell in row.split("|")[3:-1]]


def test_a_row_says_what_was_taken_and_whether_the_answer_is_the_same() -> None:
    note = ", 2 s; bounds of 3 of 3 parts are that file's, not derived again (...)"
    assert cells_of(run(10, 2.0), run(1, 2.0, note)) == [
        *("10.0", "1.0", "10 %", "the plan, bounds", "the same")
    ]
    note = ", 2 s, which is none here (batch); none of its bounds: batch"
    assert cells_of(run(10, 2.0), run(8, 2.1, note))[2:4] == ["80 %", "a plan like it"]
    assert cells_of(run(10, 2.0), run(8, 2.1, note))[4].startswith("+5.000 %, gaps")


def test_where_nothing_fits_both_say_so() -> None:
    assert cells_of(run(1, None), run(1, None))[3:] == ["nothing", "no plan"]
    assert cells_of(run(1, None), run(1, 2.0))[4] == "differs"

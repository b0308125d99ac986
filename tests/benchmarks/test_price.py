"""What the table of prices in docs/howto/price.md says of runs."""

from typing import Any

from tests.benchmarks import price


def run(wall: float, gap: float | None, best: int = 1) -> dict[str, Any]:
    """Return what is kept of a solve."""
    return {"wall_s": wall, "gap": gap, "plans": best, "sets": 7}


def test_a_row_has_the_seconds_and_gaps_of_each_objective() -> None:
    row = {"case": "x y", "time": run(2.0, 0), "price": run(12.34, 0.0), "both": run(60, None, 3)}
    cells = [cell.strip() for cell in price.table([row]).splitlines()[-1].split("|")[1:-1]]
    assert cells == ["x y", "7", "12.3", "0", "60.0", "3", "open", "2.0"]

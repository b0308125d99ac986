"""What the table of wider spaces says of runs."""

from typing import Any

import pytest

from tests.benchmarks import wider


def solved(seconds: float | None, cpu: float, gap: float | None = 0.0) -> Any:
    return {"objective_s": seconds, "gap": gap, "cpu_s": cpu}


@pytest.mark.parametrize(
    ("wide", "told"),
    [
        (solved(1.5, 8.0), ["1.500", "0", "8.0", "2.0", "25.00 %"]),
        (solved(2.0, 6.0, 0.1), ["2.000", "10.00 %", "6.0", "1.5", "0"]),
        (solved(2.2, 4.0), ["2.200", "0", "4.0", "1.0", "-10.00 %"]),
        (solved(None, 4.0, None), ["no plan", "-", "4.0", "1.0", "-"]),
    ],
)
def test_a_wider_space_is_beside_the_narrower(wide: Any, told: list[str]) -> None:
    row = {"case": "small", "loop_s": 0.52, "narrow": solved(2.0, 4.0), "wide": wide}
    (cells,) = wider.table([row]).splitlines()[2:]
    assert [cell.strip() for cell in cells.split("|")[1:-1]] == [
        "small", "0.5", "2.000", "0", "4.0", *told,
    ]  # fmt: skip


def test_rows_have_names_of_their_own() -> None:
    names = [wider.named(space, words) for space in wider.SPACES for words in space.cases]
    assert len(names) == len(set(names))

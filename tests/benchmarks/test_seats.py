"""What the table of seats in docs/benchmarks/speed.md says of runs."""

from tests.benchmarks.cases import ROOT
from tests.benchmarks.seats import SUITE
from tests.benchmarks.test_again import run


def test_a_row_has_both_plans_and_what_the_searches_take() -> None:
    row = {"case": "x y", "packed": run(2.0, 0.0, 3.04), "spread": run(1.9, 0.0125, 7.0)}
    cells = [cell.strip() for cell in SUITE.table([row]).splitlines()[-1].split("|")[1:-1]]
    assert cells == ["x y", "2.000", "0", "3.0", "1.900", "1.25 %", "7.0", "5.00 %"]


def test_its_clusters_are_there() -> None:
    words = [word for case in SUITE.cases for word in case.split() if word.endswith(".toml")]
    assert words
    assert all((ROOT / word).exists() for word in words)

"""The page of proved plans is what was measured, and each row is of a command that is there."""

import shlex

from ilp_planner.faces.cli.main import run
from tests.benchmarks.plans import PAIRS, SECONDS, kept, plans_table
from tests.benchmarks.table import shown_table


def test_the_page_shows_the_results() -> None:
    rows = kept().rows
    assert [row["case"] for row in rows] == [pair.name for pair in PAIRS]
    assert shown_table("plans") == plans_table(rows)


def test_bounds_are_below_the_plans() -> None:
    for row in kept().rows:
        assert 0 < row["bound"] <= row["seconds"]
        assert 0 <= row["gap"] < 1
        ends = row["expected"]
        assert ends is None or ends["low_s"] < row["seconds"] < ends["high_s"]


def test_the_models_are_planned(capsys) -> None:
    for pair, row in zip(PAIRS, kept().rows, strict=True):
        assert row["command"] == pair.command(SECONDS)
        run(["models", shlex.split(row["command"])[2], "--json"])
        assert pair.model in capsys.readouterr().out

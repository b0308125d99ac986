"""`solve --shortlist`, through the real command."""

import json
from collections.abc import Callable

import pytest

from tests.faces.cli.conftest import Done

Command = Callable[..., Done]
SMALL = [
    "solve", "llama3-8b", "--gpus", "16xA100-40GB", "--global-batch-size", "16", "--tp", "1,2",
    "--cp", "1", "--virtual-stages", "1,2", "--sharding", "optimizer", "--recompute", "none",
    "--prefer-plain", "0",
]  # fmt: skip


@pytest.mark.slow
def test_the_list_beside_the_plan(ilp_plan: Command) -> None:
    done = ilp_plan(*SMALL, "--shortlist", "3", "--json")
    assert done.code == 0, done.err
    value = json.loads(done.out)
    found = value["shortlist"]
    first, *others = found["plans"]
    assert first["stages"] == value["stages"]
    assert first["objective_s"] == value["objective_s"]
    assert first["condition"] == "wins as assumed"
    assert others
    assert all(one["condition"].startswith("wins if ") and one["wins"] for one in others)
    assert len(found["worst_regret"]) == len(found["plans"])
    assert found["proved"]


@pytest.mark.slow
def test_its_words(ilp_plan: Command) -> None:
    done = ilp_plan(*SMALL, "--shortlist", "2", "--output", "plan.json")
    assert done.code == 0, done.err
    assert "trying 2 plans loses at most 0 %" in done.out
    assert "this plan: wins as assumed" in done.out
    assert " wins if " in done.out.replace("\n", " ")
    checked = ilp_plan("evaluate", "plan.json", "--check-certificate")
    assert checked.code == 0, checked.out


def test_one_plan_is_the_solve_as_it_was(ilp_plan: Command) -> None:
    done = ilp_plan(*SMALL, "--shortlist", "1", "--json")
    assert json.loads(done.out)["shortlist"] is None


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--top", "2"], "shortlist: found 3 with --top 2, which lists the fastest plans"),
        (["--solver", "anneal"], "whose plan is taken as it is"),
        (["--objective", "price"], "an objective over sets of nodes"),
    ],
)
def test_contradictions_are_refused(ilp_plan: Command, more: list[str], message: str) -> None:
    solve = [word for word in SMALL if word not in ("--prefer-plain", "0")]
    done = ilp_plan(*solve, "--shortlist", "3", *more)
    assert done.code == 2
    assert message in done.err


def test_times_without_constants_are_refused(
    ilp_plan: Command, tiny: list[str], operators: list[str]
) -> None:
    for options, message in (
        (tiny, "device gpu, whose kernels are not known"),
        (operators, "space operators, whose plans are for no training runtime"),
    ):
        done = ilp_plan("solve", *options, "--shortlist", "2")
        assert done.code == 2
        assert message in done.err

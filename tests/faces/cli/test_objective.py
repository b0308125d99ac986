"""Plans chosen by what they cost, through the real command."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ilp_planner.base.files import to_json
from tests.faces.cli.conftest import Done
from tests.mixed_cases import SIZE_OPTIONS, write_room

Command = Callable[..., Done]


@pytest.fixture
def room(folder: Path) -> list[str]:
    """Write a cluster of one node of 2 T4 and two of 2 A100; return the options that name it."""
    write_room(folder)
    return [
        "solve", "--cluster", "room.toml", "--profile", "metis:profile", *SIZE_OPTIONS,
        "--global-batch-size", "16",
    ]  # fmt: skip


def value_of(done: Done) -> dict[str, Any]:
    assert done.code == 0, done.err
    value: dict[str, Any] = json.loads(done.out)
    return value


@pytest.mark.slow
def test_the_cheapest_plan_is_no_dearer_than_the_fastest(
    ilp_plan: Command, room: list[str]
) -> None:
    fastest = value_of(ilp_plan(*room, "--json"))
    cheapest = value_of(ilp_plan(*room, "--objective", "price", "--json"))
    assert cheapest["status"] == "optimal"
    assert cheapest["price_per_iteration"] <= fastest["price_per_iteration"]
    assert fastest["objective_s"] <= cheapest["objective_s"]
    objective = cheapest["objective"]
    assert objective["best"][0]["value"] == pytest.approx(cheapest["price_per_iteration"])
    assert [one["price_per_hour"] for one in objective["sets"]] == [1, 4, 5, 8, 9]
    least = min(
        o["price_per_hour"] * o["bound_s"] / 3600 for o in objective["sets"] if o["bound_s"]
    )
    assert least == pytest.approx(objective["best"][0]["bound"])


@pytest.mark.slow
def test_the_front_has_a_plan_for_every_budget(ilp_plan: Command, room: list[str]) -> None:
    """The fastest plan within the price per hour of each row is that row's."""
    front = value_of(ilp_plan(*room, "--objective", "both", "--json"))["objective"]
    assert front["complete"]
    for one in front["best"]:
        within = ["--max-price-per-hour", str(one["price_per_hour"])]
        fastest = value_of(ilp_plan(*room, *within, "--json"))
        assert fastest["objective_s"] == pytest.approx(one["objective_s"])
    done = ilp_plan(*room, "--objective", "price,time", "--tokens", "1B")
    assert done.out.count(" nodes of 2 x ") + done.out.count(" node of 2 x ") >= len(front["best"])
    assert done.out.splitlines()[1].startswith("PROVED FRONT  ")


@pytest.mark.slow
def test_what_is_saved_can_be_judged_and_its_proof_derived_again(
    ilp_plan: Command, room: list[str]
) -> None:
    assert ilp_plan(*room, "--objective", "price", "--output", "plan.json").code == 0
    done = ilp_plan("evaluate", "plan.json", "--check-certificate")
    assert done.code == 0, done.err
    assert "5 sets of nodes, derived again" in done.out
    assert "5 sets of nodes; --check-certificate" in ilp_plan("evaluate", "plan.json").out
    value = value_of(ilp_plan("evaluate", "plan.json", "--check-certificate", "--json"))
    assert value["objective"]["holds"]
    saved = json.loads(Path("plan.json").read_text())
    for spoil, message in (
        (lambda aim: aim["sets"][2].update(bound_s=1e6), "objective.sets: the bound of"),
        (lambda aim: aim["sets"].pop(1), "is missing from 'sets'"),
        (lambda aim: aim.update(bound=1e6), "objective.bound: found 1000000.0, expected at most"),
        (lambda aim: aim["sets"][1].pop("parts"), "objective.sets[1].parts: found nothing"),
        (lambda aim: aim.update(name="fame"), "found 'fame', expected time, price, or both"),
        (lambda aim: aim.update(more=1), "objective.more"),
    ):
        broken = json.loads(json.dumps(saved))
        spoil(broken["objective"])
        Path("broken.json").write_text(to_json(broken))
        done = ilp_plan("evaluate", "broken.json", "--check-certificate")
        assert done.code == 1
        assert message in done.err


def test_prices_of_the_command_go_before_those_of_the_file(
    ilp_plan: Command, room: list[str]
) -> None:
    """Where A100 cost next to nothing, no T4 is rented."""
    dear = value_of(ilp_plan(*room, "--objective", "price", "--price", "t4=90,a100=0.01", "--json"))
    types = {t for s in dear["stages"] for r in s["replicas"] for t in r["types"]}
    assert types == {"a100"}
    done = ilp_plan(*room, "--objective", "price", "--price", "spot")
    assert done.code == 2
    assert "--price: found spot, but no spot price in cluster 'room'" in done.err
    file = Path("room.toml")
    file.write_text(file.read_text().replace("price = 2.0", "price = 2.0\nspot_price = 0.7"))
    value = value_of(ilp_plan(*room, "--price", "spot", "--json"))
    assert value["price_per_hour"] in (2.8, 3.8)


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (
            ("--max-price-per-hour", "0.5"),
            3,
            "--max-price-per-hour: found 0.5, expected at least 1, the price per hour of the "
            "cheapest plan, on 1 node of 2 x t4",
        ),
        (("--max-price-per-hour", "nan"), 2, "--max-price-per-hour: found nan, expected a number"),
        (("--objective", "price", "--top", "2"), 2, "--top: found 2 where any nodes may be used"),
        (("--objective", "both", "--solver", "anneal"), 2, "--solver: found anneal, a heuristic"),
        (("--objective", "price", "--price", "a=2"), 2, "--price: found 'a', expected one of"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_is_said(
    ilp_plan: Command, room: list[str], options: tuple[str, ...], code: int, message: str
) -> None:
    done = ilp_plan(*room, *options)
    assert done.code == code
    assert message in done.err


def test_without_prices_there_is_no_objective(ilp_plan: Command, room: list[str]) -> None:
    """The repair that is offered works."""
    file = Path("room.toml")
    file.write_text(file.read_text().replace("price = 2.0\n", ""))
    done = ilp_plan(*room, "--objective", "price")
    assert done.code == 2
    assert "--price: found none of a100 in cluster 'room'" in done.err
    assert "--price a100=2.5" in done.err
    assert ilp_plan(*room, "--objective", "price", "--price", "a100=2.5").code == 0

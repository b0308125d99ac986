"""`ilp-plan simulate`: a saved plan's iteration by its schedule."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faces.cli.conftest import Done

Command = Callable[..., Done]


def test_equal_times_by_schedule_and_formula(ilp_plan: Command, saved: Path) -> None:
    """1F1B of two stages takes what its formula says."""
    done = ilp_plan("simulate", saved)
    assert done.code == 0
    assert "schedule        1f1b: 2 x 1 stages, 16 micro-batches" in done.out
    assert "the schedule takes as long" in done.out
    assert done.out.count("bubble") == 1
    value = json.loads(ilp_plan("simulate", saved, "--json").out)
    judged = json.loads(ilp_plan("evaluate", saved, "--json").out)
    assert value["judged_s"] == judged["iteration_time_s"]
    assert value["iteration_time_s"] == pytest.approx(judged["iteration_time_s"])
    assert value["least_s"] <= value["pipeline_s"]
    idle = [row["idle_s"] for row in value["by_rank"]]
    assert sum(idle) == pytest.approx(2 * value["bubble"] * value["pipeline_s"])
    assert [row["held_micro_batches"] for row in value["by_rank"]] == [[2], [1]]


def test_another_schedule(ilp_plan: Command, saved: Path) -> None:
    own, other = (
        json.loads(ilp_plan("simulate", saved, "--json", *more).out)
        for more in ((), ("--schedule", "zb-h1"))
    )
    assert other["schedule"] == "zb-h1"
    assert other["iteration_time_s"] < own["iteration_time_s"] == pytest.approx(own["judged_s"])


def test_a_trace(ilp_plan: Command, saved: Path) -> None:
    assert ilp_plan("simulate", saved, "--trace", "trace.json").code == 0
    events = json.loads(Path("trace.json").read_text())["traceEvents"]
    assert sum(event["ph"] == "X" for event in events) == 2 * 2 * 16


@pytest.mark.parametrize(
    ("options", "says", "code"),
    [
        (("--schedule", "zb-v"), "--schedule: zb-v takes 2 stages per rank, found 1", 2),
        (("--trace", "plan.json"), "would be written over the input", 1),
        (("--trace", "none/trace.json"), "no such folder", 1),
    ],
)
def test_what_cannot_be_is_refused(
    ilp_plan: Command, saved: Path, options: tuple[str, str], says: str, code: int
) -> None:
    done = ilp_plan("simulate", saved, *options)
    assert done.code == code
    assert says in done.err
    assert done.err.count("\n") == 1


def test_a_plan_without_times_is_refused(ilp_plan: Command, saved: Path) -> None:
    value = json.loads(saved.read_text())
    value["plan"]["stages"][1]["first_device"] = 5
    saved.write_text(json.dumps(value))
    done = ilp_plan("simulate", saved)
    assert done.code == 1
    assert "plan.json: plan: its stages have no times to simulate: stage 1: devices" in done.err

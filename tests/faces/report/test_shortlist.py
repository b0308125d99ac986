"""The words of a short list."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ilp_planner.analysis.calibration.free import FREE
from ilp_planner.faces.report.shortlist import (
    SAID,
    reached_text,
    shortlist_lines,
    value_text,
    worst_text,
)
from ilp_planner.optimize.result import Reached, Shortlist


def found(*worst: float) -> Shortlist:
    return Shortlist(
        plans=(), worst=worst, mean=worst, asked=3, scenarios=5, searched=3, candidates=4,
        proved=True,
    )  # fmt: skip


def test_every_constant_has_words() -> None:
    assert SAID.keys() == FREE.keys()
    assert all(text.count("{}") == 1 for text in SAID.values())


@pytest.mark.parametrize(
    ("name", "assumed", "value", "text"),
    [
        (
            "network", 0.9, 0.6,
            "messages between nodes reach less than 60 % of the links' rate (assumed 90 %)",
        ),
        (
            "host_forward", 0.0, 0.0005,
            "the host takes more than 0.5 ms to start a layer's forward pass (assumed 0 ms)",
        ),
        (
            "links", 0.9, 0.901,
            "messages inside nodes reach more than the assumed 90 % of the links' rate",
        ),
    ],
)  # fmt: skip
def test_conditions(name: str, assumed: float, value: float, text: str) -> None:
    assert reached_text(Reached(name=name, assumed=assumed, value=value)) == text


def test_units() -> None:
    assert value_text("expert_waits", 58e-6) == "0.058 ms"
    assert value_text("ring_growth", 0.2) == "20 %"


@pytest.mark.parametrize(
    ("worst", "text"),
    [
        ((0.0,), "this plan alone loses at most 0 %"),
        ((0.064, 0.021), "trying 2 plans loses at most 2.1 %, this plan alone 6.4 %"),
        (
            (0.064, 0.021, 0.012),
            "trying 2 plans loses at most 2.1 %, 3 plans 1.2 %, this plan alone 6.4 %",
        ),
    ],
)
def test_losses(worst: tuple[float, ...], text: str) -> None:
    assert worst_text(found(*worst)) == text


def test_one_candidate_alone_claims_nothing() -> None:
    """No loss of 0 % is claimed where nothing else was there to lose to."""
    alone = SimpleNamespace(shortlist=replace(found(0.0), candidates=1))
    ((head, text),) = shortlist_lines(cast("Any", None), cast("Any", alone))
    assert head == "to try"
    assert "%" not in text
    assert text.endswith("alone: a search under 2 of 4 scenarios of other constants found no other")
    alone.shortlist = replace(alone.shortlist, searched=5)
    ((_, text),) = shortlist_lines(cast("Any", None), cast("Any", alone))
    assert text.endswith("alone: a search under 4 scenarios of other constants found no other")

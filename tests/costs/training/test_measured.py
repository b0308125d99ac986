"""Measured elements of a job: their rows' seconds, and ratios of rows for all others."""

import math
from typing import Any

import pytest

from ilp_planner.costs.profiles.elements import element_table
from ilp_planner.costs.profiles.measurements import measurements_of
from ilp_planner.costs.training.measured import MeasuredTimes, measured_times, scale_notes
from ilp_planner.costs.training.network import Network
from tests.examples import for_each
from tests.megatron_cases import MIXTURE, small_cluster
from tests.training_jobs import gpt, job

CLUSTER = small_cluster(1, 1)
NETWORK = Network(CLUSTER, (0,))
SINGLE = {"tp": 1, "pp": 1, "dp": 1, "micro_batch": 1, "layout": None}


def times_of(one: Any, rows: dict[int, dict[str, float]]) -> MeasuredTimes:
    """Return the times of a job whose elements have some rows, by their places."""
    table = [
        {"record": "layer", "device": "a100", "layers": str(place), "tp": 1, "micro_batch": 1}
        | ({"cp": 1, "ep": 1, "etp": 1} if place > 1 and one.model.experts else {})
        | row
        for place, row in rows.items()
    ]
    profile = element_table(measurements_of(table, "rows.csv"), one.model)
    return measured_times(profile, one.model, one.settings, CLUSTER)


def plain(one: Any) -> list[Any]:
    """Return the times of the kernels of a job's elements, by rows that say what these take."""
    count = one.model.layers + 2
    times = times_of(one, {place: {"time_s": 1.0} for place in range(count)})
    found = []
    for timed in times.chain(one, NETWORK, "a100", 0):
        ratio = 1 / times.scales["a100", timed.kind].ratios[0]
        found.append((timed.time.forward * ratio, timed.time.total * ratio))
    return found


def test_elements_take_what_their_rows_say() -> None:
    """With times of the forward pass and without, whose share is then that of the kernels."""
    one = job(gpt(layers=2), **SINGLE)
    forward, both = plain(one)[1]
    rows = {1: {"time_s": 5e-3, "forward_s": 1e-3}, 2: {"time_s": 4e-3}}
    found = times_of(one, rows).chain(one, NETWORK, "a100", 0)
    assert found[1].time.total == pytest.approx(5e-3)
    assert found[1].time.forward == pytest.approx(1e-3)
    assert found[2].time.total == pytest.approx(4e-3)
    assert found[2].time.forward / found[2].time.total == pytest.approx(forward / both)


@for_each("experts", [None, MIXTURE])
def test_elements_without_rows_take_the_ratio_of_their_kind_or_of_all_rows(experts: Any) -> None:
    """A geometric mean; what stands in is said."""
    changes = {"experts": experts, "positions": "rope", "tied": False} if experts else {}
    one = job(gpt(layers=2, **changes), **SINGLE)
    kernels = plain(one)
    ratios = {1: 2.0, 3: 8.0}  # a layer, and the output
    rows = {place: {"time_s": ratio * kernels[place][1]} for place, ratio in ratios.items()}
    times = times_of(one, rows)
    found = [each.time.total for each in times.chain(one, NETWORK, "a100", 0)]
    pooled = math.sqrt(2.0 * 8.0)
    expected = [pooled, 2.0, pooled if experts else 2.0, 8.0]
    assert [a / b for a, (_, b) in zip(found, kernels, strict=True)] == pytest.approx(expected)
    (note,) = scale_notes(times)
    lacking = "the embedding, layers with experts" if experts else "the embedding"
    assert f"{lacking} 4 and 4, as all rows together" in note
    every = {place: {"time_s": 1.0} for place in range(4)}
    assert "as all rows" not in next(scale_notes(times_of(one, every)))

"""Pairs of published runs become jobs; a change is judged by its sign and its size."""

import pytest

from tests.benchmarks.ablations import (
    DATA,
    OPTIMIZER,
    Change,
    ablations_table,
    changes,
    host_share,
    left_out,
    rows,
    runs,
)
from tests.examples import for_each

needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="no pairs in ../shared/data/measured")


def change(measured: float, predicted: float, unit: str = "%", first: float = 1.0) -> Change:
    return Change(
        series="some runs",
        value="on",
        what="time",
        unit=unit,
        measured=measured,
        predicted=predicted,
        first=first,
    )


@for_each(
    ("measured", "predicted", "signed", "right"),
    [
        (0.4, 0.49, True, True),
        (0.4, 0.51, True, False),
        (-0.4, -0.31, True, True),
        (-0.4, 0.31, False, False),
        (0.02, 0.0, False, False),  # it costs something
        (0.02, 0.039, True, True),
        (0.003, -0.01, True, True),  # nothing that can be told from noise
        (0.0, 0.05, True, False),
    ],
)
def test_a_change_is_right_by_sign_and_size(
    measured: float, predicted: float, signed: bool, right: bool
) -> None:
    for unit, first in (("%", 1.0), ("s", 10.0)):
        scale = first if unit == "s" else 1.0
        found = change(measured * scale, predicted * scale, unit, first)
        assert (found.signed, found.right) == (signed, right)


def test_the_table_counts_what_is_right() -> None:
    row = {"series": "a", "value": "on", "what": "time", "unit": "s", "measured": 3.2}
    found = {"changes": [{**row, "predicted": 1.7, "sign": True, "right": False}]}
    shown = ablations_table(found)
    assert "| a | on | time | +3.20 s | +1.70 s | yes | **no** |" in shown
    assert "Signs: 1 of 1 are right; sizes: 0 of 1." in shown


@needs_data
def test_rows_become_runs_of_all_their_ranks() -> None:
    why = [left_out(row) for row in rows()]
    assert why.count("") == len(runs()) >= 24
    for run in runs():
        assert str(run.job.world) == run.gpus.partition("x")[0]


@needs_data
def test_states_on_the_host_take_the_time_and_the_memory_that_was_measured() -> None:
    settings = {run.value: run.setting for run in runs()}
    found = [one for one in changes() if settings[one.value] == OPTIMIZER]
    assert len(found) == 10
    assert all(one.right for one in found)
    assert host_share() == pytest.approx(0.24, abs=0.01)


@needs_data
def test_recomputing_the_mlp_saves_what_graphs_and_the_step_leave_to_save() -> None:
    found = {one.value: one for one in changes() if one.what == "memory"}
    assert found["tp4 pp4 vpp5, mlp"].right
    assert found["tp4 pp8 vpp5, core_attn"].right

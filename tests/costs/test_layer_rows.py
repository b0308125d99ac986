"""What rows of whole layers say of a replica, by hand: three layers on one type of device."""

from dataclasses import replace
from typing import Any

import numpy as np

from ilp_planner.costs.layer_rows import ALL_IN_FLIGHT, LayerRows
from ilp_planner.costs.profiles.layers import LayerKey, LayerProfile
from tests.examples import for_each

A = ("a", 1)
ONE, TWO = LayerKey("a", 1, 1), LayerKey("a", 1, 2)
FULL = slice(0, 3)


def profile(**changes: Any) -> LayerProfile:
    time = {1: [1.0, 2.0, 3.0], 2: [2.0, 3.0, 5.0], 4: [4.0, 6.0, 8.0]}
    rows = {LayerKey("a", 1, samples): np.array(row) for samples, row in time.items()}
    made = LayerProfile(
        source="test",
        layers=("x", "y", "z"),
        time=rows,
        state={A: np.array([10.0, 20.0, 30.0])},
        activation={A: np.array([1.0, 2.0, 0.0])},
        workspace={A: np.array([5.0, 0.5, 7.0])},
        gradients=np.ones(3),
        boundary=np.zeros(4),
        measured=frozenset(rows),
    )
    return replace(made, **changes)


def again(seconds: float, state: float = 1.0) -> LayerProfile:
    """Return rows of layers computed again, which keep a byte per sample."""
    made = profile()
    return replace(
        made,
        time={key: np.full(3, seconds * key.samples) for key in made.time},
        state={A: np.full(3, state)},
        activation={A: np.ones(3)},
        workspace={A: np.zeros(3)},
    )


def test_ways_to_compute_again_are_those_that_are_asked_for() -> None:
    """And never faster than without."""
    both = profile(recomputed={"full": again(2.5), "selective": again(0.0)})
    assert [*LayerRows(both, {}).again] == ["full", "selective"]
    assert [*LayerRows(both, {}, recomputed=["selective"]).again] == ["selective"]
    assert [*LayerRows(both, {}, recomputed=[]).again] == []
    rows = LayerRows(both, {})
    assert rows.row(ONE).tolist() == [1.0, 2.0, 3.0]
    assert rows.again["full"].row(ONE).tolist() == [2.5, 2.5, 3.0]
    assert rows.again["selective"].row(ONE).tolist() == [1.0, 2.0, 3.0]


def test_seconds_of_a_replica_where_its_layers_fit() -> None:
    """Alone they take 15 and a byte per sample, 20.5 and two, and 37."""
    rows = LayerRows(profile(), {"a": 24.5})
    inf = np.inf
    assert rows.replica_seconds("a", 1, 4).tolist() == [
        [1.0, 2.0, inf],
        [2.0, 3.0, inf],
        [3.0, inf, inf],
        [4.0, inf, inf],
    ]
    assert np.isinf(rows.replica_seconds("a", 2, 4)).all()
    assert rows.replica_seconds("a", 2, 4).shape == (4, 3)
    assert rows.layer_memory("a", 1).tolist() == [16.0, 22.5, 37.0]
    assert rows.layer_memory("a", 2) is None
    growing = profile(workspace_per_sample={A: np.array([1.0, 0.0, 0.0])})
    fewer = LayerRows(growing, {"a": 19.0}).replica_seconds("a", 1, 3)[:, 0].tolist()
    assert fewer == [1.0, 2.0, inf]
    assert LayerRows(growing, {}).layer_memory("a", 1).tolist() == [17.0, 22.5, 37.0]


def test_layers_fit_that_do_so_computed_again() -> None:
    rows = LayerRows(profile(recomputed={"full": again(2.0)}), {"a": 3.0})
    assert np.isfinite(rows.replica_seconds("a", 1, 3)[:2]).all()
    assert np.isinf(rows.replica_seconds("a", 1, 3)[2]).all()
    assert rows.layer_memory("a", 1).tolist() == [2.0, 2.0, 2.0]


def test_a_device_without_a_limit_has_no_room() -> None:
    """But for layers of no bytes."""
    small = {A: np.array([1.0, 0.0, 0.0])}
    nothing = {A: np.zeros(3)}
    rows = LayerRows(profile(state=small, activation=nothing, workspace=nothing), {})
    assert rows.replica_seconds("a", 1, 1).tolist() == [[np.inf, 2.0, 3.0]]
    assert rows.in_flight(ONE)[0].tolist() == [0, 0, 0, 0]
    assert rows.in_flight(ONE)[1].tolist() == [0, 0, ALL_IN_FLIGHT, ALL_IN_FLIGHT]


def test_samples_that_failed_take_for_ever() -> None:
    rows = LayerRows(profile(most_samples={A: 2}), {"a": 1000.0})
    found = rows.replica_seconds("a", 1, 4)
    assert np.isfinite(found[:2]).all()
    assert np.isinf(found[2:]).all()
    assert [rows.too_many(LayerKey("a", 1, x)) for x in (2, 3)] == [False, True]
    assert not LayerRows(profile(), {}).too_many(LayerKey("a", 1, 99))


def test_bytes_of_a_stage_by_name() -> None:
    """Two samples in each of three micro-batches."""
    rows = LayerRows(profile(), {})
    assert rows.needs(TWO, slice(0, 2), 3) == {
        "state": 30.0,
        "activations": 3 * 2 * 3.0,
        "workspace": 5.0,
    }
    assert rows.needs(TWO, slice(1, 2), 1)["workspace"] == 0.5
    assert rows.needs(TWO, slice(1, 1), 1)["workspace"] == 0.0
    growing = LayerRows(profile(workspace_per_sample={A: np.array([1.0, 4.0, 0.0])}), {})
    assert growing.needs(TWO, FULL, 1)["workspace"] == 8.5


def test_the_curve_of_all_samples_is_kept_and_grows() -> None:
    rows = LayerRows(profile(), {})
    assert rows._curve("a", 1, 2).tolist() == [0.0, 6.0, 10.0]
    assert rows._curve("a", 1, 4).tolist() == [0.0, 6.0, 10.0, 14.0, 18.0]
    longer = rows._curves["a", 1]
    assert rows._curve("a", 1, 1).tolist() == [0.0, 6.0]
    assert rows._curves["a", 1] is longer
    assert rows._curve("a", 1, 5).size == 6


def test_figures_of_ranges_are_kept_once_for_all_samples_where_they_need_none() -> None:
    rows = LayerRows(profile(), {"a": 1.0}, rates={"a": 4.0})
    assert rows.range_of("state", ONE)[0].tolist() == [0.0, 10.0, 30.0, 60.0]
    assert rows.range_of("activation", ONE)[1].tolist() == [0.0, 0.0, 2.0, 2.0]
    assert rows.range_of("workspace", ONE)[0].tolist() == [0.0, 5.0, 5.0, 7.0]
    assert rows.range_of("time", TWO)[0].tolist() == [0.0, 2.0, 5.0, 10.0]
    assert rows.range_of("step", ONE)[0].tolist() == [0.0, 5.0, 15.0, 30.0]  # read and written
    assert rows.ends_of("state", ONE).tolist() == [0.0, 10.0, 30.0, 60.0]
    assert rows.ends_of("activation", ONE).tolist() == [0.0, 1.0, 3.0, 3.0]
    assert rows.ends_of("time", ONE).tolist() == [0.0, 1.0, 3.0, 6.0]
    assert rows.ends_of("time", TWO).tolist() == [0.0, 2.0, 5.0, 10.0]
    for what in ("state", "activation"):
        assert rows.range_of(what, ONE) is rows.range_of(what, TWO)
        assert rows.ends_of(what, ONE) is rows.ends_of(what, TWO)
    assert rows.range_of("step", ONE) is rows.range_of("step", TWO)
    stepped = LayerRows(profile(optimizer={A: np.array([1.0, 1.0, 2.0])}), {}, rates={"a": 4.0})
    assert stepped.range_of("step", ONE)[0].tolist() == [0.0, 1.0, 2.0, 4.0]
    assert LayerRows(profile(), {}).range_of("step", ONE).max() == 0.0


@for_each(
    ("limit", "first", "last", "all_of_them"),
    [
        (100.0, 42, ALL_IN_FLIGHT, 5),  # 85 left for two bytes each; none needed; 33 for six
        (99.0, 41, ALL_IN_FLIGHT, 5),  # 84 to the last byte: sums are rounded
        (37.5, 11, ALL_IN_FLIGHT, 0),
        (36.0, 10, 0, 0),
        (16.0, 0, 0, 0),
    ],
)
def test_micro_batches_that_fit(limit: float, first: int, last: int, all_of_them: int) -> None:
    rows = LayerRows(profile(), {"a": limit})
    found = rows.in_flight(TWO)
    assert found.dtype == np.int64
    assert (found[0, 1], found[2, 3], found[0, 3]) == (first, last, all_of_them)
    assert found[1, 1] == found[2, 1] == 0
    assert rows.in_flight(TWO) is found

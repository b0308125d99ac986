"""Metis's folders as native tables, and back without loss."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.errors import ProfileError
from ilp_planner.costs.profiles.layers import LayerKey
from ilp_planner.costs.profiles.measurements import (
    Measurements,
    measurements_of,
    read_measurements,
    write_measurements,
)
from ilp_planner.peers.metis.files import read_metis_profile, write_metis_profile
from ilp_planner.peers.metis.profile import MetisProfile, MetisRow
from ilp_planner.peers.metis.tables import exportable_profile, metis_profile, metis_table
from tests.examples import examples, for_each
from tests.metis_cases import SAMPLES, needs_data

TIME = st.floats(min_value=1e-6, max_value=1e7, allow_nan=False)
MEGABYTES = st.floats(min_value=0, max_value=1e6, allow_nan=False)


@st.composite
def profiles(draw: st.DrawFn) -> MetisProfile:
    layers = draw(st.integers(1, 6))
    keys = draw(
        st.lists(
            st.tuples(st.sampled_from(("A100", "T4")), st.integers(1, 8), st.integers(1, 8)),
            min_size=1,
            max_size=4,
            unique=True,
        )
    )

    def each(values: st.SearchStrategy[float]) -> np.ndarray:
        return np.array(draw(st.lists(values, min_size=layers, max_size=layers)))

    ordered = sorted(LayerKey(*key) for key in keys)
    rows = {
        key: MetisRow(
            compute=each(TIME),
            memory=each(MEGABYTES),
            forward_backward=draw(TIME),
            optimizer=draw(TIME),
            batch_generator=draw(TIME),
            parameters=each(st.integers(0, 10**12).map(float)) if key == ordered[0] else None,
        )
        for key in ordered
    }
    return MetisProfile(source="made up", rows=rows, constants=ordered[0], model_name="GPT3")


def assert_same(a: MetisProfile, b: MetisProfile) -> None:
    assert list(a.rows) == list(b.rows)
    assert (a.constants, a.model_name) == (b.constants, b.model_name)
    for key, row in a.rows.items():
        other = b.rows[key]
        np.testing.assert_array_equal(row.compute, other.compute)
        np.testing.assert_array_equal(row.memory, other.memory)
        assert row.forward_backward == other.forward_backward
        assert row.optimizer == other.optimizer
        assert row.batch_generator == other.batch_generator
        assert (row.parameters is None) == (other.parameters is None)
        if row.parameters is not None:
            np.testing.assert_array_equal(row.parameters, other.parameters)


@examples(3, more=8)
@given(profile=profiles())
def test_import_export_and_reading_again_lose_nothing(
    profile: MetisProfile, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("metis")
    write_measurements(folder / "table.csv", metis_table(profile))
    table = read_measurements(folder / "table.csv")
    assert_same(profile, metis_profile(table))
    exported, notes = exportable_profile(table)
    assert notes == []
    write_metis_profile(exported, folder / "again")
    assert_same(profile, read_metis_profile(folder / "again"))


@needs_data
def test_the_published_samples(tmp_path: Path) -> None:
    profile = read_metis_profile(SAMPLES)
    write_measurements(tmp_path / "table.csv", metis_table(profile, hidden=4096, sequence=1024))
    table = read_measurements(tmp_path / "table.csv")
    assert_same(profile, metis_profile(table))
    layers = table.frame[table.frame["record"] == "layer"]
    assert set(layers["layers"]) == {"0", "1-8", "9"}
    assert set(layers["hidden"]) == {4096}


def test_what_a_row_does_not_say_stays_unsaid() -> None:
    row = MetisRow(compute=np.array([1.0, 2.0]), memory=np.array([3.0, 4.0]))
    key = LayerKey("A100", 1, 1)
    profile = MetisProfile(source="made up", rows={key: row}, constants=key)
    assert_same(profile, metis_profile(metis_table(profile)))


def measured(**changes: Any) -> dict[str, Any]:
    """Return a row as `profile measure` makes it: layers 1 and 2 of a model of four."""
    return {
        "record": "layer",
        "device": "NVIDIA A100 80GB",
        "name": "layer",
        "layers": "1-2",
        "tp": 2,
        "micro_batch": 4,
        "time_s": 0.03,
        "forward_s": 0.01,
        "backward_s": 0.02,
        "optimizer_s": 0.001,
        "weight_bytes": 100.0,
        "state_bytes": 900.0 * 2**20,
        "activation_bytes": 50.0 * 2**20,
        "forward_workspace_bytes": 2.0 * 2**20,
        "backward_workspace_bytes": 10.0 * 2**20,
        "messages": 2,
        "message_bytes": 2.0**20,
    } | changes


def measured_table(**changes: Any) -> Measurements:
    ends = [measured(name="embedding", layers="0"), measured(name="head", layers="3")]
    rows = [*ends, measured(), {"record": "collective", "name": "all_reduce", "group_size": 2,
            "hosts": 1, "bytes": 2**20, "time_s": 0.001}]  # fmt: skip
    return measurements_of([row | changes for row in rows[:3]] + rows[3:], "measured.csv")


def test_measured_rows_become_metis_files(tmp_path: Path) -> None:
    profile, notes = exportable_profile(measured_table(), model="gpt")
    write_metis_profile(profile, tmp_path)
    again = read_metis_profile(tmp_path)
    ((key, row),) = again.rows.items()
    assert key == LayerKey("NVIDIA-A100-80GB", 2, 4)
    # Two messages of a millisecond in each pass, which the measured time leaves out.
    np.testing.assert_allclose(row.compute, 30 + 2 * 2 * 1.0)
    np.testing.assert_allclose(row.memory, 960)
    assert row.forward_backward == pytest.approx(4 * 34)
    assert row.optimizer == pytest.approx(4)
    np.testing.assert_array_equal(again.parameters, 200)
    assert again.model_name == "gpt"
    assert [note.partition(":")[0].partition(" ")[0] for note in notes] == [
        "forward_backward_time_ms",
        "batch_generator_time_ms",
    ]


@for_each(
    ("changes", "words"),
    [
        ({"weight_bytes": None}, ("tp 2, micro-batch 4: layer 0", "weight_bytes", "nothing")),
        ({"state_bytes": None}, ("layer 0", "memory_bytes, or state_bytes", "nothing")),
        ({"layers": "5"}, ("layer 5 has two rows",)),
    ],
)
def test_what_is_missing_is_named(changes: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(ProfileError) as caught:
        exportable_profile(measured_table(**changes))
    text = str(caught.value)
    assert "\n" not in text
    assert "measured.csv" in text
    for word in words:
        assert word in text


def test_messages_that_nothing_says_are_named() -> None:
    table = measurements_of([measured(layers="0"), measured(layers="1")], "measured.csv")
    with pytest.raises(ProfileError, match=r"'messages'.*PROFILE.csv,LINKS.csv"):
        exportable_profile(table)

"""Alpa's profile database: what is read, what is dropped, and what is said of other files."""

import copy
import json

import numpy as np
import pandas as pd
import pytest

from ilp_planner.base.errors import ProfileError
from ilp_planner.costs.profiles.measurements import Record, read_measurements, write_measurements
from ilp_planner.peers.alpa.profile import alpa_series, read_alpa
from tests.alpa_cases import DATA, DATABASE, as_json, database, needs_data, pickled


def written(tmp_path, value, protocol=4):
    path = tmp_path / "prof_database.pkl"
    path.write_bytes(pickled(value, protocol))
    return path


def refused(path) -> str:
    with pytest.raises(ProfileError) as caught:
        read_alpa(path)
    text = str(caught.value)
    assert text.startswith(str(path))
    assert "\n" not in text
    return text


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_and_its_json_are_the_same(tmp_path, protocol: int) -> None:
    path = tmp_path / "same.json"
    path.write_text(json.dumps(as_json(database())))
    found = read_alpa(written(tmp_path, database(), protocol))
    expected = read_alpa(path)
    pd.testing.assert_frame_equal(found.frame, expected.frame)
    assert found.notes == expected.notes


def test_only_genuine_rows_are_kept(tmp_path) -> None:
    found = read_alpa(written(tmp_path, database()))
    rows = found.of(Record.COLLECTIVE)
    assert (rows["group_size"] > 1).all()
    # Of 4 elements the empty loop's bandwidth was carried on; 16 took longer than it says.
    first = rows[(rows["name"] == "all_gather") & (rows["group_size"] == 4)]["bytes"].min()
    assert first == 16 * 2
    assert rows["time_s"].min() > 1e-4
    assert not rows["source"].str.contains("noop").any()
    notes = " ".join(found.notes)
    for what in ("empty loops", "bandwidth of an empty loop", "one device", "failed", "nothing"):
        assert what in notes


def test_products_are_there_once(tmp_path) -> None:
    found = read_alpa(written(tmp_path, database())).of(Record.MATMUL)
    assert len(found) == 3
    assert found["flop"].tolist() == [2 * n**3 for n in (128, 256, 512)]


def test_what_a_row_says(tmp_path) -> None:
    found = read_alpa(written(tmp_path, database()))
    rows = found.of(Record.COLLECTIVE)
    across = rows[rows["hosts"] == 2]
    assert set(across["group_size"]) == {4}
    assert set(across["stride"]) == {1}
    assert set(across["groups"]) == {1}
    assert set(rows["dtype"]) == {"fp16", "fp32"}
    assert set(rows["device"]) == {"default"}
    # Sizes are elements in the file and bytes in the table.
    single = rows[(rows["name"] == "all_reduce") & (rows["hosts"] == 1)]
    assert single.loc[single["dtype"] == "fp32", "bytes"].max() == 4 * 2**24
    assert single.loc[single["dtype"] == "fp16", "bytes"].max() == 2 * 2**24


def test_the_table_can_be_written_and_read(tmp_path) -> None:
    found = read_alpa(written(tmp_path, database()))
    path = tmp_path / "profile.csv"
    write_measurements(path, found)
    again = read_measurements(path)
    pd.testing.assert_frame_equal(again.frame, found.frame)
    assert again.machine["cluster key"] == "default"


def test_times_that_make_monotonic_replaced_are_no_measurements(tmp_path) -> None:
    value = database()
    costs = value["default", (1, 2)].all_reduce_cost_dict[((0, 1),), "f32"]
    size, time = costs[-1]
    costs.append((2 * size, np.float64(2 * size / (size / time))))
    rows = read_alpa(written(tmp_path, value)).of(Record.COLLECTIVE)
    (row,) = rows[rows["bytes"] == 2 * size * 4].to_dict(orient="records")
    assert row["provenance"] == "extrapolated"
    assert "carried" in row["source"]


@needs_data
def test_the_kinds_of_rows_are_found_from_the_numbers() -> None:
    """The published file says of every row what it is; nothing here reads that."""
    data = json.loads(DATABASE.read_text())
    series = list(alpa_series(DATABASE))
    entries = data["collectives"] + data["dots"]
    assert len(series) == len(entries)
    for one, entry in zip(series, entries, strict=True):
        assert [kind.value for kind in one.kinds] == entry["row_kind"]
        if one.name != "matmul":
            assert one.hosts == entry["hosts_spanned"]
            assert one.stride == entry["stride"]


@needs_data
def test_the_published_database() -> None:
    found = read_alpa(DATABASE)
    assert len(found.of(Record.MATMUL)) == 126
    rows = found.of(Record.COLLECTIVE)
    kinds = [
        kind
        for entry in json.loads(DATABASE.read_text())["collectives"]
        for kind in entry["row_kind"]
    ]
    assert len(rows) == kinds.count("measured") + kinds.count("carried")
    assert (rows["provenance"] == "extrapolated").sum() == kinds.count("carried")
    assert found.machine["meshes"] == "1x1, 1x2, 1x4, 1x8, 2x8"


@needs_data
def test_stage_costs_are_refused() -> None:
    assert "cost model" in refused(DATA / "stage_profiles.json")


def test_stage_costs_as_numpy_wrote_them_are_refused(tmp_path) -> None:
    path = tmp_path / "profile-results.npy"
    np.save(path, np.array({(0, 1, 0, 0): None}, dtype=object), allow_pickle=True)
    assert "cost model" in refused(path)


def changed(**changes):
    value = copy.deepcopy(as_json(database()))
    value["collectives"][0].update(changes)
    return value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": 1}, "'collectives' is missing"),
        ([], "'collectives' is missing"),
        ({"collectives": [1]}, "expected a list of objects"),
        ({"collectives": []}, "no genuine rows"),
        (changed(kind="gossip"), "'kind': found 'gossip'"),
        (changed(dtype="f12"), "dtype: found 'f12'"),
        (changed(mesh_shape=[2]), "mesh shape"),
        (changed(groups=[[0, 0]]), "groups"),
        (changed(groups=[[0, 99]]), "groups"),
        (changed(groups=[[0, 1], [0]]), "groups"),
        (changed(elements=[1]), "seconds"),
        (changed(elements=["x"] * 14), "sizes: found 'x'"),
        (changed(seconds=[-1.0] * 14), "seconds: found -1.0, expected a positive number"),
        (changed(seconds=[10**30] * 14), "seconds: found a whole number beyond"),
        (changed(dtype=["f16"]), "dtype: found ('f16')"),
        (changed(kind={}), "'kind': found a dict"),
        (changed(seconds=None), "seconds"),
    ],
)
def test_json_that_cannot_be_used(tmp_path, value, message: str) -> None:
    path = tmp_path / "database.json"
    path.write_text(json.dumps(value))
    assert message in refused(path)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1, 2], "found a pickled list"),
        ({}, "found a pickled dict"),
        ({1: 2}, "key 1"),
        ({(10**5000, 1): 2}, "key (a whole number beyond 1e18, 1)"),
        ({("default", (1, 2)): 3}, "expected (cluster key, mesh shape)"),
    ],
)
def test_a_pickle_of_something_else(tmp_path, value, message: str) -> None:
    assert message in refused(written(tmp_path, value))


def test_one_list_named_a_million_times(tmp_path, monkeypatch) -> None:
    """A small file that would be a huge table."""
    value = database()
    result = value["default", (2, 2)]
    result.all_gather_cost_dict = {(((0, 1),), "f32"): [(n, 1e-3) for n in range(2000)]}
    value |= {(f"cluster {n}", (2, 2)): result for n in range(30)}
    monkeypatch.setattr("ilp_planner.peers.alpa.profile.ENTRIES", 20_000)
    assert "more than" in refused(written(tmp_path, value))


def test_no_such_file(tmp_path) -> None:
    assert "no such file" in refused(tmp_path / "missing.pkl")
    assert "cannot be read" in refused(tmp_path)

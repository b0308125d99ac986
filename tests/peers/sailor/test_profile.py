"""Reading Sailor's profiles: every figure in its place, and one line for what is wrong."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ilp_planner.base.errors import ProfileError
from ilp_planner.costs.profiles.layer_table import layer_profile
from ilp_planner.costs.profiles.layers import LayerKey
from ilp_planner.costs.profiles.measurements import read_measurements, write_measurements
from ilp_planner.peers.sailor.profile import (
    PLACES,
    read_sailor_profile,
    sailor_models,
    sailor_table,
)
from tests.sailor_cases import MODEL, published, small_files, write_files, write_published

TIMES, SIZES = "profiles_tmp.json", "llm_info.json"


def changed(path: str, value: Any) -> dict[str, Any]:
    """Return the small files with one value set, or without it where it is None."""
    files = small_files()
    *keys, last = path.split("/")
    at: Any = files
    for key in keys:
        at = at[key]
    if value is None:
        del at[last]
    else:
        at[last] = value
    return files


def test_a_folder_and_a_checkout_are_the_same(tmp_path: Path) -> None:
    files = small_files()
    plain = write_files(tmp_path / "plain", files)
    checkout = tmp_path / "checkout"
    for name, content in files.items():
        (checkout / PLACES[name]).mkdir(parents=True, exist_ok=True)
        write_files(checkout / PLACES[name], {name: content})
    one, two = (read_sailor_profile(folder, "small") for folder in (plain, checkout))
    assert one.times.keys() == two.times.keys()
    for key, rows in one.times.items():
        np.testing.assert_array_equal(rows, two.times[key])


def test_every_figure_is_in_its_place(tmp_path: Path) -> None:
    files = changed(f"{TIMES}/small/V100-16/2/1/1", [0.5, 0.25, 0.125])
    files[SIZES]["small"]["2"]["2"] = {
        "params_floats": 7,
        "act_mem_floats": 8,
        "act_output_floats": 9,
    }
    profile = read_sailor_profile(write_files(tmp_path / "s", files), "small")
    assert profile.times[LayerKey("V100-16", 1, 2)][1].tolist() == [0.5, 0.25, 0.125]
    sizes = profile.sizes[2]
    assert (sizes.parameters[2], sizes.activations[2], sizes.outputs[2]) == (7, 8, 9)


def test_a_degree_that_one_file_lacks_is_named(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "s", changed(f"{SIZES}/small/2", None))
    profile = read_sailor_profile(folder, "small")
    assert {key.tp for key in profile.times} == {1}
    assert any("profiles_tmp.json: tp 2: left out" in note for note in profile.notes)
    files = small_files()
    files[SIZES]["small"]["8"] = files[SIZES]["small"]["1"]
    profile = read_sailor_profile(write_files(tmp_path / "t", files), "small")
    assert any("llm_info.json: tp 8: left out" in note for note in profile.notes)


def test_what_was_not_measured_is_left_out_and_named(tmp_path: Path) -> None:
    files = changed(f"{TIMES}/small/A100-40/2/1", {})
    for row in files[TIMES]["small"]["V100-16"]["1"]["2"].values():
        row[2] = 0.0
    profile = read_sailor_profile(write_files(tmp_path / "s", files), "small")
    assert LayerKey("A100-40", 1, 2) not in profile.times
    assert any("small.A100-40.2.1: no layers" in note for note in profile.notes)
    named = "update is 0 in 1 of 7 runs, beginning with V100-16, tp 2, micro-batch 1"
    assert any(named in note for note in profile.notes)


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        (f"{TIMES}", [], [TIMES, "found []", "expected an object"]),
        (f"{TIMES}/small", {}, [TIMES, "small", "found no times"]),
        (f"{TIMES}/small/A100-40/0", {}, ["small.A100-40: micro-batch", "'0'", "from 1 to"]),
        (f"{TIMES}/small/A100-40/2/x", {}, ["small.A100-40.2: degree", "'x'"]),
        (f"{TIMES}/small/A100-40/2/1/1", [1, 2], ["small.A100-40.2.1.1", "[forward, backward"]),
        (f"{TIMES}/small/A100-40/2/1/1", [1, -2, 0], ["small.A100-40.2.1.1[1]", "-2", "at least"]),
        (f"{TIMES}/small/A100-40/2/1/1", [0, 0, 1], ["small.A100-40.2.1.1", "more than 0"]),
        (f"{TIMES}/small/A100-40/2/1/1", None, ["small.A100-40.2.1", "without 1"]),
        (
            f"{TIMES}/small/A100-40/2/1/2",
            None,
            ["small: found 2 layers of A100-40, tp 1, micro-batch 2", "expected 3 as of A100-40"],
        ),
        (f"{SIZES}/small", None, [SIZES, "'small'", "expected one of"]),
        (f"{SIZES}/small/1/0/params_floats", None, ["small.1.0.params_floats", "found nothing"]),
        (f"{SIZES}/small/1/0/params_floats", "x", ["small.1.0.params_floats", "'x'", "number"]),
        (f"{SIZES}/small/1/2", None, ["small.1", "found 2 layers", "expected 3"]),
        (f"{SIZES}/small", {"4": {}}, ["found degrees 4", "expected 1, 2"]),
    ],
)
def test_a_bad_file_is_one_line(tmp_path: Path, path: str, value: Any, told: list[str]) -> None:
    files = changed(path, value)
    with pytest.raises(ProfileError) as caught:
        read_sailor_profile(write_files(tmp_path / "s", files), "small")
    line = str(caught.value)
    assert "\n" not in line
    for part in told:
        assert part in line


def test_a_missing_file_says_where_it_belongs(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"no profiles_tmp\.json.* sailor/Planner/simulations/"):
        sailor_models(write_files(tmp_path / "s", {}))
    with pytest.raises(ProfileError, match="no such profile folder"):
        sailor_models(tmp_path / "elsewhere")


@published
def test_the_published_model(tmp_path: Path) -> None:
    folder = write_published(tmp_path / "s")
    assert sailor_models(folder) == (MODEL,)
    profile = read_sailor_profile(folder, MODEL)
    assert {len(rows) for rows in profile.times.values()} == {26}
    assert sorted({key.device for key in profile.times}) == ["A100-40", "V100-16"]


def test_bytes_are_those_of_the_planner(tmp_path: Path) -> None:
    """Of layer 2 under tp 2: 1.5 million parameters, 0.2 million activations, as in
    `check_stage_fits`."""
    profile = read_sailor_profile(write_files(tmp_path / "s", small_files()), "small")
    found = layer_profile(sailor_table(profile))
    pair = ("A100-40", 2)
    assert found.state[pair][2] == 24 * 1_500_000
    assert found.activation[pair][2] == 4 * 200_000
    assert found.workspace[pair].max() == 3e9
    assert found.workspace["A100-40", 1].max() == 2e9
    np.testing.assert_array_equal(found.gradients, 4e6 * np.array([1, 2, 3]))
    np.testing.assert_array_equal(found.boundary, [0, 1.2e6, 1.2e6, 0])
    np.testing.assert_array_equal(found.optimizer[pair], [0.0005] * 3)


def test_a_step_of_no_time_was_not_measured(tmp_path: Path) -> None:
    files = small_files()
    for gpu in files["profiles_tmp.json"]["small"].values():
        for row in gpu["1"]["1"].values():
            row[2] = 0.0
    profile = read_sailor_profile(write_files(tmp_path / "s", files), "small")
    frame = sailor_table(profile).frame
    alone = (frame["tp"] == 1) & (frame["micro_batch"] == 1)
    assert frame.loc[alone, "optimizer_s"].isna().all()
    assert frame.loc[~alone, "optimizer_s"].notna().all()


@published
def test_seconds_are_those_of_the_file(tmp_path: Path) -> None:
    profile = read_sailor_profile(write_published(tmp_path / "s"), MODEL)
    write_measurements(tmp_path / "table.csv", sailor_table(profile))
    found = layer_profile(read_measurements(tmp_path / "table.csv"))
    assert found.time.keys() == profile.times.keys() == found.measured
    for key, rows in profile.times.items():
        np.testing.assert_array_equal(found.time[key], rows[:, 0] + rows[:, 1])
        np.testing.assert_array_equal(found.forward[key], rows[:, 0])

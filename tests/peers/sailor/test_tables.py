"""Sailor's profiles as native tables: its seconds, and the bytes that its planner counts."""

from pathlib import Path

import numpy as np

from ilp_planner.costs.profiles.layer_table import layer_profile
from ilp_planner.costs.profiles.measurements import read_measurements, write_measurements
from ilp_planner.peers.sailor.profile import read_sailor_profile
from ilp_planner.peers.sailor.tables import sailor_table
from tests.sailor_cases import MODEL, published, small_files, write_files, write_published


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

"""AMP's profiles as native tables."""

import json
from pathlib import Path

import numpy as np
import pytest

from ilp_planner.base.errors import ProfileError
from ilp_planner.costs.profiles.layer_table import layer_profile
from ilp_planner.costs.profiles.measurements import read_measurements, write_measurements
from ilp_planner.peers.amp.profile import read_amp_profile
from ilp_planner.peers.amp.tables import amp_models, amp_table
from ilp_planner.peers.amp.tables import layer_profile as amp_layers

AMP = Path(__file__).parents[4] / "shared" / "data" / "amp" / "profiles.json"
needs_amp = pytest.mark.skipif(
    not AMP.is_file(), reason="AMP's profiles are not in ../shared/data/amp"
)


@needs_amp
@pytest.mark.parametrize("model", ["gpt2", "transgan"])
def test_the_layers_are_those_of_the_file(tmp_path: Path, model: str) -> None:
    names = amp_models(AMP)[model]
    profile = read_amp_profile(AMP, model, list(names))
    expected = amp_layers(profile)
    write_measurements(tmp_path / "table.csv", amp_table(profile))
    found = layer_profile(read_measurements(tmp_path / "table.csv"))
    assert found.time.keys() == expected.time.keys()
    for key, row in expected.time.items():
        np.testing.assert_array_equal(found.time[key], row)
    for field in ("state", "activation"):
        for key, row in getattr(expected, field).items():
            np.testing.assert_array_equal(getattr(found, field)[key], row)
    np.testing.assert_array_equal(found.gradients, expected.gradients)
    np.testing.assert_array_equal(found.boundary, expected.boundary)
    assert found.isolated
    assert found.measured == expected.measured


@needs_amp
def test_devices_have_the_name_of_their_gpu() -> None:
    names = amp_models(AMP)["gpt2"]
    assert names["T4"] == "g4dn.12xlarge"
    assert len(names) == 2


def test_instances_with_the_same_gpu_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    one, two = ({"model": "m", "device": "T4", "instance": name} for name in ("a", "b"))
    path.write_text(json.dumps({"profiles": {"x": one, "y": two}}))
    assert amp_models(path) == {"m": {"a": "a", "b": "b"}}


def test_a_file_of_something_else(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"profiles": [1]}))
    with pytest.raises(ProfileError, match="expected an object with profiles"):
        amp_models(path)

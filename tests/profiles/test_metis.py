import pytest

from ilp_planner.errors import ProfileError
from ilp_planner.profiles.metis import check_layer_count, layer_names
from tests.metis_cases import synthetic_profile


def test_layers_asked_and_profiled():
    profile = synthetic_profile({"A100": 1.0}, 3)
    check_layer_count(profile, 3)
    for asked in (2, 12):
        with pytest.raises(ProfileError, match=rf"found {asked} asked: `num_layers=3` would do$"):
            check_layer_count(profile, asked)


def test_layer_names():
    assert layer_names(4) == ("embedding", "layer 1", "layer 2", "head")
    assert layer_names(2) == ("layer 1", "layer 2")

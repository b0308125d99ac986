"""Settings survive their files; what is wrong is named in one line."""

import copy

import pytest
from hypothesis import given

from ilp_planner.base.errors import PlanError
from ilp_planner.formats.json_fields import Fields
from ilp_planner.formats.plan_json import decode_settings, encode_settings
from ilp_planner.specs.training import Settings
from tests.examples import for_each
from tests.formats.saved_cases import SETTINGS


def fields(value):
    return Fields(value, file="plan.json", where="plan.settings")


@given(settings=SETTINGS)
def test_settings_survive(settings):
    assert decode_settings(fields(copy.deepcopy(encode_settings(settings)))) == settings


def test_missing_fields_keep_their_defaults():
    assert decode_settings(fields({"cp": 2})) == Settings(cp=2)


@for_each(
    ("value", "message"),
    [
        ({"optimiser": {}}, "plan.settings.optimiser: found an unknown key, expected 'optimizer'"),
        ({"cp": "2"}, "plan.settings.cp: found '2', expected a whole number of at least 0"),
        ({"cp": 0}, "cp must be a whole number of at least 1, found 0"),
        ({"sequence_parallel": 1}, "found 1, expected true or false"),
        ({"recompute": 3}, "plan.settings.recompute: found 3, expected an object"),
        ({"recompute": {"layer": 3}}, "plan.settings.recompute.layer: found an unknown key"),
        ({"recompute": {"granularity": "all"}}, "granularity must be one of"),
        ({"optimizer": {"instances": 0}}, "instances must be a whole number of at least 1"),
        ({"offload": {"modules": ["mlp"]}}, "modules must be some of ('attn_norm'"),
        ({"optimizer": {"offload": 1.5}}, "offload must be a share of at most 1"),
        ({"optimizer": {"offload": "half"}}, "plan.settings.optimizer.offload: found 'half'"),
    ],
)
def test_what_is_wrong_is_named(value, message):
    with pytest.raises(PlanError) as error:
        decode_settings(fields(value))
    assert message in str(error.value)
    assert "\n" not in str(error.value)

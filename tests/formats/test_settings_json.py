"""Settings and runtime plans survive their files; what is wrong is named in one line."""

from __future__ import annotations

import copy
import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ilp_planner.formats.groups_json import decode_groups, encode_groups
from ilp_planner.formats.saved_groups import GroupInputs, SavedGroups

from ilp_planner.errors import PlanError
from ilp_planner.formats.json_fields import Fields
from ilp_planner.formats.saved_plan import Reference
from ilp_planner.formats.settings_json import decode_settings, encode_settings
from ilp_planner.solve import solve
from ilp_planner.specs.training import Kernels, OptimizerSettings, Recompute, Settings
from tests.megatron_cases import small_cluster, small_problem

SETTINGS = st.builds(
    Settings,
    cp=st.integers(1, 4),
    ep=st.integers(1, 4),
    sequence_parallel=st.booleans(),
    precision=st.sampled_from(("bf16", "fp32")),
    recompute=st.sampled_from(
        (
            Recompute(),
            Recompute(granularity="selective", modules=("core_attn", "mlp")),
            Recompute(granularity="full", method="block", layers=3, distribute=True),
        )
    ),
    optimizer=st.builds(OptimizerSettings, offload=st.floats(0, 1), instances=st.integers(1, 3)),
    kernels=st.builds(Kernels, capacity=st.floats(0, 8), fused_loss=st.booleans()),
)


def fields(value):
    return Fields(value, file="plan.json", where="plan.settings")


@given(settings=SETTINGS)
def test_settings_survive(settings):
    assert decode_settings(fields(copy.deepcopy(encode_settings(settings)))) == settings


def test_missing_fields_keep_their_defaults():
    assert decode_settings(fields({"cp": 2})) == Settings(cp=2)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"optimiser": {}}, "plan.settings.optimiser: found an unknown key, expected 'optimizer'"),
        ({"cp": "2"}, "plan.settings.cp: found '2', expected a whole number of at least 0"),
        ({"cp": 0}, "cp must be a whole number of at least 1, found 0"),
        ({"sequence_parallel": 1}, "found 1, expected true or false"),
        ({"recompute": 3}, "plan.settings.recompute: found 3, expected an object"),
        ({"recompute": {"layer": 3}}, "plan.settings.recompute.layer: found an unknown key"),
        ({"recompute": {"granularity": "all"}}, "granularity must be one of"),
        ({"optimizer": {"offload": "half"}}, "plan.settings.optimizer.offload: found 'half'"),
    ],
)
def test_what_is_wrong_is_named(value, message):
    with pytest.raises(PlanError) as error:
        decode_settings(fields(value))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.fixture(scope="module")
def saved():
    problem = small_problem(small_cluster(2, 1), batch=8)
    plan = solve(problem).plan
    inputs = GroupInputs(
        files={"profile": Reference(name="analytic")}, space="megatron", global_batch=8, max_cp=2
    )
    return SavedGroups(plan=plan, inputs=inputs)


def test_a_runtime_plan_survives(saved):
    assert decode_groups(Fields(encode_groups(saved), file="plan.json")) == saved


def test_files_from_before_read_as_ever(saved):
    value = encode_groups(
        dataclasses.replace(
            saved,
            plan=dataclasses.replace(
                saved.plan, settings=None, virtual=1, stages=saved.plan.stages[: saved.plan.ranks]
            ),
            inputs=dataclasses.replace(saved.inputs, max_cp=None),
        )
    )
    assert "settings" not in value["plan"]
    assert "virtual" not in value["plan"]
    assert "max_cp" not in value["inputs"]
    assert decode_groups(Fields(value, file="plan.json")).plan.settings is None


def test_a_wrong_number_of_virtual_stages_is_named(saved):
    value = encode_groups(saved)
    value["plan"]["virtual"] = len(saved.plan.stages) + 1
    with pytest.raises(PlanError, match=r"plan.virtual: found .*, expected a divisor of the"):
        decode_groups(Fields(value, file="plan.json"))

"""Every row of every import has a meaning, and its words are those of Megatron-LM's arguments."""

import importlib
from collections.abc import Mapping
from dataclasses import replace
from operator import attrgetter

import pytest

from ilp_planner.formats.imported.rows import Uncounted
from ilp_planner.formats.imported.table import COUNTS, MODEL, OF_SETTINGS, Reading, System, spelling
from ilp_planner.formats.imports import IMPORTS
from ilp_planner.formats.megatron.changes import line_change
from ilp_planner.formats.megatron.flags import flags_by_key
from ilp_planner.specs.training import Settings
from tests.imported_cases import SMALLEST, arguments_of, job_of

SYSTEMS = {
    row.name: importlib.import_module(f"ilp_planner.formats.imported.{row.module}").SYSTEM
    for row in IMPORTS
}

# How twice the samples of a step are said.
CHANGES = {
    "primus": "global_batch_size = 64",
    "nanotron": "tokens.batch_accumulation_per_replica = 16",
    "gpt-neox": "gradient_accumulation_steps = 8",
    "ms-swift": "--global_batch_size 32",
    "slime": "--global-batch-size 64",
    "chatlearn": "runtime_args.train_global_batch_size=64",
    "nemo": "model.global_batch_size = 32",
    "llama-factory": "gradient_accumulation_steps = 8",
    "trainer": "gradient_accumulation_steps = 8",
    "deepspeed": "deepspeed.gradient_accumulation_steps = 8",
}


@pytest.mark.parametrize("system", SYSTEMS.values(), ids=SYSTEMS)
def test_rows_name_arguments_that_there_are(system: System) -> None:
    known = {*flags_by_key(), *COUNTS, MODEL}
    for key, row in system.rows.items():
        said = {row} if isinstance(row, str) else set()
        if isinstance(row, Mapping):
            said = {name for arguments in row.values() for name in arguments}
        assert {name for name in said if not name.startswith(OF_SETTINGS)} <= known, key
        for name in said - known:
            attrgetter(name.removeprefix(OF_SETTINGS))(Settings())
        assert system.normal(key) == key
    assert system.usual.keys() <= known


@pytest.mark.parametrize("name", SMALLEST)
def test_no_key_is_dropped(name: str) -> None:
    """Whatever is not read is named, each key once."""
    args = arguments_of(name, other_key=3, another__key="x")
    text = "\n".join(args.remarks)
    assert text.count("other_key") == 1
    assert text.count("another.key") == 1


COSTLY = {
    "verl": ({"actor_rollout_ref.actor.calculate_entropy": True}, "entropy"),
    "nemo": ({"model.fp8_params": True}, "8 bits"),
    "trainer": ({"attn_implementation": "eager"}, "flash"),
    "deepspeed": ({"deepspeed.zero_optimization.zero_quantized_weights": True}, "fewer bits"),
    "torchtitan": ({"parallelism.disable_loss_parallel": True}, "logits"),
}


@pytest.mark.parametrize("name", COSTLY)
def test_settings_that_cost_are_not_passed_over(name: str) -> None:
    """Patterns of keys that are not about the plan would take them."""
    (((key, value),), text) = COSTLY[name][0].items(), COSTLY[name][1]
    reading = Reading(SYSTEMS[name], "")
    reading.take(key, value)
    assert not reading.aside
    (remark,) = reading.remarks
    assert remark.startswith(f"{key}: not counted: ")
    assert text in remark


@pytest.mark.parametrize("system", SYSTEMS.values(), ids=SYSTEMS)
def test_uncounted_keys_are_told_but_for_values_that_do_nothing(system: System) -> None:
    for key, row in system.rows.items():
        if not isinstance(row, Uncounted):
            continue
        reading = Reading(system, "")
        for value in row.unless:
            reading.take(key, value)
        assert not reading.remarks, key
        reading.take(key, "something else")
        assert reading.remarks == [f"{key}: not counted: {row.text}"]


@pytest.mark.parametrize("name", SMALLEST)
def test_pairs_say_what_their_keys_are_read_as(name: str) -> None:
    """Both ways: a key set as the table says an argument gives that argument."""
    system = SYSTEMS[name]
    for key, row in system.rows.items():
        if not isinstance(row, Mapping):
            continue
        for value, said in row.items():
            for argument, one in said.items():
                if argument.startswith(OF_SETTINGS):
                    continue
                assert spelling(system, {}).pairs[argument, one], (key, value)


@pytest.mark.parametrize("name", [name for name in SMALLEST if not SYSTEMS[name].runtime])
def test_changes_are_said_in_its_keys(name: str) -> None:
    args, job = arguments_of(name), job_of(name)
    after = replace(job, global_batch=2 * job.global_batch)
    change = line_change(args, job, after)
    if name not in CHANGES:  # made of several keys
        assert change is None
        change = line_change(args, job, replace(job, micro_batch=1))
    assert change is not None
    assert change.fields
    assert not change.add
    text = ", ".join(change.fields)
    assert CHANGES.get(name, "actor.ppo_micro_batch_size_per_gpu=1") in text


def test_micro_batches_of_tokens_are_no_option() -> None:
    """Nothing is offered that would do nothing."""
    args, job = arguments_of("slime"), job_of("slime")
    assert line_change(args, job, replace(job, micro_batch=1)) is None
    plain = {"use_dynamic_batch_size": None, "micro_batch_size": 2}
    args, job = arguments_of("slime", **plain), job_of("slime", **plain)
    change = line_change(args, job, replace(job, micro_batch=1))
    assert change is not None
    assert change.fields == ("--micro-batch-size 1",)

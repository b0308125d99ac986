"""The keys of training systems: each is written by an export, with the word of its value."""

import ast
import json
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from operator import attrgetter
from typing import Any

from hypothesis import given

from ilp_planner.base.errors import PlanError
from ilp_planner.formats.deepspeed import export_deepspeed
from ilp_planner.formats.megatron.flags import flags_by_key
from ilp_planner.formats.torchtitan import export_torchtitan
from ilp_planner.formats.torchtitan_python import export_torchtitan_python
from ilp_planner.settings.keys import KEYS
from ilp_planner.settings.table import SETTINGS
from ilp_planner.spaces.registry import RUNTIMES
from ilp_planner.specs.training import Kernels, OptimizerSettings, Recompute, TrainingJob
from tests.examples import examples, for_each
from tests.training_jobs import deepseek, job, jobs, llama
from tests.training_jobs import settings as usual

FULL = Recompute(granularity="full", method="uniform", layers=1)
PARAMETERS = OptimizerSettings(sharding="parameters")
ALONE = {"pp": 1, "layout": None}


def tables(found: dict[str, Any], section: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of a configuration, by names with their sections."""
    for name, value in found.items():
        if isinstance(value, dict):
            yield from tables(value, f"{section}{name}.")
        else:
            yield section + name, value


def of_toml(case: TrainingJob) -> dict[str, Any]:
    found = dict(tables(tomllib.loads(export_torchtitan(case, "run").files[".toml"])))
    return found | {name: value[0] for name, value in found.items() if name == "model.converters"}


def of_python(case: TrainingJob) -> dict[str, Any]:
    """Return the arguments of the parts of torchtitan's configuration, and the imported classes."""
    tree = ast.parse(export_torchtitan_python(case, "run").files[".py"])
    found = {
        f"components.{node.module.rpartition('.')[2]}": node.names[0].name
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        and node.module is not None
        and "components" in node.module
    }
    parts = {"ParallelismConfig": "parallelism", "CompileConfig": "compile"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in parts:
            for word in node.keywords:
                if isinstance(word.value, ast.Constant):
                    found[f"{parts[node.func.id]}.{word.arg}"] = word.value.value
    return found


def of_json(case: TrainingJob) -> dict[str, Any]:
    return dict(tables(json.loads(export_deepspeed(case, "run").files[".json"])))


EXPORTS = {
    "torchtitan": export_torchtitan_python,
    "torchtitan@0.2.2": export_torchtitan,
    "deepspeed": export_deepspeed,
}
READERS = {"torchtitan": of_python, "torchtitan@0.2.2": of_toml, "deepspeed": of_json}


def check_words(runtime: str, case: TrainingJob) -> set[str]:
    """Return the keys that an export writes: each with the word of its value, or the value."""
    found, written = READERS[runtime](case), set()
    for field, key in KEYS[runtime].items():
        if key.name in found:
            value = attrgetter(field)(case.settings)
            assert found[key.name] == key.words.get(value, value)
            written.add(key.name)
    return written


@for_each("runtime", READERS)
@examples(60)
@given(case=jobs())
def test_keys_have_the_words_of_their_values(runtime: str, case: TrainingJob) -> None:
    plain = {"norm": "rmsnorm", "gated": True, "bias": False, "qkv_bias": False, "dropout": 0.0}
    try:
        check_words(runtime, replace(case, model=replace(case.model, **plain)))
    except PlanError:
        return


CASES = {
    "torchtitan": [
        job(settings=usual(cp=2, cp_comm="all_gather", optimizer=PARAMETERS)),
        job(llama(hidden=512, ffn=1024), settings=usual(kernels=Kernels(quantised="mxfp8"))),
    ],
    "torchtitan@0.2.2": [
        job(settings=usual(cp=2, optimizer=PARAMETERS)),
        job(settings=usual(kernels=Kernels(quantised="fp8-current"))),
    ],
    "deepspeed": [
        job(settings=usual(recompute=FULL)),
        job(deepseek(), tp=1, dp=4, **ALONE, settings=usual(ep=2, sequence_parallel=False)),
    ],
}


@for_each("runtime", READERS)
def test_every_key_is_written(runtime: str) -> None:
    written = set().union(*(check_words(runtime, case) for case in CASES[runtime]))
    assert written == {key.name for key in KEYS[runtime].values() if key.name}


@for_each("runtime", READERS)
@for_each(("moments", "types"), [(8, ""), (4, "bf16"), (2, "fp8")])
def test_moments_that_a_system_has_not_are_noted(runtime: str, moments: int, types: str) -> None:
    states = OptimizerSettings(sharding="parameters", moments=moments)
    case = job(**ALONE, settings=usual(sequence_parallel=runtime != "deepspeed", optimizer=states))
    notes = EXPORTS[runtime](case, "run").notes
    found = [note for note in notes if note.startswith("settings.optimizer.moments: ")]
    assert len(found) == bool(types)
    assert all(f": {types}; " in note for note in found)


def test_arguments_are_megatrons() -> None:
    assert {key.name for key in KEYS["megatron"].values()} <= flags_by_key().keys()


def test_keys_are_of_fields_of_their_row_and_of_runtimes() -> None:
    assert KEYS.keys() == {*RUNTIMES}
    for row in SETTINGS:
        for key in row.keys:
            assert f"settings.{key.field}" in row.fields, row.name
            assert {*key.runtimes} <= KEYS.keys()
        pairs = [(runtime, key.field) for key in row.keys for runtime in key.runtimes]
        assert len(pairs) == len({*pairs}), row.name

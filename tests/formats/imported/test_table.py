"""Every row of every import has a meaning, and its words are those of Megatron-LM's arguments."""

import ast
import importlib
import inspect
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatchcase
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from ilp_planner.base.errors import SpecError
from ilp_planner.formats.captured.reader import read_any_launch
from ilp_planner.formats.imported.rows import Uncounted
from ilp_planner.formats.imported.table import COUNTS, MODEL, OF_SETTINGS, Reading, System, spelling
from ilp_planner.formats.imports import IMPORTS
from ilp_planner.formats.megatron.arguments import job_of_arguments as of_arguments
from ilp_planner.formats.megatron.changes import as_said, line_change
from ilp_planner.formats.megatron.flags import flags_by_key
from ilp_planner.specs.training import Offload, Recompute, Settings, TrainingJob
from tests.examples import thinned
from tests.imported_cases import LINES, SMALLEST, arguments_of, job_of

IMPORTED = "ilp_planner.formats.imported"
SYSTEMS = {row.name: importlib.import_module(f"{IMPORTED}.{row.module}").SYSTEM for row in IMPORTS}

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


def strings_of_functions(name: str) -> set[str]:
    """Return the texts in functions of a system's module, which hold the keys that these read."""
    module = next(row.module for row in IMPORTS if row.name == name)
    tree = ast.parse(inspect.getsource(importlib.import_module(f"{IMPORTED}.{module}")))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    nodes = [node for function in functions for node in ast.walk(function)]
    return {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}


# Models with more parts than the smallest configurations have.
RICHER: dict[str, list[dict[str, Any]]] = {
    "ms-swift": [
        {"model": "Qwen/Qwen2.5-VL-7B-Instruct"},
        {"model": "Qwen/Qwen2.5-VL-7B-Instruct", "tuner_type": "lora"},
    ]
}
WORDS = (True, False, 1, 4, "none", "full", "lora", "rm", "grpo", "seq_cls", "embedding")


@pytest.mark.few(4)
@pytest.mark.parametrize("name", SMALLEST)
def test_keys_whose_values_change_the_job_are_not_told_as_aside(name: str) -> None:
    """Whatever pattern of such keys takes them, a function of the system may read them."""
    system = SYSTEMS[name]
    known = [key for key in strings_of_functions(name) if fits(key, system.aside)]
    for more in ({}, *RICHER.get(name, ())):
        for key in thinned(sorted(known), 3):
            found = []
            for word in WORDS:
                with suppress(SpecError):
                    found.append(arguments_of(name, **more | {key.replace(".", "__"): word}))
            if all(args == found[0] for args in found):
                continue
            for args in found:
                told = [text for text in args.remarks if text.startswith("not about the plan")]
                assert not any(key in re.split(r"[ ,]+", text) for text in told), key


def fits(key: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(key, pattern) for pattern in patterns)


def test_what_of_a_model_that_sees_is_trained_is_not_told_as_aside() -> None:
    keys = ("freeze_vit", "freeze_aligner", "freeze_llm", "vit_gradient_checkpointing")
    for model, aside in (("Qwen/Qwen2.5-VL-7B-Instruct", False), ("Qwen/Qwen3-8B", True)):
        args = arguments_of("ms-swift", model=model, **dict.fromkeys(keys, False))
        told = " ".join(text for text in args.remarks if text.startswith("not about the plan"))
        assert {key in told for key in keys} == {aside}


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
    assert bool(change.add) == SYSTEMS[name].launched  # words that can be pasted
    assert bool(change.fields) != SYSTEMS[name].launched
    text = " ".join((*change.add, *change.fields))
    assert CHANGES.get(name, "actor.ppo_micro_batch_size_per_gpu=1") in text


def test_micro_batches_of_tokens_are_no_option() -> None:
    """Nothing is offered that would do nothing."""
    args, job = arguments_of("slime"), job_of("slime")
    assert line_change(args, job, replace(job, micro_batch=1)) is None
    plain = {"use_dynamic_batch_size": None, "micro_batch_size": 2}
    args, job = arguments_of("slime", **plain), job_of("slime", **plain)
    change = line_change(args, job, replace(job, micro_batch=1))
    assert change is not None
    assert change.add == ("--micro-batch-size", "1")


FULLY = Recompute(granularity="full", method="uniform", layers=1)
SCRIPTS = {
    "ms-swift": (
        "",
        "--recompute_granularity full --recompute_method uniform --recompute_num_layers 1",
        "--recompute_granularity none",
        "--pipeline_model_parallel_layout 'Et*10|t*18L' --overlap_grad_reduce true",
        "--virtual_pipeline_model_parallel_size 2 --overlap_param_gather false",
    ),
    "slime": (
        "",
        "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
        "--overlap-grad-reduce --overlap-param-gather --use-distributed-optimizer",
    ),
    "verl": ("",),
}


SHAPES: tuple[dict[str, Any], ...] = (
    {"layout": None},
    {"micro_batch": 1},
    {"global_batch": 64},
    {"layout": None, "tp": 1, "pp": 1, "dp": 8},
    {"layout": None, "tp": 4, "pp": 2, "dp": 1},
    {"layout": None, "tp": 2, "pp": 1, "dp": 4},
)
AGAIN = (Recompute(), FULLY, Recompute(granularity="selective", modules=("core_attn",)))
TURNED = ("optimizer.overlap_gradients", "optimizer.overlap_parameters", "kernels.fused_loss")


def others_of(job: TrainingJob) -> Iterator[TrainingJob]:
    """Yield jobs with one setting changed."""
    settings = job.settings
    for shape in SHAPES:
        with suppress(ValueError):
            yield replace(job, **shape)
    for again in AGAIN:
        yield replace(job, settings=replace(settings, recompute=again))
    for path in TURNED:
        holder, _, name = path.partition(".")
        part = getattr(settings, holder)
        turned = replace(part, **{name: not getattr(part, name)})
        yield replace(job, settings=replace(settings, **{holder: turned}))
    yield replace(job, settings=replace(settings, offload=Offload(layers=2)))


@pytest.mark.few(3)
@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("number", range(5))
def test_changes_that_are_pasted_into_a_script_say_that_job(
    name: str, number: int, tmp_path: Path
) -> None:
    if number >= len(SCRIPTS[name]):
        return
    file = tmp_path / "run.sh"
    line = f"{LINES[name]} {SCRIPTS[name][number]}"
    file.write_text(f"{line}\n")
    args = read_any_launch(file)
    job, offered = of_arguments(args), 0
    for after in others_of(job):
        change = line_change(args, job, after)
        if change is None or change.gpus:
            continue
        offered += 1
        words = shlex.split(line)
        for option in change.drop:
            at = words.index(option)
            rest = [k for k in range(at + 1, len(words)) if words[k].startswith("--")]
            del words[at : min(rest, default=len(words))]
        assert "null" not in change.add or name == "verl"
        text = shlex.join([*words, *change.add])
        file.write_text(f"{text}\n")
        assert as_said(of_arguments(read_any_launch(file))) == as_said(after), str(change)
        own = SYSTEMS[name].has
        if own is not None:
            said = {word.removeprefix("--") for word in change.add if word.startswith("--")}
            assert said <= own | {*SYSTEMS[name].rows}
    assert offered > 2

"""Jobs of Hugging Face's Trainer: what ranks share, and files that name each other."""

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from ilp_planner.base.errors import SpecError
from ilp_planner.base.library import find_spec
from ilp_planner.formats.deepspeed import export_deepspeed
from ilp_planner.formats.imports import read, recognise_words
from ilp_planner.formats.megatron.arguments import job_of_arguments
from ilp_planner.formats.megatron.rules import check_arguments
from ilp_planner.formats.megatron.script import read_launch
from ilp_planner.settings.values import MOMENTS
from ilp_planner.specs.decoder import as_decoder
from ilp_planner.specs.model_reader import read_model
from ilp_planner.specs.training import OptimizerSettings, Recompute
from ilp_planner.specs.tuning import Tuning
from tests.imported_cases import TRAINER, arguments_of, job_of, recognised
from tests.training_jobs import job
from tests.training_jobs import settings as usual

ZERO = {0: "none", 1: "optimizer", 2: "gradients", 3: "parameters"}


@pytest.mark.parametrize("stage", ZERO)
def test_stages_of_zero(tmp_path: Path, stage: int) -> None:
    """In a file that the configuration names, beside it or in a folder around."""
    folder = tmp_path / "examples"
    folder.mkdir()
    config = {"zero_optimization": {"stage": stage}, "train_batch_size": "auto"}
    (folder / "ds.json").write_text(json.dumps(config))
    file = folder / "run.yaml"
    file.write_text(yaml.safe_dump({**TRAINER, "deepspeed": "examples/ds.json"}))
    job = job_of_arguments(read(recognised(file), 8))
    assert job.settings.optimizer.sharding == ZERO[stage]
    assert (job.micro_batch, job.global_batch, job.dp) == (2, 2 * 4 * 8, 8)
    assert (job.model.sequence, job.settings.precision) == (1024, "bf16")
    (folder / "ds.json").unlink()
    with pytest.raises(SpecError, match=r"deepspeed: found examples/ds.json, which is not there"):
        read(recognised(file), 8)
    said = {"deepspeed.zero_optimization.stage": str(stage)}  # as the message says
    found = job_of_arguments(read(recognised(file), 8, supplied=said))
    assert found.settings.optimizer.sharding == ZERO[stage]


@pytest.mark.parametrize("key", ["packing", "neat_packing", "group_by_length"])
def test_samples_of_documents_are_counted_as_full_ones(tmp_path: Path, key: str) -> None:
    file = tmp_path / "run.yaml"
    for value in (True, False):
        file.write_text(yaml.safe_dump({**TRAINER, key: value}))
        remarks = read(recognised(file), 8).remarks
        assert value == any(one.startswith(f"{key}: not counted: ") for one in remarks)


@pytest.mark.parametrize("key", ["deepspeed", "fsdp_config"])
def test_a_name_that_is_no_file_is_not_dropped(tmp_path: Path, key: str) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump({**TRAINER, key: "ours"}))
    with pytest.raises(SpecError, match=rf"{key}: found ours, expected a file .*: --set ") as error:
        read(recognised(file), 8)
    (repair,) = re.findall(r"--set ([\w.]+)=VALUE", str(error.value))
    value = "3" if key == "deepspeed" else "FULL_SHARD"
    found = job_of_arguments(read(recognised(file), 8, supplied={repair: value}))
    assert found.settings.optimizer.sharding == "parameters"


@pytest.mark.parametrize("stage", ZERO)
def test_files_that_swift_has_by_a_name(tmp_path: Path, stage: int) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump({**TRAINER, "deepspeed": f"zero{stage}"}))
    job = job_of_arguments(read(recognised(file), 8))
    assert job.settings.optimizer.sharding == ZERO[stage]
    file.write_text(yaml.safe_dump({**TRAINER, "deepspeed": f"zero{stage}_offload"}))
    if stage < 2:  # of which it has none
        with pytest.raises(SpecError, match=f"deepspeed: found zero{stage}_offload, expected a f"):
            read(recognised(file), 8)
        return
    found = read(recognised(file), 8)
    assert job_of_arguments(found).settings.optimizer.offload == 1.0
    assert not check_arguments(found)
    parameters = [one for one in found.remarks if "parameters in the host's memory" in one]
    assert bool(parameters) == (stage == 3)


@pytest.mark.parametrize("said", ["full_shard offload", ["full_shard", "offload"], "1:offload"])
def test_what_fsdp_offloads_is_read(tmp_path: Path, said: object) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump({**TRAINER, "fsdp": said}))
    found = read(recognised(file), 8)
    assert job_of_arguments(found).settings.optimizer.offload == 1.0
    assert not check_arguments(found)
    assert found["data_parallel_sharding_strategy"] == "optim_grads_params"


@pytest.mark.parametrize(
    "optimizer",
    [
        OptimizerSettings(sharding="none"),
        OptimizerSettings(sharding="optimizer", gradient=2),
        OptimizerSettings(sharding="gradients"),
        OptimizerSettings(sharding="parameters"),
    ],
    ids=lambda optimizer: optimizer.sharding,
)
def test_what_is_exported_to_deepspeed_is_read_again(
    tmp_path: Path, optimizer: OptimizerSettings
) -> None:
    model = as_decoder(read_model(find_spec("qwen3-0.6b", "models")).architecture)
    assert model is not None
    full = Recompute(granularity="full", method="uniform", layers=1)
    settings = usual(optimizer=optimizer, recompute=full)
    exported = job(model, tp=1, pp=1, dp=4, layout=None, settings=settings)
    file = tmp_path / "ds.json"
    file.write_text(export_deepspeed(exported, "a").files[".json"])
    said = {"model": "qwen3-0.6b", "sequence_length": str(model.sequence)}
    again = job_of_arguments(read(recognised(file), exported.world, supplied=said))
    assert (again.micro_batch, again.global_batch) == (exported.micro_batch, exported.global_batch)
    assert again.settings.optimizer.sharding == optimizer.sharding
    assert again.settings.optimizer.gradient == optimizer.gradient
    assert again.settings.precision == exported.settings.precision


def test_a_configuration_of_deepspeed_needs_a_model(tmp_path: Path) -> None:
    file = tmp_path / "ds.json"
    text = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 3}}
    file.write_text(json.dumps({**text, "bf16": {"enabled": True}}))
    with pytest.raises(SpecError, match="expected the model that is trained"):
        read_launch(str(file), 8)
    more = {"model": "Qwen/Qwen3-0.6B", "sequence_length": "512"}
    job = job_of_arguments(read_launch(str(file), 8, supplied=more))
    assert job.settings.optimizer.sharding == "parameters"
    assert job.model.sequence == 512


@pytest.mark.parametrize(
    ("line", "world"),
    [
        ("accelerate launch --config_file fsdp.yaml train.py", 16),
        ("torchrun --nproc_per_node 4 train.py", 4),
        ("deepspeed --num_gpus 2 train.py", 2),
    ],
)
def test_launches(tmp_path: Path, line: str, world: int) -> None:
    strategy = {"fsdp_sharding_strategy": "FULL_SHARD", "fsdp_activation_checkpointing": True}
    accelerate = {"num_machines": 2, "num_processes": 16, "mixed_precision": "bf16"}
    text = yaml.safe_dump({**accelerate, "fsdp_config": strategy})
    (tmp_path / "fsdp.yaml").write_text(text)
    options = " ".join(f"--{key} {value}" for key, value in TRAINER.items())
    found = recognise_words(shlex.split(f"{line} {options}"), folder=tmp_path)
    assert found is not None
    job = job_of_arguments(read(found))
    assert job.world == world
    shared = "accelerate" in line
    assert job.settings.optimizer.sharding == ("parameters" if shared else "none")
    assert job.settings.recompute.kind == ("full" if shared else "none")


def test_adapters_and_a_base_in_4_bits_of_llama_factory() -> None:
    tuning = job_of("llama-factory", finetuning_type="lora").settings.tuning
    assert (tuning.rank, len(tuning.targets), tuning.dropout, tuning.base) == (8, 7, 0.0, "")
    said = {"lora_rank": 16, "lora_target": "q_proj,v_proj", "lora_dropout": 0.1}
    job = job_of("llama-factory", finetuning_type="lora", quantization_bit=4, **said)
    assert job.settings.tuning == Tuning(
        rank=16, targets=("q_proj", "v_proj"), dropout=0.1, adapters="fp32", base="nf4"
    )
    assert job.settings.kernels.implementation == "eager"


def test_adapters_in_the_newer_words_of_llama_factory() -> None:
    said: dict[str, object] = {"peft_config.name": "lora", "peft_config.r": 16}
    said |= {"quant_config.name": "bnb", "finetuning_type": None}
    newer = job_of("llama-factory", **said)
    older = job_of("llama-factory", finetuning_type="lora", lora_rank=16, quantization_bit=4)
    assert newer.settings == older.settings


@pytest.mark.parametrize(
    ("said", "trained"),
    [
        ({}, {26, 27}),
        ({"freeze_trainable_layers": 4}, {24, 25, 26, 27}),
        ({"freeze_trainable_layers": -3}, {0, 1, 2}),
        ({"freeze_trainable_layers": 4, "use_llama_pro": True}, {6, 13, 20, 27}),
        ({"freeze_trainable_layers": 40}, {*range(28)}),
    ],
)
def test_layers_that_llama_factory_trains(said: dict[str, object], trained: set[int]) -> None:
    tuning = job_of("llama-factory", finetuning_type="freeze", **said).settings.tuning
    frozen = tuning.frozen_layers(28)
    assert {layer for layer in range(28) if not frozen[layer]} == trained
    assert tuning.freezes("embedding")
    assert tuning.freezes("output")
    newer = {f"peft_config.{key}": value for key, value in said.items()}
    newer |= {"peft_config.name": "freeze", "finetuning_type": None}
    if "use_llama_pro" not in said:
        again = job_of("llama-factory", **newer)
        assert again.settings.tuning == tuning


def test_pairs_of_answers_are_two_samples() -> None:
    one, pair = (job_of("llama-factory", stage=stage) for stage in ("sft", "dpo"))
    assert pair.micro_batch == 2 * one.micro_batch
    assert pair.global_batch == 2 * one.global_batch


def test_a_file_behind_accelerate(tmp_path: Path) -> None:
    """LLaMA-Factory's other program, which is called like those of other systems."""
    (tmp_path / "run.yaml").write_text(yaml.safe_dump({**TRAINER, "finetuning_type": "lora"}))
    (tmp_path / "two.yaml").write_text("num_processes: 2\n")
    (tmp_path / "examples").mkdir()
    line = "accelerate launch --config_file two.yaml src/train.py run.yaml"
    found = recognise_words(shlex.split(line), folder=tmp_path / "examples")
    assert found is not None
    assert found.row.name == "llama-factory"
    job = job_of_arguments(read(found))
    assert (job.settings.tuning.rank, job.world) == (8, 2)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("adamw_torch", "fp32"),
        ("adamw_bnb_8bit", "8bit"),
        ("adamw_torch_8bit", "8bit"),
        ("paged_adamw_32bit", "paged"),
        ("Paged_AdamW_8bit", "paged-8bit"),
    ],
)
def test_adam_of_bitsandbytes_is_read(name: str, said: str) -> None:
    for way in ("lora", "full"):
        job = job_of("llama-factory", finetuning_type=way, optim=name)
        assert MOMENTS.read(job.settings) == said
        other = job_of("llama-factory", finetuning_type=way)
        if way == "lora":
            own = MOMENTS.write(other.settings, said)
            assert own is not None
            assert job == replace(other, settings=own)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"finetuning_type": "oft"}, "expected full, lora or freeze: other ways"),
        ({"finetuning_type": "freeze", "freeze_trainable_layers": 0}, "expected a whole number"),
        ({"finetuning_type": "freeze", "freeze_extra_modules": "norm"}, "found 'norm', expected"),
        (
            {"finetuning_type": "freeze", "freeze_trainable_layers": 5, "use_llama_pro": True},
            "freeze_trainable_layers: found 5, expected a divisor of 28",
        ),
        ({"do_predict": True}, "do_predict: found true, expected do_train: true"),
        ({"optim": "adafactor"}, "optim: found 'adafactor', expected one of"),
        ({"finetuning_type": "lora", "lora_target": "c_attn"}, "found c_attn"),
        ({"quantization_bit": 4}, "expected none without adapters (lora)"),
        ({"quantization_bit": 8}, "expected none or 4"),
        ({"peft_config.name": "oft"}, "peft_config.name: found 'oft', expected full, lora or"),
        ({"quant_config.name": "bnb"}, "quant_config.name: found 'bnb', expected none without"),
        ({"stage": "ppo"}, "stage: found 'ppo', expected one of"),
        ({"per_device_train_batch_size": "many"}, "per_device_train_batch_size: found 'many'"),
    ],
)
def test_what_is_refused(changed: dict[str, object], said: str) -> None:
    with pytest.raises(SpecError, match=r"^run\.yaml: ") as error:
        job_of("llama-factory", **changed)
    assert said in str(error.value)


def test_llama_factory_recomputes_layers_unless_it_is_told_otherwise() -> None:
    newer = {"model_name_or_path": None, "model": "Qwen/Qwen3-0.6B", "bf16": None}
    for said, off in (({}, {"disable_gradient_checkpointing": True}),
                      (newer, {"enable_activation_checkpointing": "false"})):  # fmt: skip
        assert job_of("llama-factory", **said).settings.recompute.granularity == "full"
        assert job_of("llama-factory", **said, **off).settings.recompute.granularity == "none"
        assert job_of("llama-factory", **said).settings.precision == "bf16"


def test_llama_factory_trains_adapters_where_nothing_says_what() -> None:
    assert job_of("llama-factory", finetuning_type=None).settings.tuning.rank == 8
    assert job_of("llama-factory").settings.tuning.rank == 0


def test_the_encoder_of_llama_factory_is_frozen_unless_it_is_told_otherwise() -> None:
    seen = {"model_name_or_path": "Qwen/Qwen2.5-VL-7B-Instruct"}
    assert job_of("llama-factory", **seen).settings.tuning.frozen == ("encoder", "projector")
    seen_too = {"freeze_vision_tower": False, "freeze_multi_modal_projector": False}
    trained = job_of("llama-factory", **seen, **seen_too)
    assert not trained.settings.tuning
    assert trained.model.encoder is not None
    assert trained.model.encoder.recomputed
    first = job_of("llama-factory", **seen, finetuning_type="freeze").settings.tuning.frozen
    assert {"embedding", "output", "encoder", "projector"} < {*first}
    aligned = {"freeze_language_model": True, "freeze_multi_modal_projector": False}
    projector = job_of("llama-factory", **seen, **aligned).settings.tuning
    assert projector.frozen == ("encoder", "embedding", "layers:0-27", "norms", "output")
    remarks = arguments_of("llama-factory", **seen, **aligned).remarks
    assert not any("not about the plan: " in one and "freeze_" in one for one in remarks)


@pytest.mark.parametrize("command", ["sft", "dpo", "rm"])
def test_commands_of_llama_factory_say_the_stage(tmp_path: Path, command: str) -> None:
    text = {"model": "Qwen/Qwen3-0.6B", "train_dataset": "a", "micro_batch_size": 2}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump({**text, "cutoff_len": 512}))
    found = recognise_words(["llamafactory-cli", command, "run.yaml"], folder=tmp_path)
    assert found is not None
    args = read(found, 8)
    assert job_of_arguments(args).micro_batch == (2 if command == "sft" else 4)
    said = [one for one in args.remarks if one.startswith(f"stage: {command}: ")]
    assert len(said) == (command != "sft")
    assert ("reference" in " ".join(said)) == (command == "dpo")

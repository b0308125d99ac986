"""Files of the Trainer: who judges their jobs, and in which words changes are offered."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.faces.cli.test_evaluate import Command

RUN: dict[str, Any] = {
    "model_name_or_path": "meta-llama/Llama-3.2-1B",
    "cutoff_len": 2048,
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 4,
    "bf16": True,
    "gradient_checkpointing": True,
}
SHARING: dict[str, tuple[dict[str, Any], str]] = {
    "ddp": ({}, "torchtitan"),
    "fsdp": ({"fsdp": "full_shard auto_wrap"}, "torchtitan"),
    "zero": ({"deepspeed": "ds.json"}, "deepspeed"),
}
TRAINED: dict[str, dict[str, Any]] = {
    "lora": {"finetuning_type": "lora", "lora_rank": 8, "lora_target": "q_proj,v_proj"},
    "qlora": {"finetuning_type": "lora", "lora_target": "all", "quantization_bit": 4},
    "freeze": {"finetuning_type": "freeze", "freeze_trainable_layers": 2},
    "8 bits": {"finetuning_type": "full", "optim": "adamw_8bit"},
    "liger": {"finetuning_type": "full", "enable_liger_kernel": True},
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    zero = {"zero_optimization": {"stage": 2, "overlap_comm": True}, "bf16": {"enabled": True}}
    (tmp_path / "ds.json").write_text(json.dumps(zero))
    return tmp_path / "run.yaml"


@pytest.mark.parametrize("shared", SHARING)
@pytest.mark.parametrize("trained", TRAINED)
def test_a_job_is_judged_by_the_system_that_runs_it(
    ilp_plan: Command, file: Path, tmp_path: Path, trained: str, shared: str
) -> None:
    sharing, system = SHARING[shared]
    file.write_text(yaml.safe_dump({**RUN, **TRAINED[trained], **sharing}))
    plan = tmp_path / "plan.json"
    done = ilp_plan("import", "megatron", file, "--gpus", "2xA100-80GB", "--output", plan)
    assert done.code == 0, done.err
    assert "NOT LEGAL" not in done.out
    assert json.loads(plan.read_text())["inputs"]["space"] == system
    assert "not about the plan: deepspeed" not in done.err
    script = ilp_plan("export", plan, "--to", "peft", "--output", tmp_path / "run")
    assert script.code == 0, script.err
    assert f"judged as {'DeepSpeed' if shared == 'zero' else 'torchtitan'}" in done.err


def test_changes_are_said_as_the_trainer_s_arguments(ilp_plan: Command, file: Path) -> None:
    long = {**RUN, **TRAINED["lora"], "cutoff_len": 8192, "gradient_checkpointing": False}
    file.write_text(yaml.safe_dump(long))
    done = ilp_plan("fit", file, "--gpus", "1xL4", "--json")
    changes = json.loads(done.out)["changes"]
    said = {word.split()[0] for one in changes for word in one["fields"]}
    assert said
    assert said <= {
        "gradient_checkpointing", "gradient_checkpointing_kwargs.use_reentrant",
        "use_liger_kernel", "per_device_train_batch_size", "gradient_accumulation_steps",
    }  # fmt: skip

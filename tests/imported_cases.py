"""Small configurations of other training systems, and the jobs that they mean."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from ilp_planner.formats.imported.table import flat
from ilp_planner.formats.imports import IMPORTS, Recognised, read, recognise_file
from ilp_planner.formats.megatron.arguments import job_of_arguments
from ilp_planner.formats.megatron.values import MegatronArguments
from ilp_planner.specs.training import TrainingJob

NANOTRON: Mapping[str, Any] = {
    "parallelism.dp": 4,
    "parallelism.tp": 2,
    "parallelism.pp": 1,
    "parallelism.tp_mode": "REDUCE_SCATTER",
    "tokens.micro_batch_size": 2,
    "tokens.sequence_length": 512,
    "tokens.batch_accumulation_per_replica": 8,
    "optimizer.zero_stage": 0,
    "model.dtype": "bfloat16",
    "model.model_config.hidden_size": 256,
    "model.model_config.intermediate_size": 512,
    "model.model_config.num_hidden_layers": 4,
    "model.model_config.num_attention_heads": 8,
    "model.model_config.num_key_value_heads": 4,
    "model.model_config.vocab_size": 1024,
}
NEOX: Mapping[str, Any] = {
    "pipe-parallel-size": 2,
    "model_parallel_size": 2,
    "num_layers": 8,
    "hidden-size": 256,
    "num_attention_heads": 4,
    "seq_length": 512,
    "max_position_embeddings": 512,
    "pos_emb": "rotary",
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 4,
    "fp16.enabled": True,
    "zero_optimization.stage": 1,
}
SWIFT: Mapping[str, Any] = {
    "NPROC_PER_NODE": 8,
    "model": "Qwen/Qwen2.5-7B-Instruct",
    "max_length": 1024,
    "tensor_model_parallel_size": 2,
    "pipeline_model_parallel_size": 2,
    "sequence_parallel": True,
    "micro_batch_size": 2,
    "global_batch_size": 16,
}
ACTOR = "actor_rollout_ref.actor"
VERL: Mapping[str, Any] = {
    "--config-name": "ppo_megatron_trainer.yaml",
    "actor_rollout_ref.model.path": "Qwen/Qwen3-8B",
    "actor_rollout_ref.rollout.n": 4,
    "data.max_prompt_length": 512,
    "data.max_response_length": 1536,
    f"{ACTOR}.ppo_mini_batch_size": 16,
    f"{ACTOR}.ppo_micro_batch_size_per_gpu": 2,
    f"{ACTOR}.megatron.tensor_model_parallel_size": 4,
    f"{ACTOR}.megatron.pipeline_model_parallel_size": 1,
}
SLIME: Mapping[str, Any] = {
    "actor_num_nodes": 1,
    "actor_num_gpus_per_node": 8,
    "rollout_batch_size": 8,
    "n_samples_per_prompt": 4,
    "global_batch_size": 32,
    "rollout_max_response_len": 1024,
    "use_dynamic_batch_size": True,
    "max_tokens_per_gpu": 4096,
    "tensor_model_parallel_size": 2,
    "num_layers": 4,
    "hidden_size": 256,
    "num_attention_heads": 8,
    "vocab_size": 1024,
    "use_rotary_position_embeddings": True,
    "swiglu": True,
    "disable_bias_linear": True,
}
CHATLEARN: Mapping[str, Any] = {
    "models.policy.load": "/ckpts/Qwen3-8B",
    "models.policy_trainer.num_gpu": 8,
    "models.policy_trainer.seq_length": 2048,
    "models.policy_trainer.tensor_model_parallel_size": 2,
    "models.policy_trainer.packing": False,
    "models.policy_trainer.max_token_in_packing": 8192,
    "runtime_args.train_backend": "megatron",
    "runtime_args.train_global_batch_size": 32,
    "runtime_args.train_micro_batch_size": 2,
}
PRIMUS: Mapping[str, Any] = {
    "modules.pre_trainer.framework": "megatron",
    "modules.pre_trainer.config": "pre_trainer.yaml",
    "modules.pre_trainer.model": "llama3.1_8B.yaml",
    "modules.pre_trainer.overrides.micro_batch_size": 1,
    "modules.pre_trainer.overrides.global_batch_size": 32,
    "modules.pre_trainer.overrides.seq_length": 2048,
    "modules.pre_trainer.overrides.tensor_model_parallel_size": 2,
}
NEMO: Mapping[str, Any] = {
    "trainer.num_nodes": 1,
    "trainer.devices": 8,
    "trainer.precision": "bf16",
    "model.micro_batch_size": 1,
    "model.global_batch_size": 16,
    "model.tensor_model_parallel_size": 2,
    "model.pipeline_model_parallel_size": 2,
    "model.sequence_parallel": True,
    "model.encoder_seq_length": 512,
    "model.max_position_embeddings": 512,
    "model.num_layers": 4,
    "model.hidden_size": 256,
    "model.ffn_hidden_size": 512,
    "model.num_attention_heads": 8,
    "model.num_query_groups": 4,
    "model.vocab_size": 1024,
    "model.activation": "fast-swiglu",
    "model.normalization": "rmsnorm",
    "model.bias": False,
    "model.position_embedding_type": "rope",
    "model.optim.name": "distributed_fused_adam",
}
TRAINER: Mapping[str, Any] = {
    "model_name_or_path": "Qwen/Qwen3-0.6B",
    "stage": "sft",
    "finetuning_type": "full",
    "cutoff_len": 1024,
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 4,
    "bf16": True,
}
DEEPSPEED: Mapping[str, Any] = {
    "deepspeed.train_micro_batch_size_per_gpu": 2,
    "deepspeed.gradient_accumulation_steps": 4,
    "deepspeed.zero_optimization.stage": 2,
    "deepspeed.bf16.enabled": True,
    "model": "Qwen/Qwen3-0.6B",
    "sequence_length": 1024,
}
TITAN: Mapping[str, Any] = {
    "job.description": "a",
    "model.name": "llama3",
    "model.flavor": "8B",
    "training.seq_len": 4096,
    "training.local_batch_size": 2,
    "parallelism.tensor_parallel_degree": 2,
    "parallelism.data_parallel_shard_degree": -1,
    "activation_checkpoint.mode": "selective",
    "activation_checkpoint.selective_ac_option": "op",
}
SMALLEST = {
    "torchtitan": TITAN,
    "chatlearn": CHATLEARN, "primus": PRIMUS,
    "nemo": NEMO, "llama-factory": TRAINER, "trainer": TRAINER, "deepspeed": DEEPSPEED,
    "nanotron": NANOTRON, "gpt-neox": NEOX, "ms-swift": SWIFT, "verl": VERL, "slime": SLIME,
}  # fmt: skip
FILES = ("nanotron", "gpt-neox", "nemo", "llama-factory", "primus")

LINES = {
    "chatlearn": "python chatlearn_entrypoint.py grpo --config-file a.yaml "
    + " ".join(f"{key}={str(value).lower()}" for key, value in CHATLEARN.items()).replace(
        "/ckpts/qwen3-8b", "/ckpts/Qwen3-8B"
    ),
    "ms-swift": "NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen2.5-7B-Instruct --max_length 1024 "
    "--tensor_model_parallel_size 2 --pipeline_model_parallel_size 2 --sequence_parallel true "
    "--micro_batch_size 2 --global_batch_size 16",
    "verl": "python3 -m verl.trainer.main_ppo --config-name=ppo_megatron_trainer.yaml "
    "actor_rollout_ref.model.path=Qwen/Qwen3-8B actor_rollout_ref.rollout.n=4 "
    "data.max_prompt_length=512 data.max_response_length=1536 "
    "actor_rollout_ref.actor.ppo_mini_batch_size=16 "
    "+actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2 "
    "actor_rollout_ref.actor.megatron.tensor_model_parallel_size=4 "
    "actor_rollout_ref.actor.megatron.pipeline_model_parallel_size=1",
    "slime": "ray job submit --address=x -- python3 train.py --actor-num-nodes 1 "
    "--actor-num-gpus-per-node 8 --rollout-batch-size 8 --n-samples-per-prompt 4 "
    "--global-batch-size 32 "
    "--rollout-max-response-len 1024 --use-dynamic-batch-size --max-tokens-per-gpu 4096 "
    "--tensor-model-parallel-size 2 --num-layers 4 --hidden-size 256 --num-attention-heads 8 "
    "--vocab-size 1024 --use-rotary-position-embeddings --swiglu --disable-bias-linear",
}


def nested(flat_keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return keys with dots as mappings in mappings."""
    found: dict[str, Any] = {}
    for key, value in flat_keys.items():
        *sections, name = key.split(".")
        here = found
        for section in sections:
            here = here.setdefault(section, {})
        here[name] = value
    return found


def write(folder: Path, name: str, **changed: Any) -> Path:
    """Write the smallest configuration of a system, with some keys changed; `__` for dots."""
    more = {key.replace("__", "."): value for key, value in changed.items()}
    file = folder / "run.yaml"
    file.write_text(yaml.safe_dump(nested({**SMALLEST[name], **more}), sort_keys=False))
    return file


def arguments_of(name: str, world: int | None = 8, **changed: Any) -> MegatronArguments:
    """Return what a changed configuration means."""
    more = {key.replace("__", "."): value for key, value in changed.items()}
    pairs = tuple(flat(nested({**SMALLEST[name], **more})))
    row = next(row for row in IMPORTS if row.name == name)
    return read(Recognised(row, pairs, "run.yaml"), world)


def job_of(name: str, world: int | None = 8, **changed: Any) -> TrainingJob:
    """Return the job of a changed configuration."""
    return job_of_arguments(arguments_of(name, world, **changed))


def recognised(file: Path) -> Recognised:
    """Return a file that must be known."""
    found = recognise_file(file)
    assert found is not None
    return found

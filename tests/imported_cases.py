"""Small configurations of other training systems, and the jobs that they mean."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from ilp_planner.formats.imported.table import flat
from ilp_planner.formats.imports import IMPORTS, Recognised, read, recognise
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
SMALLEST = {"nanotron": NANOTRON, "gpt-neox": NEOX}


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
    found = recognise(file)
    assert found is not None
    return found

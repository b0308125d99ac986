"""ms-swift's `megatron sft`: a script with its arguments, for models of text, pictures and sounds.

Arguments are those of Megatron-LM with `_`, as far as `MegatronArguments` of ms-swift 4 has them,
and its own for adapters, frozen parts and samples. The model is named, and its encoders are modules
of transformers, which every tensor-parallel rank computes whole.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from ilp_planner.base.errors import PlanError
from ilp_planner.formats.exported import Expected, Exported, commented, describe
from ilp_planner.formats.imported.swift import SAME
from ilp_planner.formats.megatron.arguments import arguments_of_job
from ilp_planner.formats.megatron.model import model_values
from ilp_planner.job.encoder import recompute_of
from ilp_planner.settings.rules import ENCODER_FIELD
from ilp_planner.spaces.runtimes.limits import (
    Unfit,
    check_batch,
    check_frozen,
    check_uncompiled,
    check_whole_encoders,
)
from ilp_planner.specs.lengths import GROUPED, LONGEST, PACKED
from ilp_planner.specs.tuning import OF_EACH, ROUTED, trains_encoder

if TYPE_CHECKING:
    from ilp_planner.formats.megatron.flags import Value
    from ilp_planner.specs.training import TrainingJob

TOOL = "ms-swift's Megatron"
RENAMED = {
    "num_virtual_stages_per_pipeline_rank": "virtual_pipeline_model_parallel_size",
    "bias_swiglu_fusion": "bias_activation_fusion",
    "bias_gelu_fusion": "bias_activation_fusion",
}
# Arguments whose value is another one here where nothing says them, and Megatron-LM's value.
UNSAID: dict[str, Value] = {
    "recompute_granularity": "none",
    "cross_entropy_loss_fusion": False,
    "use_distributed_optimizer": False,
    "attention_backend": "auto",
}
TYPES = {"bf16": "bfloat16", "fp16": "float16"}
SAMPLES = {
    PACKED: {"packing": True},
    LONGEST: {"padding_free": False},
    GROUPED: {"padding_free": False, "group_by_length": True},
}


def export_swift(job: TrainingJob, name: str, expected: Expected | None = None) -> Exported:
    """Return the script.

    Parameters
    ----------
    name: of the run.

    Raises
    ------
    PlanError: a setting that ms-swift has no argument for, with the limit and the nearest possible
    value.
    """
    check_batch(job)
    check_uncompiled(job, TOOL)
    if sparse := job.model.sparse:
        raise Unfit("model.sparse", f"{sparse.top_k} keys that an indexer chooses").but(
            f"{TOOL} has other kernels for them, and an indexer that learns nothing unless asked"
        )
    if pooled := job.model.compressed:
        raise Unfit("model.compressed", f"a window of {pooled.window} tokens, and pooled keys").but(
            f"{TOOL} has no arguments for them"
        )
    model = replace(job.model, encoder=None, sounds=None)
    whole = arguments_of_job(replace(job, model=model))
    own = model_values(model, job.settings.vocab_multiple)
    values = {key: value for key, value in whole.values.items() if key not in own}
    values.pop("create_attention_mask_in_dataloader", None)  # none of its data sets has a mask
    found: dict[str, Value] = {
        "max_length": model.sequence,
        "torch_dtype": TYPES.get(job.settings.precision, "float32"),
    }
    for key in ("bf16", "fp16"):
        values.pop(key, None)
    for key, value in {**UNSAID, **values}.items():
        there = RENAMED.get(key, key)
        if there not in SAME and key not in RENAMED:
            raise Unfit(f"settings ({key})", _word(value)).but(f"{TOOL} has no such argument")
        found[there] = value
    if model.experts:
        found |= {"expert_tensor_parallel_size": job.expert_tp}
        found.setdefault("moe_grouped_gemm", False)
    if model.prediction_layers:  # not taken from the model's configuration
        found["mtp_num_layers"] = model.prediction_layers
    found |= SAMPLES.get(job.batching, {})
    found |= _tuned(job) | _seen(job)
    named = (expected.model if expected else "") or "MODEL"
    words = [f"--model {shlex.quote(named)}"]
    words += [f"--{key} {_word(value)}" for key, value in found.items()]
    each = min(job.world, job.devices_per_node)
    notes = ["the data set and all else are arguments of the script: --dataset FILE"]
    if job.settings.vocab_multiple > 1:
        notes.append("settings.vocab_multiple: 1 here: words are padded to a multiple of the ranks")
    if named == "MODEL":
        notes.append("model: no name at Hugging Face is known: write it or a folder for MODEL")
    head = commented([f"{TOOL}: {name}", *describe(job), *(f"note: {n}" for n in notes)])
    lines = ["#!/usr/bin/env bash", *head, "set -euo pipefail"]
    lines += [
        f"export {key}={shlex.quote(text)}" for key, text in (whole.environment or {}).items()
    ]
    lines += [f"export NPROC_PER_NODE={each}", f"export NNODES={job.world // each}"]
    return Exported(
        {".sh": "\n".join([*lines, " \\\n    ".join(["megatron sft", *words, '"$@"']), ""])},
        tuple(notes),
    )


def _word(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return " ".join(shlex.quote(str(one)) for one in value)
    return shlex.quote(str(value))


def _tuned(job: TrainingJob) -> dict[str, Value]:
    """Return what of the model is trained."""
    tuning = job.settings.tuning
    if not tuning.rank:
        return {"tuner_type": "full"}
    if tuning.base or any(tuning.frozen_layers(job.model.layers)):
        raise Unfit("settings.tuning", tuning.base or ", ".join(tuning.frozen)).but(
            f"{TOOL} has adapters in all layers of a base in 16 bits", "lora = 16"
        )
    plain = tuple(target for target in tuning.targets if target not in OF_EACH)
    each = {f"{ROUTED}{target}" for target in plain if job.model.experts} & {*OF_EACH}
    if {*tuning.targets} - {*plain} != each:
        raise Unfit("settings.tuning.targets", ", ".join(tuning.targets)).but(
            f"{TOOL} has adapters in each routed expert beside those of other layers",
            f"lora_targets = {','.join((*plain, *sorted(each)))}",
        )
    return {
        "tuner_type": "lora",
        "lora_rank": tuning.rank,
        "lora_alpha": 2 * tuning.rank,
        "lora_dropout": tuning.dropout,
        "target_modules": plain,
    }


def _seen(job: TrainingJob) -> dict[str, Value]:
    """Return what is trained of a model with encoders, and what of those is computed again."""
    model, tuning = job.model, job.settings.tuning
    if not model.encoders:
        if tuning.frozen:
            raise Unfit("settings.tuning.frozen", ", ".join(tuning.frozen)).but(
                f"{TOOL} freezes parts of models with encoders alone", "freeze = none"
            )
        return {}
    frozen = check_frozen(job, TOOL)
    check_whole_encoders(job, TOOL)
    if model.encoder is None or model.encoder.merge == 1:
        raise PlanError(
            "model: found one that hears alone, or LLaVA 1.5, but the models of "
            f"{TOOL} see, and merge patches: Qwen2-VL and later, InternVL; "
            "`ilp-plan evaluate` and `ilp-plan show` take the plan"
        )
    again = {recompute_of(job, one).granularity for one in model.encoders}
    if "selective" in again:
        raise Unfit(ENCODER_FIELD, "core").but(
            f"{TOOL} computes layers of encoders again or nothing", "full"
        )
    return {
        "freeze_vit": frozen.encoder,
        "freeze_aligner": frozen.projector,
        "freeze_llm": frozen.language,
        "vit_gradient_checkpointing": "full" in again and trains_encoder(model, tuning),
    }

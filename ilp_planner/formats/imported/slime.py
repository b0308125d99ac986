"""slime's `train.py`: Megatron-LM's own arguments, and those of rollouts."""

from __future__ import annotations

from typing import Any

from ilp_planner.formats.imported.rows import (
    UNMASKED,
    Arguments,
    Says,
    Uncounted,
    model_arguments,
    only,
)
from ilp_planner.formats.imported.table import EACH, LENGTH, NODES, TOKENS, Reading, System
from ilp_planner.formats.megatron.hybrid import DELTA_KEYS, FREQUENCY, VARIANT
from ilp_planner.formats.megatron.sparse import BACKEND, EPSILON, OFFSET, PAIRED, SHARED, TURNED
from ilp_planner.formats.megatron.sparse import KEYS as SPARSE_KEYS
from ilp_planner.settings.table import CP_COMM

ROLLOUT = "rollout_max_{}_len"
CHECKPOINT = "hf_checkpoint"
# Layers of slime's own that are Megatron-LM's with other norms: what is not counted of each.
LAYERS = {
    "slime_plugins.models.glm4": "norms behind attention and MLP; counted as none",
    "slime_plugins.models.minimax_m2": (
        "norms of queries and keys over all heads, gathered over tensor-parallel ranks; counted "
        "for each head"
    ),
}
# Layers with delta nets, whose sizes stand in the checkpoint's configuration, in no argument.
DELTA_NETS = ("slime_plugins.models.qwen3_next", "slime_plugins.models.qwen3_5")
# Layers with an indexer that chooses keys, likewise.
INDEXED = ("slime_plugins.models.glm5.glm5",)


def _option(key: str, values: tuple[str, ...]) -> tuple[str, ...]:
    """Return an option as it is typed; a switch has no word, and is left out where it is off."""
    name = f"--{key.replace('_', '-')}"
    if values == ("false",):
        return ()
    return (name,) if values == ("true",) else (name, *values)


def _layer(value: Any) -> Arguments:
    """Return the row of a layer by its module and function; others are Megatron-LM's to judge."""
    name = value[0] if isinstance(value, list) else value
    return {} if name in (*LAYERS, *DELTA_NETS, *INDEXED) else {"spec": value}


def _of_checkpoint(reading: Reading, what: str, keys: set[str]) -> None:
    """Say sizes of layers, as the library has them for the model of the checkpoint.

    Parameters
    ----------
    what: they are the sizes of. keys: arguments of Megatron-LM that say them.
    """
    name = reading.given.get(CHECKPOINT)
    if not isinstance(name, str):
        raise reading.error(CHECKPOINT, name, f"the model whose {what} the layers of --spec have")
    values, notes, _ = model_arguments(name, reading.source, CHECKPOINT)
    for key, value in values.items():
        if key in keys:
            reading.say(key, value, CHECKPOINT)
    reading.remarks += notes


def _delta_nets(reading: Reading) -> None:
    """Say the sizes of delta nets."""
    _of_checkpoint(reading, "delta nets", {VARIANT, FREQUENCY, *DELTA_KEYS.values()})
    reading.remarks.append(
        "spec: delta nets are whole on every tensor-parallel rank; counted as split, as those of "
        "Megatron-LM are"
    )


def _indexer(reading: Reading) -> None:
    """Say the sizes of an indexer, which nothing trains (`slime_plugins/models/glm5/glm5.py`)."""
    sizes = {VARIANT, BACKEND, SHARED, OFFSET, PAIRED, TURNED, EPSILON, *SPARSE_KEYS.values()}
    _of_checkpoint(reading, "indexer", sizes)
    reading.say("apply_rope_fusion", False, "spec")
    reading.remarks.append(
        "spec: an indexer whose products are divided among tensor-parallel ranks; counted as whole "
        "on each, as that of Megatron-LM is"
    )


def _finish(reading: Reading) -> None:
    """Say the longest sample, the samples of a step, and what of a layer is not counted."""
    given, said = reading.given, reading.said
    layer = given.get("spec")
    if isinstance(layer, list) and layer[0] in LAYERS:
        reading.remarks.append(f"spec: not counted: {LAYERS[layer[0]]}")
    elif isinstance(layer, list) and layer[0] in DELTA_NETS:
        _delta_nets(reading)
    elif isinstance(layer, list) and layer[0] in INDEXED:
        _indexer(reading)
    names = [ROLLOUT.format(part) for part in ("prompt", "response")]
    parts = {name: given[name] for name in names if given.get(name) is not None}
    longest = given.get("rollout_max_context_len")
    if longest is not None:
        reading.say(LENGTH, longest, "rollout_max_context_len")
    elif parts and "seq_length" not in said:
        lengths = [reading.whole(name, 0) for name in parts]
        reading.say(LENGTH, sum(lengths), next(reversed(parts)))
        if names[0] not in parts:
            reading.remarks.append(f"{names[0]}: found none; samples are counted without prompts")
    if given.get("use_dynamic_batch_size"):
        said.pop("micro_batch_size", None)
        if not reading.number(LENGTH) and reading.number(TOKENS):
            reading.say(LENGTH, reading.number(TOKENS), "max_tokens_per_gpu")
    else:
        said.pop(TOKENS, None)
        said.setdefault("micro_batch_size", 1)
    if "global_batch_size" not in said:
        prompts = reading.whole("rollout_batch_size", 0)
        if prompts:
            steps = reading.whole("num_steps_per_rollout", 1)
            samples = prompts * reading.whole("n_samples_per_prompt", 1) // steps
            reading.say("global_batch_size", samples, "rollout_batch_size")


ROWS: dict[str, Says] = {
    "spec": _layer,
    "allgather_cp": lambda value: {CP_COMM: ("all_gather",)} if value else {},
    "actor_num_nodes": NODES,
    "actor_num_gpus_per_node": EACH,
    "max_tokens_per_gpu": TOKENS,
    "use_dynamic_batch_size": lambda value: {},
    "rollout_max_context_len": lambda value: {},
    "rollout_max_prompt_len": lambda value: {},
    "rollout_max_response_len": lambda value: {},
    "rollout_batch_size": lambda value: {},
    "n_samples_per_prompt": lambda value: {},
    "num_steps_per_rollout": lambda value: {},
    "only_train_params_name_list": only(otherwise="training of all parameters"),
    "freeze_params_name_list": only(otherwise="training of all parameters"),
    "use_stateless_adam": only(False, otherwise="an optimizer with states"),
    "recompute_loss_function": Uncounted("recomputation of the loss; counted as kept"),
    "log_probs_chunk_size": Uncounted("logits in parts; counted whole", (None, -1, "-1")),
    "offload_train": Uncounted("the trainer's memory in the host between steps"),
    "use_rotary_position_embeddings": lambda value: {"position_embedding_type": "rope"},
}

SYSTEM = System(
    name="slime",
    rows=ROWS,
    same=("",),
    aside=(
        "hf_checkpoint", "ref_*", "load", "save*", "ckpt_*", "prompt_data", "input_key",
        "label_key", "metadata_key", "tool_key", "multimodal_keys", "apply_chat_template*",
        "rollout_*", "rm_*", "num_rollout", "num_epoch", "balance_*", "eval_*",
        "n_samples_per_eval_prompt", "advantage_estimator", "use_kl_loss", "*kl*", "entropy_coef",
        "eps_clip*", "value_clip", "loss_*", "custom_*", "gamma", "lambd", "normalize_*",
        "disable_*", "use_tis*", "tis_*", "use_opsm*", "opsm_*", "use_opd*", "opd_*",
        "use_routing_*", "use_rollout_*", "get_mismatch_metrics", "lr*", "min_lr", "weight_decay*",
        "adam_*", "clip_grad", "*wandb*", "tensorboard*", "use_tensorboard*", "log_*", "sglang*",
        "colocate", "offload", "no_offload_*", "offload_rollout", "update_weight*",
        "train_env_vars", "seed", "num_gpus_*", "over_sampling_*", "dynamic_sampling_*",
        "partial_rollout", "mask_offpolicy_*", "buffer_filter_*", "use_fault_tolerance",
        "data_source_path", "skip_eval_*", "debug_*", "megatron_to_hf_mode", "model_name",
        "attention_softmax_in_fp32", "train_memory_*", "calculate_per_token_loss", "keep_old_actor",
        "reset_optimizer_states", "override_*", "use_slime_router", "slime_router_*", "use_miles*",
        "prefill_*", "router_*", "no_save_*", "no_load_*", "finetune", "moe_router_*dtype",
        "moe_aux_loss_coeff", "moe_z_loss_coeff", "moe_router_bias_update_rate",
        "moe_router_fusion", "use_cpu_initialization", "tokenizer_*", "sft_*", "start_rollout_id",
        "use_rollout*", "train_backend", "qkv_format", "release_train", "global_rollout*",
        "critic_*", "num_critic_*", "no_rope_fusion", "make_vocab_size_*", "dump_*", "profile*",
        "post_self_attn_layernorm", "post_mlp_layernorm",
        "use_pytorch_profiler", "record_memory_history", "memory_snapshot_*", "ci_*",
        "use_distributed_post", "manual_gc*", "data_pad_size_multiplier", "distributed_*",
        "apply_rope_fusion", "qwen_gdn_backend", "mtp_loss_scaling_factor", "enable_mtp_training",
    ),
    usual={
        **UNMASKED,
        "bf16": True,
        "use_distributed_optimizer": True,
        NODES: 1,
    },
    notes=(
        "of an RL job the trainer alone is judged: rollout engine, reference model and "
        "log-probabilities are not counted",
    ),
    finish=_finish,
    form=_option,
    launched=True,
    options=True,
)  # fmt: skip

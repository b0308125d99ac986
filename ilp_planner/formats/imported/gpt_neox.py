"""GPT-NeoX's YAML (`deepy.py train.py FILE...`), whose keys may have - for _."""

from __future__ import annotations

from typing import Any

from ilp_planner.formats.imported.rows import (
    NO_DROPOUT,
    Arguments,
    Says,
    Uncounted,
    each,
    only,
    switch,
    window,
)
from ilp_planner.formats.imported.table import WORLD, Reading, System
from ilp_planner.formats.megatron.values import STEPS
from ilp_planner.settings.table import SEQUENCE

GATED = ("swiglu", "geglu", "reglu", "liglu", "bilinear")
# Entries of tokenizers by the names of their files, with a folder where names are common.
FILES = {
    "20B_tokenizer.json": 50277,
    "codellama/tokenizer.model": 32016,
    "mistral-7B-v0.1/tokenizer.model": 32000,
}
HALVES: dict[str, Arguments] = {"fp16": {"fp16": True}, "bfloat16": {"bf16": True}, "fp32": {}}


def _attention(value: Any) -> Arguments:
    """Return the kernels of attention; blocks of `[[kinds], layers]` have one for all layers."""
    kinds = {kind for block in value for kind in block[0]} if _is_blocks(value) else {value}
    if kinds == {"flash"}:
        return {"transformer_impl": "transformer_engine", "attention_backend": "flash"}
    if kinds == {"global"}:
        return {"transformer_impl": "local"}
    raise ValueError("flash or global for all layers")


def _is_blocks(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(block, list) and block and isinstance(block[0], list) for block in value
    )


def _finish(reading: Reading) -> None:
    """Say widths, biases, the vocabulary and the samples of a micro-batch."""
    said, given = reading.said, reading.given
    if said.get("pipeline_model_parallel_size") == 0:  # without its pipeline module
        said["pipeline_model_parallel_size"] = 1
    gated = given.get("activation") in GATED
    wide = reading.number("ffn_hidden_size") or int(
        reading.real("expansion_factor", 4.0) * reading.number("hidden_size")
    )
    multiple = reading.whole("mlp_multiple_of", 1)
    if gated:
        # As many parameters as without a gate, in multiples.
        wide = -(-(int(wide * 2 / 3) // 2) // multiple) * multiple
    if wide:
        said["ffn_hidden_size"] = wide
    biases = [given.get(f"use_bias_in_{part}", True) for part in ("mlp", "attn_linear")]
    said["add_bias_linear"] = any(biases)
    if biases[0] != biases[1]:
        part = "attn_linear" if biases[0] else "mlp"
        reading.remarks.append(f"use_bias_in_{part}: false: its biases are counted all the same")
    if said.get("recompute_granularity") == "full":
        said.setdefault("recompute_num_layers", 1)
    else:
        said.pop("recompute_num_layers", None)
    _vocabulary(reading)
    if said.get("num_experts") == 1:
        for name in ("num_experts", "moe_router_topk", "moe_layer_freq"):
            said.pop(name, None)


def _vocabulary(reading: Reading) -> None:
    """Say the vocabulary of a tokenizer in a file that is known by its name."""
    named = str(reading.given.get("vocab_file") or "")
    file = next((name for name in FILES if f"/{named}".endswith(f"/{name}")), "")
    kind = reading.given.get("tokenizer_type") or "GPT2BPETokenizer"
    if kind in ("HFTokenizer", "SPMTokenizer") and file:
        reading.say("vocab_size", FILES[file])
        reading.remarks.append(f"vocab_file: {FILES[file]} entries, as {file} has")
    elif kind == "CharLevelTokenizer":
        reading.say("vocab_size", 512)
    elif kind != "GPT2BPETokenizer" and "vocab_size" not in reading.said:
        reading.say("tokenizer_type", kind)


ROWS: dict[str, Says] = {
    "pipe_parallel_size": "pipeline_model_parallel_size",
    "model_parallel_size": "tensor_model_parallel_size",
    SEQUENCE: switch({SEQUENCE: True}),
    "global_num_gpus": WORLD,
    "num_layers": "num_layers",
    "hidden_size": "hidden_size",
    "intermediate_size": "ffn_hidden_size",
    "expansion_factor": lambda value: {},
    "mlp_multiple_of": lambda value: {},
    "num_attention_heads": "num_attention_heads",
    "num_kv_heads": lambda value: {"group_query_attention": True, "num_query_groups": value},
    "seq_length": "seq_length",
    "max_position_embeddings": "max_position_embeddings",
    "sliding_window_width": window,
    "norm": {
        "layernorm": {"normalization": "LayerNorm"},
        "rmsnorm": {"normalization": "RMSNorm"},
        "te_layernorm": {"normalization": "LayerNorm"},
        "te_rmsnorm": {"normalization": "RMSNorm"},
    },
    "layernorm_epsilon": "layernorm_epsilon",
    "rms_norm_epsilon": "layernorm_epsilon",
    "use_qk_layernorm": switch({"qk_layernorm": True}),
    "pos_emb": {
        "rotary": {"position_embedding_type": "rope"},
        "learned": {"position_embedding_type": "learned_absolute"},
        "none": {"position_embedding_type": "none"},
        "alibi": {"position_embedding_type": "none"},
        "sinusoidal": {"position_embedding_type": "none"},
    },
    "rotary_pct": "rotary_percent",
    "rotary_emb_base": "rotary_base",
    "no_weight_tying": switch({"untie_embeddings_and_output_weights": True}),
    "attention_config": _attention,
    "make_vocab_size_divisible_by": "make_vocab_size_divisible_by",
    "padded_vocab_size": "padded_vocab_size",
    "vocab_size": "vocab_size",
    "tokenizer_type": lambda value: {},
    "vocab_file": lambda value: {},
    "activation": {
        **each(("gelu", "relu", "softsign", "swish", "mish", "silu"), {}),
        **each(("swiglu", "reglu", "liglu", "bilinear"), {"swiglu": True}),
        "geglu": {"quick_geglu": True},
    },
    "use_bias_in_mlp": only(True, False),
    "use_bias_in_attn_linear": only(True, False),
    "gpt_j_residual": Uncounted("attention and MLP side by side; counted one after the other"),
    "scaled_upper_triang_masked_softmax_fusion": "masked_softmax_fusion",
    "bias_gelu_fusion": "bias_gelu_fusion",
    "use_flashattn_swiglu": "bias_swiglu_fusion",
    "bias_dropout_fusion": "bias_dropout_fusion",
    "hidden_dropout": "hidden_dropout",
    "attention_dropout": "attention_dropout",
    **dict.fromkeys(
        ("te_columnparallel", "te_rowparallel", "te_layernorm_mlp", "te_mha"),
        switch({"transformer_impl": "transformer_engine"}),
    ),
    "te_fp8_mha": only(False),
    "precision": HALVES,
    "fp16.enabled": switch({"fp16": True}),
    "fp16.fp16": only(True, False),
    "fp16.auto_cast": only(True, False),
    "bf16.enabled": switch({"bf16": True}),
    "data_types.grad_accum_dtype": {
        "fp32": {"accumulate_allreduce_grads_in_fp32": True},
        "bf16": {"grad_reduce_in_bf16": True},
        "fp16": {},
    },
    "fp32_allreduce": switch({"accumulate_allreduce_grads_in_fp32": True}),
    "zero_optimization.stage": {
        0: {},
        **each((1, 2, 3), {"use_distributed_optimizer": True}),
    },
    "zero_stage": {0: {}, **each((1, 2, 3), {"use_distributed_optimizer": True})},
    "zero_optimization.cpu_offload": switch({"settings.optimizer.offload": 1.0}),
    "zero_optimization.overlap_comm": switch({"overlap_grad_reduce": True}),
    "optimizer.type": {
        **each(("adam", "adamw", "cpu_adam", "onebitadam"), {"optimizer": "adam"}),
        "sgd": {"optimizer": "sgd"},
        "lion": {"optimizer": "lion"},
    },
    "use_bnb_optimizer": Uncounted("8-bit optimizer states; counted as 4-byte ones"),
    "train_batch_size": "global_batch_size",
    "train_micro_batch_size_per_gpu": "micro_batch_size",
    "batch_size": "micro_batch_size",
    "gradient_accumulation_steps": STEPS,
    "gas": STEPS,
    "checkpoint_activations": switch(
        {"recompute_granularity": "full", "recompute_method": "uniform"}
    ),
    "checkpoint_num_layers": "recompute_num_layers",
    "partition_activations": Uncounted(
        "saved activations divided over tensor-parallel ranks; counted whole"
    ),
    "checkpoint_in_cpu": Uncounted("saved activations in the host's memory; counted on the device"),
    "contiguous_checkpointing": Uncounted("the buffer of saved activations"),
    "pipe_partition_method": Uncounted(
        "other cuts of the pipeline; counted as equally many layers",
        ("type:transformer|mlp", "type:transformer", "uniform"),
    ),
    "moe_num_experts": "num_experts",
    "moe_top_k": "moe_router_topk",
    "moe_expert_interval": "moe_layer_freq",
    "moe_expert_parallel_size": "expert_model_parallel_size",
    "num_unique_layers": only(otherwise="layers with parameters of their own"),
    "soft_prompt_tuning": only(otherwise="training of all parameters"),
    "train_impl": only("normal", otherwise="normal: pairs of samples are not modelled"),
    "curriculum_learning.enabled": Uncounted("shorter samples at the beginning"),
}

SYSTEM = System(
    name="GPT-NeoX",
    rows=ROWS,
    aside=(
        "*data*", "save", "load", "split", "vocab*", "merge_file", "tokenizer*", "log_*", "*wandb*",
        "*comet*", "tensorboard*", "csv_monitor*", "checkpoint_factor", "checkpoint_scale",
        "checkpoint_validation*", "checkpoint", "extra_save_iters", "keep_last_n_checkpoints",
        "no_save_*", "no_load_*", "finetune", "train_iters", "train_epochs", "eval_*", "*lr*",
        "warmup*", "init_method*", "output_layer_init_method", "optimizer.params.*",
        "gradient_clipping", "clip_grad", "weight_decay", "scheduler.*", "fp16.*", "bf16.*",
        "*loss_scale*", "zero_optimization.allgather_*", "zero_optimization.reduce_*",
        "zero_optimization.contiguous_gradients", "zero_optimization.round_robin_gradients",
        "zero_allgather*", "zero_reduce*", "zero_contiguous*", "synchronize_each_layer", "seed",
        "distributed_backend", "hostfile", "launcher", "deepspeed_*", "num_workers", "num_gpus",
        "num_nodes", "include", "exclude", "master_*", "comment", "account", "no_ssh_check",
        "steps_per_print", "wall_clock_breakdown", "comms_logger*", "flops_profiler*", "profile*",
        "prof_*", "memory_profiling*", "rope_fusion", "layernorm_fusion", "rmsnorm_fusion",
        "rotary_save_freqs_buffer", "use_bias_in_norms", "output_layer_parallelism", "s3_*",
        "scaled_masked_softmax_fusion", "attention_softmax_in_fp32", "apply_query_key_*",
        "use_shared_fs", "text_gen_type", "temperature", "top_*", "maximum_tokens", "sample_*",
        "num_samples", "recompute", "prompt_end", "attention_type", "te_fp8_*", "mup_*", "use_mup",
        "moe_lbl_*", "moe_jitter_eps", "moe_router_type", "moe_*_loss*", "autotuning*",
        "decay_lr_to", "git_hash", "exit_interval", "lazy_mpu_init", "local_rank", "elasticity*",
    ),
    usual={
        **NO_DROPOUT,
        "transformer_impl": "local",
        "bias_gelu_fusion": False,
        "bias_dropout_fusion": False,
        "masked_softmax_fusion": False,
        "make_vocab_size_divisible_by": 128,
    },
    notes=(
        "a job of GPT-NeoX: judged by the kernels, buffers and messages of Megatron-LM, the "
        "nearest runtime that is modelled",
    ),
    finish=_finish,
    normal=lambda key: key.replace("-", "_"),
)  # fmt: skip

"""Nanotron's YAML (`run_train.py --config-file`)."""

from __future__ import annotations

from typing import Any

from ilp_planner.formats.imported.rows import (
    NO_DROPOUT,
    Arguments,
    Says,
    Uncounted,
    only,
    switch,
    window,
)
from ilp_planner.formats.imported.table import Reading, System
from ilp_planner.formats.megatron.values import REPLICAS, STEPS
from ilp_planner.settings.table import DISPATCHER, SEQUENCE

MODEL = "model.model_config"
FULL: Arguments = {
    "recompute_granularity": "full",
    "recompute_method": "uniform",
    "recompute_num_layers": 1,
}


def _base(value: Any) -> Arguments:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= 1e18:
        raise ValueError("a number from 1 to 1e18")
    return {"rotary_base": int(value)}


def _finish(reading: Reading) -> None:
    """Say experts, and what the schedule of a pipeline is."""
    given = reading.given
    if reading.number("pipeline_model_parallel_size") > 1:
        engine = given.get("parallelism.pp_engine")
        if engine != "1f1b":
            raise reading.error(
                "parallelism.pp_engine",
                engine,
                "1f1b: all forward passes before the first backward pass are not modelled",
            )
    if reading.number("num_experts"):
        _experts(reading)


def _experts(reading: Reading) -> None:
    section, given = f"{MODEL}.moe_config", reading.given
    if f"{section}.num_experts" in given:
        reading.said.setdefault("moe_router_topk", 2)
        reading.said.setdefault("moe_ffn_hidden_size", 1408)
        if given.get(f"{section}.enable_shared_expert"):
            reading.said.setdefault("moe_shared_expert_intermediate_size", 5632)
            reading.say("moe_shared_expert_gate", True)
        else:
            reading.said.pop("moe_shared_expert_intermediate_size", None)
    elif "ffn_hidden_size" in reading.said:
        reading.say("moe_ffn_hidden_size", reading.said["ffn_hidden_size"])
    # Routed by a softmax over all experts, whose largest weights are not normed.
    reading.say("moe_router_pre_softmax", True)
    named = given.get(f"{section}.layers")
    if isinstance(named, list) and named != [-1]:
        layers = range(reading.number("num_layers"))
        reading.say("moe_layer_freq", tuple(int(layer in named) for layer in layers))


ROWS: dict[str, Says] = {
    "parallelism.dp": REPLICAS,
    "parallelism.tp": "tensor_model_parallel_size",
    "parallelism.pp": "pipeline_model_parallel_size",
    "parallelism.context_parallel_size": "context_parallel_size",
    "parallelism.expert_parallel_size": "expert_model_parallel_size",
    "parallelism.pp_engine": only("1f1b", "afab"),
    "parallelism.tp_mode": {
        "reduce_scatter": {SEQUENCE: True},
        "all_reduce": {SEQUENCE: False},
    },
    "parallelism.tp_linear_async_communication": only(True, False),
    "parallelism.tp_recompute_allgather": Uncounted(
        "gathered inputs that are kept; counted as gathered again", (True,)
    ),
    "parallelism.recompute_layer": switch(FULL),
    "parallelism.moe_layer_recompute": switch({"moe_layer_recompute": True}),
    "tokens.micro_batch_size": "micro_batch_size",
    "tokens.sequence_length": "seq_length",
    "tokens.batch_accumulation_per_replica": STEPS,
    "optimizer.zero_stage": {0: {}, 1: {"use_distributed_optimizer": True}},
    "optimizer.accumulate_grad_in_fp32": switch({}, {"grad_reduce_in_bf16": True}),
    "optimizer.optimizer_factory.name": {
        "adamw": {"optimizer": "adam"},
        "adam": {"optimizer": "adam"},
        "sgd": {"optimizer": "sgd", "sgd_momentum": 0.0},
    },
    "model.dtype": {
        "bfloat16": {"bf16": True},
        "float16": {"fp16": True},
        "float32": {"bf16": False},
    },
    "model.make_vocab_size_divisible_by": "make_vocab_size_divisible_by",
    f"{MODEL}.hidden_size": "hidden_size",
    f"{MODEL}.intermediate_size": "ffn_hidden_size",
    f"{MODEL}.num_hidden_layers": "num_layers",
    f"{MODEL}.num_attention_heads": "num_attention_heads",
    f"{MODEL}.num_key_value_heads": lambda value: {
        "group_query_attention": True,
        "num_query_groups": value,
    },
    f"{MODEL}.vocab_size": "vocab_size",
    f"{MODEL}.max_position_embeddings": "max_position_embeddings",
    f"{MODEL}.tie_word_embeddings": switch(
        {"untie_embeddings_and_output_weights": False},
        {"untie_embeddings_and_output_weights": True},
    ),
    f"{MODEL}.attention_bias": switch({"add_qkv_bias": True}),
    f"{MODEL}.hidden_act": {
        "silu": {"swiglu": True},
        "gelu": {"swiglu": False},
        "gelu_pytorch_tanh": {"swiglu": False},
    },
    f"{MODEL}.rms_norm_eps": "layernorm_epsilon",
    f"{MODEL}.rope_theta": _base,
    f"{MODEL}.no_rope_layer": "no_rope_freq",
    f"{MODEL}.sliding_window_size": window,
    f"{MODEL}.num_experts": "num_experts",
    f"{MODEL}.num_local_experts": "num_experts",
    f"{MODEL}.moe_num_experts": "num_experts",
    f"{MODEL}.num_experts_per_tok": "moe_router_topk",
    f"{MODEL}.moe_config.num_experts": "num_experts",
    f"{MODEL}.moe_config.top_k": "moe_router_topk",
    f"{MODEL}.moe_config.moe_intermediate_size": "moe_ffn_hidden_size",
    f"{MODEL}.moe_config.shared_expert_intermediate_size": "moe_shared_expert_intermediate_size",
    f"{MODEL}.moe_config.enable_shared_expert": only(True, False),
    f"{MODEL}.moe_config.token_dispatcher_type": DISPATCHER,
    f"{MODEL}.moe_config.layers": lambda value: {},
    f"{MODEL}.is_mamba_config": only(False, otherwise="a decoder-only transformer, not Mamba"),
    f"{MODEL}.is_starcoder2_config": only(
        False, otherwise="is_llama_config or is_qwen2_config, whose layers are read here"
    ),
}

SYSTEM = System(
    name="Nanotron",
    rows=ROWS,
    aside=(
        "checkpoints*", "data*", "doremi*", "general.*", "lighteval*", "logging.*",
        "metrics_logging*", "profiler*", "s3_upload*", "tokenizer.*", "model.ddp_bucket_cap_mb",
        "model.init_method.*", "optimizer.learning_rate_scheduler.*", "optimizer.clip_grad",
        "optimizer.weight_decay*", "optimizer.adam_*", "optimizer.torch_adam_is_fused",
        "optimizer.optimizer_factory.*", "tokens.train_steps", "tokens.val_check_interval",
        "tokens.limit_*", "model.model_config.*_token_id", "model.model_config.initializer_range",
        "model.model_config.is_*_config", "model.model_config.pretraining_tp",
        "model.model_config.use_cache", "model.model_config.z_loss_*",
        "model.model_config.rope_scaling*", "model.model_config.*interleaved*",
        "model.model_config.rope_seq_len_interpolation_factor",
        "model.model_config._attn_implementation", "model.model_config._fused_*",
        "model.model_config._use_*", "model.model_config.flex_attention_mask",
        "model.model_config.log_attn_probs", "model.model_config.moe_config",
        "model.model_config.moe_config.router_*", "model.model_config.ring_attn_*",
    ),
    usual={
        **NO_DROPOUT,
        "bf16": True,
        "hidden_size": 4096,
        "ffn_hidden_size": 11008,
        "num_layers": 32,
        "num_attention_heads": 32,
        "vocab_size": 32000,
        "max_position_embeddings": 2048,
        "layernorm_epsilon": 1e-6,
        "normalization": "RMSNorm",
        "position_embedding_type": "rope",
        "swiglu": True,
        "add_bias_linear": False,
        "untie_embeddings_and_output_weights": True,
        "make_vocab_size_divisible_by": 1,
        "moe_grouped_gemm": True,
        DISPATCHER: "alltoall",
    },
    notes=(
        "a job of Nanotron: judged by the kernels, buffers and messages of Megatron-LM, the "
        "nearest runtime that is modelled",
    ),
    finish=_finish,
)  # fmt: skip

"""NeMo's and Megatron-Bridge's configurations: YAML, or overrides of a recipe."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ilp_planner.formats.imported.rows import (
    RECENT,
    Arguments,
    Says,
    Uncounted,
    both_activations,
    each,
    only,
    switch,
    truth,
)
from ilp_planner.formats.imported.table import EACH, MODEL, NODES, WORLD, Reading, System
from ilp_planner.formats.megatron.values import PP, VIRTUAL
from ilp_planner.specs.lengths import FULL, JOINED, LONGEST, PACKED
from ilp_planner.specs.pipeline_layout import read_layout
from ilp_planner.specs.tuning import BRIDGE_TARGETS

if TYPE_CHECKING:
    from collections.abc import Mapping

# Mixed precisions by the registered names that `formats.nemo` writes, after the first word.
RECIPES = {
    "fp8_delayed_scaling": "delayed",
    "fp8_current_scaling": "tensorwise",
    "fp8_subchannel_scaling": "blockwise",
    "mxfp8": "mxfp8",
}
GATED = ("swiglu", "fast-swiglu", "geglu", "fast-geglu", "reglu", "fast-reglu")
RECIPE = re.compile(r"(\w+?)_(pretrain|finetune|sft|peft|lora)\w*_config")


def _mixed(value: Any) -> Arguments:
    """Return the precision of `bf16_with_mxfp8_mixed` and its kin."""
    first, _, rest = str(value).replace("-", "_").removesuffix("_mixed").partition("_with_")
    if first not in ("bf16", "fp16"):
        raise ValueError("a mixed precision of bf16 or fp16")
    if rest and rest not in RECIPES:
        raise ValueError(f"one with {', '.join(RECIPES)}")
    low: Arguments = {"fp8": "hybrid", "fp8_recipe": RECIPES[rest]} if rest else {}
    if rest == "mxfp8":
        low = {**low, "fp8": "e4m3"}
    return {"bf16": first == "bf16", "fp16": first == "fp16", **low}


def _precision(value: Any) -> Arguments:
    text = str(value).removesuffix("-mixed").removesuffix("-true")
    if text not in ("bf16", "16", "32", "fp16", "fp32"):
        raise ValueError("bf16, 16 or 32")
    return {"bf16": text == "bf16", "fp16": text in ("16", "fp16")}


def _recipe(value: Any) -> Arguments:
    """Return the model of a recipe's name: `llama3_8b_pretrain_config` is of llama3-8b."""
    match = RECIPE.fullmatch(str(value).rpartition(".")[2])
    if match is None:
        raise ValueError("a recipe, as llama3_8b_pretrain_config")
    return {MODEL: match[1].replace("_", "-")}


def _finish(reading: Reading) -> None:
    """Say groups of queries, virtual stages and the vocabulary."""
    said, given = reading.said, reading.given
    recipe = RECIPE.fullmatch(str(given.get("recipe", given.get("--recipe"))).rpartition(".")[2])
    named = recipe is not None and recipe[2] in ("peft", "lora")
    if named or any(key.split(".")[0] == "peft" and given[key] is not None for key in given):
        reading.adapters(
            ("peft.dim", 32), ("peft.target_modules", BRIDGE_TARGETS), ("peft.dropout", 0.0)
        )
    reading.batching = _batching(given, tunes=recipe is not None and recipe[2] != "pretrain")
    groups, heads = reading.number("num_query_groups"), reading.number("num_attention_heads")
    if groups and groups != heads:
        reading.say("group_query_attention", True)
    else:
        said.pop("num_query_groups", None)
    layout, virtual = said.get("pipeline_model_parallel_layout"), reading.number(VIRTUAL)
    stages = read_layout(layout).stages if isinstance(layout, str) else ()
    if virtual and len(stages) == virtual * (reading.number(PP) or 1):
        said.pop(VIRTUAL)  # Megatron-Core takes both if they agree, Megatron-LM the layout alone
    layers = said.get("moe_layer_freq")
    if isinstance(layers, tuple) and "num_experts" not in said:
        said.pop("moe_layer_freq")


def _batching(given: Mapping[str, Any], *, tunes: bool) -> str:
    """Return how Megatron-Bridge makes samples (`FinetuningDatasetConfig`); pretraining joins
    documents. tunes: the recipe trains a model further."""
    keys = [key for key in given if re.match(r"dataset\..*packed_sequence_specs", key)]
    if any(given[key] is not None for key in keys):
        return PACKED
    if truth(given.get("dataset.dataset_kwargs.pad_to_max_length")):
        return FULL
    return LONGEST if tunes or given.get("dataset.dataloader_type") == "cyclic" else JOINED


SAME = ("model.", "ddp.", "optimizer.", "train.", "dist.", "comm_overlap.")
ROWS: dict[str, Says] = {
    "recipe": _recipe,
    "--recipe": _recipe,
    "trainer.num_nodes": NODES,
    "trainer.devices": lambda value: {} if value in (-1, "auto") else {EACH: value},
    "trainer.precision": _precision,
    "world_size": WORLD,
    "mixed_precision": _mixed,
    "model.precision": _precision,
    "model.mcore_gpt": only(True, False),
    "model.name": only("megatron_gpt_full_te_layer_autocast", ""),
    "model.encoder_seq_length": "seq_length",
    "model.num_moe_experts": "num_experts",
    "model.share_embeddings_and_output_weights": switch(
        {"untie_embeddings_and_output_weights": False},
        {"untie_embeddings_and_output_weights": True},
    ),
    "model.gated_linear_unit": switch({"swiglu": True}),
    "model.activation": {
        **each(GATED, {"swiglu": True}),
        **each(("gelu", "relu"), {}),
        "squared-relu": {"squared_relu": True},
    },
    "model.bias": switch({"add_bias_linear": True}, {"add_bias_linear": False}),
    "model.qkv_bias": "add_qkv_bias",
    "model.normalization": {
        **each(("layernorm", "low_precision_layernorm"), {"normalization": "LayerNorm"}),
        "layernorm1p": {"normalization": "LayerNorm", "layernorm_zero_centered_gamma": True},
        "rmsnorm": {"normalization": "RMSNorm"},
    },
    "model.rotary_percentage": "rotary_percent",
    "model.init_method_std": lambda value: {},
    "model.virtual_pipeline_model_parallel_size": VIRTUAL,
    "model.num_layers_in_first_pipeline_stage": "decoder_first_pipeline_num_layers",
    "model.num_layers_in_last_pipeline_stage": "decoder_last_pipeline_num_layers",
    "model.activations_checkpoint_granularity": "recompute_granularity",
    "model.activations_checkpoint_method": "recompute_method",
    "model.activations_checkpoint_num_layers": "recompute_num_layers",
    "model.bias_activation_fusion": both_activations,
    "model.fp8": {
        **each((True, "hybrid"), {"fp8": "hybrid"}), False: {}, "e4m3": {"fp8": "e4m3"},
    },
    "model.optim.name": {
        **each(
            ("distributed_fused_adam", "mcore_distributed_optim"),
            {"optimizer": "adam", "use_distributed_optimizer": True},
        ),
        **each(("fused_adam", "adamw", "adam"), {"optimizer": "adam"}),
    },
    "model.megatron_amp_O2": only(True, False),
    "model.ub_tp_comm_overlap": "tp_comm_overlap",
    "model.peft.peft_scheme": only(None, "none", otherwise="none: adapters are not modelled"),
    "model.cpu_offloading": only(True, False),
    "ddp.grad_reduce_in_fp32": switch({}, {"grad_reduce_in_bf16": True}),
    "ddp.average_in_collective": only(True, False),
    "optimizer.use_distributed_optimizer": lambda value: {},
    "model.fp8_params": Uncounted("parameters in 8 bits; counted in 16"),
    "model.teacher": Uncounted("the teacher"),
}  # fmt: skip

SYSTEM = System(
    name="NeMo",
    rows=ROWS,
    same=SAME,
    aside=(
        "name", "restore_from_path", "exp_manager*", "trainer.*", "run.*", "scheduler*", "dataset*",
        "logger*", "checkpoint*", "tokenizer*", "rng*", "profiling*", "validation*", "peft",
        "peft.*",
        "rerun_*", "straggler*", "nvrx*", "inprocess*", "ft*", "--*", "model.data*",
        "model.optim.*", "model.tokenizer*", "model.resume*", "model.*std", "model.init_method*",
        "model.*nsys*", "model.seed", "model.use_cpu_initialization", "model.should_pad_vocab",
        "model.teacher.*", "model.kd_config*", "model.gradient_as_bucket_view",
        "model.sync_batch_comm", "model.hys*", "model.native_amp*", "model.fp8_*",
        "model.transformer_engine", "model.*_in_fp32", "model.use_te_rng_tracker", "model.freeze_*",
        "model.pre_process", "model.post_process", "model.openai_gelu", "model.onnx_safe",
        "model.apply_*", "model.*loss_scale*", "train.*iters*", "train.*interval*", "train.exit*",
        "train.manual_gc*", "train.eval*", "optimizer.*lr", "optimizer.weight_decay",
        "optimizer.adam_*", "optimizer.clip_grad", "optimizer.bf16", "optimizer.fp16", "dist.*",
        "ddp.*", "comm_overlap.*", "model.save*", "model.gradient_clip*", "model.grad_*",
        "model.*hidden_layers*", "model.target*", "model.restore*", "model.validation*",
        "model.num_micro*", "model.rampup_batch_size", "model.persist_layer_norm",
        "model.moe_*coeff", "model.layer_type", "model.headscale",
    ),
    usual={
        **RECENT,
        "bf16": True,
        "use_distributed_optimizer": True,
    },
    finish=_finish,
)  # fmt: skip

"""AMD's Primus with Megatron-LM: a file of modules, whose overrides are Megatron-LM's arguments.

Defaults are those of `primus/configs/modules/megatron/pre_trainer.yaml` and of the models' files
beside it. `${NAME:VALUE}` stands for a variable, and VALUE for it where it is not set.
"""

from __future__ import annotations

import re
from typing import Any

from ilp_planner.base.yaml_files import scalar
from ilp_planner.formats.imported.rows import RECENT, Arguments, Says, Uncounted, only, truth
from ilp_planner.formats.imported.table import MODEL, Reading, System
from ilp_planner.settings.table import FUSED_FIELD, LOSS_FIELD, LOSS_FUSION, SEQUENCE
from ilp_planner.specs.tuning import BRIDGE_TARGETS

MODULE = "modules.pre_trainer"
TRAINER = re.compile(r"modules\.\w+_trainer\.(overrides\.)?")
VARIABLE = re.compile(r"\$\{(\w+):([^{}]*)\}")
# How Primus names models otherwise than Hugging Face does.
NAMES = (
    (re.compile(r"_v0\.\d+$"), ""),  # Mixtral's
    (re.compile(r"^llama3\.3_"), "llama3.1_"),
    (re.compile(r"^llama3\.1_(?=405B)"), "Llama-3.1-"),
    (re.compile(r"^qwen3_5_"), "Qwen3.5-"),
)
TURBO = "kernels of Primus-Turbo; counted as Transformer Engine's"


def with_defaults(value: Any) -> Any:
    """Return a value with the defaults of its variables."""
    if not isinstance(value, str) or "${" not in value:
        return value
    text = VARIABLE.sub(lambda match: match[2], value)
    return scalar(text) if VARIABLE.fullmatch(value) else text


def _normal(key: str) -> str:
    """Return a key without its trainer, and all else of that as if it were the first one."""
    return TRAINER.sub(lambda match: "" if match[1] else f"{MODULE}.", key)


def _model(value: Any) -> Arguments:
    """Return the row of a model's file: its name is as at Hugging Face, with underscores."""
    name = str(value).rpartition("/")[2]
    if not name.endswith((".yaml", ".yml")):
        raise ValueError("the file of a model, as llama3.1_8B.yaml")
    name = name.rpartition(".")[0]
    for pattern, theirs in NAMES:
        name = pattern.sub(theirs, name)
    return {MODEL: name.replace("_", "-")}


def _finish(reading: Reading) -> None:
    """Say Transformer Engine's loss, which the release of Megatron-LM that Primus has takes, and
    adapters beside Megatron-LM's products (`primus/backends/megatron/sft`)."""
    if truth(reading.given.get("lora.enabled")):
        usual = ("lora.target_modules", BRIDGE_TARGETS)
        reading.adapters(("lora.dim", 32), usual, ("lora.dropout", 0.0))
    fused = truth(reading.given.get(LOSS_FUSION))
    if fused and reading.given.get("cross_entropy_fusion_impl") == "te":
        reading.say(FUSED_FIELD, True)
        reading.say(LOSS_FIELD, "te")
    elif fused:
        reading.say(LOSS_FUSION, True)


ROWS: dict[str, Says] = {
    f"{MODULE}.model": _model,
    f"{MODULE}.framework": only("megatron", otherwise="megatron, whose arguments are read"),
    "lora.enabled": only(True, False),
    **dict.fromkeys(("lora.dim", "lora.target_modules", "lora.dropout"), lambda _: {}),
    LOSS_FUSION: only(True, False),
    "cross_entropy_fusion_impl": only("native", "te"),
    SEQUENCE: lambda value: {SEQUENCE: value in (True, 1, "true")},
    **dict.fromkeys(
        (
            "use_turbo_attention",
            "use_turbo_gemm",
            "use_turbo_grouped_gemm",
            "use_turbo_grouped_mlp",
            "use_turbo_parallel_linear",
            "use_turbo_rms_norm",
            "use_turbo_fused_act_with_probs",
            "use_turbo_norm_te_linear",
            "turbo_fused_grouped_gemm",
            "moe_use_fused_router_with_aux_score",
        ),
        Uncounted(TURBO),
    ),
    "moe_use_legacy_grouped_gemm": Uncounted(
        "the grouped products of Megatron-LM's earlier kernel"
    ),
    "no_fp8_weight_transpose_cache": Uncounted("transposed copies of weights that are not kept"),
    "moe_paged_stash": Uncounted("activations of experts in pages"),
    "use_turbo_deepep": Uncounted("exchanges of tokens by Primus-Turbo's DeepEP"),
    "turbo_sync_free_moe_stage": Uncounted("routing without waits for the host", (None, 0)),
    **dict.fromkeys(
        ("enable_zero_bubble", "zero_bubble_v_schedule", "enable_1f1b_v", "patch_zero_bubble"),
        only(False, otherwise="false: schedules of zero bubbles are not modelled with Megatron-LM"),
    ),
    "use_turbo_mega_moe": only(False, otherwise="false: MegaMoE is not modelled"),
    "use_rocmoe": only(False, otherwise="false: ROCMoE is not modelled"),
    "patch_moe_overlap": only(
        False, otherwise="false: exchanges beside products are overlap_moe_expert_parallel_comm"
    ),
    "recompute_layer_ids": only(None, otherwise="none: recompute_num_layers says how many"),
    "decoder_pipeline_manual_split_list": only(
        None, otherwise="none: pipeline_model_parallel_layout says the layers of stages"
    ),
}

SYSTEM = System(
    name="Primus",
    rows=ROWS,
    same=("",),
    aside=(
        "config", "lora.*", "stage", "sft_*",
        "work_group", "user_name", "exp_name", "workspace", "platform.*", f"{MODULE}.config",
        f"{MODULE}.name", "*wandb*", "*tensorboard*", "*mlflow*", "stderr_sink_level", "log_*",
        "logging_*", "*rocm_mem_info*", "*profil*", "train_iters", "eval_*", "lr*", "min_lr",
        "weight_decay*", "adam_*", "clip_grad", "eod_mask_loss", "init_method_std", "seed",
        "mock_data", "*data_path", "train_data*", "valid_data*", "test_data*", "finetune",
        "auto_continue_train", "load", "save*", "no_load_*", "no_save_*", "disable_last_saving",
        "async_save", "ckpt_*", "dataloader_type", "num_workers", "split", "manual_gc*",
        "moe_router_force_load_balancing", "moe_router_*dtype", "moe_aux_loss_coeff",
        "moe_z_loss_coeff", "moe_router_bias_update_rate",
        "moe_deepep_num_sms", "turbo_deepep_*", "enable_primus_turbo", "use_turbo_autotune",
        "turbo_*backend", "pp_warmup", "dump_pp_data", "tokenizer_*", "check_for_*",
        "distributed_timeout_minutes", "torch_profiler_*", "disable_*",
        "iterations_to_skip",
        "override_opt_param_scheduler", "*zero_bubble*", "enable_zb_runtime", "stash_modules",
        "attention_softmax_in_fp32", "apply_rope_fusion", "te_rng_tracker", "exit_*", "timing_*",
    ),
    usual={
        **RECENT,
        SEQUENCE: True,
        "bf16": True,
        "use_distributed_optimizer": True,
        "micro_batch_size": 2,
        "global_batch_size": 16,
    },
    notes=("a job of Primus: variables have their defaults",),
    normal=_normal,
    finish=_finish,
)  # fmt: skip

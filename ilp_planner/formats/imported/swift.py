"""ms-swift's `megatron sft`, `pt` and `rlhf`: Megatron-LM's arguments with `_`, and its own."""

from __future__ import annotations

from typing import Any

from ilp_planner.base.errors import MISSING
from ilp_planner.formats.imported.rows import (
    FULL,
    OF_DOCUMENTS,
    PAIRS,
    RECENT,
    Arguments,
    Says,
    Uncounted,
    both_activations,
    only,
    truth,
)
from ilp_planner.formats.imported.table import EACH, LENGTH, MODEL, NODES, Reading, System
from ilp_planner.formats.megatron.sparse import CHOSEN, LOSS
from ilp_planner.specs.lengths import CUT, GROUPED, LEFT_OUT, LONGEST, PACKED, SPLIT
from ilp_planner.specs.tuning import BRIDGE_TARGETS, OF_EACH, ROUTED

FUSED = "apply_dsa_kernel_fusion"
# Arguments that it has as Megatron-LM does (`megatron_args.py: MegatronArguments`).
SAID = """micro_batch_size global_batch_size recompute_granularity recompute_method
    recompute_num_layers recompute_modules bias_dropout_fusion gradient_accumulation_fusion
    masked_softmax_fusion apply_rope_fusion cross_entropy_loss_fusion cross_entropy_fusion_impl
    attention_backend optimizer optimizer_cpu_offload optimizer_offload_fraction
    use_precision_aware_optimizer main_grads_dtype main_params_dtype exp_avg_dtype exp_avg_sq_dtype
    use_distributed_optimizer tensor_model_parallel_size pipeline_model_parallel_size
    decoder_first_pipeline_num_layers decoder_last_pipeline_num_layers
    account_for_embedding_in_pipeline_split account_for_loss_in_pipeline_split sequence_parallel
    context_parallel_size cp_comm_type tp_comm_overlap overlap_grad_reduce overlap_param_gather
    microbatch_group_size_per_vp_stage pipeline_model_parallel_layout expert_model_parallel_size
    expert_tensor_parallel_size moe_token_dispatcher_type moe_enable_deepep moe_grouped_gemm
    moe_permute_fusion moe_shared_expert_overlap moe_expert_capacity_factor
    moe_pad_expert_input_to_capacity fp8_recipe fp8_format fp8_param_gather"""
SAME = frozenset(SAID.split())
HEADS = ("seq_cls", "embedding")  # other heads than over the vocabulary


def _frozen(value: Any) -> Arguments:
    if str(value).lower() not in ("false", "0", "0.0", "none"):
        raise ValueError("no frozen parameters: training of all is modelled")
    return {}


def _nothing(value: Any) -> Arguments:
    """Say nothing: it counts with others (`_finish`)."""
    return {}


def _images(reading: Reading) -> None:
    """Say what of a model with images is trained: its language model alone, where nothing is said
    (`megatron_args.py: _init_multimodal_full`). Of a model of text these keys mean nothing."""
    if not reading.sees():
        return
    given = reading.given
    frozen, aligner = (truth(given.get(key, True)) for key in ("freeze_vit", "freeze_aligner"))
    parts = ("encoder",) * frozen + ("projector",) * aligner
    if truth(given.get("freeze_llm")):
        parts += reading.language_model()
    # A module of transformers; frozen by default, else with checkpoints of each layer.
    again = given.get("vit_gradient_checkpointing")
    again = not frozen if again is None else truth(again)
    reading.encoder_is = {"whole": True, "frozen": parts, "recomputed": again}
    for key, still in (("freeze_vit", frozen), ("freeze_aligner", aligner)):
        if not still and "settings.tuning.rank" in reading.said:
            reading.remarks.append(
                f"{key}: not counted: adapters there; counted as frozen without them"
            )


def _head(reading: Reading) -> None:
    """Say the outputs of the head of a classifier, a reward model, or a model of embeddings."""
    given = reading.given
    task = given.get("task_type")
    if given.get("rlhf_type") == "rm":
        reading.outputs = 1
    elif task == "seq_cls":
        reading.outputs = reading.whole("num_labels", 2)
    elif task == "embedding":
        reading.outputs = 1
        reading.remarks.append("task_type: embedding: counted with a head of one number")


def _of_experts(reading: Reading) -> None:
    """Say that each routed expert has adapters of its own, in a model that has some
    (`tuners/lora.py: LoraParallelLinear`)."""
    targets = reading.said["settings.tuning.targets"]
    assert isinstance(targets, tuple)
    own = tuple(f"{ROUTED}{name}" for name in targets if f"{ROUTED}{name}" in OF_EACH)
    if reading.routes():
        reading.said["settings.tuning.targets"] = (*targets, *own)


def _unasked(reading: Reading) -> None:
    """Say what a named model has, and its configuration does not say to ms-swift: no layers of
    multi-token prediction, no loss of an indexer, and unfused kernels beside it
    (`megatron_args.py: MegatronArguments`).

    Raises
    ------
    SpecError: an indexer with unfused kernels.
    """
    reading.said.setdefault("mtp_num_layers", None)
    if not reading.chooses():
        return
    if not truth(reading.given.get(FUSED)):
        raise reading.error(
            FUSED,
            reading.given.get(FUSED, MISSING),
            "true: unfused kernels copy every token's chosen keys, which is not modelled",
        )
    reading.remarks.append(f"{FUSED}: its kernels; counted as TileLang's")
    for key in (LOSS, CHOSEN):
        reading.said.setdefault(key, None)


def _finish(reading: Reading) -> None:
    """Say the longest sample, and what of reinforcement learning is not counted."""
    given = reading.given
    if given.get("recompute_granularity", "unsaid") is None:  # the word `none`
        reading.said["recompute_granularity"] = None
    _unasked(reading)
    if "lora" in (given.get("tuner_type"), given.get("train_type")):
        reading.adapters(
            ("lora_rank", 8), ("target_modules", BRIDGE_TARGETS), ("lora_dropout", 0.05)
        )
        _of_experts(reading)
    _images(reading)
    _head(reading)
    sorts = truth(given.get("group_by_length"))
    reading.batching = PACKED if truth(given.get("packing")) else (GROUPED if sorts else LONGEST)
    reading.longer = TRUNCATION.get(str(given.get("truncation_strategy") or "delete"), "")
    kind = given.get("rlhf_type")
    reading.usual_length("max_length")
    if kind == "grpo":
        prompt = reading.number(LENGTH)
        reading.say(LENGTH, prompt + reading.whole("max_completion_length", 512))
    if kind in PAIRS:
        reading.pairs("rlhf_type", {"micro_batch_size": 1, "global_batch_size": 16})
    elif kind is not None:
        reading.remarks.append(
            f"rlhf_type: {kind}: of the job the trainer alone is judged: rollout engine, reference "
            "model and log-probabilities are not counted"
        )


# `truncation_strategy` -> what becomes of documents that are longer than a sample.
TRUNCATION = {
    "delete": LEFT_OUT, "left": CUT, "right": CUT, "truncation_left": CUT, "split": SPLIT,
}  # fmt: skip
ROWS: dict[str, Says] = {
    "NPROC_PER_NODE": EACH,
    "NNODES": NODES,
    "model": MODEL,
    "max_length": LENGTH,
    "packing_length": LENGTH,
    "tuner_type": only("full", "lora", otherwise=FULL),
    "train_type": only("full", "lora", otherwise=FULL),
    **dict.fromkeys(("lora_rank", "lora_alpha", "lora_dropout", "target_modules"), _nothing),
    "freeze_parameters": _frozen,
    "freeze_parameters_ratio": _frozen,
    "freeze_parameters_regex": _frozen,
    "trainable_parameters": _frozen,
    "trainable_parameters_regex": _frozen,
    # a generative reranker is a causal language model, whose answers are yes and no
    "task_type": only(
        "causal_lm", "generative_reranker", *HEADS, otherwise="causal_lm, seq_cls or embedding"
    ),
    "num_labels": _nothing,
    FUSED: _nothing,
    "rlhf_type": lambda value: {},
    "max_completion_length": lambda value: {},
    "recompute_granularity": {
        "none": {"recompute_granularity": None},
        "full": {"recompute_granularity": "full"},
        "selective": {"recompute_granularity": "selective"},
    },
    "virtual_pipeline_model_parallel_size": "num_virtual_stages_per_pipeline_rank",
    "bias_activation_fusion": both_activations,
    "apply_rope_fusion": only(True, False),
    "torch_dtype": {
        "bfloat16": {"bf16": True, "fp16": False},
        "float16": {"bf16": False, "fp16": True},
        "float32": {"bf16": False, "fp16": False},
    },
    "packing": Uncounted(f"packed samples {OF_DOCUMENTS}"),
    "group_by_length": Uncounted(f"sorted samples {OF_DOCUMENTS}"),
    "padding_free": Uncounted(f"samples without padding {OF_DOCUMENTS}"),
    "teacher_model": Uncounted("the teacher"),
    "moe_router_dtype": only("none", "fp32", "fp64", None),
    "loss_scale": lambda value: {},
}  # fmt: skip

SYSTEM = System(
    name="ms-swift",
    rows=ROWS,
    same=("",),
    aside=(
        "*dataset*", "dataloader_*", "data_*", "*split*", "load_*", "save*", "output_dir", "lr*",
        "min_lr", "*weight_decay*", "adam_*", "clip_grad", "*train_epochs", "train_iters",
        "max_epochs", "eval_*", "*log*", "report_to", "wandb*", "swanlab*", "tensorboard*", "seed",
        "finetune", "no_save_*", "no_load_*", "system", "model_author", "model_name", "model_type",
        "model_kwargs", "max_steps", "add_*", "merge_lora", "to_*", "use_hf", "hub_token",
        "streaming", "truncation_strategy", "template", "columns",
        "agent_template", "attn_impl", "enable_thinking", "loss_*", "beta", "rpo_*", "*epsilon*",
        "temperature", "top_*", "num_generations*", "steps_per_generation", "generation_*",
        "reward_*", "use_vllm", "vllm_*", "sleep_level", "offload_model", "offload_optimizer",
        "offload_bridge", "offload_teacher_model", "dynamic_sample", "overlong_*", "soft_*",
        "importance_*", "max_resample_*", "tau_*", "delta", "lmbda", "sft_*", "seq_kd", "gkd_*",
        "teacher_*", "desirable_*", "undesirable_*", "center_*", "multi_turn*", "max_turns",
        "use_gym*", "gym_env*", "external_plugins", "custom_*", "rollout_*", "off_policy_*",
        "scale_rewards", "advantage_*", "kl_*", "num_iterations", "real_*", "fipo_*", "ref_*",
        "mcore_*", "manual_gc*", "ddp_*", "new_special_tokens", "remove_unused_columns",
        "check_model", "async_save", "freeze_vit", "freeze_llm",
        "freeze_aligner", "vit_*", "aligner_*", "ignore_*", "stream", "metric*", "task_*",
        "router_replay_mode", "linear_decoupled_*", "expert_bias*", "save_safetensors", "bridge_*",
        "test_convert_*", "trust_remote_code", "result_path", "moe_aux_loss_coeff",
        "moe_z_loss_coeff", "calculate_*", "modelscope*", "use_chat_template", "length", "resume*",
    ),
    usual={
        **RECENT,
        "micro_batch_size": 1,
        "global_batch_size": 16,
        "recompute_granularity": "selective",
        "cross_entropy_loss_fusion": True,
        "use_distributed_optimizer": True,
        "bf16": True,
        "expert_tensor_parallel_size": 1,
        "attention_backend": "flash",
        NODES: 1,
    },
    finish=_finish,
    variables=("NPROC_PER_NODE", "NNODES"),
    form=lambda key, values: (f"--{key}", *values),
    has=SAME,
    launched=True,
    options=True,
)  # fmt: skip

"""Hugging Face's Trainer under DeepSpeed's, Accelerate's or LLaMA-Factory's command."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ilp_planner.formats.imported.rows import (
    OF_DOCUMENTS,
    PAIRS,
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
from ilp_planner.formats.imported.table import (
    EACH,
    LENGTH,
    MODEL,
    NODES,
    WORLD,
    Reading,
    System,
)
from ilp_planner.formats.megatron.values import STEPS
from ilp_planner.settings.table import CP_COMM, FORMAT_FIELD, FUSED_FIELD, LOSS_FIELD, MOMENTS_FIELD
from ilp_planner.settings.values import MOMENT_BYTES
from ilp_planner.specs.lengths import CUT, GROUPED, JOINED, LONGEST, PACKED, SPLIT
from ilp_planner.specs.training import BLOCKWISE, BOTH_WAYS, LIGER, PAGED

if TYPE_CHECKING:
    from collections.abc import Mapping

SHARED: Arguments = {
    "use_megatron_fsdp": True,
    "ckpt_format": "fsdp_dtensor",
    "use_distributed_optimizer": True,
    "gradient_accumulation_fusion": False,
}
# What ranks share at the stages of ZeRO, as Megatron's FSDP has it.
STAGES: dict[Any, Arguments] = {
    0: {},
    1: {"use_distributed_optimizer": True},
    2: {**SHARED, "data_parallel_sharding_strategy": "optim_grads"},
    3: {**SHARED, "data_parallel_sharding_strategy": "optim_grads_params"},
}
# Both DeepSpeed and FSDP step states of fp32 there, and leave no copy on the device.
ON_HOST: Arguments = {"settings.optimizer.offload": 1.0}
FLASH = (
    None, "auto", "fa2", "fa3", "sdpa", "flash_attn", "flash_attention_2", "flash_attention_3",
)  # fmt: skip
AGAIN: Arguments = {
    "recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1,
}  # fmt: skip


def _or_auto(row: str) -> Says:
    """Return a row whose value may be left to the Trainer."""
    return lambda value: {} if value == "auto" else {row: value}


def _on(said: Arguments) -> Says:
    return {True: said, False: {}, "auto": {}, "true": said, "false": {}}


def _sharding(value: Any) -> Arguments:
    """Return what FSDP shares, in the words of the Trainer or of Accelerate."""
    text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    name = re.split(r"[\s_:,]+", text.lower().strip())
    offload = ON_HOST if "offload" in name else {}
    if "full" in name or "1" in name:
        return {**STAGES[3], **offload}
    if "grad" in name or "2" in name:
        return {**STAGES[2], **offload}
    if {"no", "3", "false", ""} & {*name}:
        return {}
    raise ValueError("full_shard, shard_grad_op or no_shard")


def _offloaded(value: Any) -> Arguments:
    device = value.get("device") if isinstance(value, dict) else value
    if device in (None, "none"):
        return {}
    if device != "cpu":
        raise ValueError("cpu or none: other devices are not modelled")
    return ON_HOST


def _finish(reading: Reading, version: int | None = None) -> None:
    """Say precisions and lengths where only their absence says them. version: of LLaMA-Factory;
    None: unless its own keys say so, it is another program."""
    said, given = reading.said, reading.given
    if version is None and {"stage", "template"} <= given.keys():
        version = 0
    if not {"max_seq_length", "max_length", "model_max_length", "cutoff_len"} & given.keys():
        reading.usual_length("cutoff_len")
    if version is not None:
        _of_llama_factory(reading, version)
    if said.get("recompute_granularity") == "full":
        said.setdefault("recompute_method", "uniform")
        said.setdefault("recompute_num_layers", 1)
    said.setdefault("micro_batch_size", 1 if version else 8)
    if given.get("do_predict") and not given.get("do_train"):
        raise reading.error("do_predict", True, "do_train: true: nothing is trained")
    reading.batching = _batching(given)
    reading.longer = SPLIT if given.get("stage") == "pt" else CUT
    way = _way(reading, version)
    if kind := FORMATS.get(str(given.get("optim")).lower(), ""):
        reading.say(MOMENTS_FIELD, MOMENT_BYTES[kind])
        reading.say(FORMAT_FIELD, kind)
        _eager(reading)
    if any(truth(given.get(key)) for key in ("use_liger_kernel", "enable_liger_kernel")):
        reading.say(FUSED_FIELD, True)
        reading.say(LOSS_FIELD, LIGER)
        reading.remarks.append(
            "Liger's kernels of norms, rotations and activations are counted as PyTorch's own"
        )
        _eager(reading)
    if way == "lora":
        _adapters(reading)
    elif bits := next((key for key in BITS if given.get(key) is not None), ""):
        raise reading.error(bits, given[bits], "none without adapters (lora)")
    elif way == "freeze":
        _frozen(reading)
    stage = given.get("stage")
    if stage in PAIRS:
        reading.pairs("stage", {name: 8 for name in SIZES if name in said})
    elif stage == "kto":
        reading.remarks.append("stage: kto: the reference model and its pairs are not counted")
    if STEPS not in said and "global_batch_size" not in said:
        reading.say(STEPS, 1)


def _eager(reading: Reading) -> None:
    """Say that layers are those of transformers, which PyTorch's FSDP or DeepSpeed runs."""
    reading.say("settings.kernels.implementation", "eager")
    reading.say("settings.keeps_gathered", not _by_zero(reading))


def _by_zero(reading: Reading) -> bool:
    """Tell whether DeepSpeed's ZeRO runs the job."""
    return any(key.startswith("deepspeed.zero_optimization.") for key in reading.given)


def _batching(given: Mapping[str, Any]) -> str:
    """Return how LLaMA-Factory makes samples: packs of documents that attention does not leave,
    documents one behind another, as in pretraining, or one each (`hparams/parser.py`)."""
    if truth(given.get("neat_packing")):
        return PACKED
    joins = given.get("packing")
    if truth(given.get("stage") == "pt" if joins is None else joins):
        return JOINED
    sorts = given.get("train_sampling_strategy") == "group_by_length"
    return GROUPED if sorts or truth(given.get("group_by_length")) else LONGEST


def _finish_factory(reading: Reading) -> None:
    """Say what a job of LLaMA-Factory has besides; its version 1 has another key for the model."""
    _finish(reading, int(reading.given.get("model_name_or_path") is None))


def _way(reading: Reading, version: int | None) -> Any:
    """Return what of the model is trained, in the words of both versions of LLaMA-Factory."""
    own = "lora" if version == 0 else None  # where nothing says it
    return reading.given.get("finetuning_type") or reading.given.get("peft_config.name") or own


def _of_llama_factory(reading: Reading, version: int) -> None:
    """Say what LLaMA-Factory does where nothing asks otherwise: every layer is recomputed, version
    1 trains in bf16, and version 0 freezes the encoder of images (`model_utils/checkpointing.py`,
    `hparams/finetuning_args.py`, `v1/config/training_args.py`)."""
    given = reading.given
    off, on = given.get("disable_gradient_checkpointing"), given.get(RECOMPUTES)
    if not truth(off) and (on is None or truth(on)):
        reading.said.update(AGAIN)
    if version and given.get("bf16") is None:
        reading.said.setdefault("bf16", True)
    if version or not reading.sees():
        return
    frozen: list[str] = []
    for key, (usual, part) in FREEZES.items():
        if usual if given.get(key) is None else truth(given[key]):
            frozen += [part] if part else reading.language_model()
    recomputed = reading.said.get("recompute_granularity") == "full"
    reading.encoder_is = {"whole": True, "frozen": tuple(frozen), "recomputed": recomputed}


def _adapters(reading: Reading) -> None:
    """Say LLaMA-Factory's adapters. By default they have rank 8 and stand beside all products of
    the layers, which are those of transformers; quantised parameters are in NF4 with double
    quantisation (`hparams/finetuning_args.py`, `v1/plugins/model_plugins/peft.py`)."""
    rank, dropout, target = (
        ("peft_config.r", "peft_config.lora_dropout", "peft_config.target_modules")
        if "peft_config.name" in reading.given
        else ("lora_rank", "lora_dropout", "lora_target")
    )
    reading.adapters((rank, 8), (target, EVERY), (dropout, 0.0))
    # PEFT makes adapters of fp32; DeepSpeed's engine casts them like the model.
    reading.say("settings.tuning.adapters", "" if _by_zero(reading) else "fp32")
    bits = any(reading.given.get(key) for key in BITS)
    reading.say("settings.tuning.base", "nf4" if bits else "")
    _eager(reading)


def _frozen(reading: Reading) -> None:
    """Say the parts of the model that are frozen. LLaMA-Factory trains some of the first or last
    layers, and neither embedding nor head (`model/adapter.py: _setup_freeze_tuning`)."""
    before = "peft_config." if "peft_config.name" in reading.given else ""
    key = f"{before}freeze_trainable_layers"
    for other in ("freeze_trainable_modules", "freeze_extra_modules"):
        if reading.given.get(before + other) not in (None, "all"):
            raise reading.error(
                before + other, reading.given[before + other], "all of the layers, and no others"
            )
    trained = reading.given.get(key, 2)
    layers = reading.layers()
    if isinstance(trained, bool) or not isinstance(trained, int) or not trained:
        raise reading.error(key, trained, "a whole number of layers, below 0 for the first ones")
    if abs(trained) >= layers:
        frozen = []
    elif reading.given.get("use_llama_pro"):
        if trained < 0 or layers % trained:
            raise reading.error(key, trained, f"a divisor of {layers}, the layers of the model")
        every = layers // trained
        frozen = [f"layers:{i}" for i in range(layers) if (i + 1) % every]
    else:
        first, last = (0, layers - trained - 1) if trained > 0 else (-trained, layers - 1)
        frozen = [f"layers:{first}-{last}"]
    reading.say("settings.tuning.frozen", ("embedding", *frozen, "output"))
    _eager(reading)


RECOMPUTES = "enable_activation_checkpointing"  # of version 1
# Keys that freeze parts of a model with images -> whether nothing said means frozen, and the part;
# empty: the language model.
FREEZES = {
    "freeze_vision_tower": (True, "encoder"),
    "freeze_multi_modal_projector": (True, "projector"),
    "freeze_language_model": (False, ""),
}
# Keys of these ways, which are read together.
OF_WAYS = (
    *("lora_rank", "lora_target", "lora_dropout", "use_llama_pro"),
    *("peft_config.r", "peft_config.target_modules", "peft_config.lora_dropout"),
    *(f"{section}freeze_{what}" for section in ("", "peft_config.")
      for what in ("trainable_layers", "trainable_modules", "extra_modules")),
)  # fmt: skip
BITS = ("quantization_bit", "quant_config.name")
SIZES = ("micro_batch_size", "global_batch_size")
WAY = "full, lora or freeze: other ways to train few parameters are not modelled"
# Optimizers of bitsandbytes and of torchao (`training_args.py: OptimizerNames` of transformers) ->
# how they keep moments.
FORMATS = {
    **dict.fromkeys(("adamw_8bit", "adamw_bnb_8bit", "adamw_torch_8bit"), BLOCKWISE),
    **dict.fromkeys(("paged_adamw", "paged_adamw_32bit"), PAGED),
    "paged_adamw_8bit": BOTH_WAYS,
}
EVERY = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
DEEPSPEED: dict[str, Says] = {
    "train_batch_size": _or_auto("global_batch_size"),
    "train_micro_batch_size_per_gpu": _or_auto("micro_batch_size"),
    "gradient_accumulation_steps": _or_auto(STEPS),
    "zero_optimization.stage": STAGES,
    "zero_optimization.offload_optimizer.device": _offloaded,
    "zero_optimization.offload_param.device": Uncounted(
        "parameters in the host's memory; counted on the device"
    ),
    "zero_optimization.offload_optimizer.ratio": Uncounted(
        "a part of the optimizer on the device; counted as all in the host's memory", (1, None)
    ),
    "zero_optimization.cpu_offload": switch(ON_HOST),
    "zero_optimization.overlap_comm": only(True, False, "auto"),
    "zero_optimization.zero_hpz_partition_size": Uncounted(
        "a second copy of the parameters in each node; counted as none", (1, None)
    ),
    **{
        f"zero_optimization.zero_quantized_{what}": Uncounted(
            f"messages of {what} in fewer bits; counted in 16"
        )
        for what in ("weights", "gradients")
    },
    "communication_data_type": Uncounted(
        "another type of messages; counted in that of the gradients", (None, "auto")
    ),
    "compression_training": Uncounted("compressed parameters", (None,)),
    "bf16.enabled": _on({"bf16": True}),
    "fp16.enabled": _on({"fp16": True}),
    "tensor_parallel.autotp_size": "tensor_model_parallel_size",
    "expert_parallel.autoep_size": "expert_model_parallel_size",
    "expert_parallel.enabled": only(True, False),
    "expert_parallel.expert_tensor_parallel_size": "expert_tensor_parallel_size",
    "data_types.grad_accum_dtype": {
        "fp32": {}, "bf16": {"grad_reduce_in_bf16": True}, "fp16": {},
    },
    "activation_checkpointing.partition_activations": Uncounted(
        "saved activations divided over tensor-parallel ranks; counted whole"
    ),
    "activation_checkpointing.cpu_checkpointing": Uncounted(
        "saved activations in the host's memory; counted on the device"
    ),
    "activation_checkpointing.number_checkpoints": lambda value: AGAIN if value else {},
    "optimizer.type": each(("adamw", "adam"), {"optimizer": "adam"}),
}  # fmt: skip
OF_DEEPSPEED = (
    "gradient_clipping", "zero_allow_untested_optimizer", "fp16.*", "bf16.*", "scheduler.*",
    "zero_optimization.*", "steps_per_print", "wall_clock_breakdown", "optimizer.*", "dump_state",
    "prescale_gradients", "communication_data_type", "comms_logger*", "flops_profiler*",
    "activation_checkpointing.*", "zero_force_ds_cpu_optimizer", "zero_quantized*", "tensorboard*",
    "wandb*", "csv_monitor*", "compression_training*", "data_efficiency*", "aio*", "seed",
    "expert_parallel.*", "tensor_parallel.*",
)  # fmt: skip
TRAINER: dict[str, Says] = {
    "NPROC_PER_NODE": EACH,
    "NNODES": NODES,
    "model_name_or_path": MODEL,
    "model": MODEL,
    "cutoff_len": LENGTH,
    "max_seq_length": LENGTH,
    "max_length": LENGTH,
    "model_max_length": LENGTH,
    "sequence_length": LENGTH,
    "per_device_train_batch_size": "micro_batch_size",
    "micro_batch_size": "micro_batch_size",
    "global_batch_size": "global_batch_size",
    "gradient_accumulation_steps": STEPS,
    "gradient_checkpointing": switch(AGAIN),
    "disable_gradient_checkpointing": switch(
        {"recompute_granularity": None, "recompute_method": None, "recompute_num_layers": None}
    ),
    "bf16": switch({"bf16": True}),
    "fp16": switch({"fp16": True}),
    "pure_bf16": switch({"bf16": True, "grad_reduce_in_bf16": True}),
    "mixed_precision": {
        **each(("bf16", "bf16_mixed"), {"bf16": True}),
        **each(("fp16", "fp16_mixed"), {"fp16": True}),
        "no": {},
    },
    "finetuning_type": only("full", "lora", "freeze", otherwise=WAY),
    "use_peft": only(False, otherwise=f"false: {WAY.partition(': ')[2]}"),
    **dict.fromkeys((*OF_WAYS, *FREEZES, RECOMPUTES), lambda value: {}),
    "quantization_bit": only(None, 4, otherwise="none or 4: other widths are not modelled"),
    "quantization_method": lambda value: {},
    "stage": {
        **each(("pt", "sft", "kto", *PAIRS), {}),
    },
    "fsdp": _sharding,
    "fsdp_config.fsdp_sharding_strategy": _sharding,
    "fsdp_config.fsdp_reshard_after_forward": _on(STAGES[3]),
    "fsdp_config.fsdp_version": only(1, 2),
    "fsdp_config.fsdp_offload_params": _on(ON_HOST),
    "fsdp_config.fsdp_activation_checkpointing": _on(AGAIN),
    "dist_config.name": {**each(("fsdp2", "fsdp"), STAGES[3]), "deepspeed": {}},
    "cp_size": "context_parallel_size",
    "dist_config.cp_size": "context_parallel_size",
    "cp_mode": {"ulysses": {CP_COMM: "a2a"}, "ring": {CP_COMM: "p2p"}},
    "dist_config.cp_mode": {"ulysses": {CP_COMM: "a2a"}, "ring": {CP_COMM: "p2p"}},
    "peft_config.name": only(None, "lora", "freeze", otherwise=WAY),
    "quant_config.name": only(None, "bnb", "auto", otherwise="none, bnb or auto"),
    "quant_config.quantization_bit": only(
        None, 4, otherwise="none or 4: other widths are not modelled"
    ),
    "optim_config.name": {**each(("adamw", "adam"), {"optimizer": "adam"})},
    "fp8": only(False, otherwise="false: products in 8 bits are not read here"),
    "num_machines": NODES,
    "num_processes": WORLD,
    "optim": {
        **each(
            ("adamw_torch", "adamw_torch_fused", "adamw_hf", "adamw_apex_fused", *FORMATS),
            {"optimizer": "adam"},
        ),
    },
    **dict.fromkeys(
        ("flash_attn", "attn_implementation", "attn_impl"),
        Uncounted("attention without flash kernels; counted with them", FLASH),
    ),
    **dict.fromkeys(("use_liger_kernel", "enable_liger_kernel"), only(True, False)),
    "use_unsloth": Uncounted("kernels of Unsloth"),
    "use_galore": only(False, otherwise="false: GaLore's optimizer is not modelled"),
    "use_apollo": only(False, otherwise="false: APOLLO's optimizer is not modelled"),
    "use_badam": only(False, otherwise="false: BAdam's optimizer is not modelled"),
    "use_adam_mini": only(False, otherwise="false: Adam-mini's optimizer is not modelled"),
    "use_muon": only(False, otherwise="false: Muon's tables are not modelled here"),
    "mixture_of_depths": only(None, otherwise="none: mixture of depths is not modelled"),
    **dict.fromkeys(("packing", "neat_packing"), Uncounted(f"packed samples {OF_DOCUMENTS}")),
    "group_by_length": Uncounted(f"sorted samples {OF_DOCUMENTS}"),
    "train_sampling_strategy": Uncounted(f"sorted samples {OF_DOCUMENTS}", ("random", None)),
    "use_packed_sequences": only(True, False),
    "virtual_pipeline_model_parallel_size": "num_virtual_stages_per_pipeline_rank",
    "bias_activation_fusion": both_activations,
    "kt_config.enabled": only(False, otherwise="false: experts on the host are not modelled"),
    "deepspeed": lambda _: {},  # its file is read as keys
    **{f"deepspeed.{key}": row for key, row in DEEPSPEED.items()},
}  # fmt: skip
NOTE = (
    "a job of Hugging Face's Trainer: judged by the kernels, buffers and messages of Megatron-LM, "
    "the nearest runtime that is modelled"
)

SYSTEM = System(
    name="Trainer",
    rows=TRAINER,
    same=("",),  # of LLaMA-Factory with Megatron-Core (`USE_MCA`)
    seldom=True,
    aside=(
        *(f"deepspeed.{name}" for name in OF_DEEPSPEED),
        "fsdp_config.*", "dist_config.*path", "optim_config.*", "use_v1_kernels",
        "peft_config.*", "quant_config.*", "*dataset*", "template", "max_samples",
        "preprocessing_*", "dataloader_*", "output_dir", "logging_*", "save_*", "plot_loss",
        "overwrite_*", "report_to", "*learning_rate", "num_train_epochs", "lr_*", "warmup_*",
        "ddp_*", "resume_*", "*eval_*", "val_size", "do_*", "trust_remote_code", "weight_decay",
        "adam_*", "max_grad_norm", "max_steps", "seed", "flash_*", "pref_*", "reward_model*",
        "ref_model*", "run_name", "streaming", "buffer_size", "mix_*", "shuffle",
        "disable_shuffling", "tokenized_path", "image_*", "video_*", "media_*", "sample_*",
        "max_new_tokens", "kernel_config*", "quant_config", "init_config*", "model_class", "kt_*",
        "compute_environment", "debug", "distributed_type", "downcast_bf16", "machine_rank",
        "*rdzv*", "main_*", "same_network", "tpu_*", "use_cpu", "gpu_ids", "dynamo_*",
        "cache_dir", "use_fast*", "hub_*", "infer_*", "attn_implementation",
        "remove_unused_columns", "label_*", "group_by_*", "torch_dtype", "push_to_hub",
        "include_*", "low_cpu_mem_usage", "tf32", "neftune*", "export_*", "freeze_*",
        "enable_thinking", "rope_scaling", "upcast_*", "dft_*", "use_dft*", "use_asft*", "asft_*",
        "use_eaft*", "eaft_*", "batching_strategy", "lora_*", "local_rank", "megatron_*",
        "extra_config", "apply_rope_fusion", "ray_*", "use_swanlab", "swanlab_*",
        "mixture_of_depths", "train_on_*", "mask_history", "efficient_eos", "adapter_*",
        "packed_*", "response_template", "completion_only*", "instruction_*", "attn_impl*",
        "deepspeed_*",
    ),
    usual={
        **RECENT,
        "accumulate_allreduce_grads_in_fp32": True,
    },
    notes=(NOTE,),
    finish=_finish,
    variables=("NPROC_PER_NODE", "NNODES"),
)  # fmt: skip
LLAMA_FACTORY = SYSTEM._replace(finish=_finish_factory)

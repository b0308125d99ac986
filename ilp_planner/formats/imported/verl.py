"""Overrides of verl for an actor that Megatron-Core trains (its `ppo_megatron_trainer`)."""

from __future__ import annotations

from ilp_planner.base.units import counted
from ilp_planner.formats.imported.rows import (
    RECENT,
    Says,
    Uncounted,
    both_activations,
    only,
    override,
)
from ilp_planner.formats.imported.table import (
    EACH,
    LENGTH,
    MODEL,
    NODES,
    TOKENS,
    Reading,
    System,
)
from ilp_planner.settings.table import SEQUENCE
from ilp_planner.specs.tuning import BRIDGE_TARGETS

ACTOR = "actor_rollout_ref.actor"
ENGINE = f"{ACTOR}.megatron"
CONFIG = f"{ENGINE}.override_transformer_config"

OPTIMIZER = f"{ACTOR}.optim.override_optimizer_config"
OF_ENGINE = (
    "tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size",
    "expert_model_parallel_size", "expert_tensor_parallel_size", SEQUENCE,
    "use_distributed_optimizer",
)  # fmt: skip
OF_DDP = ("overlap_grad_reduce", "overlap_param_gather", "num_distributed_optimizer_instances")
OF_OPTIMIZER = (
    "optimizer_cpu_offload", "optimizer_offload_fraction", "overlap_cpu_optimizer_d2h_h2d",
    "use_precision_aware_optimizer",
)  # fmt: skip


def _finish(reading: Reading) -> None:
    """Say the samples of a step of the optimizer, and their longest."""
    given = reading.given
    name = str(given.get("--config-name") or "")
    strategy = given.get(f"{ACTOR}.strategy") or ("megatron" if "megatron" in name else "fsdp")
    engines = [key for key in given if key.startswith(f"{ENGINE}.")]
    if strategy != "megatron" and not engines:
        raise reading.error(
            f"{ACTOR}.strategy", strategy, "megatron: an actor that FSDP trains is not read"
        )
    for key in ("actor_rollout_ref.model.lora.rank", "actor_rollout_ref.model.lora_rank"):
        if rank := reading.whole(key, 0, least=0):
            reading.say("settings.tuning.rank", rank)
            reading.say("settings.tuning.targets", BRIDGE_TARGETS)
    if LENGTH not in reading.said:
        parts = [reading.whole(f"data.max_{part}_length", 512) for part in ("prompt", "response")]
        reading.say(LENGTH, sum(parts))
    mini = reading.whole(f"{ACTOR}.ppo_mini_batch_size", 256)
    answers = reading.whole("actor_rollout_ref.rollout.n", 1)
    reading.say("global_batch_size", mini * answers, f"{ACTOR}.ppo_mini_batch_size")
    reading.remarks.append(
        f"a step is one of the optimizer: {mini} prompts of {ACTOR}.ppo_mini_batch_size with "
        f"{counted(answers, 'answer')} each"
    )
    if given.get(f"{ACTOR}.use_dynamic_bsz") is True:
        reading.said.pop("micro_batch_size", None)
        reading.say(TOKENS, reading.number(TOKENS, 16384), f"{ACTOR}.ppo_max_token_len_per_gpu")
    else:
        reading.said.pop(TOKENS, None)


ROWS: dict[str, Says] = {
    "trainer.nnodes": NODES,
    "trainer.n_gpus_per_node": EACH,
    "actor_rollout_ref.model.path": MODEL,
    "actor_rollout_ref.model.lora.rank": lambda value: {},
    "actor_rollout_ref.model.lora_rank": lambda value: {},
    "actor_rollout_ref.model.use_fused_kernels": Uncounted(
        "the loss in one kernel with the output layer"
    ),
    "actor_rollout_ref.rollout.n": lambda value: {},
    "data.max_prompt_length": lambda value: {},
    "data.max_response_length": lambda value: {},
    f"{ACTOR}.strategy": lambda value: {},
    f"{ACTOR}.ppo_mini_batch_size": lambda value: {},
    f"{ACTOR}.ppo_micro_batch_size_per_gpu": "micro_batch_size",
    f"{ACTOR}.ppo_micro_batch_size": only(
        otherwise="ppo_micro_batch_size_per_gpu, which replaced it"
    ),
    f"{ACTOR}.use_dynamic_bsz": lambda value: {},
    **dict.fromkeys(
        (f"{ACTOR}.calculate_entropy", f"{ACTOR}.entropy_coeff"),
        Uncounted("the entropy of the logits, and what is kept for its gradient"),
    ),
    f"{ACTOR}.ppo_max_token_len_per_gpu": TOKENS,
    f"{ENGINE}.virtual_pipeline_model_parallel_size": "num_virtual_stages_per_pipeline_rank",
    f"{ENGINE}.dtype": {"bfloat16": {"bf16": True}, "float16": {"bf16": False, "fp16": True}},
    **{
        f"{ENGINE}.{part}_offload": Uncounted("what waits in the host's memory between steps")
        for part in ("param", "grad", "optimizer")
    },
    **{f"{ENGINE}.{name}": name for name in OF_ENGINE},
    **{f"{OPTIMIZER}.{name}": name for name in OF_OPTIMIZER},
    **{f"{ENGINE}.override_ddp_config.{name}": name for name in OF_DDP},
    f"{CONFIG}.num_layers_in_first_pipeline_stage": "decoder_first_pipeline_num_layers",
    f"{CONFIG}.num_layers_in_last_pipeline_stage": "decoder_last_pipeline_num_layers",
    f"{CONFIG}.bias_activation_fusion": both_activations,
}  # fmt: skip

SYSTEM = System(
    name="verl",
    rows=ROWS,
    same=(
        f"{CONFIG}.", f"{ENGINE}.override_ddp_config.", f"{ENGINE}.",
        f"{OPTIMIZER}.",
    ),
    aside=(
        "--*", "algorithm.*", "data.*", "critic.*", "reward*", "custom_reward*", "trainer.*",
        "actor_rollout_ref.rollout.*", "actor_rollout_ref.ref.*", "actor_rollout_ref.model.*",
        "actor_rollout_ref.hybrid_engine", "actor_rollout_ref.nccl_timeout", f"{ACTOR}.optim.*",
        f"{ACTOR}.*kl*", f"{ACTOR}.clip*", f"{ACTOR}.entropy*", f"{ACTOR}.loss_*",
        f"{ACTOR}.ppo_epochs", f"{ACTOR}.shuffle", f"{ACTOR}.checkpoint.*", f"{ACTOR}.profiler.*",
        f"{ACTOR}.policy_loss*", f"{ACTOR}.router_replay.*", f"{ACTOR}.use_torch_compile",
        f"{ACTOR}.data_loader_seed", f"{ACTOR}.calculate_*", f"{ACTOR}.freeze_vision_tower",
        f"{ENGINE}.use_*", f"{ENGINE}.dist_checkpointing*", f"{ENGINE}.seed", f"{ENGINE}.vanilla_*",
        f"{CONFIG}.apply_rope_fusion", f"{CONFIG}.deallocate_*", f"{CONFIG}.persist_layer_norm",
        f"{CONFIG}.moe_router_dtype", f"{CONFIG}.*loss_coeff", "global_profiler.*", "ray_kwargs.*",
        "ray_init.*", "transfer_queue.*", "async_training.*", "rollout.*", "env.*", "hydra.*",
        "global_tool_config.*", "prometheus.*", f"{CONFIG}.variable_seq_lengths",
    ),
    usual={
        **RECENT,
        SEQUENCE: True,
        "use_distributed_optimizer": True,
        "bf16": True,
        "attention_backend": "flash",
        NODES: 1,
        EACH: 8,
    },
    notes=(
        "of an RL job the trainer alone is judged: rollout engine, reference model, critic and "
        "log-probabilities are not counted",
    ),
    finish=_finish,
    form=override,
    launched=True,
)  # fmt: skip

"""Megatron-LM's rules on ranks, batches and what data-parallel ranks share (`validate_args`)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ilp_planner.formats.megatron.findings import BUILD, RUN, Finding
from ilp_planner.formats.megatron.flags import flag_of
from ilp_planner.formats.megatron.settings import precision_of, sequence_parallel_of
from ilp_planner.specs.degrees import nearest_multiple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ilp_planner.formats.megatron.values import MegatronArguments

TP, PP, CP = (
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "context_parallel_size",
)
EP = "expert_model_parallel_size"
# Arguments that were there once; Megatron names the one to use.
RENAMED = {
    "batch_size": "--micro-batch-size",
    "warmup": "--lr-warmup-fraction",
    "model_parallel_size": "--tensor-model-parallel-size",
    "checkpoint_activations": "--recompute-activations",
}
EMERGING = ("muon", "dist_muon", "lion", "soap", "adaptive_muon")


def model_size(a: MegatronArguments) -> int:
    """Return the ranks of one replica."""
    shards = a.whole("tensor_parallel_num_weight_shards") or a.whole(TP)
    return a.whole(PP) * a.whole(CP) * max(a.whole(TP), shards)


def check_degrees(a: MegatronArguments) -> Iterator[Finding]:
    """Degrees must be positive: nothing else can be judged otherwise."""
    for key in (TP, PP, CP, EP, "expert_tensor_parallel_size", "micro_batch_size"):
        if a.given(key) and a.whole(key) < 1:
            yield Finding(
                flag=flag_of(key), found=str(a[key]), expected="at least 1", fix=f"{flag_of(key)} 1"
            )


def check_world(a: MegatronArguments) -> Iterator[Finding]:
    """Ranks make whole replicas; weight shards are whole multiples of tp."""
    tp, shards = a.whole(TP), a.whole("tensor_parallel_num_weight_shards")
    if shards and (shards < tp or shards % tp):
        yield Finding(
            flag="--tensor-parallel-num-weight-shards",
            found=str(shards),
            expected=f"a multiple of --tensor-model-parallel-size ({tp})",
            fix=f"--tensor-parallel-num-weight-shards {nearest_multiple(shards, tp)}",
        )
        return
    size = model_size(a)
    if a.world % size:
        yield Finding(
            flag="world size",
            found=str(a.world),
            expected=f"a multiple of {size} = --tensor-model-parallel-size {tp} x "
            f"--pipeline-model-parallel-size {a.whole(PP)} x --context-parallel-size {a.whole(CP)}",
            fix=f"a world size of {nearest_multiple(a.world, size)}",
        )


def check_context(a: MegatronArguments) -> Iterator[Finding]:
    """Hierarchical context parallelism multiplies to the whole."""
    sizes, cp = a["hierarchical_context_parallel_sizes"], a.whole(CP)
    if isinstance(sizes, tuple) and math.prod(int(s) for s in sizes) != cp:
        yield Finding(
            flag="--hierarchical-context-parallel-sizes",
            found=" x ".join(str(s) for s in sizes),
            expected=f"a product of --context-parallel-size ({cp})",
        )
    if "a2a+p2p" in a.words("cp_comm_type") and sizes is None:
        yield Finding(
            flag="--cp-comm-type",
            found="a2a+p2p",
            expected="--hierarchical-context-parallel-sizes with it",
        )
    if a.on("hybrid_context_parallel"):
        if a.whole(PP) > 1:
            yield Finding(
                flag="--hybrid-context-parallel",
                found=f"--pipeline-model-parallel-size {a.whole(PP)} with it",
                expected="no pipeline",
                fix="--pipeline-model-parallel-size 1",
            )
        if not a.on("calculate_per_token_loss"):
            yield _needs("hybrid_context_parallel", "calculate_per_token_loss")


def check_renamed(a: MegatronArguments) -> Iterator[Finding]:
    """Arguments that are only there to name their successors."""
    for key, successor in RENAMED.items():
        if a[key]:
            yield Finding(flag=flag_of(key), found="it", expected=f"{successor} instead")


def check_micro_batch(a: MegatronArguments) -> Iterator[Finding]:
    """There is a micro-batch."""
    if not a.given("micro_batch_size") and not a.given("batch_size"):
        yield Finding(flag="--micro-batch-size", found="none", expected="a whole number")
    elif not a.given("micro_batch_size"):
        yield from check_renamed(a)


def check_batches(a: MegatronArguments) -> Iterator[Finding]:
    """The global batch is whole micro-batches on every replica."""
    micro, dp = a.whole("micro_batch_size"), max(1, a.world // model_size(a))
    if a.given("step_batch_size_schedule") and a.given("global_batch_size"):
        yield Finding(
            flag="--step-batch-size-schedule",
            found="--global-batch-size with it",
            expected="one of them",
        )
    whole = a.whole("global_batch_size") if a.given("global_batch_size") else micro * dp
    if whole < 1:
        yield Finding(
            flag="--global-batch-size",
            found=str(whole),
            expected="at least 1",
            fix=f"--global-batch-size {micro * dp}",
        )
        return
    shards = a.whole("tensor_parallel_num_weight_shards") or a.whole(TP)
    remat = max(1, shards // a.whole(TP))
    own = a.given("eval_global_batch_size")
    evaluated = a.whole("eval_global_batch_size") if own else whole
    step = (a.whole("eval_micro_batch_size") or micro) * dp * remat
    if evaluated % step:
        flag = "--eval-global-batch-size" if own else "--global-batch-size"
        which = (
            "--eval-micro-batch-size" if a.given("eval_micro_batch_size") else "--micro-batch-size"
        )
        follows = "" if own else " (eval_global_batch_size follows it)"
        yield Finding(
            flag=flag,
            found=str(evaluated),
            expected=f"a multiple of {step} = {which} {step // dp // remat} x data-parallel size "
            f"{dp}{follows}",
            fix=f"{flag} {nearest_multiple(evaluated, step)}",
        )


def check_rampup(a: MegatronArguments) -> Iterator[Finding]:
    """What the counter of micro-batches asks when it is made.

    Source: `megatron/core/num_microbatches_calculator.py`.
    """
    step = a.whole("micro_batch_size") * max(1, a.world // model_size(a))
    whole = a.whole("global_batch_size") or step
    ramp = a["rampup_batch_size"]
    if isinstance(ramp, tuple):
        start, more = int(ramp[0]), int(ramp[1])
        if start < 1 or more < 1 or start > whole or (whole - start) % more:
            yield Finding(
                flag="--rampup-batch-size",
                found=f"{start} in steps of {more}",
                expected=f"a start from which these steps reach --global-batch-size ({whole})",
                stage=BUILD,
            )
        elif not a.on("decrease_batch_size_if_needed") and (start % step or more % step):
            yield Finding(
                flag="--rampup-batch-size",
                found=f"{start} in steps of {more}",
                expected=f"multiples of {step} = --micro-batch-size x data-parallel size",
                stage=RUN,
                fix="--decrease-batch-size-if-needed",
            )
    elif whole % step and not a.on("decrease_batch_size_if_needed"):
        own = a.given("eval_global_batch_size") or a.given("eval_micro_batch_size")
        if own:
            yield Finding(
                flag="--global-batch-size",
                found=str(whole),
                expected=f"a multiple of {step} = --micro-batch-size x data-parallel size",
                stage=BUILD,
                fix=f"--global-batch-size {nearest_multiple(whole, step)}",
            )


def check_sharding(a: MegatronArguments) -> Iterator[Finding]:
    """Overlapped communication and the distributed optimizer."""
    distributed = a.on("use_distributed_optimizer")
    if a.on("overlap_param_gather"):
        if not (distributed or a.on("use_megatron_fsdp") or a["optimizer"] == "dist_muon"):
            yield _needs("overlap_param_gather", "use_distributed_optimizer")
        if not a.on("overlap_grad_reduce"):
            yield _needs("overlap_param_gather", "overlap_grad_reduce")
    if a.on("overlap_param_gather_with_optimizer_step"):
        for other in ("use_distributed_optimizer", "overlap_param_gather"):
            if not a.on(other):
                yield _needs("overlap_param_gather_with_optimizer_step", other)
        virtual = a.whole("num_virtual_stages_per_pipeline_rank") > 1 or a.given(
            "num_layers_per_virtual_pipeline_stage"
        )
        if not virtual and not a.given("pipeline_model_parallel_layout"):
            yield Finding(
                flag="--overlap-param-gather-with-optimizer-step",
                found="no virtual pipeline stages",
                expected="an interleaved pipeline (--num-virtual-stages-per-pipeline-rank)",
            )
        if a.text("ckpt_format") != "torch":
            yield Finding(
                flag="--overlap-param-gather-with-optimizer-step",
                found=f"--ckpt-format {a.text('ckpt_format')}",
                expected="--ckpt-format torch",
                fix="--ckpt-format torch",
            )
    if a.on("fp8_param_gather") and not (
        distributed or a.on("use_torch_fsdp2") or a.on("use_megatron_fsdp")
    ):
        yield _needs("fp8_param_gather", "use_distributed_optimizer")
    if not a.on("use_gloo_process_groups") and distributed and a.text("ckpt_format") == "torch":
        yield Finding(
            flag="--disable-gloo-process-groups",
            found="--use-distributed-optimizer and --ckpt-format torch with it",
            expected="a distributed checkpoint format",
            fix="--ckpt-format torch_dist",
        )
    if a.on("optimizer_cpu_offload") and not a.on("use_precision_aware_optimizer"):
        yield _needs("optimizer_cpu_offload", "use_precision_aware_optimizer")


def check_torch_fsdp(a: MegatronArguments) -> Iterator[Finding]:
    """PyTorch's FSDP2."""
    if not a.on("use_torch_fsdp2"):
        return
    for key in (PP, EP):
        if a.whole(key) != 1:
            yield Finding(
                flag="--use-torch-fsdp2",
                found=f"{flag_of(key)} {a.whole(key)}",
                expected=f"{flag_of(key)} 1",
                fix=f"{flag_of(key)} 1",
            )
    if a.on("use_distributed_optimizer"):
        yield Finding(
            flag="--use-torch-fsdp2",
            found="--use-distributed-optimizer with it",
            expected="one of them",
        )
    if a.on("gradient_accumulation_fusion"):
        yield _needs("use_torch_fsdp2", "gradient_accumulation_fusion")
    if a.text("ckpt_format") not in ("torch_dist", "torch_dcp"):
        yield Finding(
            flag="--use-torch-fsdp2",
            found=f"--ckpt-format {a.text('ckpt_format')}",
            expected="--ckpt-format torch_dist or torch_dcp",
        )
    if not a.on("untie_embeddings_and_output_weights"):
        yield _needs("use_torch_fsdp2", "untie_embeddings_and_output_weights")
    if a.on("fp16"):
        yield Finding(flag="--use-torch-fsdp2", found="--fp16", expected="--bf16", fix="--bf16")


def check_megatron_fsdp(a: MegatronArguments) -> Iterator[Finding]:
    """Megatron's FSDP."""
    if a.on("fsdp_manual_registration") and not (a.on("use_megatron_fsdp") and a.on("nccl_ub")):
        yield _needs("fsdp_manual_registration", "use_megatron_fsdp")
    if not a.on("use_megatron_fsdp"):
        return
    if a["megatron_fsdp_version"] == 2 and a.on("use_distributed_optimizer"):
        yield Finding(
            flag="--megatron-fsdp-version",
            found="2 with --use-distributed-optimizer",
            expected="one of them",
        )
    if a.text("optimizer") not in ("sgd", "adam"):
        yield Finding(
            flag="--use-megatron-fsdp",
            found=f"--optimizer {a.text('optimizer')}",
            expected="--optimizer adam or sgd",
            fix="--optimizer adam",
        )
    strategy = a.text("data_parallel_sharding_strategy")
    if (
        strategy == "optim_grads_params"
        and a["check_weight_hash_across_dp_replicas_interval"] is not None
    ):
        yield Finding(
            flag="--check-weight-hash-across-dp-replicas-interval",
            found="--data-parallel-sharding-strategy optim_grads_params with it",
            expected="one of them",
        )
    if a.text("ckpt_format") != "fsdp_dtensor":
        yield Finding(
            flag="--use-megatron-fsdp",
            found=f"--ckpt-format {a.text('ckpt_format')}",
            expected="--ckpt-format fsdp_dtensor",
            fix="--ckpt-format fsdp_dtensor",
        )
    if a.on("init_model_with_meta_device") and strategy == "no_shard":
        yield Finding(
            flag="--init-model-with-meta-device",
            found="--data-parallel-sharding-strategy no_shard with it",
            expected="a strategy that shards",
        )


def check_precision(a: MegatronArguments) -> Iterator[Finding]:
    """Types of parameters, gradients and quantised products."""
    if a.on("fp16") and a.on("bf16"):
        yield Finding(flag="--fp16", found="--bf16 with it", expected="one of them")
    if a.given("fp4") and a.given("fp8"):
        yield Finding(flag="--fp4-format", found="--fp8-format with it", expected="one of them")
    if a.on("fp4_param_gather") and not a.given("fp4"):
        yield _needs("fp4_param_gather", "fp4")
    if (
        a.on("bf16")
        and a.on("accumulate_allreduce_grads_in_fp32")
        and a["main_grads_dtype"] != "fp32"
    ):
        yield Finding(
            flag="--main-grads-dtype",
            found=f"{a['main_grads_dtype']} with --accumulate-allreduce-grads-in-fp32",
            expected="fp32",
            fix="--main-grads-dtype fp32",
        )
    if a.on("fp16_lm_cross_entropy") and not a.on("fp16"):
        yield _needs("fp16_lm_cross_entropy", "fp16")
    if a.on("fp32_residual_connection") and precision_of(a) == "fp32":
        yield _needs("fp32_residual_connection", "bf16")


def check_overlap(a: MegatronArguments) -> Iterator[Finding]:
    """Tensor-parallel overlap needs what sequence parallelism sends."""
    if a.on("tp_comm_overlap") and not sequence_parallel_of(a):
        off = a.on("sequence_parallel")
        yield Finding(
            flag="--tp-comm-overlap",
            found="--tensor-model-parallel-size 1, which turns --sequence-parallel off"
            if off
            else "no sequence parallelism",
            expected="--sequence-parallel with tensor parallelism",
            fix="--tensor-model-parallel-size 2" if off else "--sequence-parallel",
        )


def check_environment(a: MegatronArguments) -> Iterator[Finding]:
    """Tensor and context parallelism want one hardware queue on GPUs before Blackwell, FSDP more.

    Nothing is found where nobody knows what is set.
    """
    if a.environment is None:
        return
    queues = a.environment.get("CUDA_DEVICE_MAX_CONNECTIONS")
    sharded = next((f for f in ("use_torch_fsdp2", "use_megatron_fsdp") if a.on(f)), None)
    if sharded:
        if queues == "1":
            yield Finding(
                flag=flag_of(sharded),
                found="CUDA_DEVICE_MAX_CONNECTIONS 1",
                expected="a larger one, or none",
                fix="leaving CUDA_DEVICE_MAX_CONNECTIONS out",
            )
    elif (
        queues != "1"
        and a.whole(TP) * a.whole(CP) > 1
        and not a.on("overlap_moe_expert_parallel_comm")
    ):
        yield Finding(
            flag="CUDA_DEVICE_MAX_CONNECTIONS",
            found=queues or "none",
            expected="1 with tensor or context parallelism (GPUs before Blackwell)",
            fix="CUDA_DEVICE_MAX_CONNECTIONS=1",
        )


def check_experts(a: MegatronArguments) -> Iterator[Finding]:
    """Experts are divided among expert-parallel ranks."""
    ep, experts = a.whole(EP), a.whole("num_experts")
    if ep > 1 and not experts:
        yield Finding(
            flag="--expert-model-parallel-size",
            found=f"{ep} without --num-experts (num_experts)",
            expected="experts",
            fix="--expert-model-parallel-size 1",
        )
    elif ep > 1 and experts % ep:
        yield Finding(
            flag="--num-experts",
            found=str(experts),
            expected=f"a multiple of --expert-model-parallel-size ({ep})",
            fix=f"--num-experts {nearest_multiple(experts, ep)}",
        )
    if a.on("fake_process_group") and a["moe_token_dispatcher_type"] == "flex":
        yield Finding(
            flag="--fake-process-group",
            found="--moe-token-dispatcher-type flex",
            expected="alltoall or allgather",
            fix="--moe-token-dispatcher-type alltoall",
        )


def check_checkpoints(a: MegatronArguments) -> Iterator[Finding]:
    """Formats that go with one way of sharding only."""
    kind = a.text("ckpt_format")
    if kind == "torch_dcp":
        if not a.on("use_torch_fsdp2"):
            yield _needs("ckpt_format", "use_torch_fsdp2", found="torch_dcp")
        for key in (TP, PP):
            if a.whole(key) > 1:
                yield Finding(
                    flag="--ckpt-format",
                    found=f"torch_dcp with {flag_of(key)} {a.whole(key)}",
                    expected="torch_dist",
                    fix="--ckpt-format torch_dist",
                )
    if kind == "fsdp_dtensor" and not a.on("use_megatron_fsdp"):
        yield _needs("ckpt_format", "use_megatron_fsdp", found="fsdp_dtensor")
    if a.text("optimizer") in EMERGING:
        for key in ("use_torch_fsdp2", "use_megatron_fsdp"):
            if a.on(key) and key == "use_torch_fsdp2":
                yield Finding(
                    flag=flag_of(key),
                    found=f"--optimizer {a.text('optimizer')}",
                    expected="--optimizer adam or sgd",
                    fix="--optimizer adam",
                )
        if kind not in ("torch", "torch_dist"):
            yield Finding(
                flag="--ckpt-format",
                found=f"{kind} with --optimizer {a.text('optimizer')}",
                expected="torch or torch_dist",
                fix="--ckpt-format torch_dist",
            )
    if a.given("save") and a.whole("save_interval") < 1:
        yield Finding(flag="--save", found="no --save-interval", expected="one of at least 1")


def _needs(key: str, other: str, *, found: str = "") -> Finding:
    """Return that an argument needs another one."""
    flag, need = flag_of(key), flag_of(other)
    return Finding(
        flag=flag,
        found=f"{found} without {need}" if found else f"no {need}",
        expected=need,
        fix=need,
    )

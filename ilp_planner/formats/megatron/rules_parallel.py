"""Megatron-LM's rules on ranks, batches and data-parallel ranks (`validate_args`)."""

import math
from collections.abc import Iterator

from ilp_planner.formats.megatron.flags import flag_of
from ilp_planner.formats.megatron.hybrid import SPARSE, VARIANT
from ilp_planner.formats.megatron.repairs import Finding, built, config, found, needs, one_of, run
from ilp_planner.formats.megatron.settings import precision_of, sequence_parallel_of
from ilp_planner.formats.megatron.values import CP, EP, PP, TP, MegatronArguments
from ilp_planner.settings.table import CP_COMM, DISPATCHER
from ilp_planner.specs.degrees import nearest_multiple

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
            yield found(key, a[key]).expected("at least 1", f"{flag_of(key)} 1")


def check_world(a: MegatronArguments) -> Iterator[Finding]:
    """Ranks make whole replicas; weight shards are whole multiples of tp."""
    tp, shards = a.whole(TP), a.whole("tensor_parallel_num_weight_shards")
    if shards and (shards < tp or shards % tp):
        yield found("--tensor-parallel-num-weight-shards", shards).multiple(tp, flag_of(TP))
        return
    size = model_size(a)
    if a.world % size:
        yield found("world size", a.world).expected(
            f"a multiple of {size} = --tensor-model-parallel-size {tp} x "
            f"--pipeline-model-parallel-size {a.whole(PP)} x --context-parallel-size {a.whole(CP)}",
            f"a world size of {nearest_multiple(a.world, size)}",
        )


def check_context(a: MegatronArguments) -> Iterator[Finding]:
    """Hierarchical context parallelism multiplies to the whole."""
    sizes, cp = a["hierarchical_context_parallel_sizes"], a.whole(CP)
    if isinstance(sizes, tuple) and math.prod(int(s) for s in sizes) != cp:
        yield found(
            "--hierarchical-context-parallel-sizes", " x ".join(str(s) for s in sizes)
        ).expected(f"a product of --context-parallel-size ({cp})")
    if "a2a+p2p" in a.words(CP_COMM) and sizes is None:
        yield found(flag_of(CP_COMM), "a2a+p2p").expected(
            "--hierarchical-context-parallel-sizes with it"
        )
    if a.on("hybrid_context_parallel"):
        if a.whole(PP) > 1:
            yield found(
                "--hybrid-context-parallel", f"--pipeline-model-parallel-size {a.whole(PP)} with it"
            ).expected("no pipeline", "--pipeline-model-parallel-size 1")
        if not a.on("calculate_per_token_loss"):
            yield needs("hybrid_context_parallel", "calculate_per_token_loss")


def check_renamed(a: MegatronArguments) -> Iterator[Finding]:
    """Arguments that are only there to name their successors."""
    for key, successor in RENAMED.items():
        if a[key]:
            yield found(key, "it").expected(f"{successor} instead")


def check_micro_batch(a: MegatronArguments) -> Iterator[Finding]:
    """There is a micro-batch."""
    if not a.given("micro_batch_size") and not a.given("batch_size"):
        yield found("--micro-batch-size", "none").expected("a whole number")
    elif not a.given("micro_batch_size"):
        yield from check_renamed(a)


def check_batches(a: MegatronArguments) -> Iterator[Finding]:
    """The global batch is whole micro-batches on every replica."""
    micro, dp = a.whole("micro_batch_size"), max(1, a.world // model_size(a))
    if a.given("step_batch_size_schedule") and a.given("global_batch_size"):
        yield one_of("step_batch_size_schedule", "global_batch_size")
    whole = a.whole("global_batch_size") if a.given("global_batch_size") else micro * dp
    if whole < 1:
        yield found("--global-batch-size", whole).expected(
            "at least 1", f"--global-batch-size {micro * dp}"
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
        yield found(flag, evaluated).expected(
            f"a multiple of {step} = {which} {step // dp // remat} x data-parallel size "
            f"{dp}{follows}",
            f"{flag} {nearest_multiple(evaluated, step)}",
        )


def check_rampup(a: MegatronArguments) -> Iterator[Finding]:
    """Demands of the counter of micro-batches when it is made.

    Source: `megatron/core/num_microbatches_calculator.py`.
    """
    step = a.whole("micro_batch_size") * max(1, a.world // model_size(a))
    whole = a.whole("global_batch_size") or step
    ramp = a["rampup_batch_size"]
    if isinstance(ramp, tuple):
        start, more = int(ramp[0]), int(ramp[1])
        if start < 1 or more < 1 or start > whole or (whole - start) % more:
            yield built("--rampup-batch-size", f"{start} in steps of {more}").expected(
                f"a start from which these steps reach --global-batch-size ({whole})"
            )
        elif not a.on("decrease_batch_size_if_needed") and (start % step or more % step):
            yield run("--rampup-batch-size", f"{start} in steps of {more}").expected(
                f"multiples of {step} = --micro-batch-size x data-parallel size",
                "--decrease-batch-size-if-needed",
            )
    elif whole % step and not a.on("decrease_batch_size_if_needed"):
        own = a.given("eval_global_batch_size") or a.given("eval_micro_batch_size")
        if own:
            yield built("--global-batch-size", whole).expected(
                f"a multiple of {step} = --micro-batch-size x data-parallel size",
                f"--global-batch-size {nearest_multiple(whole, step)}",
            )


def check_sharding(a: MegatronArguments) -> Iterator[Finding]:
    """Overlapped communication and the distributed optimizer."""
    distributed = a.on("use_distributed_optimizer")
    if a.on("overlap_param_gather"):
        if not (distributed or a.on("use_megatron_fsdp") or a["optimizer"] == "dist_muon"):
            yield needs("overlap_param_gather", "use_distributed_optimizer")
        if not a.on("overlap_grad_reduce"):
            yield needs("overlap_param_gather", "overlap_grad_reduce")
    if a.on("overlap_param_gather_with_optimizer_step"):
        for other in ("use_distributed_optimizer", "overlap_param_gather"):
            if not a.on(other):
                yield needs("overlap_param_gather_with_optimizer_step", other)
        virtual = a.whole("num_virtual_stages_per_pipeline_rank") > 1 or a.given(
            "num_layers_per_virtual_pipeline_stage"
        )
        if not virtual and not a.given("pipeline_model_parallel_layout"):
            yield found(
                "--overlap-param-gather-with-optimizer-step", "no virtual pipeline stages"
            ).expected("an interleaved pipeline (--num-virtual-stages-per-pipeline-rank)")
        if a.text("ckpt_format") != "torch":
            yield found(
                "--overlap-param-gather-with-optimizer-step",
                f"--ckpt-format {a.text('ckpt_format')}",
            ).expected("--ckpt-format torch", "--ckpt-format torch")
    if a.on("fp8_param_gather") and not (
        distributed or a.on("use_torch_fsdp2") or a.on("use_megatron_fsdp")
    ):
        yield needs("fp8_param_gather", "use_distributed_optimizer")
    if not a.on("use_gloo_process_groups") and distributed and a.text("ckpt_format") == "torch":
        yield found(
            "--disable-gloo-process-groups",
            "--use-distributed-optimizer and --ckpt-format torch with it",
        ).expected("a distributed checkpoint format", "--ckpt-format torch_dist")
    if a.on("optimizer_cpu_offload") and not a.on("use_precision_aware_optimizer"):
        yield needs("optimizer_cpu_offload", "use_precision_aware_optimizer")


def check_torch_fsdp(a: MegatronArguments) -> Iterator[Finding]:
    """PyTorch's FSDP2."""
    if not a.on("use_torch_fsdp2"):
        return
    for key in (PP, EP):
        if a.whole(key) != 1:
            yield found("--use-torch-fsdp2", f"{flag_of(key)} {a.whole(key)}").expected(
                f"{flag_of(key)} 1", f"{flag_of(key)} 1"
            )
    if a.on("use_distributed_optimizer"):
        yield one_of("use_torch_fsdp2", "use_distributed_optimizer")
    if a.on("gradient_accumulation_fusion"):
        yield needs("use_torch_fsdp2", "gradient_accumulation_fusion")
    if a.text("ckpt_format") not in ("torch_dist", "torch_dcp"):
        yield found("--use-torch-fsdp2", f"--ckpt-format {a.text('ckpt_format')}").expected(
            "--ckpt-format torch_dist or torch_dcp"
        )
    if not a.on("untie_embeddings_and_output_weights"):
        yield needs("use_torch_fsdp2", "untie_embeddings_and_output_weights")
    if a.on("fp16"):
        yield found("--use-torch-fsdp2", "--fp16").expected("--bf16", "--bf16")


def check_megatron_fsdp(a: MegatronArguments) -> Iterator[Finding]:
    """Megatron's FSDP."""
    if a.on("fsdp_manual_registration") and not (a.on("use_megatron_fsdp") and a.on("nccl_ub")):
        yield needs("fsdp_manual_registration", "use_megatron_fsdp")
    if not a.on("use_megatron_fsdp"):
        return
    if a["megatron_fsdp_version"] == 2 and a.on("use_distributed_optimizer"):
        yield found("--megatron-fsdp-version", "2 with --use-distributed-optimizer").expected(
            "one of them"
        )
    if a.text("optimizer") not in ("sgd", "adam"):
        yield found("--use-megatron-fsdp", f"--optimizer {a.text('optimizer')}").expected(
            "--optimizer adam or sgd", "--optimizer adam"
        )
    strategy = a.text("data_parallel_sharding_strategy")
    hashed = a["check_weight_hash_across_dp_replicas_interval"] is not None
    if strategy == "optim_grads_params" and hashed:
        yield found(
            "--check-weight-hash-across-dp-replicas-interval",
            "--data-parallel-sharding-strategy optim_grads_params with it",
        ).expected("one of them")
    if a.text("ckpt_format") != "fsdp_dtensor":
        yield found("--use-megatron-fsdp", f"--ckpt-format {a.text('ckpt_format')}").expected(
            "--ckpt-format fsdp_dtensor", "--ckpt-format fsdp_dtensor"
        )
    if a.on("init_model_with_meta_device") and strategy == "no_shard":
        yield found(
            "--init-model-with-meta-device", "--data-parallel-sharding-strategy no_shard with it"
        ).expected("a strategy that shards")


def check_precision(a: MegatronArguments) -> Iterator[Finding]:
    """Types of parameters, gradients and quantised products."""
    if a.on("fp16") and a.on("bf16"):
        yield one_of("fp16", "bf16")
    if a.given("fp4") and a.given("fp8"):
        yield one_of("fp4", "fp8")
    if a.on("fp4_param_gather") and not a.given("fp4"):
        yield needs("fp4_param_gather", "fp4")
    dtype = a["main_grads_dtype"]
    if a.on("bf16") and a.on("accumulate_allreduce_grads_in_fp32") and dtype != "fp32":
        yield found(
            "--main-grads-dtype", f"{dtype} with --accumulate-allreduce-grads-in-fp32"
        ).expected("fp32", "--main-grads-dtype fp32")
    if a.on("fp16_lm_cross_entropy") and not a.on("fp16"):
        yield needs("fp16_lm_cross_entropy", "fp16")
    if a.on("fp32_residual_connection") and precision_of(a) == "fp32":
        yield needs("fp32_residual_connection", "bf16")


def check_overlap(a: MegatronArguments) -> Iterator[Finding]:
    """Tensor-parallel overlap needs the messages of sequence parallelism."""
    if a.on("tp_comm_overlap") and not sequence_parallel_of(a):
        off = a.on("sequence_parallel")
        yield found(
            "--tp-comm-overlap",
            "--tensor-model-parallel-size 1, which turns --sequence-parallel off"
            if off
            else "no sequence parallelism",
        ).expected(
            "--sequence-parallel with tensor parallelism",
            "--tensor-model-parallel-size 2" if off else "--sequence-parallel",
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
            yield found(sharded, "CUDA_DEVICE_MAX_CONNECTIONS 1").expected(
                "a larger one, or none", "leaving CUDA_DEVICE_MAX_CONNECTIONS out"
            )
        return
    overlaps = a.on("overlap_moe_expert_parallel_comm")
    if queues != "1" and a.whole(TP) * a.whole(CP) > 1 and not overlaps:
        yield found("CUDA_DEVICE_MAX_CONNECTIONS", queues or "none").expected(
            "1 with tensor or context parallelism (GPUs before Blackwell)",
            "CUDA_DEVICE_MAX_CONNECTIONS=1",
        )


def check_experts(a: MegatronArguments) -> Iterator[Finding]:
    """Experts are divided among expert-parallel ranks."""
    ep, experts = a.whole(EP), a.whole("num_experts")
    if ep > 1 and not experts:
        yield found(
            "--expert-model-parallel-size", f"{ep} without --num-experts (num_experts)"
        ).expected("experts", "--expert-model-parallel-size 1")
    elif ep > 1 and experts % ep:
        yield found("--num-experts", experts).multiple(ep, flag_of(EP))
    if a.on("fake_process_group") and a[DISPATCHER] == "flex":
        yield found("--fake-process-group", "--moe-token-dispatcher-type flex").expected(
            "alltoall or allgather", "--moe-token-dispatcher-type alltoall"
        )


def check_checkpoints(a: MegatronArguments) -> Iterator[Finding]:
    """Formats that go with one way of sharding only."""
    kind = a.text("ckpt_format")
    if kind == "torch_dcp":
        if not a.on("use_torch_fsdp2"):
            yield needs("ckpt_format", "use_torch_fsdp2", value="torch_dcp")
        for key in (TP, PP):
            if a.whole(key) > 1:
                yield found(
                    "--ckpt-format", f"torch_dcp with {flag_of(key)} {a.whole(key)}"
                ).expected("torch_dist", "--ckpt-format torch_dist")
    if kind == "fsdp_dtensor" and not a.on("use_megatron_fsdp"):
        yield needs("ckpt_format", "use_megatron_fsdp", value="fsdp_dtensor")
    if a.text("optimizer") in EMERGING:
        if a.on("use_torch_fsdp2"):
            yield found("use_torch_fsdp2", f"--optimizer {a.text('optimizer')}").expected(
                "--optimizer adam or sgd", "--optimizer adam"
            )
        if kind not in ("torch", "torch_dist"):
            yield found("--ckpt-format", f"{kind} with --optimizer {a.text('optimizer')}").expected(
                "torch or torch_dist", "--ckpt-format torch_dist"
            )
    if a.given("save") and a.whole("save_interval") < 1:
        yield found("--save", "no --save-interval").expected("one of at least 1")


def check_sparse(a: MegatronArguments) -> Iterator[Finding]:
    """Attention to chosen keys is latent, with sequence parallelism and gathered keys."""
    if a.text(VARIANT) != SPARSE:
        return
    if not a.on("multi_latent_attention"):
        yield needs(VARIANT, "multi_latent_attention", "it")
    if a.on("add_bias_linear"):
        yield config(VARIANT, f"{SPARSE} with biases").expected(
            "--disable-bias-linear", "--disable-bias-linear"
        )
    if a.on("apply_rope_fusion"):
        yield config(VARIANT, f"{SPARSE} with fused rotary positions").expected(
            "no fusion", "--no-rope-fusion"
        )
    if a.whole(TP) > 1 and not sequence_parallel_of(a):
        yield found("--tensor-model-parallel-size", f"{a[TP]} with {SPARSE}").expected(
            "--sequence-parallel with it", "--sequence-parallel"
        )
    kinds = {kind.replace("_", "") for kind in a.words(CP_COMM) or ("p2p",)}
    if a.whole(CP) > 1 and kinds != {"allgather"}:
        yield run(CP_COMM, f"{', '.join(sorted(kinds))} with {SPARSE}").expected(
            "all_gather", "--cp-comm-type all_gather"
        )

"""Megatron-LM's rules on recomputation, offloading, overlap and the training loop."""

from collections.abc import Iterator

from ilp_planner.formats.megatron.flags import flag_of
from ilp_planner.formats.megatron.model import layers_of
from ilp_planner.formats.megatron.repairs import CONFIG, Finding, config, found, needs, one_of
from ilp_planner.formats.megatron.rules_pipeline import flat_layout
from ilp_planner.formats.megatron.settings import (
    granularity_of,
    graph_modules,
    graphs_of,
    precision_of,
    sequence_parallel_of,
)
from ilp_planner.formats.megatron.values import EP, PP, TP, MegatronArguments
from ilp_planner.settings.table import DISPATCHER, LOSS_FUSION
from ilp_planner.specs.training import MIXTURES

MODULES = (
    "core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts",
    "gdn_norm_out", "gdp_in_proj", "gdp_qkv", MIXTURES,
)  # fmt: skip
OFFLOADED = (
    "core_attn", "attn_proj", "expert_fc1", "moe_act", "attn_norm", "mlp_norm", "qkv_linear",
    "gdp_qkv",
)  # fmt: skip
RESIZED = ("train_samples", "lr_decay_samples")
# Algorithms of NCCL that add up in the same order every time.
REPEATABLE = ("Tree", "Ring", "CollnetDirect", "CollnetChain", "^NVLS")


def check_schedule(a: MegatronArguments) -> Iterator[Finding]:
    """A run counts iterations or samples, and so does its learning rate."""
    if not a.on("skip_train"):
        if a.whole("train_iters"):
            for key in RESIZED:
                if a.given(key):
                    yield one_of("train_iters", key)
            if a.whole("lr_warmup_samples"):
                yield one_of("train_iters", "lr_warmup_samples")
            if a.given("lr_warmup_fraction") and a.whole("lr_warmup_iters"):
                yield one_of("lr_warmup_fraction", "lr_warmup_iters")
        if a.whole("train_samples"):
            if a.given("lr_decay_iters"):
                yield one_of("train_samples", "lr_decay_iters")
            if a.whole("lr_warmup_iters"):
                yield one_of("train_samples", "lr_warmup_iters")
            if a.given("lr_warmup_fraction") and a.whole("lr_warmup_samples"):
                yield one_of("lr_warmup_fraction", "lr_warmup_samples")
    if a.given("lr") and a.number("min_lr") > a.number("lr"):
        yield found("--min-lr", a["min_lr"]).expected(f"at most --lr ({a['lr']})")
    own = a.given("start_weight_decay") and a.given("end_weight_decay")
    constant = a["weight_decay_incr_style"] == "constant"
    if constant and (a.given("start_weight_decay") or a.given("end_weight_decay")):
        yield one_of("start_weight_decay", "weight_decay_incr_style")
    if not constant and not own:
        yield found("--weight-decay-incr-style", a["weight_decay_incr_style"]).expected(
            "--start-weight-decay and --end-weight-decay"
        )
    every, log = a.whole("log_memory_interval"), a.whole("log_interval")
    if every and log and every % log:
        yield found("--log-memory-interval", every).expected(
            f"a multiple of --log-interval ({log})"
        )
    splits = any(a.given(f"{part}_data_path") for part in ("train", "valid", "test"))
    # Programs of others take them together, as sources of several stages.
    if a.is_megatrons and a.on("mock_data") + bool(a["data_path"]) + splits > 1:
        yield found("--data-path", "several sources of data").expected("one of them")
    if a.on("use_varlen_dataset") and a.on("sft"):
        yield one_of("use_varlen_dataset", "sft")


def check_recompute(a: MegatronArguments) -> Iterator[Finding]:
    """Demands of `validate_args` on recomputation and offloading."""
    kind = _asked(a)
    tp = a.whole(TP)
    if a.on("distribute_saved_activations"):
        if tp < 2:
            yield found(
                "--distribute-saved-activations", f"--tensor-model-parallel-size {tp}"
            ).expected("tensor parallelism")
        if kind != "full":
            yield found(
                "--distribute-saved-activations", f"--recompute-granularity {kind or 'none'}"
            ).expected("full", "--recompute-granularity full")
        if not a.given("recompute_method"):
            yield found("--distribute-saved-activations", "no --recompute-method").expected(
                "uniform or block", "--recompute-method uniform"
            )
    if kind == "selective" and a.given("recompute_method"):
        yield found(
            "--recompute-method", f"{a['recompute_method']} with --recompute-granularity selective"
        ).expected("none, or --recompute-granularity full")
    for key in ("delay_wgrad_compute", "fine_grained_activation_offloading"):
        if a.on(key) and a["transformer_impl"] != "transformer_engine":
            yield found(key, f"--transformer-impl {a['transformer_impl']}").expected(
                "transformer_engine", "--transformer-impl transformer_engine"
            )
    if a["cuda_graph_impl"] == "full_iteration":
        # Megatron turns it off itself where the loss is scaled by what gradients allow.
        dynamic = a.on("fp16") and not a.number("loss_scale")
        if a.on("check_for_nan_in_loss_and_grad") and not dynamic:
            yield found("--cuda-graph-impl", "full_iteration").expected(
                "--no-check-for-nan-in-loss-and-grad with it", "--no-check-for-nan-in-loss-and-grad"
            )
        if a.words("cuda_graph_modules"):
            yield one_of("cuda_graph_modules", "cuda_graph_impl")
    if a.whole("inference_batch_times_seqlen_threshold") > -1 and a.whole(PP) < 2:
        yield found(
            "--inference-batch-times-seqlen-threshold",
            f"--pipeline-model-parallel-size {a.whole(PP)}",
        ).expected("a pipeline")
    if a.on("moe_use_upcycling") and not a.given("save"):
        yield found("--moe-use-upcycling", "no --save").expected("it")


def check_recompute_config(a: MegatronArguments) -> Iterator[Finding]:
    """Demands of `TransformerConfig` on recomputation."""
    kind, method = _asked(a), a.text("recompute_method")
    count = a["recompute_num_layers"]
    if kind == "full":
        pp = a.whole(PP)
        if not method:
            yield config(
                "recompute_method", "none with --recompute-granularity full (recompute_granularity)"
            ).expected("block or uniform", "--recompute-method uniform")
        if count is None:
            yield config("recompute_num_layers", "none with --recompute-granularity full").expected(
                f"from 1 to the layers of a pipeline rank ({layers_of(a) // pp})",
                "--recompute-num-layers 1",
            )
    if kind == "selective" and count is not None:
        yield config(
            "recompute_num_layers", f"{count} with --recompute-granularity selective"
        ).expected("none")
    if kind and a.on("distribute_saved_activations") and sequence_parallel_of(a):
        yield one_of("distribute_saved_activations", "sequence_parallel", stage=CONFIG)
    if a.on("moe_layer_recompute") and a["recompute_granularity"] == "full":
        yield config("moe_layer_recompute", "--recompute-granularity full with it").expected(
            "one of them"
        )
    if kind == "selective":
        yield from _check_modules(a)


def check_graphs(a: MegatronArguments) -> Iterator[Finding]:
    """Demands of `TransformerConfig` on CUDA graphs, and parts that may not be in them."""
    old = [key for key in ("enable_cuda_graph", "external_cuda_graph") if a.on(key)]
    if len(old) > 1:
        yield one_of(old[0], old[1], stage=CONFIG)
    if old and a["cuda_graph_impl"] != "none":
        yield one_of(old[0], "cuda_graph_impl", stage=CONFIG)
    kind, modules = graphs_of(a), graph_modules(a)
    if not kind:
        return
    impl = old[0] if old else "cuda_graph_impl"
    key = "cuda_graph_modules" if a.words("cuda_graph_modules") else "cuda_graph_scope"
    if a.whole("cpu_offloading_num_layers"):
        yield one_of(impl, "cpu_offloading_num_layers", stage=CONFIG)
    if kind == "transformer_engine" and "full_iteration" in modules:
        yield config(key, "full_iteration with transformer_engine").expected("local with it")
    if "moe" in modules and "moe_router" in modules:
        yield config(key, "moe and moe_router").expected("one of them")
    if kind == "transformer_engine" and "moe_preprocess" in modules and "moe_router" not in modules:
        yield config(key, "moe_preprocess without moe_router").expected("moe_router with it")
    yield from _check_graphed_experts(a, key, modules)
    if _asked(a) == "full" and kind != "full_iteration":
        yield config(impl, "--recompute-granularity full with graphs of layers").expected(
            "selective or none, or a graph of the full iteration"
        )
    if _asked(a) == "selective":
        yield from _check_graphed_recompute(a, key, kind, modules)


def _check_graphed_experts(
    a: MegatronArguments, key: str, modules: tuple[str, ...]
) -> Iterator[Finding]:
    if a.whole("num_experts") < 2:
        if named := [name for name in ("moe", "moe_router") if name in modules]:
            yield config(key, f"{named[0]} without --num-experts").expected("experts")
        return
    frequency = a["moe_layer_freq"]
    if "mlp" in modules and (frequency == 1 or (isinstance(frequency, tuple) and all(frequency))):
        yield config(key, "mlp where every layer has experts").expected("no mlp")
    factor = a.given("moe_expert_capacity_factor")
    if factor and a.on("moe_pad_expert_input_to_capacity"):
        return
    if "moe" in modules:
        yield config(key, "moe without padding to a capacity").expected(
            "--moe-expert-capacity-factor and --moe-pad-expert-input-to-capacity"
        )
    counts = factor or a.on("moe_router_padding_for_fp8")
    counts = counts or a.on("moe_router_padding_for_quantization")
    if "moe_preprocess" in modules and a[DISPATCHER] == "alltoall" and counts:
        yield config(key, "moe_preprocess where tokens are counted").expected("no moe_preprocess")


def _check_graphed_recompute(
    a: MegatronArguments, key: str, kind: str, modules: tuple[str, ...]
) -> Iterator[Finding]:
    """Recomputation inside a graph may draw no random numbers."""
    again = a.words("recompute_modules") or ("core_attn",)
    whole = not modules or kind == "full_iteration"
    if kind == "transformer_engine" and "moe" in again and "moe_router" in modules:
        yield config(key, "moe_router with --recompute-modules moe").expected("one of them")
    for name, inside, rate in (
        ("core_attn", "attn", "attention_dropout"),
        ("mlp", "mlp", "hidden_dropout"),
        ("moe", "moe", "hidden_dropout"),
    ):
        if name in again and (whole or inside in modules) and a.number(rate):
            yield config(rate, f"{a[rate]} with {name} computed again in a graph").expected(
                "0", f"{flag_of(rate)} 0"
            )
    if "moe" in again and (whole or "moe" in modules) and a.given("moe_input_jitter_eps"):
        yield config("moe_input_jitter_eps", "moe computed again in a graph").expected("none")


def _asked(a: MegatronArguments) -> str:
    """Return the granularity as it is checked: before --moe-layer-recompute changes it."""
    return "selective" if a.on("recompute_activations") else a.text("recompute_granularity")


def _check_modules(a: MegatronArguments) -> Iterator[Finding]:
    modules = a.words("recompute_modules") or ("core_attn",)
    unknown = [module for module in modules if module not in MODULES]
    if unknown:
        yield config("recompute_modules", ", ".join(unknown)).expected(
            f"some of {', '.join(MODULES)}"
        )
    if "moe_act" in modules and not a.on("moe_grouped_gemm"):
        yield config("recompute_modules", "moe_act").expected(
            "--moe-grouped-gemm with it", "--moe-grouped-gemm"
        )
    if "mla_up_proj" in modules and not a.on("multi_latent_attention"):
        yield config("recompute_modules", "mla_up_proj").expected(
            "--multi-latent-attention with it"
        )
    if MIXTURES in modules and not a.on("enable_hyper_connections"):
        yield config("recompute_modules", MIXTURES).expected(
            "--enable-hyper-connections with it", "--enable-hyper-connections"
        )
    if {MIXTURES, "mlp"} <= {*modules}:
        yield config("recompute_modules", f"{MIXTURES} and mlp").expected("one of them")
    if "gdn_norm_out" in modules and a["experimental_attention_variant"] != "gated_delta_net":
        yield config("recompute_modules", "gdn_norm_out").expected("gated delta nets")
    overlaps = a.given("moe_shared_expert_intermediate_size") and a.on("moe_shared_expert_overlap")
    if "shared_experts" in modules and overlaps:
        yield config("recompute_modules", "shared_experts").expected(
            "no --moe-shared-expert-overlap with it"
        )
    quantised = {"moe_act", "layernorm"} & set(modules)
    if a.given("fp8") and quantised and a["fp8_recipe"] == "delayed":
        yield config(
            "recompute_modules", f"{', '.join(sorted(quantised))} with --fp8-recipe delayed"
        ).expected("another recipe")


def check_deterministic(a: MegatronArguments) -> Iterator[Finding]:
    """Settings excluded by --deterministic-mode, and the variable that it wants."""
    if not a.on("deterministic_mode"):
        return
    for other in ("use_flash_attn", LOSS_FUSION):
        if a.on(other):
            yield one_of("deterministic_mode", other)
    algorithm = (a.environment or {}).get("NCCL_ALGO")
    if a.environment is not None and algorithm not in REPEATABLE:
        yield found("NCCL_ALGO", algorithm or "none").expected(
            f"one of {', '.join(REPEATABLE)} with --deterministic-mode", "NCCL_ALGO=Ring"
        )


def check_offloading(a: MegatronArguments) -> Iterator[Finding]:
    """Demands of `TransformerConfig` on offloading to the host."""
    count, pp, layers = a.whole("cpu_offloading_num_layers"), a.whole(PP), layers_of(a)
    if count > 0:
        if count >= layers:
            yield config("cpu_offloading_num_layers", count).expected(
                f"less than --num-layers ({layers})"
            )
        if pp > 1:
            yield config(
                "cpu_offloading_num_layers", f"--pipeline-model-parallel-size {pp} with it"
            ).expected("no pipeline", "--pipeline-model-parallel-size 1")
        if _asked(a):
            yield config("cpu_offloading_num_layers", "recomputation (recompute) with it").expected(
                "one of them"
            )
    if a.on("moe_paged_stash") and not a.given("moe_expert_rank_capacity_factor"):
        yield needs("moe_paged_stash", "moe_expert_rank_capacity_factor", stage=CONFIG)
    if a.on("moe_paged_stash") and count > 0:
        yield one_of("moe_paged_stash", "cpu_offloading_num_layers", stage=CONFIG)
    if not a.on("fine_grained_activation_offloading"):
        return
    modules = a.words("offload_modules")
    if count > 0:
        yield config("fine_grained_activation_offloading", "--cpu-offloading-num-layers").expected(
            "one of them"
        )
    if not modules:
        yield config("offload_modules", "none").expected(f"some of {', '.join(OFFLOADED)}")
    if unknown := [module for module in modules if module not in OFFLOADED]:
        yield config("offload_modules", ", ".join(unknown)).expected(
            f"some of {', '.join(OFFLOADED)}"
        )
    if "attn_proj" in modules and "core_attn" not in modules:
        yield config("offload_modules", "attn_proj").expected("core_attn with it")


def check_overlap_config(a: MegatronArguments) -> Iterator[Finding]:
    """Demands of the configuration on overlapped and deferred work."""
    pp = a.whole(PP)
    virtual = a.whole("num_virtual_stages_per_pipeline_rank") > 1 or a.given(
        "num_layers_per_virtual_pipeline_stage"
    )
    virtual = virtual or flat_layout(a.text("pipeline_model_parallel_layout")).count("|") >= pp
    if a.on("defer_embedding_wgrad_compute"):
        if pp == 1:
            yield config("defer_embedding_wgrad_compute", "no pipeline").expected("a pipeline")
        if not a.on("gradient_accumulation_fusion"):
            yield config(
                "defer_embedding_wgrad_compute", "--no-gradient-accumulation-fusion"
            ).expected("the fusion")
        if a.whole("wgrad_deferral_limit") < 0:
            yield config("wgrad_deferral_limit", a["wgrad_deferral_limit"]).expected("at least 0")
    if a.on("overlap_p2p_comm_warmup_flush") and not (virtual and a.on("overlap_p2p_comm")):
        yield config(
            "overlap_p2p_comm_warmup_flush", "no overlapped communication between stages"
        ).expected("an interleaved pipeline without --no-overlap-p2p-communication")
    if a.on("overlap_moe_expert_parallel_comm"):
        yield from _check_expert_overlap(a, pp, virtual)
    elif a.on("delay_wgrad_compute"):
        yield needs("delay_wgrad_compute", "overlap_moe_expert_parallel_comm", "it", stage=CONFIG)
    elif a.on("ep_overlap_early_attn_memory_release"):
        yield needs(
            "ep_overlap_early_attn_memory_release",
            "overlap_moe_expert_parallel_comm",
            "it",
            stage=CONFIG,
        )


def _check_expert_overlap(a: MegatronArguments, pp: int, virtual: bool) -> Iterator[Finding]:
    key = "overlap_moe_expert_parallel_comm"
    if pp > 1 and not virtual:
        yield config(key, "a pipeline without virtual stages").expected("virtual stages")
    if a.whole(EP) < 2:
        yield config(key, "--expert-model-parallel-size 1").expected("expert parallelism")
    if a[DISPATCHER] == "allgather":
        yield config(key, "allgather dispatcher").expected(
            "alltoall or flex", "--moe-token-dispatcher-type alltoall"
        )
    if granularity_of(a) == "full" or a.given("recompute_method"):
        yield config(key, "--recompute-granularity full").expected("selective or none")
    if "moe" in a.words("recompute_modules"):
        yield config(key, "--recompute-modules moe").expected("others")
    graphs = graphs_of(a)
    if graphs and (graphs != "transformer_engine" or {"moe", "mlp"}.intersection(graph_modules(a))):
        yield config(key, "CUDA graphs of experts or MLPs").expected(
            "those of transformer_engine, without moe and mlp"
        )
    if precision_of(a) == "fp32":
        yield config(key, "neither --bf16 nor --fp16").expected("one of them", "--bf16")
    if a.on("moe_shared_expert_overlap"):
        yield one_of(key, "moe_shared_expert_overlap", stage=CONFIG)
    if a.whole("mtp_num_layers") > 1:
        yield config(key, f"--mtp-num-layers {a['mtp_num_layers']}").expected(
            "1", "--mtp-num-layers 1"
        )

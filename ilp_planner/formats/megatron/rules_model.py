"""Megatron-LM's rules on the model: dimensions, positions, experts, fusions."""

from collections.abc import Iterator

from ilp_planner.formats.megatron.flags import flag_of
from ilp_planner.formats.megatron.model import layers_of, sequence_of
from ilp_planner.formats.megatron.repairs import (
    CONFIG,
    Finding,
    built,
    config,
    found,
    needs,
    one_of,
    run,
)
from ilp_planner.formats.megatron.values import CP, PP, TP, MegatronArguments
from ilp_planner.settings.table import CP_COMM, DISPATCHER, LOSS_FUSION
from ilp_planner.specs.degrees import nearest_divisor, nearest_multiple

REQUIRED = ("hidden_size", "num_attention_heads", "max_position_embeddings")
AUXILIARY = ("aux_loss", "seq_aux_loss", "global_aux_loss", "none")


def check_required(a: MegatronArguments) -> Iterator[Finding]:
    """Dimensions that every model needs."""
    asked = "a whole number"
    if a.on("use_checkpoint_args"):
        asked = "the number that the checkpoint has (--use-checkpoint-args), which is not read here"
    if a.given("num_layers") and a.given("encoder_num_layers"):
        yield one_of("num_layers", "encoder_num_layers")
    if not layers_of(a):
        yield found("--num-layers", "none").expected(asked)
    for key in REQUIRED:
        if not a.given(key):
            yield found(key, "none").expected(asked)
    if not a.given("seq_length") and not a.given("encoder_seq_length"):
        yield found("--seq-length", "none").expected(asked)
    if a.given("seq_length") and a.given("encoder_seq_length"):
        yield one_of("seq_length", "encoder_seq_length")
    for key in ("num_layers", *REQUIRED, "seq_length", "ffn_hidden_size", "kv_channels"):
        if a.given(key) and a.whole(key) < 1:
            yield found(key, a[key]).expected("at least 1")


def check_sizes(a: MegatronArguments) -> Iterator[Finding]:
    """Heads, sequence and positions (`validate_args`)."""
    hidden, heads = a.whole("hidden_size"), a.whole("num_attention_heads")
    sequence, cp = sequence_of(a), a.whole(CP)
    if not a.given("kv_channels") and hidden % heads:
        yield found("--hidden-size", hidden).expected(
            f"a multiple of --num-attention-heads ({heads}) unless --kv-channels is given",
            f"--hidden-size {nearest_multiple(hidden, heads)}",
        )
    if cp > 1 and sequence % (2 * cp):
        yield found("--seq-length", sequence).expected(
            f"a multiple of {2 * cp} = 2 x --context-parallel-size ({cp})",
            f"--seq-length {nearest_multiple(sequence, 2 * cp)}",
            f"--seq-length {max(1, sequence // (2 * cp)) * 2 * cp}",
        )
    if a.whole("max_position_embeddings") < sequence:
        yield found("--max-position-embeddings", a["max_position_embeddings"]).expected(
            f"at least --seq-length ({sequence})", f"--max-position-embeddings {sequence}"
        )


def check_positions(a: MegatronArguments) -> Iterator[Finding]:
    """Kinds of positions, and their combinations (`validate_args`)."""
    kind = a.text("position_embedding_type")
    rotary = a.on("use_rotary_position_embeddings") or kind == "rope"
    if a.whole("mtp_num_layers") and kind not in ("rope", "none"):
        yield found(
            "--position-embedding-type", f"{kind} with Multi-Token Prediction (--mtp-num-layers)"
        ).expected("rope or none", "--position-embedding-type rope")
    if a.on("freeze_base_model_for_mtp") and not a.whole("mtp_num_layers"):
        yield found("--freeze-base-model-for-mtp", "no --mtp-num-layers").expected("some")
    if not a.on("add_position_embedding") and not rotary:
        yield found("--no-position-embedding", f"--position-embedding-type {kind}").expected(
            "--position-embedding-type none instead", "--position-embedding-type none"
        )
    if kind == "relative" and a["transformer_impl"] != "transformer_engine":
        yield found("--position-embedding-type", "relative with --transformer-impl local").expected(
            "--transformer-impl transformer_engine"
        )
    if kind == "mrope" and not a.given("mrope_section"):
        yield found("--position-embedding-type", "mrope").expected("--mrope-section")


def check_attention(a: MegatronArguments) -> Iterator[Finding]:
    """Latent attention and attention implementations (`validate_args`)."""
    if a.on("multi_latent_attention") and a.on("group_query_attention"):
        yield one_of("group_query_attention", "multi_latent_attention")
    if a.on("mla_down_proj_fusion") and not a.on("multi_latent_attention"):
        yield needs("mla_down_proj_fusion", "multi_latent_attention", "it")
    if a["attention_backend"] == "local" and a.words("spec")[:1] != ("local",):
        yield found("--attention-backend", "local").expected("--spec local with it", "--spec local")
    kinds = a.words(CP_COMM) or ("p2p",)
    seen = next((key for key in ("window_size", "softmax_type") if _special(a, key)), "")
    if a.whole(CP) > 1 and seen and set(kinds) != {"a2a"}:
        # Transformer Engine's `context_parallel.py`: around a ring there are neither.
        yield run(CP_COMM, f"{kinds[0]} with {flag_of(seen)}").expected("a2a", "--cp-comm-type a2a")


def _special(a: MegatronArguments, key: str) -> bool:
    """Tell whether attention has a window, or another softmax than the usual one."""
    return a.given(key) and a[key] != "vanilla"


def check_heads(a: MegatronArguments) -> Iterator[Finding]:
    """Heads are divided among tensor-parallel ranks (`TransformerConfig`)."""
    tp, heads = a.whole(TP), a.whole("num_attention_heads")
    if heads % tp:
        yield config("--num-attention-heads", heads).expected(
            f"a multiple of --tensor-model-parallel-size (tensor_model_parallel_size {tp})",
            f"--tensor-model-parallel-size {nearest_divisor(tp, heads, _room(a))}",
        )
    if not a.on("group_query_attention"):
        return
    groups = a.whole("num_query_groups")
    if groups < 1:
        yield config("--num-query-groups", groups).expected("at least 1")
    elif groups % tp and tp % groups:
        yield config("--num-query-groups", groups).expected(
            f"a multiple or divisor of --tensor-model-parallel-size ({tp})",
            f"--tensor-model-parallel-size {nearest_divisor(tp, groups, heads, _room(a))}",
        )
    elif heads % groups:
        yield built("--num-query-groups", groups).divisor(heads, "--num-attention-heads")


def _room(a: MegatronArguments) -> int:
    """Return the ranks that tensor and data parallelism share."""
    return max(1, a.world // (a.whole(PP) * a.whole(CP)))


def check_expert_config(a: MegatronArguments) -> Iterator[Finding]:
    """Routing, capacity and shared experts (`TransformerConfig`)."""

    experts = a.whole("num_experts")
    if experts < 0:
        yield config("num_experts", experts).expected("at least 1")
    if not experts and a.given("moe_ffn_hidden_size") and a["moe_layer_freq"] == 1:
        yield config("moe_ffn_hidden_size", "no --num-experts").expected(
            "experts, or no such width"
        )
    etp = a.whole("expert_tensor_parallel_size") or a.whole(TP)
    if experts and a.on("add_bias_linear") and etp != 1:
        yield config("expert_tensor_parallel_size", f"{etp} with biases in experts").expected(
            "1, or --disable-bias-linear", "--disable-bias-linear"
        )
    if (a.on("moe_single_grouped_weight") or a.on("moe_single_grouped_bias")) and not a.on(
        "moe_grouped_gemm"
    ):
        yield needs("moe_single_grouped_weight", "moe_grouped_gemm", "it", stage=CONFIG)
    quantised = a.given("fp8") and not a.given("fp4") and a["fp8_recipe"] == "mxfp8"
    if a.on("moe_single_grouped_weight") and not quantised:
        yield config("moe_single_grouped_weight", "no mxfp8").expected(
            "--fp8-format and --fp8-recipe mxfp8"
        )
    yield from _check_router(a)
    sent = a.text(DISPATCHER)
    if a.on("moe_enable_deepep") and sent != "flex":
        yield config("moe_enable_deepep", f"--moe-token-dispatcher-type {sent}").expected(
            "flex", "--moe-token-dispatcher-type flex"
        )
    padded, backend = a.on("moe_pad_expert_input_to_capacity"), a["moe_flex_dispatcher_backend"]
    if padded and sent == "flex" and backend == "deepep":
        yield config("moe_pad_expert_input_to_capacity", "flex token dispatcher").expected(
            "alltoall"
        )
    shared = a["moe_shared_expert_intermediate_size"]
    if isinstance(shared, int) and shared <= 0:
        yield config("moe_shared_expert_intermediate_size", shared).expected("at least 1")
    if shared is not None and a.on("moe_shared_expert_overlap") and sent == "allgather":
        yield config("moe_shared_expert_overlap", "allgather token dispatcher").expected(
            "alltoall or flex", "--moe-token-dispatcher-type alltoall"
        )
    if padded and not a.given("moe_expert_capacity_factor"):
        yield config(
            "moe_pad_expert_input_to_capacity", "no --moe-expert-capacity-factor"
        ).expected("one", "--moe-expert-capacity-factor 1.0")
    kinds = a.words("moe_router_load_balancing_type")
    if a.given("moe_expert_capacity_factor") and any(kind not in AUXILIARY for kind in kinds):
        yield config(
            "moe_expert_capacity_factor", f"--moe-router-load-balancing-type {' '.join(kinds)}"
        ).expected(f"{', '.join(AUXILIARY)}")


def _check_router(a: MegatronArguments) -> Iterator[Finding]:
    kinds, weights = a.words("moe_router_load_balancing_type"), a["moe_aux_loss_coeff"]
    if len(kinds) > 1 and (not isinstance(weights, tuple) or len(weights) != len(kinds)):
        count = len(weights) if isinstance(weights, tuple) else 0
        yield config("moe_aux_loss_coeff", f"{count} values").expected(
            f"{len(kinds)}, one per kind of loss"
        )
    score = a.text("moe_router_score_function")
    if a.on("moe_router_enable_expert_bias") and score == "softmax":
        yield config(
            "moe_router_enable_expert_bias", "--moe-router-score-function softmax"
        ).expected("sigmoid or sqrtsoftplus", "--moe-router-score-function sigmoid")
    after = score == "softmax" and not a.on("moe_router_pre_softmax")
    if a["moe_router_topk"] == 1 and after and kinds != ("sinkhorn",):
        yield config("moe_router_topk", "1 with a softmax after it").expected(
            "--moe-router-pre-softmax", "--moe-router-pre-softmax"
        )
    groups, chosen = a.whole("moe_router_num_groups"), a.whole("moe_router_group_topk")
    if chosen and not groups:
        yield config("moe_router_group_topk", "no --moe-router-num-groups").expected("some")
    elif chosen and not a.whole("num_experts"):
        yield config("moe_router_group_topk", "no --num-experts").expected("experts")
    elif chosen and a.whole("num_experts") % groups:
        yield config("moe_router_num_groups", groups).expected(
            f"a divisor of {a['num_experts']} experts"
        )
    elif chosen > groups:
        yield config("moe_router_group_topk", chosen).expected(f"at most {groups} groups")
    padded = a.on("moe_router_padding_for_quantization") or a.on("moe_router_padding_for_fp8")
    if padded and not (a.given("fp8") or a.given("fp4")):
        yield config("moe_router_padding_for_quantization", "no --fp8-format").expected(
            "fp8 or fp4"
        )
    if padded and a[DISPATCHER] == "allgather":
        yield config("moe_router_padding_for_quantization", "allgather dispatcher").expected(
            "alltoall or flex", "--moe-token-dispatcher-type alltoall"
        )


def check_fusions(a: MegatronArguments) -> Iterator[Finding]:
    """Activations and their fused kernels, rotary positions (`TransformerConfig`)."""

    for other in ("squared_relu", "quick_geglu"):
        if a.on("swiglu") and a.on(other):
            yield one_of(other, "swiglu", stage=CONFIG)
    fused = a.on("bias_swiglu_fusion" if a.on("swiglu") else "bias_gelu_fusion")
    fused = fused and (a.on("swiglu") or a.on("add_bias_linear"))
    if fused and a.on("squared_relu"):
        yield config("squared_relu", "the fused bias and GeLU").expected(
            "no fusion", "--no-bias-gelu-fusion"
        )
    if fused and a.on("use_te_activation_func"):
        off = "--no-bias-swiglu-fusion" if a.on("swiglu") else "--no-bias-gelu-fusion"
        yield config("use_te_activation_func", "a fused bias and activation").expected(
            "no fusion", off
        )
    if a.on("use_te_activation_func") and (a.on("squared_relu") or a.on("quick_geglu")):
        yield config("use_te_activation_func", "an activation of Megatron's own").expected(
            "GeLU or SwiGLU"
        )
    if a.on("fused_residual_rmsnorm") and a["normalization"] != "RMSNorm":
        yield config("fused_residual_rmsnorm", f"{a['normalization']}").expected(
            "RMSNorm", "--normalization RMSNorm"
        )
    if a.on("multi_latent_attention"):
        if a.on("rotary_interleaved"):
            yield one_of("rotary_interleaved", "multi_latent_attention", stage=CONFIG)
        rotary = a["position_embedding_type"] == "rope" or a.on("use_rotary_position_embeddings")
        if rotary and a.on("apply_rope_fusion") and a["rope_type"] == "rope":
            yield config("rope_type", "rope with fused rotary positions").expected(
                "yarn", "--no-rope-fusion"
            )
        if a.on("cache_mla_latents") and a.on("apply_rope_fusion"):
            yield config("cache_mla_latents", "fused rotary positions").expected(
                "no fusion", "--no-rope-fusion"
            )
        if a.on("attention_output_gate"):
            yield config("attention_output_gate", "--multi-latent-attention").expected(
                "one of them"
            )
    frequency = a["no_rope_freq"]
    layers = layers_of(a)
    if isinstance(frequency, int) and frequency and layers % frequency:
        yield config("no_rope_freq", frequency).expected(f"a divisor of --num-layers ({layers})")
    if isinstance(frequency, tuple) and len(frequency) != layers:
        yield config("no_rope_freq", f"{len(frequency)} entries").expected(
            f"--num-layers ({layers})"
        )
    if a["cross_entropy_fusion_impl"] == "linear":
        yield config("cross_entropy_fusion_impl", "linear").expected(
            "native", "--cross-entropy-fusion-impl native"
        )
    # Refused by the newest Megatron-LM; programs of others run earlier ones, which take it.
    if a.is_megatrons and a.on(LOSS_FUSION) and a["cross_entropy_fusion_impl"] == "te":
        yield config("cross_entropy_fusion_impl", "te with --cross-entropy-loss-fusion").expected(
            "native", "--cross-entropy-fusion-impl native"
        )
    kinds = a.words(CP_COMM)
    if a.whole(CP) > 1 and len(kinds) > 1 and len(kinds) != layers:
        yield config(CP_COMM, f"{len(kinds)} values").expected(f"one, or --num-layers ({layers})")


def check_quantised(a: MegatronArguments) -> Iterator[Finding]:
    """8-bit and 4-bit products (`TransformerConfig`)."""

    if a.given("fp8"):
        if a.on("first_last_layers_bf16") and a["fp8_recipe"] == "delayed":
            yield config("first_last_layers_bf16", "--fp8-recipe delayed").expected(
                "another recipe"
            )
        if a.on("first_last_layers_bf16"):
            most = layers_of(a) // a.whole(PP)
            for key in ("num_layers_at_start_in_bf16", "num_layers_at_end_in_bf16"):
                if not 0 <= a.whole(key) <= most:
                    yield config(key, a[key]).expected(
                        f"0 to the layers of a pipeline rank ({most})"
                    )
        if a["fp8_recipe"] == "custom" and not a.given("fp8_quantizer_factory"):
            yield config("fp8_recipe", "custom").expected("--fp8-quantizer-factory with it")
    elif a.on("fp8_param_gather"):
        yield config("fp8_param_gather", "no --fp8-format").expected("one", "--fp8-format hybrid")

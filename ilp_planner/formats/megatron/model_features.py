"""Differences of decoders beyond their sizes, in Megatron-LM's arguments: from values, and back.

Most of them cost nothing, and change the trained model all the same.
"""

from typing import Any

from ilp_planner.formats.megatron.flags import Value
from ilp_planner.formats.megatron.values import MegatronArguments, given
from ilp_planner.specs.decoder import Decoder
from ilp_planner.specs.decoder_parts import SCORES, Experts, Rotary, Window

ROUNDED = "yarn_correction_range_round_to_int"
# Of YaRN in `MLATransformerConfig`, which no argument says: betas, and positions before.
LATENT_BETAS, LATENT_ORIGINAL = (1.0, 32.0), 4096


def features_of(args: MegatronArguments) -> dict[str, Any]:
    """Return the fields of a `Decoder` that say neither sizes nor experts."""
    learnable = args.text("softmax_type") == "learnable"
    length = args.on("qk_l2_norm")
    return {
        "activation": _activation_of(args),
        "clamp": args.number("activation_func_clamp_value"),
        "offset": args.number("glu_linear_offset"),
        "epsilon": args.number("layernorm_epsilon"),
        "one_plus": args.on("layernorm_zero_centered_gamma"),
        "qk_norm": args.on("qk_layernorm") or length,
        "qk_norm_of": "l2" if length else "head",
        "sinks": learnable,
        "window": _window_of(args),
    }


def feature_values(model: Decoder) -> dict[str, Value]:
    """Return the arguments that say them."""
    gated, quick = model.gated, model.activation == "quick_gelu"
    return given(
        ("swiglu", True, gated and not quick),
        ("quick_geglu", True, gated and quick),
        ("squared_relu", True, model.activation == "relu2"),
        ("activation_func_clamp_value", model.clamp, model.clamp),
        ("glu_linear_offset", model.offset, model.offset),
        ("layernorm_epsilon", model.epsilon, model.epsilon != 1e-5),
        ("layernorm_zero_centered_gamma", True, model.one_plus),
        ("qk_layernorm", True, model.qk_norm and model.qk_norm_of == "head"),
        ("qk_l2_norm", True, model.qk_norm and model.qk_norm_of == "l2"),
        ("softmax_type", "learnable", model.sinks),
        *_window_rows(model),
        *_rotary_rows(model),
    )


def _activation_of(args: MegatronArguments) -> str:
    if args.on("squared_relu"):
        return "relu2"
    return "quick_gelu" if args.on("quick_geglu") else ""


def _window_of(args: MegatronArguments) -> Window | None:
    """Return the window; Megatron counts the tokens before a token's own."""
    sizes, frequency = args["window_size"], args["window_attn_skip_freq"]
    before = sizes[0] if isinstance(sizes, tuple) else -1
    if not isinstance(before, int) or before < 0:
        return None
    if isinstance(frequency, tuple):
        return Window(size=before + 1, windowed_in=tuple(bool(entry) for entry in frequency))
    return Window(size=before + 1, full_every=frequency if isinstance(frequency, int) else 0)


def _window_rows(model: Decoder) -> tuple[tuple[str, Value, object], ...]:
    window = model.window
    if window is None:
        return ()
    named = tuple(int(flag) for flag in window.windowed_in)
    return (
        ("window_size", (window.size - 1, 0), True),
        ("window_attn_skip_freq", named or window.full_every, named or window.full_every),
    )


def rotary_of(args: MegatronArguments) -> Rotary:
    """Return how positions turn."""
    frequency = args["no_rope_freq"]
    values: dict[str, Any] = {
        "base": args.number("rotary_base"),
        "share": args.number("rotary_percent"),
        "none_every": frequency if isinstance(frequency, int) else 0,
    }
    latent, factor = args.on("multi_latent_attention"), args.number("rotary_scaling_factor")
    if args.text("position_embedding_type") == "yarn" or (latent and factor != 1):
        values |= {"scaling": "yarn", "factor": factor, "magnitude": args.number("mscale")}
        values["magnitude_all"] = args.number("mscale_all_dim")
        if latent:
            return Rotary(**values, original=args.whole("original_max_position_embeddings"))
        return Rotary(
            **values,
            original=args.whole("yarn_original_max_position_embeddings"),
            slow=args.number("yarn_beta_slow"),
            fast=args.number("yarn_beta_fast"),
            rounded=args.on(ROUNDED) or not args.given(ROUNDED),
        )
    if interpolation := args.whole("rotary_seq_len_interpolation_factor"):
        return Rotary(**values, scaling="linear", factor=float(interpolation))
    if args.on("use_rope_scaling"):
        return Rotary(
            **values, scaling="llama3", factor=args.number("rope_scaling_factor"), original=8192
        )
    return Rotary(**values)


def _rotary_rows(model: Decoder) -> tuple[tuple[str, Value, object], ...]:
    rotary = model.rotary
    if rotary is None or model.compressed:  # whose arguments say them
        return ()
    yarn, latent = rotary.scaling == "yarn", model.latent is not None
    common, own = yarn, yarn and not latent
    return (
        ("rotary_base", int(rotary.base), rotary.base != 10000),
        ("rotary_percent", rotary.share, rotary.share != 1),
        ("no_rope_freq", rotary.none_every, rotary.none_every),
        ("rotary_seq_len_interpolation_factor", int(rotary.factor), rotary.scaling == "linear"),
        ("use_rope_scaling", True, rotary.scaling == "llama3"),
        (
            "rope_scaling_factor",
            rotary.factor,
            rotary.scaling == "llama3" and rotary.factor != 8,
        ),
        ("rotary_scaling_factor", rotary.factor, common),
        ("mscale", rotary.magnitude, common and rotary.magnitude != 1),
        ("mscale_all_dim", rotary.magnitude_all, common and rotary.magnitude_all),
        ("yarn_original_max_position_embeddings", rotary.original, own),
        ("yarn_beta_fast", rotary.fast, own),
        ("yarn_beta_slow", rotary.slow, own),
        (ROUNDED, rotary.rounded, own),
    )


def unsaid(model: Decoder) -> tuple[str, ...]:
    """Return notes on features that are trained otherwise, because no argument says them."""
    rotary = model.rotary
    if rotary is None or model.latent is None or rotary.scaling != "yarn":
        return ()
    notes = []
    if (rotary.slow, rotary.fast) != LATENT_BETAS:
        slow, fast = LATENT_BETAS
        notes.append(
            f"rotary.slow, rotary.fast: {rotary.slow:g}, {rotary.fast:g}; Megatron-LM has "
            f"{slow:g}, {fast:g} with latent attention, which no argument changes"
        )
    if rotary.original != LATENT_ORIGINAL:
        notes.append(
            f"rotary.original: {rotary.original}; Megatron-LM has {LATENT_ORIGINAL} with latent "
            "attention, which no argument changes"
        )
    return tuple(notes)


def routing_of(args: MegatronArguments) -> dict[str, Any]:
    """Return the fields of `Experts` that say how tokens are routed."""
    one = args.whole("moe_router_topk") == 1
    score = args.text("moe_router_score_function")
    return {
        "shared_gate": args.on("moe_shared_expert_gate"),
        "score": score if score in SCORES else "softmax",
        "normed": one or not args.on("moe_router_pre_softmax"),
        "correction": args.on("moe_router_enable_expert_bias"),
        "scale": args.number("moe_router_topk_scaling_factor") or 1.0,
    }


def routing_values(experts: Experts) -> dict[str, Value]:
    """Return the arguments that say them."""
    # A softmax over one expert alone would have no gradient: Megatron wants it before.
    before = experts.score == "softmax" and (experts.top_k == 1 or not experts.normed)
    return given(
        ("moe_router_pre_softmax", True, before),
        ("moe_router_score_function", experts.score, experts.score != "softmax"),
        ("moe_router_enable_expert_bias", True, experts.correction),
        ("moe_router_topk_scaling_factor", experts.scale, experts.scale != 1),
        ("moe_shared_expert_gate", True, experts.shared_gate),
    )

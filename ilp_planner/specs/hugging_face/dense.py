"""Families without experts, each a function from a configuration to a decoder; common readers."""

from typing import Any

from ilp_planner.specs.decoder import Decoder
from ilp_planner.specs.decoder_parts import Experts, Window
from ilp_planner.specs.hugging_face.config import Config, one_of, rotary_of, window_of

# ---- common readers of all families --------------------------------------------------------------
# Sizes, norms, activation, biases, experts.


SEQUENCE = 4096  # tokens of a sample: no configuration says how long samples of training are
# Activations by the names of `transformers`; approximations of GELU are GELU.
ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu",
    "gelu_fast": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "relu2": "relu2",
}
# Sizes, by the names that files have for them.
SIZES = {
    "hidden": ("hidden_size", "n_embd"),
    "heads": ("num_attention_heads", "n_head"),
    "positions": ("max_position_embeddings", "n_positions"),
}


def decoder(
    config: Config,
    *,
    epsilon: str = "rms_norm_eps",
    usual_epsilon: float = 1e-6,
    act: str = "hidden_act",
    usual_act: str = "silu",
    tied: bool = False,
    **choices: Any,
) -> Decoder:
    """Return a decoder; by default one like Llama: RMSNorm, SwiGLU, rotary positions, no bias.

    Parameters
    ----------
    epsilon, act: keys of the epsilon of norms and of the activation. usual_epsilon, usual_act,
        tied: defaults of the file. choices: fields of the decoder that are otherwise.
    """
    heads = config.whole(config.first(*SIZES["heads"]))
    longest = choices.pop("longest", None)
    longest = config.whole(config.first(*SIZES["positions"]), longest)
    named = config.text(act, usual_act)
    if named not in ACTIVATIONS:
        raise config.error(act, one_of(sorted(ACTIVATIONS)))
    values: dict[str, Any] = {
        "layers": config.layers,
        "hidden": config.whole(config.first(*SIZES["hidden"])),
        "heads": heads,
        "sequence": min(SEQUENCE, longest),
        "max_position_embeddings": longest,
        "vocab": config.whole("vocab_size"),
        "gated": True,
        "bias": False,
        "norm": "rmsnorm",
        "positions": "rope",
        "tied": config.flag("tie_word_embeddings", tied),
        "dropout": 0.0,
        "epsilon": config.number(epsilon, usual_epsilon),
        "activation": ACTIVATIONS[named],
    }
    if "ffn" not in choices:
        values["ffn"] = config.whole("intermediate_size")
    if "kv_heads" not in choices:
        values["kv_heads"] = config.whole("num_key_value_heads", heads)
    if "head" not in choices:
        values["head"] = config.whole("head_dim", 0, least=0)
    values |= choices
    if values["positions"] == "rope" and "rotary" not in values:
        values["rotary"] = rotary_of(config)
    with config.blamed():
        return Decoder(**values)


def attention_biases(config: Config) -> dict[str, Any]:
    """Return biases of attention alone, or of all products."""
    attention = config.flag("attention_bias", False)
    both = config.flag("mlp_bias", False)
    if both and not attention:
        raise config.error("mlp_bias", "false without attention_bias", "true")
    if both:
        return {"bias": True}
    return {"qkv_bias": attention, "projection_bias": attention}


def expert_layers(flags: list[bool]) -> dict[str, Any]:
    """Return `dense_first` and `every` of `Experts`, or `experts_in` of a decoder, for layers with
    and without experts."""
    if any(flags):
        first = flags.index(True)
        later = next((i for i in range(first + 1, len(flags)) if flags[i]), 2 * first + len(flags))
        every = later - first
        if flags == [i >= first and (i - first) % every == 0 for i in range(len(flags))]:
            return {"dense_first": first, "every": min(every, len(flags))}
    return {"experts_in": tuple(flags)}


def with_experts(
    config: Config, flags: list[bool], *, experts: dict[str, Any], **choices: Any
) -> Decoder:
    """Return a decoder with experts in some layers. choices: as `decoder` takes them."""
    if not any(flags):
        return decoder(config, **choices)
    where = expert_layers(flags)
    listed = {"experts_in": where.pop("experts_in")} if "experts_in" in where else {}
    with config.blamed():
        routed = Experts(**experts, **where)
    return decoder(config, experts=routed, **listed, **choices)


def expert_count(config: Config) -> int:
    """Return the number of routed experts, under one of three names."""
    return config.whole(config.first("num_local_experts", "num_experts", "n_routed_experts"))


# ---- families without experts --------------------------------------------------------------------


def llama(config: Config) -> Decoder:
    """Llama 1 to 3, and models of its architecture."""
    return decoder(config, **attention_biases(config))


def mistral(config: Config) -> Decoder:
    """Mistral: Llama with a window in all layers."""
    return decoder(config, window=window_of(config, default=4096))


def ministral3(config: Config) -> Decoder:
    """Ministral 3: Mistral with the window off by default."""
    return decoder(config, usual_epsilon=1e-5, window=window_of(config))


def qwen2(config: Config) -> Decoder:
    """Qwen 2 and 2.5: biases of queries, keys and values."""
    return decoder(config, qkv_bias=True, window=qwen_window(config))


def qwen3(config: Config) -> Decoder:
    """Qwen 3: queries and keys are normed."""
    biases = attention_biases(config)
    return decoder(config, qk_norm=True, window=qwen_window(config), **biases)


def qwen_window(config: Config) -> Window | None:
    """Return the window, with its switch, from a layer on."""
    if not config.flag("use_sliding_window", False):
        return None
    return window_of(config, first=config.whole("max_window_layers", 28, least=0))


def gemma(config: Config) -> Decoder:
    """Gemma 1: GeGLU, and scales of norms as differences from one."""
    return _gemma(config)


def _gemma(config: Config, **own: Any) -> Decoder:
    return decoder(
        config,
        act=config.first("hidden_activation", "hidden_act"),
        usual_act="gelu_pytorch_tanh",
        tied=True,
        one_plus=True,
        head=config.whole("head_dim", 256),
        **attention_biases(config),
        **own,
    )


def gemma2(config: Config) -> Decoder:
    """Gemma 2: norms on both sides, soft caps, a window in every other layer."""
    return _gemma(
        config,
        norm_at="both",
        window=window_of(config, default=4096, full_every=2),
        **_softcaps(config),
    )


def _softcaps(config: Config) -> dict[str, float]:
    return {
        "attention_softcap": config.number("attn_logit_softcapping", 0.0),
        "output_softcap": config.number("final_logit_softcapping", 0.0),
    }


def gemma3(config: Config) -> Decoder:
    """Gemma 3: norms on both sides, of queries and keys too; one layer in six sees all, by a
    rotary base of its own."""
    pattern = config.whole(config.first("sliding_window_pattern", "_sliding_window_pattern"), 6)
    return _gemma(
        config,
        norm_at="both",
        qk_norm=True,
        heads=config.whole("num_attention_heads", 8),
        kv_heads=config.whole("num_key_value_heads", 4),
        longest=131072,
        rotary=rotary_of(config, base=1e6, local_base=10000.0),
        window=window_of(config, default=4096, full_every=pattern),
        **_softcaps(config),
    )


def phi(config: Config) -> Decoder:
    """Phi 1 and 2: attention and MLP beside each other behind one LayerNorm, biases everywhere."""
    if config.flag("qk_layernorm", False):
        raise config.error("qk_layernorm", "false: its norms are not modelled")
    return decoder(
        config,
        epsilon="layer_norm_eps",
        usual_epsilon=1e-5,
        usual_act="gelu_new",
        gated=False,
        bias=True,
        output_bias=True,
        norm="layernorm",
        parallel_norms=1,
        dropout=config.share("resid_pdrop", 0.0),
        rotary=rotary_of(config, share=0.5),
    )


def phi3(config: Config) -> Decoder:
    """Phi 3 and 4: Llama with a window."""
    return decoder(
        config,
        usual_epsilon=1e-5,
        dropout=config.share("resid_pdrop", 0.0),
        window=window_of(config),
    )


def olmo(config: Config) -> Decoder:
    """OLMo: norms that learn nothing."""
    return decoder(config, norm="bare-layernorm", usual_epsilon=1e-5, **_plain(config))


def olmo2(config: Config) -> Decoder:
    """OLMo 2: norms after attention and MLP, and of all queries and keys at once."""
    return decoder(
        config, usual_epsilon=1e-5, norm_at="output", qk_norm=True, qk_norm_of="heads",
        **attention_biases(config),
    )  # fmt: skip


def olmo3(config: Config) -> Decoder:
    """OLMo 3: OLMo 2 with a window in three of four layers."""
    return decoder(
        config,
        usual_epsilon=1e-5,
        norm_at="output",
        qk_norm=True,
        qk_norm_of="heads",
        window=window_of(config, default=4096, full_every=4),
        **attention_biases(config),
    )


def _plain(config: Config) -> dict[str, Any]:
    """Return biases of OLMo, with a fixed epsilon and perhaps clipped products: that costs nothing
    and changes the trained model."""
    if config.has("clip_qkv"):
        raise config.error("clip_qkv", "null: clipped queries, keys and values are not modelled")
    return attention_biases(config)


def nemotron(config: Config) -> Decoder:
    """Nemotron-3 and 4: LayerNorm around one, squared ReLU without a gate."""
    return decoder(
        config,
        epsilon="norm_eps",
        usual_epsilon=1e-5,
        usual_act="relu2",
        gated=False,
        norm="layernorm",
        one_plus=True,
        rotary=rotary_of(config, share=0.5),
        **attention_biases(config),
    )


def glm(config: Config) -> Decoder:
    """GLM-4 of 2024: biases of queries, keys and values, half of the channels turned."""
    return _glm(config, norm_at="input")


def glm4(config: Config) -> Decoder:
    """GLM-4 of 2025: norms on both sides."""
    return _glm(config, norm_at="both")


def _glm(config: Config, *, norm_at: str) -> Decoder:
    return decoder(
        config,
        usual_epsilon=1.5625e-07,
        qkv_bias=config.flag("attention_bias", True),
        norm_at=norm_at,
        head=config.whole("head_dim", 128),
        dropout=config.share("resid_pdrop", 0.0),
        rotary=rotary_of(config, share=0.5),
    )


def falcon(config: Config) -> Decoder:
    """Falcon: attention and MLP beside each other, behind one norm or one each."""
    if config.flag("alibi", False):
        raise config.error("alibi", "false: rotary positions alone are modelled")
    heads = config.whole(config.first("num_attention_heads", "n_head"))
    new = config.flag("new_decoder_architecture", False)
    shared = config.whole("num_kv_heads", heads) if new else 1
    kv_heads = shared if new or config.flag("multi_query", True) else heads
    parallel = config.flag("parallel_attn", True) or new
    norms = config.whole("num_ln_in_parallel_attn", 2 if new else 1) if parallel else 0
    hidden = config.whole("hidden_size")
    return decoder(
        config,
        epsilon="layer_norm_epsilon",
        usual_epsilon=1e-5,
        act="activation",
        usual_act="gelu",
        tied=True,
        kv_heads=kv_heads,
        head=0,
        ffn=config.whole("ffn_hidden_size", 4 * hidden),
        gated=False,
        bias=config.flag("bias", False),
        norm="layernorm",
        parallel_norms=norms,
        dropout=config.share("hidden_dropout", 0.0),
        longest=2048,
    )


def gpt_neox(config: Config) -> Decoder:
    """GPT-NeoX and Pythia: attention and MLP beside each other, a LayerNorm each."""
    if not config.flag("attention_bias", True):
        raise config.error("attention_bias", "true: biases of the MLP alone are not modelled")
    return decoder(
        config,
        epsilon="layer_norm_eps",
        usual_epsilon=1e-5,
        usual_act="gelu",
        gated=False,
        bias=True,
        norm="layernorm",
        kv_heads=0,
        parallel_norms=2 if config.flag("use_parallel_residual", True) else 0,
        dropout=config.share("hidden_dropout", 0.0),
        rotary=rotary_of(config, share=0.25, share_key="rotary_pct", base_key="rotary_emb_base"),
    )


def gpt2(config: Config, *, kv_heads: int = 0) -> Decoder:
    """GPT-2: LayerNorm, GELU, learnt positions, biases, one table of words."""
    hidden = config.whole(config.first("hidden_size", "n_embd"))
    return decoder(
        config,
        epsilon="layer_norm_epsilon",
        usual_epsilon=1e-5,
        act="activation_function",
        usual_act="gelu_new",
        tied=True,
        kv_heads=kv_heads,
        ffn=config.whole("n_inner", 4 * hidden),
        gated=False,
        bias=True,
        norm="layernorm",
        positions="learned",
        dropout=config.share("resid_pdrop", 0.1),
    )


def gpt_bigcode(config: Config) -> Decoder:
    """StarCoder: GPT-2 with one head of keys and values for all queries."""
    return gpt2(config, kv_heads=1 if config.flag("multi_query", True) else 0)


def starcoder2(config: Config) -> Decoder:
    """StarCoder 2: LayerNorm, GELU, biases, rotary positions, a window."""
    return decoder(
        config,
        epsilon="norm_epsilon",
        usual_epsilon=1e-5,
        usual_act="gelu_pytorch_tanh",
        tied=True,
        gated=False,
        bias=config.flag("use_bias", True),
        norm="layernorm",
        dropout=config.share("residual_dropout", 0.0),
        window=window_of(config),
    )


def smollm3(config: Config) -> Decoder:
    """SmolLM 3: Llama with one layer in four without positions."""
    every = config.whole("no_rope_layer_interval", 4)
    flags = config.values.get("no_rope_layers")
    if flags is not None and flags != [int((i + 1) % every > 0) for i in range(config.layers)]:
        raise config.error("no_rope_layers", f"0 for one layer in {every}, else 1")
    return decoder(
        config,
        tied=True,
        rotary=rotary_of(config, base=2e6, none_every=every),
        window=qwen_window(config),
        **attention_biases(config),
    )

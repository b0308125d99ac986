"""Families whose layers are a pattern of kinds: each a function from a configuration to a
decoder."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ilp_planner.specs.decoder import Decoder
from ilp_planner.specs.decoder_parts import (
    FEW,
    MANY,
    SCORES,
    CompressedAttention,
    DeltaNet,
    Experts,
    Mamba,
    Rotary,
)
from ilp_planner.specs.hugging_face.config import Config, one_of, rotary_of
from ilp_planner.specs.hugging_face.dense import attention_biases, decoder
from ilp_planner.specs.hugging_face.routed import routed_fields, score_of
from ilp_planner.specs.layer_kinds import BY_LETTERS, LAYER_KINDS, write_pattern

# Layers by their names in files -> letters of `LAYER_KINDS`; older files say "mamba" and
# "attention".
ONE_BLOCK = {
    "linear_attention": "M", "mamba": "M", "full_attention": "*", "attention": "*", "moe": "E",
    "mlp": "-",
}  # fmt: skip
MIXERS = {"linear_attention": "G", "full_attention": "*"}
# DeepSeek-V4's kinds of attention -> letters of them; older files say the rates of pooling.
COMPRESSED = {
    "sliding_attention": "W", "compressed_sparse_attention": "C",
    "heavily_compressed_attention": "H",
}  # fmt: skip
RATES = {0: "sliding_attention", 4: "compressed_sparse_attention",
         128: "heavily_compressed_attention"}  # fmt: skip
HASHED, ROUTED = "hash_moe", "moe"
NEMOTRON_PREDICTS = (["full_attention", "moe"], ["attention", "moe"], "*E")


def nemotron_h(config: Config) -> Decoder:
    """Nemotron-H, Nemotron Nano 2 and Nemotron 3: a block a layer, by a pattern."""
    letters = _letters(config)
    for key in ("use_bias", "mamba_proj_bias", "attention_bias", "mlp_bias"):
        if config.flag(key, False):
            raise config.error(key, "false: hybrids with biases are not modelled", "true")
    experts = _nemotron_experts(config) if "E" in letters else None
    predictions = config.whole("num_nextn_predict_layers", 0, least=0)
    ahead = config.values.get(config.first("mtp_hybrid_override_pattern", "mtp_layers_block_type"))
    if predictions and (ahead or "*E") not in NEMOTRON_PREDICTS:
        raise config.error(
            config.first("mtp_hybrid_override_pattern", "mtp_layers_block_type"),
            "attention and experts ('*E')",
        )
    # transformers keeps two tables whatever the file says (`NemotronHForCausalLM`).
    own = {"num_hidden_layers": len(letters), "tie_word_embeddings": False}
    return decoder(
        Config(config.values | own, file=config.file),
        pattern=letters,
        mamba=_mamba(config, "M" in letters),
        experts=experts,
        gated=False,
        activation=_activation(config),
        positions="none",
        head=config.whole(config.first("head_dim", "attention_head_dim"), 128),
        ffn=config.whole("intermediate_size", 21504),
        epsilon=config.first("layer_norm_epsilon", "norm_eps", "rms_norm_eps"),
        usual_epsilon=1e-5,
        prediction_layers=predictions,
    )


def _letters(config: Config) -> str:
    """Return the pattern of a file: letters, or a list of names."""
    if config.has("hybrid_override_pattern"):
        key, letters = "hybrid_override_pattern", config.text("hybrid_override_pattern")
        unknown = sorted(set(letters) - set(ONE_BLOCK.values()))
    else:
        key = config.first("layers_block_type", "layer_types")
        names = config.values.get(key)
        if not isinstance(names, list) or not names:
            raise config.error(key, f"a list of {', '.join(ONE_BLOCK)}")
        unknown = sorted({str(name) for name in names} - set(ONE_BLOCK))
        letters = "".join(ONE_BLOCK.get(str(name), "?") for name in names)
    if unknown:
        expected = ", ".join(dict.fromkeys(ONE_BLOCK.values()))
        raise config.error(key, f"layers of {expected}", ", ".join(unknown)[:60])
    if config.has("num_hidden_layers") and config.layers != len(letters):
        found = f"{len(letters)} layers"
        raise config.error(key, f"{config.layers} layers, as num_hidden_layers says", found)
    return letters


def _activation(config: Config) -> str:
    named = config.text("mlp_hidden_act", "relu2")
    if named != "relu2":
        raise config.error("mlp_hidden_act", "relu2")
    return named


def _mamba(config: Config, there: bool) -> Mamba | None:
    """Return the Mamba-2 mixers of Nemotron's files."""
    if not there:
        return None
    heads, key = config.whole("mamba_num_heads", 128), config.first("n_groups", "mamba_n_groups")
    if heads % config.whole(key, 8):
        raise config.error(key, f"a divisor of mamba_num_heads ({heads})")
    with config.blamed():
        return Mamba(
            heads=heads,
            head=config.whole("mamba_head_dim", 64),
            state=config.whole("ssm_state_size", 128),
            groups=config.whole(key, 8),
            kernel=config.whole(config.first("conv_kernel", "mamba_d_conv"), 4),
            chunk=config.whole(config.first("chunk_size", "mamba_chunk_size"), 128),
            conv_bias=config.flag(config.first("use_conv_bias", "mamba_conv_bias"), True),
        )


def _nemotron_experts(config: Config) -> Experts:
    groups = config.whole("n_group", 1)
    limited: dict[str, Any] = (
        {"groups": groups, "top_groups": config.whole("topk_group", 1)} if groups > 1 else {}
    )
    shared = config.whole("n_shared_experts", 1, least=0)
    width = config.whole("moe_shared_expert_intermediate_size", 7688)
    with config.blamed():
        return Experts(
            **routed_fields(config, top_k=2),
            **limited,
            shared_ffn=width * bool(shared),
            score="sigmoid",
            correction=True,
            scale=config.number("routed_scaling_factor", 1.0),
            latent=config.whole("moe_latent_size", 0, least=0),
        )


def qwen3_next(config: Config) -> Decoder:
    """Qwen 3-Next and Qwen 3.5 with experts: gated delta nets in three of four layers."""
    experts = routed_fields(config, top_k=10)
    shared = config.whole("shared_expert_intermediate_size", 512, least=0)
    step, dense = config.whole("decoder_sparse_step", 1), set(config.wholes("mlp_only_layers"))
    inner = ["E" if i not in dense and (i + 1) % step == 0 else "-" for i in range(config.layers)]
    with config.blamed():
        routed = Experts(**experts, shared_ffn=shared, shared_gate=shared > 0)
    return _delta(config, inner, experts=routed)


def qwen3_5(config: Config) -> Decoder:
    """Qwen 3.5 without experts."""
    return _delta(config, ["-"] * config.layers)


def _delta(config: Config, inner: Sequence[str], **choices: Any) -> Decoder:
    """Return a decoder of Qwen's with gated delta nets. inner: letter of each layer's MLP or
    experts."""
    every = config.whole("full_attention_interval", 4)
    names = ["full_attention" if (i + 1) % every == 0 else "linear_attention"
             for i in range(config.layers)]  # fmt: skip
    if config.has("layer_types"):
        names = config.listed("layer_types", config.layers)
    if unknown := sorted({str(name) for name in names} - set(MIXERS)):
        raise config.error("layer_types", one_of([*MIXERS]), ", ".join(unknown)[:60])
    letters = [MIXERS[name] + own for name, own in zip(names, inner, strict=True)]
    kinds = tuple(BY_LETTERS[one] for one in letters)
    with config.blamed():
        delta = DeltaNet(
            key_heads=config.whole("linear_num_key_heads", 16),
            value_heads=config.whole("linear_num_value_heads", 32),
            key=config.whole("linear_key_head_dim", 128),
            value=config.whole("linear_value_head_dim", 128),
            kernel=config.whole("linear_conv_kernel_dim", 4),
            projections=MANY if config.text("model_type", "").startswith("qwen3_5") else FEW,
        )
    has = {LAYER_KINDS[kind].mixer for kind in kinds}
    if "mlp" not in {LAYER_KINDS[kind].inner for kind in kinds}:
        choices["ffn"] = config.whole("intermediate_size", 5632)
    return decoder(
        config,
        pattern=write_pattern(kinds),
        delta=delta if "delta" in has else None,
        attention_gate=config.flag("attn_output_gate", True),
        qk_norm=True,
        one_plus=True,
        head=config.whole("head_dim", 256),
        rotary=rotary_of(config, base=1e7, share=0.25),
        usual_epsilon=1e-6,
        **attention_biases(config),
        **choices,
    )


def bamba(config: Config) -> Decoder:
    """Bamba: Mamba-2 in most layers, attention in some, an MLP in all: each is two layers here."""
    layers, hidden = config.layers, config.whole("hidden_size", 4096)
    attention = set(config.wholes("attn_layer_indices"))
    if config.flag("mamba_proj_bias", False):
        raise config.error("mamba_proj_bias", "false: hybrids with biases are not modelled", "true")
    letters = "".join("*-" if i in attention else "M-" for i in range(layers))
    heads = config.whole("mamba_n_heads", 128)
    head = config.values.get("mamba_d_head")
    inner = config.whole("mamba_expand", 2) * hidden
    with config.blamed():
        mamba = Mamba(
            heads=heads,
            head=config.whole("mamba_d_head") if isinstance(head, int) else inner // heads,
            state=config.whole("mamba_d_state", 256),
            groups=config.whole("mamba_n_groups", 1),
            kernel=config.whole("mamba_d_conv", 4),
            chunk=config.whole("mamba_chunk_size", 256),
            conv_bias=config.flag("mamba_conv_bias", True),
        )
    return decoder(
        Config(config.values | {"num_hidden_layers": 2 * layers}, file=config.file),
        pattern=letters,
        mamba=mamba if len(attention) < layers else None,
        rotary=rotary_of(config, share=0.5),
        usual_epsilon=1e-5,
        **attention_biases(config),
    )


def deepseek_v4(config: Config) -> Decoder:
    """DeepSeek-V4: attention to a window and to pooled keys, experts in all layers, of which a
    table of words chooses the first ones, and several streams of hidden states."""
    for key in ("attention_bias", "mlp_bias"):
        if config.flag(key, False):
            raise config.error(key, "false: biases beside compressed attention are not modelled")
    layers, head = config.layers, config.whole("head_dim", 512)
    names, rates = _compressed_layers(config), _rates(config)
    rotary = config.whole("qk_rope_head_dim", round(head * config.share(
        "partial_rotary_factor", 0.125)), most=head)  # fmt: skip
    groups, wide = config.whole("o_groups", 8), config.whole("num_attention_heads") * head
    if wide % groups:
        raise config.error("o_groups", f"a divisor of num_attention_heads x head_dim ({wide})")
    width = config.whole("moe_intermediate_size")
    shared = config.whole("n_shared_experts", 1, least=0)
    experts = routed_fields(config, top_k=6, shared_ffn=shared * width)
    with config.blamed():
        compressed = CompressedAttention(
            query_rank=config.whole("q_lora_rank", 1024),
            output_rank=config.whole("o_lora_rank", 1024),
            groups=groups,
            rotary=rotary,
            window=config.whole("sliding_window", 128),
            near=rates["compressed_sparse_attention"],
            far=rates["heavily_compressed_attention"],
            index_heads=config.whole("index_n_heads", 64),
            index_head=config.whole("index_head_dim", 128, least=rotary),
            top_k=config.whole("index_topk", 512),
        )
        routed = Experts(
            **experts,
            score=score_of(config, "sqrtsoftplus", SCORES),
            correction=True,
            scale=config.number("routed_scaling_factor", 1.5),
            hashed=_hashed(config, layers),
        )
    return decoder(
        config,
        pattern=write_pattern(tuple(BY_LETTERS[f"{COMPRESSED[name]}E"] for name in names)),
        compressed=compressed,
        experts=routed,
        streams=config.whole("hc_mult", 4),
        head=head,
        kv_heads=1,
        ffn=width,
        clamp=config.number("swiglu_limit", 10.0),
        rotary=_two_bases(config, rotary / head),
        prediction_layers=config.whole("num_nextn_predict_layers", 1, least=0),
        usual_epsilon=1e-6,
    )


def _compressed_layers(config: Config) -> list[str]:
    """Return the kind of attention of each layer."""
    layers, ratios = config.layers, config.wholes("compress_ratios")
    if config.has("layer_types"):
        names = [str(name) for name in config.listed("layer_types", layers)]
        if unknown := sorted(set(names) - set(COMPRESSED)):
            raise config.error("layer_types", one_of([*COMPRESSED]), ", ".join(unknown)[:60])
        return names
    if not ratios:
        pairs = ("heavily_compressed_attention", "compressed_sparse_attention")
        return [pairs[i % 2 if i > 1 else 0] for i in range(layers)]
    if len(ratios) < layers:
        expected = f"at least {layers} entries, one per layer"
        raise config.error("compress_ratios", expected, f"{len(ratios)}")
    if unlike := sorted(set(ratios) - set(RATES)):
        expected = f"{', '.join(map(str, RATES))}: of other rates no layer is known"
        raise config.error("compress_ratios", expected, ", ".join(map(str, unlike))[:60])
    if any(ratios[layers:]):
        expected = "0 for layers of multi-token prediction, whose attention has its window alone"
        raise config.error("compress_ratios", expected, f"{ratios[layers:]}"[:60])
    return [RATES[ratio] for ratio in ratios[:layers]]


def _rates(config: Config) -> dict[str, int]:
    """Return the tokens that a pooled key is made of, by the kind of attention."""
    said = config.inside("compress_rates") if config.has("compress_rates") else None
    older = {"compressed_sparse_attention": "compress_rate_csa",
             "heavily_compressed_attention": "compress_rate_hca"}  # fmt: skip
    found = {}
    for rate, name in list(RATES.items())[1:]:
        usual = config.whole(older[name], rate)
        found[name] = said.whole(name, usual) if said else usual
    return found


def _hashed(config: Config, layers: int) -> int:
    """Return the leading layers whose experts a table of words chooses."""
    if not config.has("mlp_layer_types"):
        return min(layers, config.whole("num_hash_layers", 3, least=0))
    names = config.listed("mlp_layer_types", layers)
    first = next((i for i, name in enumerate(names) if name != HASHED), layers)
    if any(name != ROUTED for name in names[first:]):
        raise config.error("mlp_layer_types", f"{HASHED} in the first layers, then {ROUTED}")
    return first


def _two_bases(config: Config, share: float) -> Rotary:
    """Return positions: of layers with pooled keys, and the base of those with a window alone."""
    plain = config.number("rope_theta", 10000.0)
    pooled = config.number("compress_rope_theta", 160000.0)
    values = {key: value for key, value in config.values.items() if key != "rope_parameters"}
    if config.has("rope_parameters"):
        said = config.inside("rope_parameters")
        if said.has("main"):
            plain = said.inside("main").number("rope_theta", plain)
        own = said.inside("compress") if said.has("compress") else said
        values["rope_scaling"] = own.values
        pooled = own.number("rope_theta", pooled) if own is not said else pooled
    own = Config(values | {"rope_theta": pooled}, file=config.file, where=config.where)
    with config.blamed():
        found = rotary_of(own, share=share)
        return replace(found, share=share, windowed_base=0.0 if plain == pooled else plain)

"""Families with experts: each a function from a configuration to a decoder."""

from typing import Any

from ilp_planner.specs.decoder import Decoder
from ilp_planner.specs.decoder_parts import LatentAttention, SparseAttention
from ilp_planner.specs.hugging_face.config import Config, one_of, rotary_of, window_of
from ilp_planner.specs.hugging_face.dense import (
    attention_biases,
    expert_count,
    qwen_window,
    with_experts,
)

SCORES = ("softmax", "sigmoid")


def mixtral(config: Config) -> Decoder:
    """Mixtral: Mistral with experts in all layers."""
    experts = routed_fields(config, ffn="intermediate_size", top_k=2)
    return _everywhere(config, experts, usual_epsilon=1e-5, window=window_of(config))


def qwen2_moe(config: Config) -> Decoder:
    """Qwen 2 with experts, and a gated one for all tokens."""
    shared = config.whole("shared_expert_intermediate_size", 5632)
    experts = routed_fields(config, top_k=4, normed=False, shared_ffn=shared, shared_gate=True)
    bias = config.flag("qkv_bias", True)
    return _sparse(config, experts, qkv_bias=bias, window=qwen_window(config))


def qwen3_moe(config: Config) -> Decoder:
    """Qwen 3 with experts."""
    experts = routed_fields(config, top_k=8, normed=False)
    return _sparse(
        config, experts, qk_norm=True, window=qwen_window(config), **attention_biases(config)
    )


def gpt_oss(config: Config) -> Decoder:
    """GPT-OSS: experts in all layers, sinks, a window in every other layer, a clamped GELU."""
    if not config.flag("attention_bias", True):
        raise config.error("attention_bias", "true: biases of experts alone are not modelled")
    experts = routed_fields(config, ffn="intermediate_size", top_k=4)
    return _everywhere(
        config,
        experts,
        usual_epsilon=1e-5,
        bias=True,
        sinks=True,
        activation="quick_gelu",
        clamp=config.number("swiglu_limit", 7.0),
        offset=1.0,
        head=config.whole("head_dim", 64),
        rotary=rotary_of(config, base=150000.0),
        window=window_of(config, default=128, full_every=2),
    )


def olmoe(config: Config) -> Decoder:
    """OLMoE: experts in all layers, queries and keys normed over all heads."""
    if config.has("clip_qkv"):
        raise config.error("clip_qkv", "null: clipped queries, keys and values are not modelled")
    experts = routed_fields(config, ffn="intermediate_size", top_k=8, normed=False)
    return _everywhere(
        config,
        experts,
        usual_epsilon=1e-5,
        qk_norm=True,
        qk_norm_of="heads",
        **attention_biases(config),
    )


def minimax_m2(config: Config) -> Decoder:
    """MiniMax-M2: experts in all layers, balanced by a bias; half of the channels turned."""
    head = config.whole("head_dim", 128)
    turned = config.whole("rotary_dim", head // 2)
    experts = routed_fields(config, ffn="intermediate_size", top_k=8)
    experts |= {"score": score_of(config, "sigmoid"), "correction": True}
    predictions = config.whole("num_mtp_modules", 0, least=0) * config.flag("use_mtp", False)
    return _everywhere(
        config,
        experts,
        qk_norm=config.flag("use_qk_norm", True),
        qk_norm_of="heads",
        head=head,
        prediction_layers=predictions,
        rotary=rotary_of(config, base=5e6, share=turned / head),
    )


def llama4(config: Config) -> Decoder:
    """Llama 4: experts in some layers beside one for all tokens; chunks and positions in three of
    four layers; queries and keys normed by their length."""
    layers, every = config.layers, config.whole("interleave_moe_layer_step", 1)
    ffn = config.whole("intermediate_size", 8192)
    flags = [(i + 1) % every == 0 for i in range(layers)]
    if named := config.wholes("moe_layers"):
        flags = [i in named for i in range(layers)]
    unturned = config.whole("no_rope_layer_interval", 4)
    said = config.values.get("no_rope_layers")
    if said and said != [int((i + 1) % unturned > 0) for i in range(layers)]:
        raise config.error("no_rope_layers", f"0 for one layer in {unturned}, else 1")
    experts = routed_fields(config, ffn="intermediate_size", top_k=1, shared_ffn=ffn)
    return with_experts(
        config,
        flags,
        experts=experts | {"score": "sigmoid"},
        usual_epsilon=1e-5,
        ffn=config.whole("intermediate_size_mlp", 16384),
        qk_norm=config.flag("use_qk_norm", True),
        qk_norm_of="l2",
        rotary=rotary_of(config, base=500000.0, none_every=unturned),
        window=window_of(config, key="attention_chunk_size", default=8192, full_every=unturned),
        **attention_biases(config),
    )


def glm4_moe(config: Config) -> Decoder:
    """GLM-4.5: experts after dense layers, one for all tokens, balanced by a bias."""
    return with_experts(
        config,
        _after(config, 1),
        experts=_deepseek_experts(config, groups=1, top_groups=1) | _balanced(config, 1.0),
        usual_epsilon=1e-5,
        qkv_bias=config.flag("attention_bias", False),
        qk_norm=config.flag("use_qk_norm", False),
        prediction_layers=config.whole("num_nextn_predict_layers", 0, least=0),
        rotary=rotary_of(config, share=0.5),
    )


def deepseek_v2(config: Config) -> Decoder:
    """DeepSeek-V2: latent attention, experts after dense layers, shared ones for all tokens."""
    experts = _deepseek_experts(config, groups=1, top_groups=1)
    experts |= {"scale": config.number("routed_scaling_factor", 1.0)}
    experts |= {
        "normed": config.flag("norm_topk_prob", False),
        "score": score_of(config, "softmax"),
    }
    return _latent(config, experts, first=0)


def deepseek_v3(config: Config) -> Decoder:
    """DeepSeek-V3, R1 and Kimi-K2: the same, balanced by a bias."""
    experts = _deepseek_experts(config, groups=8, top_groups=4) | _balanced(config, 2.5)
    return _latent(config, experts, first=3, **_predicted(config))


def deepseek_v32(config: Config) -> Decoder:
    """DeepSeek-V3.2: DeepSeek-V3 with an indexer that chooses the keys."""
    experts = _deepseek_experts(config, groups=8, top_groups=4) | _balanced(config, 2.5)
    sparse = _indexer(config, heads=64, interleaved=False, rotated=True)
    return _latent(config, experts, first=3, **_predicted(config), sparse=sparse)


def glm_moe_dsa(config: Config) -> Decoder:
    """GLM-5: the same without groups of experts; rotary channels of the indexer are in pairs."""
    experts = _deepseek_experts(config, groups=1, top_groups=1) | _balanced(config, 2.5)
    paired = config.flag("indexer_rope_interleave", True)
    sparse = _indexer(config, heads=32, interleaved=paired, rotated=False)
    choices = {**_predicted(config), "sparse": sparse, "usual_epsilon": 1e-5}
    return _latent(config, experts, first=3, **choices)


def routed_fields(
    config: Config,
    *,
    top_k: int,
    ffn: str = "moe_intermediate_size",
    normed: bool = True,
    **more: Any,
) -> dict[str, Any]:
    """Return the fields of `Experts` that all families say. top_k, normed: defaults of the file.
    ffn: key of the width."""
    count = expert_count(config)
    key = config.first("num_experts_per_tok", "experts_per_token")
    return {
        "count": count,
        "top_k": config.whole(key, min(top_k, count), most=count),
        "ffn": config.whole(ffn),
        "normed": config.flag("norm_topk_prob", normed),
        **more,
    }


def _everywhere(config: Config, experts: dict[str, Any], **choices: Any) -> Decoder:
    """Return a decoder with experts in all layers."""
    return with_experts(config, [True] * config.layers, experts=experts, **choices)


def _sparse(config: Config, experts: dict[str, Any], **choices: Any) -> Decoder:
    """Return a decoder of Qwen's with experts in one layer of so many, but for some."""
    step = config.whole("decoder_sparse_step", 1)
    dense = set(config.wholes("mlp_only_layers"))
    flags = [i not in dense and (i + 1) % step == 0 for i in range(config.layers)]
    return with_experts(config, flags, experts=experts, **choices)


def _after(config: Config, first: int) -> list[bool]:
    """Return the layers with experts: after the first dense ones, one of so many."""
    start = config.whole("first_k_dense_replace", first, least=0)
    every = config.whole("moe_layer_freq", 1)
    return [i >= start and i % every == 0 for i in range(config.layers)]


def _deepseek_experts(config: Config, *, groups: int, top_groups: int) -> dict[str, Any]:
    """Return the fields of `Experts` that DeepSeek and GLM say."""
    experts = routed_fields(config, top_k=8)
    count = config.whole("n_shared_experts", 0, least=0)
    divided = config.whole("n_group", groups)
    chosen = config.whole("topk_group", min(top_groups, divided), most=divided)
    limited = divided > 1 and config.text("topk_method", "noaux_tc") != "greedy"
    if limited:
        experts |= {"groups": divided, "top_groups": chosen}
    return experts | {"shared_ffn": count * experts["ffn"]}


def _balanced(config: Config, scale: float) -> dict[str, Any]:
    """Return the routing of DeepSeek-V3: sigmoids, and a bias that keeps the load even."""
    return {
        "score": score_of(config, "sigmoid"),
        "correction": True,
        "normed": config.flag("norm_topk_prob", True),
        "scale": config.number("routed_scaling_factor", scale),
    }


def _predicted(config: Config) -> dict[str, int]:
    return {"prediction_layers": config.whole("num_nextn_predict_layers", 0, least=0)}


def _indexer(config: Config, *, heads: int, **choices: Any) -> SparseAttention:
    """Return the indexer of layers. heads: default of the file. choices: fields of it."""
    every = config.whole("index_topk_freq", 1)
    offset = config.whole("index_skip_topk_offset", 2) if every > 1 else 0
    shared = [max(i + 1 - offset, 0) % every > 0 for i in range(config.layers)]
    pattern = config.text("index_topk_pattern", "")
    for key, said in (
        ("index_topk_pattern", [one == "S" for one in pattern]),
        ("indexer_types", [one == "shared" for one in config.values.get("indexer_types") or ()]),
    ):
        if said and said != shared:
            expected = f"those of index_topk_freq {every} and index_skip_topk_offset {offset}"
            raise config.error(key, expected, "other layers with an indexer")
    config.whole("q_lora_rank")  # of compressed queries, which it reads
    rotary, longest = config.whole("qk_rope_head_dim"), config.whole("max_position_embeddings")
    with config.blamed():
        return SparseAttention(
            heads=config.whole("index_n_heads", heads),
            head=config.whole("index_head_dim", 128, least=rotary),
            top_k=config.whole("index_topk", 2048, most=longest),
            every=every,
            offset=offset,
            **choices,
        )


def score_of(config: Config, usual: str, names: tuple[str, ...] = SCORES) -> str:
    """Return what makes weights of the router's logits, one of these names."""
    score = config.text("scoring_func", usual)
    if score not in names:
        raise config.error("scoring_func", one_of(names))
    return score


def _latent(config: Config, experts: dict[str, Any], *, first: int, **choices: Any) -> Decoder:
    """Return a decoder with latent attention."""
    if config.flag("attention_bias", False):
        raise config.error("attention_bias", "false: latent attention with biases is not modelled")
    with config.blamed():
        latent = LatentAttention(
            key_value_rank=config.whole("kv_lora_rank"),
            key=config.whole("qk_nope_head_dim"),
            rotary=config.whole("qk_rope_head_dim"),
            value=config.whole("v_head_dim"),
            query_rank=config.whole("q_lora_rank", 0, least=0),
        )
    heads, hidden = config.whole("num_attention_heads"), config.whole("hidden_size")
    head = 0 if hidden % heads == 0 else latent.key  # which counts for nothing here
    kind = {"latent": latent, "qk_norm": True, "kv_heads": heads, "head": head}
    return with_experts(config, _after(config, first), experts=experts, **kind, **choices)

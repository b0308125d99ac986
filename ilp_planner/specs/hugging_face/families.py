"""The reader of every `model_type`, and known types that are not modelled."""

from collections.abc import Callable, Mapping

from ilp_planner.specs.decoder import Decoder
from ilp_planner.specs.hugging_face import dense, routed
from ilp_planner.specs.hugging_face.config import Config

FAMILIES: Mapping[str, Callable[[Config], Decoder]] = {
    "llama": dense.llama,
    "mistral": dense.mistral,
    "ministral": dense.mistral,
    "ministral3": dense.ministral3,
    "qwen2": dense.qwen2,
    "qwen3": dense.qwen3,
    "gemma": dense.gemma,
    "gemma2": dense.gemma2,
    "gemma3_text": dense.gemma3,
    "phi": dense.phi,
    "phi3": dense.phi3,
    "olmo": dense.olmo,
    "olmo2": dense.olmo2,
    "olmo3": dense.olmo3,
    "nemotron": dense.nemotron,
    "glm": dense.glm,
    "glm4": dense.glm4,
    "falcon": dense.falcon,
    "gpt_neox": dense.gpt_neox,
    "gpt2": dense.gpt2,
    "gpt_bigcode": dense.gpt_bigcode,
    "starcoder2": dense.starcoder2,
    "smollm3": dense.smollm3,
    "mixtral": routed.mixtral,
    "qwen2_moe": routed.qwen2_moe,
    "qwen3_moe": routed.qwen3_moe,
    "gpt_oss": routed.gpt_oss,
    "olmoe": routed.olmoe,
    "minimax_m2": routed.minimax_m2,
    "llama4_text": routed.llama4,
    "glm4_moe": routed.glm4_moe,
    "deepseek_v2": routed.deepseek_v2,
    "deepseek_v3": routed.deepseek_v3,
    "kimi_k2": routed.deepseek_v3,
}
# Models of text and something else, with the family of their text where they do not say it.
TEXT_OF: Mapping[str, str] = {
    "gemma3": "gemma3_text",
    "llama4": "llama4_text",
    "mistral3": "mistral",
    "qwen2_vl": "qwen2",
    "qwen2_vl_text": "qwen2",
    "qwen2_5_vl": "qwen2",
    "qwen2_5_vl_text": "qwen2",
    "qwen3_vl": "qwen3",
    "qwen3_vl_text": "qwen3",
    "qwen3_vl_moe": "qwen3_moe",
    "qwen3_vl_moe_text": "qwen3_moe",
    "kimi_vl": "deepseek_v3",
    "glm4v": "glm4",
}
# Parts of a model that are not of text.
OTHER_PARTS = ("vision_config", "audio_config", "speech_config", "video_config")
NESTED = ("text_config", "language_config")  # what holds the part that is
# What is not modelled, and the models that have it.
LIGHTNING = "lightning attention"
LINEAR = "linear attention (gated delta nets)"
MAMBA = "Mamba layers"
SPARSE = "sparse attention, where an indexer chooses the keys"
ALIBI = "ALiBi positions"
ENCODER = "an encoder"
NOT_MODELLED: Mapping[str, str] = {
    **dict.fromkeys(
        ("mamba", "mamba2", "falcon_mamba", "falcon_h1", "nemotron_h", "jamba", "bamba", "zamba",
         "zamba2", "granitemoehybrid"),
        MAMBA,
    ),
    **dict.fromkeys(
        ("qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text", "olmo_hybrid",
         "kimi_linear"),
        LINEAR,
    ),
    **dict.fromkeys(("minimax", "minimax_m1", "minimax_text_01", "bailing_hybrid"),
                    LIGHTNING),
    **dict.fromkeys(("deepseek_v32", "deepseek_v4", "glm_moe_dsa"), SPARSE),
    **dict.fromkeys(("bloom", "mpt"), ALIBI),
    **dict.fromkeys(("bert", "roberta", "t5", "bart", "whisper", "modernbert"), ENCODER),
    **dict.fromkeys(("rwkv", "rwkv5", "rwkv6", "xlstm", "recurrent_gemma"), "recurrent layers"),
    **dict.fromkeys(("lfm2", "lfm2_moe"), "convolutions between layers of attention"),
    **dict.fromkeys(("gemma3n", "gemma3n_text"), "embeddings for each layer"),
    **dict.fromkeys(("gemma4", "gemma4_text"),
                    "layers of two head widths, with keys that are values"),
    "mllama": "cross-attention to pictures",
    "nemotron-nas": "layers of different sizes",
    "deci": "layers of different sizes",
    "phimoe": "sparse mixer routing",
    "dbrx": "clipped queries, keys and values",
}  # fmt: skip
# Keys that make another architecture of any family, where they have a value.
SIGNS: Mapping[str, str] = {
    "hybrid_override_pattern": MAMBA,
    "ssm_state_size": MAMBA,
    "mamba_d_state": MAMBA,
    "linear_num_key_heads": LINEAR,
    "full_attention_interval": LINEAR,
    "index_topk": SPARSE,
    "index_n_heads": SPARSE,
    "block_configs": "layers of different sizes",
    "cross_attention_layers": "cross-attention to pictures",
    "num_kv_shared_layers": "layers that share keys and values",
}
LAYER_TYPES = ("full_attention", "sliding_attention", "chunked_attention")
FULL_ATTENTION = 1  # in "attn_type_list", which MiniMax-M2 has; its elders have lightning attention

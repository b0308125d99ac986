"""Dimensions of public models, and their parameters: without the router's balancing biases, which
no gradient reaches, and without layers of multi-token prediction.

Those that the catalogue has say in the comment of their model file which public text they were
compared with. `test_files_that_were_published` compares twelve with the `config.json` itself where
such files lie in shared data. The rest:

- Qwen1.5-MoE-A2.7B-Chat, gemma-2b, GPT-2: as mlc-ai/mlc-llm quotes their `config.json`
  (python/mlc_llm/model/model_preset.py)
- gemma-7b: google/gemma_pytorch (gemma/config.py)
- OLMo-7B-hf, glm-4-9b-chat-hf: the `config.json` of models that were made from them
  (PrunaAI/allenai-OLMo-7B-hf-..., CodCodingCode/glm-4-9b-chat-med)
- Falcon 180B: Lightning-AI/litgpt (litgpt/config.py)
- GPT-2 XL: the sizes that karpathy/nanoGPT loads it with (model.py)
- Llama 4: Scout by its `config.json`; Maverick by the metadata of its files for ollama
  (aravhawk/llama4), which do not say whether queries and keys are normed nor how long chunks are,
  so neither is written here

Totals hold the reader and `transformers` to each other. Those of Kimi-K2, MiniMax-M2, Llama 4 and
GPT-OSS 120B were taken from the reader.
"""

from typing import Any

from ilp_planner.base.files import Document, to_json

Values = dict[str, Any]
LLAMA3 = {
    "rope_type": "llama3",
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def sizes(*numbers: int, **more: Any) -> Values:
    """Return the keys that most families have."""
    layers, hidden, heads, kv, ffn, vocab = numbers
    return {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "intermediate_size": ffn,
        "vocab_size": vocab,
        **more,
    }


def llama2(*numbers: int) -> Values:
    return {
        "model_type": "llama",
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": False,
        **sizes(*numbers, 32000),
    }


def llama3(*numbers: int, factor: float = 8.0, **more: Any) -> Values:
    return {
        "model_type": "llama",
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "rope_scaling": {**LLAMA3, "factor": factor} if factor else None,
        "max_position_embeddings": 131072 if factor else 8192,
        "tie_word_embeddings": False,
        **sizes(*numbers, 128256, **more),
    }


def mistral(*numbers: int, theta: float, longest: int = 32768, **more: Any) -> Values:
    values = {"model_type": "mistral", "rms_norm_eps": 1e-5, "tie_word_embeddings": False}
    values |= {"rope_theta": theta, "max_position_embeddings": longest, "sliding_window": None}
    return values | sizes(*numbers, **more)


def mixtral(*numbers: int, **more: Any) -> Values:
    values = mistral(*numbers, theta=1e6, **more)
    return values | {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}


def qwen2(*numbers: int, tied: bool, longest: int = 32768, **more: Any) -> Values:
    return {
        "model_type": "qwen2",
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "max_position_embeddings": longest,
        "use_sliding_window": False,
        "tie_word_embeddings": tied,
        **sizes(*numbers, **more),
    }


def qwen25(*numbers: int) -> Values:
    """Return a base of 14 B and more, whose epsilon is another than that of the smaller ones."""
    return qwen2(*numbers, 152064, tied=False, longest=131072, rms_norm_eps=1e-5)


def qwen3(*numbers: int, tied: bool = False) -> Values:
    values = qwen2(*numbers, 151936, tied=tied, longest=40960, head_dim=128)
    return values | {"model_type": "qwen3"}


def qwen3_moe(*numbers: int, count: int, width: int, **more: Any) -> Values:
    routed = {"num_experts": count, "num_experts_per_tok": 8, "moe_intermediate_size": width}
    routed |= {"norm_topk_prob": True, "model_type": "qwen3_moe", "decoder_sparse_step": 1}
    return qwen3(*numbers) | routed | {"mlp_only_layers": [], **more}


def gemma(kind: str, *numbers: int, head: int, vocab: int = 256000, **more: Any) -> Values:
    values = {"model_type": kind, "rms_norm_eps": 1e-6, "max_position_embeddings": 8192}
    return values | sizes(*numbers, vocab, head_dim=head, **more)


def gemma2(*numbers: int, head: int = 256) -> Values:
    caps = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
    return gemma("gemma2", *numbers, head=head, sliding_window=4096, **caps)


def gemma3(*numbers: int, head: int = 256, window: int = 1024, **more: Any) -> Values:
    vocab = more.pop("vocab", 262208)
    values = gemma("gemma3_text", *numbers, head=head, vocab=vocab, sliding_window=window)
    values |= {
        "rope_theta": 1e6,
        "rope_local_base_freq": 10000.0,
        "max_position_embeddings": 131072,
    }
    scaling = {"rope_scaling": {"factor": 8.0, "rope_type": "linear"}}
    return values | (scaling if more.pop("scaled", True) else {}) | more


def phi3(*numbers: int, longest: int, **more: Any) -> Values:
    values = {"model_type": "phi3", "rms_norm_eps": 1e-5, "max_position_embeddings": longest}
    return values | {"tie_word_embeddings": False} | sizes(*numbers, **more)


def deepseek(kind: str, *numbers: int, **more: Any) -> Values:
    latent = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64}
    values = {"model_type": kind, "rms_norm_eps": 1e-6, "v_head_dim": 128, "moe_layer_freq": 1}
    return values | latent | {"tie_word_embeddings": False} | sizes(*numbers, **more)


V3 = {
    "moe_intermediate_size": 2048,
    "num_experts_per_tok": 8,
    "n_shared_experts": 1,
    "q_lora_rank": 1536,
    "scoring_func": "sigmoid",
    "norm_topk_prob": True,
    "topk_method": "noaux_tc",
}


def yarn(factor: float, **more: Any) -> Values:
    return {
        "type": "yarn",
        "factor": factor,
        "original_max_position_embeddings": 4096,
        "beta_fast": 32,
        "beta_slow": 1,
        **more,
    }


def gpt_oss(layers: int, count: int) -> Values:
    return {
        "model_type": "gpt_oss",
        "rms_norm_eps": 1e-5,
        "rope_theta": 150000,
        "rope_scaling": yarn(32.0, truncate=False, rope_type="yarn"),
        "max_position_embeddings": 131072,
        "num_local_experts": count,
        "num_experts_per_tok": 4,
        "attention_bias": True,
        "sliding_window": 128,
        "swiglu_limit": 7.0,
        "tie_word_embeddings": False,
        **sizes(layers, 2880, 64, 8, 2880, 201088, head_dim=64),
    }


def olmo2(*numbers: int) -> Values:
    values = {"model_type": "olmo2", "rms_norm_eps": 1e-6, "rope_theta": 500000}
    values |= {"max_position_embeddings": 4096, "tie_word_embeddings": False}
    return values | sizes(*numbers, 100352)


def glm4_moe(*numbers: int, count: int, width: int, first: int, normed: bool) -> Values:
    return {
        "model_type": "glm4_moe",
        "rms_norm_eps": 1e-5,
        "rope_theta": 1000000,
        "partial_rotary_factor": 0.5,
        "max_position_embeddings": 131072,
        "attention_bias": True,
        "n_routed_experts": count,
        "moe_intermediate_size": width,
        "num_experts_per_tok": 8,
        "n_shared_experts": 1,
        "first_k_dense_replace": first,
        "n_group": 1,
        "topk_group": 1,
        "norm_topk_prob": True,
        "routed_scaling_factor": 2.5 if normed else 1.0,
        "use_qk_norm": normed,
        "num_nextn_predict_layers": 1,
        "tie_word_embeddings": False,
        **sizes(*numbers, 151552, head_dim=128),
    }


def glm(kind: str, *numbers: int, biased: bool = True, theta: float = 10000.0) -> Values:
    values = {"model_type": kind, "rms_norm_eps": 1e-5, "attention_bias": biased}
    values |= {"partial_rotary_factor": 0.5, "rope_theta": theta, "max_position_embeddings": 32768}
    return values | {"tie_word_embeddings": False} | sizes(*numbers, 151552, head_dim=128)


def falcon(layers: int, hidden: int, heads: int, kv: int) -> Values:
    return {
        "model_type": "falcon",
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_kv_heads": kv,
        "new_decoder_architecture": kv > 1,
        "multi_query": True,
        "parallel_attn": True,
        "alibi": False,
        "bias": False,
        "vocab_size": 65024,
    }


def neox(*numbers: int, **more: Any) -> Values:
    layers, hidden, heads, ffn, vocab = numbers
    values = sizes(layers, hidden, heads, heads, ffn, vocab, **more)
    del values["num_key_value_heads"]
    values |= {"model_type": "gpt_neox", "rotary_pct": 0.25, "max_position_embeddings": 2048}
    return values | {"layer_norm_eps": 1e-5, "tie_word_embeddings": False}


def gpt2(layers: int, hidden: int, heads: int, **more: Any) -> Values:
    values = {"model_type": "gpt2", "n_layer": layers, "n_embd": hidden, "n_head": heads}
    return values | {"n_positions": 1024, "vocab_size": 50257, **more}


def starcoder2(*numbers: int, theta: float) -> Values:
    values = {"model_type": "starcoder2", "norm_epsilon": 1e-5, "rope_theta": theta}
    values |= {"sliding_window": 4096, "max_position_embeddings": 16384, "use_bias": True}
    return values | {"residual_dropout": 0.1} | sizes(*numbers, 49152)


# Name -> (configuration, parameters).
PUBLISHED: dict[str, tuple[Values, int]] = {
    "meta-llama/Llama-2-7b-hf": (llama2(32, 4096, 32, 32, 11008), 6_738_415_616),
    "meta-llama/Llama-2-13b-hf": (llama2(40, 5120, 40, 40, 13824), 13_015_864_320),
    "meta-llama/Llama-2-70b-hf": (llama2(80, 8192, 64, 8, 28672), 68_976_648_192),
    "meta-llama/Meta-Llama-3-8B": (llama3(32, 4096, 32, 8, 14336, factor=0), 8_030_261_248),
    "meta-llama/Meta-Llama-3-70B": (llama3(80, 8192, 64, 8, 28672, factor=0), 70_553_706_496),
    "meta-llama/Llama-3.1-8B": (llama3(32, 4096, 32, 8, 14336), 8_030_261_248),
    "meta-llama/Llama-3.1-70B": (llama3(80, 8192, 64, 8, 28672), 70_553_706_496),
    "meta-llama/Llama-3.1-405B": (llama3(126, 16384, 128, 8, 53248), 405_853_388_800),
    "meta-llama/Llama-3.2-1B": (
        llama3(16, 2048, 32, 8, 8192, factor=32.0, head_dim=64, tie_word_embeddings=True),
        1_235_814_400,
    ),
    "meta-llama/Llama-3.2-3B": (
        llama3(28, 3072, 24, 8, 8192, factor=32.0, head_dim=128, tie_word_embeddings=True),
        3_212_749_824,
    ),
    "mistralai/Mistral-7B-v0.1": (
        mistral(32, 4096, 32, 8, 14336, 32000, theta=10000.0) | {"sliding_window": 4096},
        7_241_732_096,
    ),
    "mistralai/Mistral-7B-v0.3": (mistral(32, 4096, 32, 8, 14336, 32768, theta=1e6), 7_248_023_552),
    "mistralai/Mistral-Nemo-Base-2407": (
        mistral(40, 5120, 32, 8, 14336, 131072, theta=1e6, longest=131072, head_dim=128),
        12_247_782_400,
    ),
    "mistralai/Mistral-Small-24B-Base-2501": (
        mistral(40, 5120, 32, 8, 32768, 131072, theta=1e8, head_dim=128),
        23_572_403_200,
    ),
    "mistralai/Mistral-Large-Instruct-2407": (
        mistral(88, 12288, 96, 8, 28672, 32768, theta=1e6, longest=131072, head_dim=128),
        122_610_069_504,
    ),
    "mistralai/Mixtral-8x7B-v0.1": (mixtral(32, 4096, 32, 8, 14336, 32000), 46_702_792_704),
    "mistralai/Mixtral-8x22B-v0.1": (mixtral(56, 6144, 48, 8, 16384, 32000, longest=65536),
     140_620_634_112),
    "Qwen/Qwen2.5-0.5B": (qwen2(24, 896, 14, 2, 4864, 151936, tied=True), 494_032_768),
    "Qwen/Qwen2.5-1.5B": (qwen2(28, 1536, 12, 2, 8960, 151936, tied=True, longest=131072),
     1_543_714_304),
    "Qwen/Qwen2.5-3B": (qwen2(36, 2048, 16, 2, 11008, 151936, tied=True), 3_085_938_688),
    "Qwen/Qwen2.5-7B": (qwen2(28, 3584, 28, 4, 18944, 152064, tied=False, longest=131072),
     7_615_616_512),
    "Qwen/Qwen2.5-14B": (qwen25(48, 5120, 40, 8, 13824), 14_770_033_664),
    "Qwen/Qwen2.5-32B": (qwen25(64, 5120, 40, 8, 27648), 32_763_876_352),
    "Qwen/Qwen2.5-72B": (qwen25(80, 8192, 64, 8, 29568), 72_706_203_648),
    "Qwen/Qwen3-0.6B": (qwen3(28, 1024, 16, 8, 3072, tied=True), 596_049_920),
    "Qwen/Qwen3-1.7B": (qwen3(28, 2048, 16, 8, 6144, tied=True), 1_720_574_976),
    "Qwen/Qwen3-4B": (qwen3(36, 2560, 32, 8, 9728, tied=True), 4_022_468_096),
    "Qwen/Qwen3-8B": (qwen3(36, 4096, 32, 8, 12288), 8_190_735_360),
    "Qwen/Qwen3-14B": (qwen3(40, 5120, 40, 8, 17408), 14_768_307_200),
    "Qwen/Qwen3-32B": (qwen3(64, 5120, 64, 8, 25600), 32_762_123_264),
    "Qwen/Qwen3-30B-A3B": (qwen3_moe(48, 2048, 32, 4, 6144, count=128, width=768), 30_532_122_624),
    "Qwen/Qwen3-235B-A22B": (qwen3_moe(94, 4096, 64, 4, 12288, count=128, width=1536),
     235_093_634_560),
    "Qwen/Qwen3-Coder-480B-A35B-Instruct": (
        qwen3_moe(62, 6144, 96, 8, 8192, count=160, width=2560, rope_theta=1e7)
        | {"max_position_embeddings": 262144},
        480_154_875_392,
    ),
    "Qwen/Qwen1.5-MoE-A2.7B-Chat": (
        qwen2(24, 2048, 16, 16, 5632, 151936, tied=False)
        | {"model_type": "qwen2_moe", "num_experts": 60, "num_experts_per_tok": 4}
        | {"moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632},
        14_315_784_192,
    ),
    "google/gemma-2b": (gemma("gemma", 18, 2048, 8, 1, 16384, head=256, hidden_act="gelu"),
     2_506_172_416),
    "google/gemma-7b": (gemma("gemma", 28, 3072, 16, 16, 24576, head=256, hidden_act="gelu"),
     8_537_680_896),
    "google/gemma-2-2b": (gemma2(26, 2304, 8, 4, 9216), 2_614_341_888),
    "google/gemma-2-9b": (gemma2(42, 3584, 16, 8, 14336), 9_241_705_984),
    "google/gemma-2-27b": (gemma2(46, 4608, 32, 16, 36864, head=128), 27_227_128_320),
    "google/gemma-3-1b-pt": (
        gemma3(26, 1152, 4, 1, 6912, window=512, vocab=262144, scaled=False)
        | {"max_position_embeddings": 32768},
        999_885_952,
    ),
    "google/gemma-3-4b-pt": (gemma3(34, 2560, 8, 4, 10240), 3_880_263_168),
    "google/gemma-3-12b-pt": (gemma3(48, 3840, 16, 8, 15360), 11_766_034_176),
    "google/gemma-3-27b-pt": (gemma3(62, 5376, 32, 16, 21504, head=128), 27_009_346_304),
    "microsoft/phi-2": (
        sizes(32, 2560, 32, 32, 10240, 51200)
        | {"model_type": "phi", "partial_rotary_factor": 0.4, "max_position_embeddings": 2048}
        | {"resid_pdrop": 0.1, "tie_word_embeddings": False},
        2_779_683_840,
    ),
    "microsoft/Phi-3-mini-4k-instruct": (
        phi3(32, 3072, 32, 32, 8192, 32064, longest=4096, sliding_window=2047),
        3_821_079_552,
    ),
    "microsoft/Phi-3-medium-4k-instruct": (
        phi3(40, 5120, 40, 10, 17920, 32064, longest=4096, sliding_window=2047),
        13_960_238_080,
    ),
    "microsoft/phi-4": (phi3(40, 5120, 40, 10, 17920, 100352, longest=16384, rope_theta=250000),
     14_659_507_200),
    "deepseek-ai/DeepSeek-V2-Lite": (
        deepseek("deepseek_v2", 27, 2048, 16, 16, 10944, 102400, n_routed_experts=64)
        | {"moe_intermediate_size": 1408, "num_experts_per_tok": 6, "n_shared_experts": 2}
        | {"first_k_dense_replace": 1, "q_lora_rank": None, "topk_method": "greedy"}
        | {"routed_scaling_factor": 1.0, "norm_topk_prob": False, "max_position_embeddings": 163840}
        | {"n_group": 1, "topk_group": 1}
        | {"rope_scaling": yarn(40, mscale=0.707, mscale_all_dim=0.707)},
        15_706_484_224,
    ),
    "deepseek-ai/DeepSeek-V2": (
        deepseek("deepseek_v2", 60, 5120, 128, 128, 12288, 102400, n_routed_experts=160)
        | {"moe_intermediate_size": 1536, "num_experts_per_tok": 6, "n_shared_experts": 2}
        | {"first_k_dense_replace": 1, "q_lora_rank": 1536}
        | {"topk_method": "group_limited_greedy", "n_group": 8, "topk_group": 3}
        | {"routed_scaling_factor": 16.0, "norm_topk_prob": False}
        | {"max_position_embeddings": 163840}
        | {"rope_scaling": yarn(40, mscale=0.707, mscale_all_dim=0.707)},
        235_741_434_880,
    ),
    "deepseek-ai/DeepSeek-V3": (
        deepseek("deepseek_v3", 61, 7168, 128, 128, 18432, 129280, n_routed_experts=256)
        | V3
        | {"first_k_dense_replace": 3, "n_group": 8, "topk_group": 4}
        | {"routed_scaling_factor": 2.5, "num_nextn_predict_layers": 1}
        | {"max_position_embeddings": 163840}
        | {"rope_scaling": yarn(40, mscale=1.0, mscale_all_dim=1.0)},
        671_026_404_352,
    ),
    "deepseek-ai/DeepSeek-V3.2": (
        deepseek("deepseek_v32", 61, 7168, 128, 128, 18432, 129280, n_routed_experts=256)
        | V3
        | {"first_k_dense_replace": 3, "n_group": 8, "topk_group": 4}
        | {"routed_scaling_factor": 2.5, "num_nextn_predict_layers": 1}
        | {"max_position_embeddings": 163840}
        | {"rope_scaling": yarn(40, mscale=1.0, mscale_all_dim=1.0)}
        | {"index_n_heads": 64, "index_head_dim": 128, "index_topk": 2048},
        671_877_929_216,
    ),
    "zai-org/GLM-5": (
        deepseek("glm_moe_dsa", 78, 6144, 64, 64, 12288, 154880, n_routed_experts=256)
        | V3
        | {"first_k_dense_replace": 3, "n_group": 1, "topk_group": 1, "rms_norm_eps": 1e-5}
        | {"routed_scaling_factor": 2.5, "num_nextn_predict_layers": 1}
        | {"q_lora_rank": 2048, "qk_nope_head_dim": 192, "v_head_dim": 256}
        | {"max_position_embeddings": 202752, "rope_theta": 1000000}
        | {"index_n_heads": 32, "index_head_dim": 128, "index_topk": 2048}
        | {"indexer_rope_interleave": True},
        743_911_199_232,
    ),
    "moonshotai/Kimi-K2-Instruct": (
        deepseek("kimi_k2", 61, 7168, 64, 64, 18432, 163840, n_routed_experts=384)
        | V3
        | {"first_k_dense_replace": 1, "n_group": 1, "topk_group": 1, "rope_theta": 50000.0}
        | {"routed_scaling_factor": 2.827, "num_nextn_predict_layers": 0}
        | {"max_position_embeddings": 131072}
        | {"rope_scaling": yarn(32.0, mscale=1.0, mscale_all_dim=1.0, beta_fast=1.0)},
        1_026_408_209_408,
    ),
    "openai/gpt-oss-20b": (gpt_oss(24, 32), 20_914_757_184),
    "openai/gpt-oss-120b": (gpt_oss(36, 128), 116_829_156_672),
    "allenai/OLMo-7B-hf": (
        sizes(32, 4096, 32, 32, 11008, 50304)
        | {"model_type": "olmo", "max_position_embeddings": 2048, "tie_word_embeddings": False},
        6_888_095_744,
    ),
    "allenai/OLMo-2-1124-7B": (olmo2(32, 4096, 32, 32, 11008), 7_298_617_344),
    "allenai/OLMo-2-1124-13B": (olmo2(40, 5120, 40, 40, 13824), 13_716_198_400),
    "allenai/OLMo-2-0325-32B": (olmo2(64, 5120, 40, 8, 27648), 32_234_279_936),
    "allenai/OLMoE-1B-7B-0924": (
        sizes(16, 2048, 16, 16, 1024, 50304)
        | {"model_type": "olmoe", "num_experts": 64, "num_experts_per_tok": 8}
        | {"max_position_embeddings": 4096, "tie_word_embeddings": False, "rms_norm_eps": 1e-5},
        6_919_161_856,
    ),
    "nvidia/Nemotron-4-340B-Base": (
        sizes(96, 18432, 96, 8, 73728, 256000, head_dim=192)
        | {"model_type": "nemotron", "norm_eps": 1e-5, "max_position_embeddings": 4096}
        | {"hidden_act": "relu2", "partial_rotary_factor": 0.5, "tie_word_embeddings": False},
        341_029_195_776,
    ),
    "zai-org/GLM-4.5": (
        glm4_moe(92, 5120, 96, 8, 12288, count=160, width=1536, first=3, normed=True),
        352_797_814_784,
    ),
    "zai-org/GLM-4.5-Air": (
        glm4_moe(46, 4096, 96, 8, 10944, count=128, width=1408, first=1, normed=False),
        106_852_245_504,
    ),
    "zai-org/glm-4-9b-chat-hf": (
        glm("glm", 40, 4096, 32, 2, 13696)
        | {"rms_norm_eps": 1.5625e-07, "max_position_embeddings": 131072},
        9_399_951_360,
    ),
    "zai-org/GLM-4-9B-0414": (glm("glm4", 40, 4096, 32, 2, 13696), 9_400_279_040),
    "zai-org/GLM-4-32B-0414": (glm("glm4", 61, 6144, 48, 2, 23040, biased=False), 32_566_081_536),
    "tiiuae/falcon-7b": (falcon(32, 4544, 71, 1), 6_921_720_704),
    "tiiuae/falcon-40b": (falcon(60, 8192, 128, 8), 41_303_293_952),
    "tiiuae/falcon-180B": (falcon(80, 14848, 232, 8), 178_557_088_768),
    "EleutherAI/gpt-neox-20b": (neox(44, 6144, 64, 24576, 50432), 20_554_567_680),
    "EleutherAI/pythia-12b": (neox(36, 5120, 40, 20480, 50688), 11_846_072_320),
    "openai-community/gpt2": (gpt2(12, 768, 12), 124_439_808),
    "openai-community/gpt2-xl": (gpt2(48, 1600, 25), 1_557_611_200),
    "bigcode/starcoder": (
        gpt2(40, 6144, 48, n_inner=24576, activation_function="gelu")
        | {"model_type": "gpt_bigcode", "n_positions": 8192, "vocab_size": 49152}
        | {"multi_query": True},
        15_517_456_384,
    ),
    "bigcode/starcoder2-3b": (starcoder2(30, 3072, 24, 2, 12288, theta=999999.4420358813),
     3_030_371_328),
    "bigcode/starcoder2-7b": (starcoder2(32, 4608, 36, 4, 18432, theta=1e6), 7_173_923_840),
    "bigcode/starcoder2-15b": (
        starcoder2(40, 6144, 48, 4, 24576, theta=100000.0) | {"tie_word_embeddings": False},
        15_957_889_024,
    ),
    "HuggingFaceTB/SmolLM3-3B": (
        sizes(36, 2048, 16, 4, 11008, 128256)
        | {"model_type": "smollm3", "rope_theta": 5000000.0, "max_position_embeddings": 65536}
        | {"no_rope_layer_interval": 4, "tie_word_embeddings": True},
        3_075_098_624,
    ),
    "MiniMaxAI/MiniMax-M2": (
        sizes(62, 3072, 48, 8, 1536, 200064, head_dim=128)
        | {"model_type": "minimax_m2", "num_local_experts": 256, "num_experts_per_tok": 8}
        | {"rotary_dim": 64, "rope_theta": 5000000, "max_position_embeddings": 196608}
        | {"use_qk_norm": True, "scoring_func": "sigmoid", "tie_word_embeddings": False}
        | {"use_mtp": True, "num_mtp_modules": 3, "mtp_transformer_layers": 1}
        | {"attn_type_list": [1] * 62},
        228_689_748_992,
    ),
    "meta-llama/Llama-4-Scout-17B-16E, text": (
        sizes(48, 5120, 40, 8, 8192, 202048, head_dim=128)
        | {"model_type": "llama4_text", "intermediate_size_mlp": 16384, "num_local_experts": 16}
        | {"num_experts_per_tok": 1, "interleave_moe_layer_step": 1, "rope_theta": 500000.0}
        | {"attention_chunk_size": 8192, "use_qk_norm": True, "tie_word_embeddings": False}
        | {"max_position_embeddings": 10485760},
        107_769_861_120,
    ),
    "meta-llama/Llama-4-Maverick-17B-128E, text": (
        sizes(48, 5120, 40, 8, 8192, 202048, head_dim=128)
        | {"model_type": "llama4_text", "intermediate_size_mlp": 16384, "num_local_experts": 128}
        | {"num_experts_per_tok": 1, "interleave_moe_layer_step": 2, "rope_theta": 500000.0}
        | {"max_position_embeddings": 1048576, "tie_word_embeddings": False},
        400_711_848_960,
    ),
}  # fmt: skip


def document(name: str, **changes: Any) -> Document:
    """Return a `config.json` of a published model, with some keys otherwise."""
    values = PUBLISHED[name][0] | changes
    return Document(f"{name}/config.json", to_json(values))

"""DeepSeek-V4 by its configurations: the parameters of transformers 5.23, kinds of layers, and one
line for what is not modelled."""

import json
from typing import Any

import pytest

from ilp_planner.base.errors import SpecError
from ilp_planner.base.files import Document
from ilp_planner.specs.hugging_face.reader import read_config
from ilp_planner.specs.model_reader import read_model
from ilp_planner.specs.parameter_count import parameter_count
from tests.examples import for_each

Values = dict[str, Any]
YARN = {
    "type": "yarn",
    "factor": 16,
    "beta_fast": 32,
    "beta_slow": 1,
    "original_max_position_embeddings": 65536,
}
FLASH: Values = {
    "model_type": "deepseek_v4",
    "hidden_size": 4096,
    "num_hidden_layers": 43,
    "num_attention_heads": 64,
    "num_key_value_heads": 1,
    "head_dim": 512,
    "qk_rope_head_dim": 64,
    "q_lora_rank": 1024,
    "o_lora_rank": 1024,
    "o_groups": 8,
    "sliding_window": 128,
    "compress_ratios": [0, 0, *[4, 128] * 20, 4, 0],
    "compress_rope_theta": 160000,
    "rope_theta": 10000,
    "rope_scaling": YARN,
    "index_n_heads": 64,
    "index_head_dim": 128,
    "index_topk": 512,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 6,
    "moe_intermediate_size": 2048,
    "num_hash_layers": 3,
    "scoring_func": "sqrtsoftplus",
    "routed_scaling_factor": 1.5,
    "swiglu_limit": 10.0,
    "hc_mult": 4,
    "num_nextn_predict_layers": 1,
    "max_position_embeddings": 1048576,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "vocab_size": 129280,
}
PRO = FLASH | {
    "hidden_size": 7168,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "q_lora_rank": 1536,
    "o_groups": 16,
    "compress_ratios": [128, 128, *[4, 128] * 29, 4, 0],
    "index_topk": 1024,
    "n_routed_experts": 384,
    "moe_intermediate_size": 3072,
    "routed_scaling_factor": 2.5,
}
PUBLISHED = {"deepseek-v4-flash": FLASH, "deepseek-v4-pro": PRO}
# As transformers names them today.
NAMES = {
    0: "sliding_attention",
    4: "compressed_sparse_attention",
    128: "heavily_compressed_attention",
}


def read(values: Values):
    return read_config(Document("config.json", json.dumps(values)))


@for_each(("name", "count"), {"flash": 284_332_230_231, "pro": 1_572_997_179_491}.items())
def test_parameters(name, count):
    """As many as transformers 5.23 counts, which leaves out multi-token prediction."""
    assert parameter_count(read(PUBLISHED[f"deepseek-v4-{name}"])) == count


@for_each("name", PUBLISHED)
def test_the_catalogue_has_them(name):
    assert read_model(f"models/{name}.toml").architecture == read(PUBLISHED[name]).architecture


SMALL = FLASH | {
    "hidden_size": 256,
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
    "head_dim": 64,
    "qk_rope_head_dim": 16,
    "q_lora_rank": 48,
    "o_lora_rank": 24,
    "o_groups": 2,
    "index_n_heads": 3,
    "index_head_dim": 32,
    "index_topk": 8,
    "n_routed_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 40,
    "hc_mult": 3,
    "vocab_size": 100,
    "compress_ratios": [0, 4, 128, 128, 4, 0],
}


@pytest.mark.slow
@for_each("name", ["flash", "small", "other rates"])
def test_parameters_are_those_of_transformers(name):
    """On the meta device, tensor by tensor in all."""
    torch = pytest.importorskip("torch")
    models = pytest.importorskip("transformers")
    values = {
        "flash": FLASH,
        "small": SMALL,
        "other rates": SMALL | {"compress_rate_csa": 8, "compress_rate_hca": 32},
    }[name]
    if "deepseek_v4" not in models.CONFIG_MAPPING:
        pytest.skip("transformers has no DeepSeek-V4")
    plain = {key: value for key, value in values.items() if key != "model_type"}
    config = models.AutoConfig.for_model("deepseek_v4", **plain)
    with torch.device("meta"):
        model = models.AutoModelForCausalLM.from_config(config)
    assert parameter_count(read(values)) == sum(one.numel() for one in model.parameters())


def today(values: Values) -> Values:
    """Return the same configuration in the keys that transformers writes today."""
    ratios, layers = values["compress_ratios"], values["num_hidden_layers"]
    older = ("compress_ratios", "num_hash_layers", "rope_scaling", "qk_rope_head_dim")
    compress = YARN | {"rope_type": "yarn", "rope_theta": values["compress_rope_theta"]}
    return {key: value for key, value in values.items() if key not in older} | {
        "layer_types": [NAMES[one] for one in ratios[:layers]],
        "compress_rates": {NAMES[4]: 4, NAMES[128]: 128},
        "mlp_layer_types": ["hash_moe"] * 3 + ["moe"] * (layers - 3),
        "partial_rotary_factor": values["qk_rope_head_dim"] / values["head_dim"],
        "rope_parameters": {"main": {"rope_theta": values["rope_theta"]}, "compress": compress},
    }


@for_each("name", PUBLISHED)
def test_older_and_newer_keys_say_the_same(name):
    values = PUBLISHED[name]
    assert read(today(values)).architecture == read(values).architecture


def test_layers_without_rates_are_those_of_the_larger_model():
    """Two heavily compressed ones, then both kinds in turn, as transformers has it."""
    plain = {key: value for key, value in PRO.items() if key != "compress_ratios"}
    kinds = read(plain).architecture.pattern.split()
    assert kinds == ["HE", "HE", *["HE", "CE"] * 29, "HE"]


MISTAKES = [
    ({"compress_ratios": [0, 2, 4]}, "compress_ratios: found 3, expected at least 43 entries"),
    ({"compress_ratios": [2] * 44}, "compress_ratios: found 2, expected 0, 4, 128: of other rates"),
    ({"compress_ratios": [4] * 44}, "compress_ratios: found [4], expected 0 for layers of multi-t"),
    ({"layer_types": ["full_attention"] * 43}, "layer_types: found full_attention, expected one o"),
    ({"layer_types": ["sliding_attention"]}, "layer_types: found a list of 1, expected a list of"),
    (
        {"mlp_layer_types": ["moe"] * 42 + ["hash_moe"]},
        "mlp_layer_types: found a list of 43, expec",
    ),
    ({"attention_bias": True}, "attention_bias: found true, expected false: biases beside compre"),
    ({"scoring_func": "tanh"}, "scoring_func: found 'tanh', expected one of softmax, sigmoid, sq"),
    ({"o_groups": 7}, "o_groups: found 7, expected a divisor of num_attention_heads x"),
    ({"index_head_dim": 32}, "index_head_dim: found 32, expected a whole number from 64 to"),
    ({"qk_rope_head_dim": 1024}, "qk_rope_head_dim: found 1024, expected a whole number from 1 to"),
    ({"n_routed_experts": 4}, "num_experts_per_tok: found 6, expected a whole number from 1 to 4"),
]


@pytest.mark.parametrize(("changes", "message"), MISTAKES)
def test_one_line_for_what_is_not_modelled(changes, message):
    with pytest.raises(SpecError) as caught:
        read(FLASH | changes)
    text = str(caught.value)
    assert message in text
    assert "\n" not in text

"""Hybrids by their configurations: the parameters of `transformers` 5.24."""

import json

import pytest

from ilp_planner.base.errors import SpecError
from ilp_planner.base.files import Document
from ilp_planner.formats.megatron.model import model_values
from ilp_planner.spaces.training.enumerate.unfit import check_model
from ilp_planner.specs.hugging_face.reader import read_config
from ilp_planner.specs.model_reader import read_model
from ilp_planner.specs.model_writer import model_text
from ilp_planner.specs.parameter_count import parameter_count

NANO = {
    "model_type": "nemotron_h",
    "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
    "hidden_size": 2688,
    "intermediate_size": 1856,
    "num_attention_heads": 32,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "vocab_size": 131072,
    "mamba_num_heads": 64,
    "mamba_head_dim": 64,
    "ssm_state_size": 128,
    "n_groups": 8,
    "n_routed_experts": 128,
    "num_experts_per_tok": 6,
    "moe_intermediate_size": 1856,
    "moe_shared_expert_intermediate_size": 3712,
    "n_shared_experts": 1,
    "routed_scaling_factor": 2.5,
    "max_position_embeddings": 262144,
}
LARGE = {
    "model_type": "nemotron_h",
    "hybrid_override_pattern": "M-M-M-M*-" + "M-M-M-M-M*-" * 9 + "M-M-M-M-M-",
    "hidden_size": 8192,
    "intermediate_size": 32768,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "attention_head_dim": 128,
    "vocab_size": 131072,
    "mamba_num_heads": 256,
    "ssm_state_size": 256,
    "max_position_embeddings": 8192,
}
# Wide experts in a latent space, as Nemotron 3 Super has them.
LATENT = NANO | {
    "hybrid_override_pattern": "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEM"
    "EMEM*EMEMEMEM*EMEMEMEME",
    "hidden_size": 4096,
    "intermediate_size": 2688,
    "mamba_num_heads": 128,
    "n_routed_experts": 512,
    "num_experts_per_tok": 22,
    "moe_intermediate_size": 2688,
    "moe_shared_expert_intermediate_size": 5376,
    "moe_latent_size": 1024,
}
NEXT = {
    "model_type": "qwen3_next",
    "vocab_size": 151936,
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 48,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "max_position_embeddings": 262144,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "num_experts_per_tok": 10,
    "num_experts": 512,
}
ROUTED = NEXT | {
    "model_type": "qwen3_5_moe_text",
    "vocab_size": 248320,
    "num_hidden_layers": 40,
    "num_experts": 256,
    "num_experts_per_tok": 8,
}
DENSE = {
    "model_type": "qwen3_5_text",
    "vocab_size": 248320,
    "hidden_size": 5120,
    "intermediate_size": 17408,
    "num_hidden_layers": 64,
    "num_attention_heads": 24,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "linear_num_value_heads": 48,
    "max_position_embeddings": 262144,
}
BAMBA = {
    "model_type": "bamba",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 262144,
    "attn_layer_indices": [9, 18, 27],
    "mamba_d_head": "auto",
}


def read(values):
    return read_config(Document("config.json", json.dumps(values)))


@pytest.mark.parametrize(
    ("values", "count"),
    [
        (NANO, 31_577_937_344),
        (LARGE, 56_324_350_464),
        (LATENT, 120_668_687_360),
        (NEXT, 79_674_391_296),
        (ROUTED, 34_660_610_688),
        (DENSE, 26_895_998_464),
        (BAMBA, 9_810_681_216),
    ],
)
def test_parameters_are_those_of_transformers(values, count):
    model = read(values)
    assert parameter_count(model) == count
    text = model_text(model)
    assert read_model(Document("model.toml", text)).architecture == model.architecture


def dense(layers, hidden, heads, groups, ffn, values, tied):
    return DENSE | {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": groups,
        "intermediate_size": ffn,
        "linear_num_value_heads": values,
        "tie_word_embeddings": tied,
    }


def routed(layers, hidden, heads, width, values, experts, chosen):
    return ROUTED | {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "moe_intermediate_size": width,
        "shared_expert_intermediate_size": width,
        "linear_num_value_heads": values,
        "num_experts": experts,
        "num_experts_per_tok": chosen,
    }


@pytest.mark.parametrize(
    ("name", "values", "count"),
    [
        ("0.8b", dense(24, 1024, 8, 2, 3584, 16, True), 752_393_024),
        ("2b", dense(24, 2048, 8, 2, 6144, 16, True), 1_881_825_088),
        ("4b", dense(32, 2560, 16, 4, 9216, 32, True), 4_205_751_296),
        ("9b", dense(32, 4096, 16, 4, 12288, 32, False), 8_953_803_264),
        ("27b", DENSE, 26_895_998_464),
        ("35b-a3b", ROUTED, 34_660_610_688),
        ("122b-a10b", routed(48, 3072, 32, 1024, 64, 256, 8), 122_111_526_912),
        ("397b-a17b", routed(60, 4096, 32, 1024, 64, 512, 10), 396_346_350_336),
    ],
)
def test_qwen_3_5_has_the_parameters_of_transformers(name, values, count):
    """Counts are those of its classes `Qwen3_5...ForCausalLM` on the meta device."""
    assert parameter_count(read(values)) == count
    assert read_model(f"models/qwen3.5-{name}-text.toml").architecture == read(values).architecture


@pytest.mark.parametrize(
    ("name", "values"),
    [("nemotron3-nano-30b-a3b", NANO), ("nemotron-h-56b", LARGE), ("qwen3-next-80b-a3b", NEXT)],
)
def test_models_that_ship_are_their_configurations(name, values):
    assert read_model(f"models/{name}.toml").architecture == read(values).architecture


def test_layers_are_a_pattern():
    assert read(NEXT).architecture.pattern == " ".join(["GE GE GE *E"] * 12)
    assert read(BAMBA).architecture.pattern.count("*-") == 3
    assert read(BAMBA).architecture.layers == 64
    listed = {key: value for key, value in NANO.items() if key != "hybrid_override_pattern"}
    names = {"M": "mamba", "E": "moe", "*": "attention"}
    listed["layers_block_type"] = [names[one] for one in NANO["hybrid_override_pattern"]]
    assert read(listed).architecture == read(NANO).architecture


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (NANO | {"num_hidden_layers": 50}, "found 52 layers, expected 50 layers"),
        (NANO | {"hybrid_override_pattern": "MEX"}, "found X, expected layers of M, \\*, E, -"),
        (NANO | {"mamba_proj_bias": True}, "mamba_proj_bias: found true"),
        (NANO | {"n_groups": 7}, "n_groups: found 7, expected a divisor of mamba_num_heads"),
        (NANO | {"num_nextn_predict_layers": 1, "mtp_hybrid_override_pattern": "MM"}, "'MM'"),
        (NEXT | {"layer_types": ["mamba"] * 48}, "layer_types: found mamba"),
        (NEXT | {"layer_types": ["full_attention"]}, "a list of 48, one entry per layer"),
    ],
)
def test_other_layers_are_refused(values, expected):
    with pytest.raises(SpecError, match=expected):
        read(values)


UNSAID = {"mamba_chunk_size": 256, "mamba_d_conv": 2, "mamba_conv_bias": False}
SAID = BAMBA | {
    "hidden_act": "silu",
    "attn_layer_indices": [],
    "mamba_chunk_size": 128,
    "mamba_d_conv": 4,
    "mamba_conv_bias": True,
}


@pytest.mark.parametrize("key", UNSAID)
def test_a_model_without_arguments_is_refused_before_it_is_planned(key):
    """The list of the search is that of the launch line."""
    check_model(read(SAID).architecture)
    model = read(SAID | {key: UNSAID[key]}).architecture
    for refuse in (check_model, lambda one: model_values(one, 128)):
        with pytest.raises(SpecError, match=r"^mamba\.\w+: found \w+, expected \w+"):
            refuse(model)

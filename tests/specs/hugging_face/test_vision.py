"""Encoders of images in configurations of Hugging Face, with as many parameters as transformers
5.24.0 builds on its meta device; those of the models that ship as they are published."""

import json

import pytest

from ilp_planner.base.errors import SpecError
from ilp_planner.base.files import Document
from ilp_planner.base.library import find_spec
from ilp_planner.specs.hugging_face.reader import read_config
from ilp_planner.specs.model_reader import read_model
from ilp_planner.specs.model_writer import model_text
from ilp_planner.specs.parameter_count import parameter_count

QWEN2 = {
    "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
    "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064,
    "max_position_embeddings": 32768,
}  # fmt: skip
QWEN3 = {
    "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36, "head_dim": 128,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 151936,
    "max_position_embeddings": 262144,
}  # fmt: skip
QWEN3_5 = {
    "vocab_size": 248320, "hidden_size": 5120, "intermediate_size": 17408, "num_hidden_layers": 64,
    "num_attention_heads": 24, "num_key_value_heads": 4, "head_dim": 256,
    "linear_num_value_heads": 48, "max_position_embeddings": 262144,
}  # fmt: skip
LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
    "vocab_size": 32064, "max_position_embeddings": 4096,
}  # fmt: skip
CLIP = {
    "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
    "num_attention_heads": 16, "image_size": 336, "patch_size": 14,
}  # fmt: skip
INTERN = {
    "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
    "num_attention_heads": 16, "image_size": [448, 448], "patch_size": [14, 14],
}  # fmt: skip
# Type of the model, its text, its vision part, parameters that transformers builds.
BUILT = (
    ("qwen2_5_vl", QWEN2, {"hidden_size": 1280, "intermediate_size": 3420}, 8_292_166_656),
    ("qwen2_vl", QWEN2, {"embed_dim": 1280, "hidden_size": 3584}, 8_291_375_616),
    ("qwen3_vl", QWEN3, {"deepstack_visual_indexes": [8, 16, 24]}, 8_767_123_696),
    ("qwen3_5", QWEN3_5, {"deepstack_visual_indexes": []}, 27_356_728_560),
    ("qwen3_5", QWEN3_5, {}, 27_356_728_560),
    ("llava", LLAMA, CLIP, 7_063_427_072),
)
SHIPPED = {
    "qwen2-vl-2b": 2_208_985_600,
    "qwen2-vl-7b": 8_291_375_616,
    "qwen2.5-vl-3b": 3_754_622_976,
    "qwen2.5-vl-7b": 8_292_166_656,
    "qwen2.5-vl-72b": 73_410_777_344,
    "qwen3-vl-4b": 4_437_815_808,
    "qwen3-vl-8b": 8_767_123_696,
    "qwen3-vl-30b-a3b": 31_070_754_032,
    "qwen3-vl-235b-a22b": 235_670_022_896,
    "internvl3.5-30b-a3b": 30_848_730_112,
    "llava-1.5-7b": 7_063_427_072,
}


def config_of(kind, text, vision, **more):
    own = {"model_type": f"{kind}_text"} if kind != "llava" else {}
    values = {"model_type": kind, "text_config": own | text, "vision_config": vision, **more}
    return Document("config.json", json.dumps({"tie_word_embeddings": False} | values))


@pytest.mark.parametrize(("kind", "text", "vision", "count"), BUILT)
def test_as_many_parameters_as_transformers_builds(kind, text, vision, count):
    model = read_config(config_of(kind, text, vision))
    assert parameter_count(model) == count
    assert any(note.startswith("images: 1 of") for note in model.remarks)
    again = read_model(Document("again.toml", model_text(model)))
    assert again.architecture == model.architecture


@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_models_that_ship_have_as_many_parameters_as_published(name):
    assert parameter_count(read_model(find_spec(name, "models"))) == SHIPPED[name]


def test_the_text_alone():
    model = read_config(config_of(*BUILT[0][:3]), text_only=True)
    assert model.architecture.encoder is None
    assert "vision parts: left out, the text alone is planned" in model.remarks


def test_sounds_are_no_images():
    with pytest.raises(SpecError, match="audio_config: found audio parts, expected"):
        read_config(config_of(*BUILT[0][:3], audio_config={"depth": 2}))


def test_normed_keys_of_an_encoder():
    text = QWEN3 | {"model_type": "qwen3"}
    with pytest.raises(SpecError, match="use_qk_norm: found true, expected false"):
        read_config(config_of("internvl", text, INTERN | {"use_qk_norm": True}))
    model = read_config(config_of("internvl", text, INTERN))
    assert model.architecture.encoder.tokens == 256


@pytest.mark.parametrize(
    ("kind", "key", "field"),
    [
        ("qwen3_vl", "deepstack_visual_indexes", "deepstack"),
        ("qwen2_5_vl", "fullatt_block_indexes", "full_layers"),
    ],
)
def test_an_empty_list_of_layers_names_none(kind, key, field):
    for layers, count in (([], 0), ([8, 16], 2)):
        model = read_config(config_of(kind, QWEN3, {key: layers}))
        assert getattr(model.architecture.encoder, field) == count

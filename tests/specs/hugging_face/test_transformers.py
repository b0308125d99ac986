"""Parameters of configurations as `transformers` itself builds them, on the meta device."""

import json

import pytest

from ilp_planner.base.files import Document
from ilp_planner.specs.hugging_face.reader import FAMILIES, TEXT_OF, read_config
from ilp_planner.specs.parameter_count import parameter_count
from tests.examples import for_each
from tests.specs.hugging_face.published import PUBLISHED, document

torch = pytest.importorskip("torch", reason="needs the extra 'runtimes': torch")
transformers = pytest.importorskip(
    "transformers", reason="needs the extra 'runtimes': transformers"
)

# Kimi-K2 is of this class and says another type, which its own files of Python define.
BUILT_AS = {"kimi_k2": "deepseek_v3"}
ELSEWHERE = {"kimi_k2", "kimi_vl", "ultravox"}  # types of files of Python beside the weights
# Small ones of every family, whose defaults the classes fill in.
SMALL = {
    "num_hidden_layers": 8,
    "hidden_size": 64,
    "num_attention_heads": 8,
    "intermediate_size": 96,
    "vocab_size": 512,
    "max_position_embeddings": 128,
    "pad_token_id": None,
}
OLD = {"gpt2": ("n_layer", "n_embd", "n_head"), "gpt_bigcode": ("n_layer", "n_embd", "n_head")}


def built(values):
    """Return the parameters of the model of a configuration, tied ones once."""
    kind = BUILT_AS.get(values["model_type"], values["model_type"])
    more = {key: value for key, value in values.items() if key != "model_type"}
    config = transformers.AutoConfig.for_model(kind, **more)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("name", PUBLISHED)
def test_published(name):
    assert parameter_count(read_config(document(name))) == built(PUBLISHED[name][0])


@for_each("kind", sorted(set(FAMILIES) - set(BUILT_AS)))
@for_each("tied", [None, True, False])
def test_defaults_of_a_family(kind, tied):
    """What a file does not say is as the class has it, from the smallest file to the one that the
    class writes with all of its keys."""
    values = {"model_type": kind, **SMALL}
    if kind not in (*OLD, "falcon", "gpt_neox"):
        values["num_key_value_heads"] = 4
    if kind in ("ministral", "nemotron"):
        values["head_dim"] = 16  # which the class leaves open, and the model needs
    if kind in ("deepseek_v32", "glm_moe_dsa"):
        values["index_topk"] = 64  # of the class: 2048, more than such a model has positions
    if kind in OLD:
        layers, hidden, heads = OLD[kind]
        values |= {layers: 8, hidden: 64, heads: 8, "n_positions": 128}
    if tied is not None:
        values["tie_word_embeddings"] = tied
    config = transformers.AutoConfig.for_model(
        kind, **{key: value for key, value in values.items() if key != "model_type"}
    )
    whole = json.loads(config.to_json_string(use_diff=False))
    count = parameter_count(read(whole))
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    assert count == sum(parameter.numel() for parameter in model.parameters())


def read(values):
    return read_config(Document("small.json", json.dumps(values)), text_only=True)


def test_names_are_those_of_transformers():
    known = set(transformers.CONFIG_MAPPING)
    own = {name for name in {*FAMILIES, *TEXT_OF} if name not in known}
    assert own <= ELSEWHERE

"""What a config.json says beyond its sizes; and what is refused, in one line that helps."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.errors import SpecError
from ilp_planner.base.files import Document, read_document
from ilp_planner.specs.decoder import Rotary, Window
from ilp_planner.specs.hugging_face.reader import FAMILIES, NOT_MODELLED, read_config
from ilp_planner.specs.model_reader import read_model
from ilp_planner.specs.model_writer import model_text
from tests.examples import for_each
from tests.specs.hugging_face.published import PUBLISHED, document

SHARED = Path(__file__).parents[4] / "shared" / "data" / "models" / "hf"
LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 4,
    "hidden_size": 64,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "intermediate_size": 96,
    "vocab_size": 512,
    "max_position_embeddings": 128,
}
VISION = {"vision_config": {"depth": 2}}
MODELLED = "a decoder whose layers attend to all tokens before, or to the nearest"


def read(values, *, text_only=False):
    return read_config(Document("config.json", json.dumps(values)), text_only=text_only)


def refusal(values, **options):
    with pytest.raises(SpecError) as error:
        read(values, **options)
    message = str(error.value)
    assert "\n" not in message
    return message


INDEXED = PUBLISHED["zai-org/GLM-5"][0]


def changed(**changes):
    values = LLAMA | changes
    return {key: value for key, value in values.items() if value != "gone"}


# ---- what is read -------------------------------------------------------------------------------


def of(name):
    return read_config(document(name)).architecture


def test_rotary_positions():
    assert of("meta-llama/Llama-2-7b-hf").rotary == Rotary()
    assert of("meta-llama/Llama-3.1-8B").rotary == Rotary(
        base=500000.0, scaling="llama3", factor=8.0, slow=1.0, fast=4.0, original=8192
    )
    assert of("openai/gpt-oss-20b").rotary == Rotary(
        base=150000.0, scaling="yarn", factor=32.0, original=4096, rounded=False
    )
    assert of("moonshotai/Kimi-K2-Instruct").rotary == Rotary(
        base=50000.0, scaling="yarn", factor=32.0, original=4096, fast=1.0, magnitude_all=1.0
    )
    assert of("EleutherAI/gpt-neox-20b").rotary == Rotary(share=0.25)
    assert of("google/gemma-3-27b-pt").rotary == Rotary(
        base=1e6, windowed_base=10000.0, scaling="linear", factor=8.0
    )
    assert of("HuggingFaceTB/SmolLM3-3B").rotary == Rotary(base=5e6, none_every=4)


@pytest.mark.parametrize(
    "said",
    [
        {"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}},
        {"rope_parameters": {"rope_theta": 5e5, "rope_type": "linear", "factor": 2.0}},
    ],
    ids=["release 4", "release 5"],
)
def test_both_ways_to_say_a_scaling(said):
    found = read(LLAMA | said).architecture.rotary
    assert found == Rotary(base=5e5, scaling="linear", factor=2.0)


def test_windows():
    assert of("mistralai/Mistral-7B-v0.1").window == Window(size=4096)
    assert of("mistralai/Mistral-7B-v0.3").window is None
    assert of("google/gemma-2-9b").window == Window(size=4096, full_every=2)
    assert of("google/gemma-3-1b-pt").window == Window(size=512, full_every=6)
    assert of("openai/gpt-oss-120b").window == Window(size=128, full_every=2)
    chunks = Window(size=8192, full_every=4, chunked=True)
    assert of("meta-llama/Llama-4-Scout-17B-16E, text").window == chunks
    some = {"model_type": "qwen2", "sliding_window": 64, "use_sliding_window": True}
    window = Window(size=64, windowed_in=(False, False, True, True))
    assert read(LLAMA | some | {"max_window_layers": 2}).architecture.window == window
    kinds = ["sliding_attention", "full_attention"] * 2
    window = Window(size=64, full_every=2)
    assert read(LLAMA | some | {"layer_types": kinds}).architecture.window == window


def test_experts():
    deepseek, qwen = of("deepseek-ai/DeepSeek-V3"), of("Qwen/Qwen1.5-MoE-A2.7B-Chat")
    routed = deepseek.experts
    assert (routed.score, routed.correction, routed.normed, routed.scale) == (
        "sigmoid", True, True, 2.5
    )  # fmt: skip
    assert (routed.groups, routed.top_groups, routed.dense_first) == (8, 4, 3)
    assert deepseek.prediction_layers == 1
    assert (qwen.experts.shared_gate, qwen.experts.normed) == (True, False)
    some = LLAMA | {"model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 2}
    some |= {"moe_intermediate_size": 32, "decoder_sparse_step": 2}
    assert read(some).architecture.expert_layers == (False, True) * 2
    named = read(some | {"decoder_sparse_step": 1, "mlp_only_layers": [1, 2]}).architecture
    assert named.expert_layers == (True, False, False, True)


def test_minimax_m2_says_of_every_layer_that_its_attention_is_full():
    unsaid = read_config(document("MiniMaxAI/MiniMax-M2", attn_type_list=None))
    assert unsaid.architecture == of("MiniMaxAI/MiniMax-M2")


def test_names_and_precisions():
    assert read_config(Document("Qwen/Qwen3-8B/config.json", json.dumps(LLAMA))).name == "Qwen3-8B"
    assert read_config(Document("a--b.json", json.dumps(LLAMA))).name == "a--b"
    assert read(LLAMA | {"_name_or_path": "a/b\n c"}).name == "a/b c"
    assert read(LLAMA | {"torch_dtype": "float16"}).precision == "fp16"
    assert read(LLAMA | {"dtype": "float32"}).precision == "bf16"
    assert read(LLAMA).precision == "bf16"


def test_what_is_assumed_is_said():
    assert read(LLAMA).remarks == ()
    model = read(LLAMA | {"max_position_embeddings": 8192, "quantization_config": {"bits": 4}})
    assert model.architecture.sequence == 4096
    tokens, quantised = model.remarks
    assert tokens.startswith("sequence: 4096 tokens assumed: no config.json says")
    assert quantised.startswith("quantization_config: is about inference")
    predicted = read_config(document("deepseek-ai/DeepSeek-V3")).remarks[1]
    assert predicted == "multi-token prediction: 1 more, trained with the rest"


@for_each("name", PUBLISHED)
def test_a_model_file_says_the_same(name):
    model = read_config(document(name))
    assert read_model(Document("written.toml", model_text(model))) == model


def test_files_that_were_published():
    files = sorted(SHARED.glob("*.json"))
    if not files:
        pytest.skip(f"no {SHARED}")
    refused = {}
    for file in files:
        name = file.stem.partition("--")[2]
        try:
            model = read_config(read_document(file, SpecError), text_only=True)
        except SpecError as error:
            refused[name] = str(error).removeprefix(f"{file}: ").partition(", expected")[0]
            continue
        same = [key for key in PUBLISHED if key.endswith((f"/{name}", name.removeprefix("Meta-")))]
        for known in same:
            assert read_config(document(known)).architecture == model.architecture, name
    assert refused == {
        "gemma-4-26B-A4B": "model_type: found 'gemma4', which has layers of two head widths, with "
        "keys that are values"
    }


# ---- text and other parts -----------------------------------------------------------------------


def test_the_text_of_a_model_of_pictures():
    values = {"model_type": "qwen3_vl", "text_config": LLAMA | {"model_type": "qwen3_vl_text"}}
    values |= VISION | {"tie_word_embeddings": True, "dtype": "float16"}
    assert refusal(values | {"audio_config": {"depth": 2}}) == (
        "config.json: audio_config: found audio parts, expected a model of text alone: "
        "`text_only` plans its text and nothing else"
    )
    model = read(values, text_only=True)
    assert model.remarks == ("vision parts: left out, the text alone is planned",)
    assert model.architecture.tied
    assert model.precision == "fp16"
    alone = LLAMA | {"model_type": "qwen3", "tie_word_embeddings": True}
    assert model.architecture == read(alone).architecture


def test_a_model_of_pictures_that_does_not_say_their_part():
    values = {"model_type": "llama4", "text_config": {"model_type": "llama4_text"}}
    assert "found 'llama4', which has vision parts, expected a model of text" in refusal(values)


def test_two_models_in_one_file_are_named():
    """Of a dense model with sizes of its own, a model inside is not read in silence."""
    assert refusal(LLAMA | {"text_config": LLAMA}) == (
        "config.json: text_config: found a second model inside one of 'llama', which has sizes of "
        "its own, expected one of the two; leave out the other"
    )


# ---- refusals -----------------------------------------------------------------------------------


@for_each("kind", NOT_MODELLED)
def test_what_is_not_modelled_is_refused_by_name(kind):
    expected = f"found {kind!r}, which has {NOT_MODELLED[kind]}, expected {MODELLED}"
    assert refusal(LLAMA | {"model_type": kind}) == f"config.json: model_type: {expected}"
    inner = {"model_type": "outer", "text_config": LLAMA | {"model_type": kind}}
    assert expected in refusal(inner, text_only=True)


MISTAKES = [
    (changed(model_type="gone"), "model_type: found nothing, expected one of bamba, deepseek_v2, "),
    (changed(model_type="gone", architectures=["Qwen3ForCausalLM"]),
     '; "model_type": "qwen3" is that of Qwen3ForCausalLM'),
    (changed(model_type="lama"), "starcoder2 (did you mean 'llama'?)"),
    (changed(model_type=7), "model_type: found 7, expected a text"),
    (changed(hidden_size="gone"), "hidden_size: found nothing, expected a whole number from 1 to"),
    (changed(hidden_size="64"), "hidden_size: found '64', expected a whole number from 1 to"),
    (changed(hidden_size=True), "hidden_size: found true, expected a whole number from 1 to"),
    (changed(hidden_size=10**40), "hidden_size: found a number of 41 digits, expected at most 40"),
    (changed(num_hidden_layers=10**9), "found 1000000000, expected a whole number from 1 to 20000"),
    (changed(num_key_value_heads=3), "num_key_value_heads must divide num_attention_heads (8), f"),
    (changed(hidden_size=65), "hidden_size must be divisible by num_attention_heads (8) unless"),
    (changed(hidden_act="tanh"), "hidden_act: found 'tanh', expected one of gelu, gelu_fast"),
    (changed(rms_norm_eps=-1), "rms_norm_eps: found -1, expected a positive number"),
    (changed(rope_scaling=[1]), "rope_scaling: found a list of 1, expected an object"),
    (changed(rope_scaling={"type": "ntk", "factor": 2.0}),
     "rope_scaling.type: found 'ntk', expected one of default, mrope, linear, dynamic, llama3"),
    (changed(tie_word_embeddings="no"), "tie_word_embeddings: found 'no', expected true or false"),
    (changed(mlp_bias=True), "mlp_bias: found true, expected false without attention_bias"),
    (changed(layer_types=["linear_attention"] * 4),
     "layer_types: found 'linear_attention', expected one of full_attention, sliding_attention"),
    (changed(model_type="mistral", sliding_window=8, layer_types=["full_attention"]),
     "layer_types: found a list of 1, expected a list of 4, one entry per layer"),
    (changed(index_topk=2048), "index_topk: found sparse attention, where an indexer chooses"),
    (INDEXED | {"index_n_heads": 0}, "index_n_heads: found 0, expected a whole number from 1"),
    (INDEXED | {"q_lora_rank": None}, "q_lora_rank: found nothing, expected a whole number from 1"),
    (INDEXED | {"index_topk": 1 << 20}, "index_topk: found 1048576, expected a whole number"),
    (INDEXED | {"index_head_dim": 32}, "index_head_dim: found 32, expected a whole number from 64"),
    (INDEXED | {"index_topk_freq": 2, "index_skip_topk_offset": 0},
     "index_skip_topk_offset: found 0, expected a whole number from 1"),
    (INDEXED | {"index_topk_pattern": "FS"}, "index_topk_pattern: found other layers"),
    (INDEXED | {"indexer_types": ["full", "shared"]}, "indexer_types: found other layers"),
    (INDEXED | {"layer_types": ["full_attention"]}, "layer_types: found 'full_attention', expec"),
    (changed(hybrid_override_pattern="M*"), "hybrid_override_pattern: found Mamba layers, exp"),
    (changed(attn_type_list=[0, 0, 0, 1]), "attn_type_list: found lightning attention, expected o"),
    (changed(attn_type_list=7), "attn_type_list: found lightning attention, expected ones"),
    (changed(model_type="falcon", alibi=True), "alibi: found true, expected false: rotary pos"),
    (changed(model_type="mixtral", num_local_experts=2, num_experts_per_tok=4),
     "num_experts_per_tok: found 4, expected a whole number from 1 to 2"),
    ([LLAMA], "file: found a list of 1, expected an object"),
]  # fmt: skip


@for_each(("values", "expected"), MISTAKES)
def test_mistakes(values, expected):
    message = refusal(values)
    assert message.startswith("config.json: ")
    assert expected in message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"model_type": "llama",', "line 1, column 24: not valid JSON"),
        ('{"model_type": ' * 100_000, "lists and objects more than 64 deep in one another"),
    ],
)
def test_what_is_no_configuration(text, expected):
    with pytest.raises(SpecError) as error:
        read_config(Document("config.json", text))
    assert expected in str(error.value)
    assert len(str(error.value)) < 300


@for_each(
    ("text", "expected"),
    [
        ("", "line 1, column 1: not valid JSON"),
        ("[1, 2", "not valid JSON"),
        ("[1, 2]", "file: found a list of 2, expected an object"),
        ("hello", "not valid JSON"),
    ],
)
def test_a_file_of_json_is_never_called_toml(text, expected):
    with pytest.raises(SpecError) as error:
        read_model(Document("model.json", text))
    assert str(error.value).startswith("model.json: ")
    assert expected in str(error.value)


def test_numbers_that_json_does_not_have_are_taken():
    """As Python writes them into files of Mamba."""
    text = json.dumps(LLAMA | {"time_step_limit": [0.0, float("inf")]})
    assert read_config(Document("config.json", text)).architecture.layers == 4


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 1000), st.floats(), st.text(max_size=5)
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3), max_leaves=5)
KEYS = sorted({key for values, _ in PUBLISHED.values() for key in values})


@given(
    st.sampled_from(sorted(FAMILIES)),
    st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=4),
    st.dictionaries(st.sampled_from(["rope_type", "factor", "full_attention"]), VALUES),
)
def test_nonsense_is_one_line_or_a_model(kind, changes, scaling):
    values = LLAMA | {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    values |= {"kv_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8}
    values |= {"rope_parameters": scaling} if scaling else {}
    try:
        model = read(values | changes | {"model_type": kind})
    except SpecError as error:
        message = str(error)
    else:
        assert read_model(Document("written.toml", model_text(model))) == model
        return
    assert "\n" not in message
    assert message.startswith("config.json: ")

"""Decoder-only models: what constructors refuse, what files say, and published sizes."""

from pathlib import Path

import pytest
from hypothesis import given

from ilp_planner.base.errors import SpecError
from ilp_planner.specs.decoder import Decoder, Experts, LatentAttention, as_decoder
from ilp_planner.specs.gpt import Gpt
from ilp_planner.specs.model_reader import read_model
from ilp_planner.specs.parameter_count import parameter_count
from tests.examples import for_each
from tests.training_jobs import decoders

ROOT = Path(__file__).parents[2]

# Numbers of parameters that the published checkpoints have; GPT-3's is not published to the digit.
PUBLISHED = {
    "llama2-7b": 6_738_415_616,
    "llama3-8b": 8_030_261_248,
    "llama3-70b": 70_553_706_496,
    "llama3-405b": 405_853_388_800,
    "mixtral-8x7b": 46_702_792_704,
    "deepseek-v2": 235_741_434_880,
    # Without the routing biases, 256 for each layer with experts: no gradient reaches them.
    "deepseek-v3": 671_026_419_200 - 58 * 256,
    "qwen2.5-7b": 7_615_616_512,
    "qwen3-32b": 32_762_123_264,
}

FILE = """
name = "tiny"
family = "decoder"
precision = "bf16"
[architecture]
layers = 2
hidden = 64
heads = 4
sequence = 128
vocab = 512
"""


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "m.toml"
        path.write_text(text)
        return path

    return write


def refusal(path):
    with pytest.raises(SpecError) as error:
        read_model(path)
    message = str(error.value)
    assert "\n" not in message
    return message.removeprefix(f"{path}: ")


@for_each("name", PUBLISHED)
def test_published_sizes(name):
    assert parameter_count(read_model(ROOT / "models" / f"{name}.toml")) == PUBLISHED[name]


def test_gpt3():
    model = read_model(ROOT / "models" / "gpt3-175b.toml")
    assert parameter_count(model) == pytest.approx(174.6e9, rel=1e-4)


def test_defaults(write):
    model = read_model(write(FILE)).architecture
    assert model == Decoder(layers=2, hidden=64, heads=4, sequence=128, vocab=512)
    assert (model.ffn, model.kv_heads, model.head) == (256, 4, 16)


def test_everything_a_file_can_say(write):
    text = (
        FILE
        + """
ffn = 96
kv_heads = 2
head = 8
gated = true
bias = false
qkv_bias = true
norm = "rmsnorm"
positions = "rope"
tied = false
dropout = 0
qk_norm = true
prediction_layers = 0
experts_in = [false, true]
[architecture.latent]
key_value_rank = 16
key = 8
rotary = 4
value = 8
[architecture.experts]
count = 4
top_k = 2
ffn = 32
dense_first = 0
"""
    )
    assert read_model(write(text)).architecture == Decoder(
        layers=2,
        hidden=64,
        heads=4,
        sequence=128,
        vocab=512,
        ffn=96,
        kv_heads=2,
        head=8,
        gated=True,
        bias=False,
        qkv_bias=True,
        norm="rmsnorm",
        positions="rope",
        tied=False,
        dropout=0.0,
        qk_norm=True,
        experts_in=(False, True),
        latent=LatentAttention(key_value_rank=16, key=8, rotary=4, value=8),
        experts=Experts(count=4, top_k=2, ffn=32),
    )


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("gated = 1", "architecture: gated must be true or false, found 1"),
        ("bais = true", "architecture: unknown key 'bais', did you mean 'bias'?"),
        ('norm = "l2"', "architecture: norm must be one of layernorm, rmsnorm, bare-layernorm"),
        ("dropout = 1.0", "architecture: dropout must be a number of at least 0 and below 1"),
        ("kv_heads = 3", "architecture: kv_heads must divide heads (4), found 3"),
        ("experts_in = [true]", "architecture: experts_in must have 2 entries, one per layer"),
        ("experts_in = [0, 1]", "architecture: experts_in must be a list of true and false"),
        ("experts = 8", "architecture: experts must be a table [experts], found 8"),
        ("[architecture.experts]\ncount = 8", "architecture.experts: top_k is missing"),
        ("[architecture.experts]\ncount = 2\ntop_k = 4\nffn = 8",
         "architecture.experts: top_k must be at most count (2), found 4"),
        ("[architecture.latent]\nkey_rank = 4", "architecture.latent: unknown key 'key_rank'"),
        ("[architecture.latent]\nkey_value_rank = 4\nkey = 0\nrotary = 1\nvalue = 1",
         "architecture.latent: key must be a whole number of at least 1, found 0"),
    ],
)  # fmt: skip
def test_mistakes_in_files(write, more, expected):
    assert refusal(write(FILE + more)).startswith(expected)


def test_which_layers_have_experts():
    experts = Experts(count=4, top_k=1, ffn=8, dense_first=1, every=2)
    model = Decoder(layers=6, hidden=8, heads=2, sequence=8, vocab=8, experts=experts)
    assert model.expert_layers == (False, True, False, True, False, True)


@given(decoders())
def test_the_chain_has_what_it_is_made_of(model):
    chain = model.operators
    assert len(chain) == 2 * model.layers + 3
    assert chain.count("experts-layer") == sum(model.expert_layers)
    assert set(model.flops) <= set(chain)
    assert set(model.parameters) == set(chain)


def test_gpt_is_a_decoder():
    gpt = Gpt(layers=2, hidden=64, heads=4, sequence=128, vocab=512)
    model = as_decoder(gpt)
    assert model is not None
    table = gpt.parameters
    whole = sum(table[name].total for name in gpt.operators if name in table)
    mine = sum(model.parameters[name].total for name in model.operators if name in model.parameters)
    assert mine == whole
    assert as_decoder(model) is model


def test_products_of_grouped_and_latent_attention():
    """2 FLOP per token and entry of a matrix, by hand; biases and norms multiply nothing."""
    sizes = {"layers": 1, "hidden": 64, "heads": 4, "sequence": 8, "vocab": 100, "ffn": 96}
    grouped = Decoder(**sizes, kv_heads=2)
    mlp = 2 * 8 * 2 * 64 * 96
    scores = 2 * 8 * 8 * (64 + 64)
    assert grouped.flops["mlp-layer"] == 2 * 8 * (64 * (64 + 32 + 32) + 64 * 64) + scores + mlp
    down = 64 * (16 + 4) + 64 * 24
    up = 16 * 4 * (8 + 12) + 24 * 4 * (8 + 4)
    latent = Decoder(
        **sizes, latent=LatentAttention(key_value_rank=16, key=8, rotary=4, value=12, query_rank=24)
    )
    scores = 2 * 8 * 8 * (4 * 12 + 4 * 12)
    assert latent.flops["mlp-layer"] == 2 * 8 * (down + up + 48 * 64) + scores + mlp

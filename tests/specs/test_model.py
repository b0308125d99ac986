import csv
import dataclasses
import pickle
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.errors import SpecError
from ilp_planner.base.library import hub_names
from ilp_planner.formats.exports import EXPORTS
from ilp_planner.inputs.files import PROFILE_FORMATS
from ilp_planner.specs.architecture import Parameters
from ilp_planner.specs.gpt import Gpt
from ilp_planner.specs.hugging_face.reader import read_config
from ilp_planner.specs.model import PROFILES, SYSTEMS, ModelSpec
from ilp_planner.specs.model_reader import catalogue, read_model
from ilp_planner.specs.parameter_count import parameter_count
from ilp_planner.specs.resnet import WideResNet
from ilp_planner.specs.t5 import T5
from tests.examples import for_each
from tests.specs.hugging_face.published import PUBLISHED, document

ROOT = Path(__file__).parents[2]
MODELS = sorted((ROOT / "models").glob("*.toml"))
DATABASE = ROOT.parent / "shared" / "data" / "aceso"

GPT = """
name = "tiny"
family = "gpt"
precision = "fp16"
[architecture]
layers = 2
hidden = 64
heads = 4
sequence = 128
vocab = 512
"""
HERE = hub_names()
SAME = [name for name in PUBLISHED if name in HERE]


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
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message.removeprefix(f"{path}: ")


def measured(model):
    """Yield (name, weights in MiB) of the model's distinct operators for every database with it."""
    if not DATABASE.is_dir():
        pytest.skip("no ../shared/data/aceso beside the repository")
    if "aceso" not in model.profile:
        pytest.skip(f"Aceso has not measured {model.name}")
    size = model.micro_batch_sizes[0]
    found = list(DATABASE.glob(f"*/{model.profile['aceso']}_mbs{size}_tp1_algo0.csv"))
    if not found:
        pytest.skip(f"the databases have no {model.profile['aceso']}")
    for path in found:
        with path.open() as file:
            yield [(row["op_name"], float(row["weights"])) for row in csv.DictReader(file)]


@for_each("path", MODELS)
def test_shipped_models(path):
    model = read_model(path)
    assert model.name == path.stem
    assert set(model.architecture.parameters) <= set(model.operators)
    assert set(model.architecture.flops) <= set(model.operators)
    assert pickle.loads(pickle.dumps(model)) == model
    assert hash(model) == hash(read_model(path))


@for_each("path", MODELS)
def test_operators_and_weights_are_those_measured(path):
    model = read_model(path)
    for rows in measured(model):
        # The files list every distinct operator once, in the order of the chain.
        assert [name for name, _ in rows] == list(dict.fromkeys(model.operators))
        for name, weights in rows:
            held = model.architecture.parameters.get(name, Parameters()).total
            have = held * model.bytes_per_number / 2**20
            # Aceso's numbers for transformers leave out biases and layer norms.
            assert have == pytest.approx(weights, rel=2e-3, abs=0.02), name


@for_each(
    ("name", "billions", "operators"),
    [
        ("gpt3-1.3b", 1.3, 13 * 24 + 3),
        ("gpt3-6.7b", 6.7, 13 * 32 + 3),
        ("gpt3-13b", 13, 13 * 40 + 3),
        ("t5-770m", 0.77, 34 * 24 + 5),
        ("t5-11b", 11, 34 * 24 + 5),
        ("wide-resnet-1b", 1, 134),
        ("wide-resnet-13b", 13, 270),
        ("scale-layer-1024", 3.26, 13 * 1024 + 3),
    ],
)
def test_sizes_are_what_the_names_say(name, billions, operators):
    model = read_model(ROOT / "models" / f"{name}.toml")
    assert parameter_count(model) == pytest.approx(billions * 1e9, rel=0.05)
    assert len(model.operators) == operators


def test_the_chain_is_in_order():
    gpt = Gpt(layers=2, hidden=64, heads=4, sequence=128, vocab=512).operators
    assert gpt[0] == "encoder-embedding"
    assert gpt[1:14] == gpt[14:27]
    assert gpt[-2:] == ("final-layernorm", "gpt-post-process")
    resnet = WideResNet(blocks=(2, 1), in_channels=8, width_factor=2).operators
    assert resnet[:5] == ("conv1", "bn1", "relu1", "maxpool", "block-0-0-conv1")
    assert resnet[20:22] == ("block-1-0-conv1", "block-1-0-bn1")
    assert resnet[-3:] == ("block-1-0-relu", "avgpool", "fc")


def forward_flops(model):
    table = model.architecture.flops
    return sum(table.get(name, 0) for name in model.operators)


@given(
    layers=st.integers(1, 40),
    heads=st.integers(1, 16),
    width=st.integers(1, 64),
    sequence=st.integers(1, 2048),
    vocab=st.integers(1, 50000),
)
def test_gpt_follows_the_published_formulas(layers, heads, width, sequence, vocab):
    h = heads * width
    model = ModelSpec(
        name="x",
        precision="fp16",
        architecture=Gpt(layers=layers, hidden=h, heads=heads, sequence=sequence, vocab=vocab),
    )
    # Narayanan et al. 2021: 24 B s l h^2 (1 + s / 6h + V / 12lh) for the forward pass, and
    # P = 12 l h^2 (1 + 13 / 12h + (V + s) / 12lh) without the last layer norm.
    flops = 24 * layers * sequence * h**2 + 4 * layers * sequence**2 * h + 2 * sequence * h * vocab
    assert forward_flops(model) == flops
    assert parameter_count(model) == layers * (12 * h**2 + 13 * h) + (vocab + sequence) * h + 2 * h


@given(st.sampled_from(MODELS), st.sampled_from(["layers", "ffn", "vocab"]))
def test_a_bigger_transformer_has_more_of_everything(path, dimension):
    model = read_model(path)
    if model.family == "resnet":
        return
    if getattr(model.architecture, "pattern", None):
        dimension = "vocab"  # a pattern names every layer
    if dimension == "ffn" and "experts-layer" in model.operators:
        dimension = "layers"  # there may be no dense MLP
    bigger = dataclasses.replace(
        model.architecture, **{dimension: 2 * getattr(model.architecture, dimension)}
    )
    other = dataclasses.replace(model, architecture=bigger)
    assert parameter_count(other) > parameter_count(model)
    assert forward_flops(other) > forward_flops(model)


def test_optional_keys(write):
    model = read_model(
        write("micro_batches = [1, 3]\n" + GPT + "ffn = 96\n[export.megatron]\nseed = 7\n")
    )
    assert model.micro_batch_sizes == (1, 3)
    assert model.architecture.ffn == 96
    assert model.architecture.max_position_embeddings == 128
    assert model.export == {"megatron": {"seed": 7}}
    assert model.profile == {}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("layers = 2", "layers = 0",
         "architecture: layers must be a whole number of at least 1, found 0"),
        ("layers = 2", "layers = -2",
         "architecture: layers must be a whole number of at least 1, found -2"),
        ("layers = 2", 'layers = "two"',
         "architecture: layers must be a whole number of at least 1, found 'two'"),
        ("layers = 2", "", "architecture: layers is missing"),
        ("layers = 2", "layer = 2", "architecture: unknown key 'layer', did you mean 'layers'?"),
        ("heads = 4", "heads = 5", "architecture: hidden must be divisible by heads (5), found 64"),
        ("heads = 4", "heads = 4\nmax_position_embeddings = 4",
         "architecture: max_position_embeddings must be at least sequence (128), found 4"),
        ('"gpt"', '"gtp"',
         "family must be one of gpt, t5, resnet, decoder, found 'gtp' (did you mean 'gpt'?)"),
        ('"fp16"', '"fp61"',
         "precision must be one of fp16, bf16, fp32, found 'fp61' (did you mean 'fp16'?)"),
        ('name = "tiny"', "", "name is missing"),
        ('name = "tiny"', 'name = ""', "name must be a text, found ''"),
        ('name = "tiny"', 'nmae = "tiny"', "unknown key 'nmae', did you mean 'name'?"),
        ("[architecture]", "[arch]", "unknown key 'arch', did you mean 'architecture'?"),
        ("vocab = 512", "vocab = 512\n[profile]\naceso = 3",
         "profile must be a table of texts, found a table"),
        ("vocab = 512", "vocab = 512\n[export]\naceso = 3",
         "export: aceso must be a table of texts and numbers, found 3"),
        ("vocab = 512", 'vocab = 512\n[profile]\nacesso = "x"',
         "profile: unknown key 'acesso', did you mean 'aceso'?"),
        ("vocab = 512", 'vocab = 512\n[profile]\ntable = "x"',
         "profile: unknown key 'table', expected aceso, metis, amp"),
        ("vocab = 512", "vocab = 512\n[export.fairscale]\nseed = 7",
         "export: unknown key 'fairscale', expected aceso, megatron, torchtitan, "
         "autoparallel, deepspeed, nemo, swift, peft"),
        ("heads = 4", "heads = = 4", "line 8, column 9: not valid TOML: Invalid value"),
    ],
)  # fmt: skip
def test_bad_files(write, old, new, expected):
    assert refusal(write(GPT.replace(old, new, 1))) == expected


def test_bad_resnets(write):
    text = '{}name = "r"\nfamily = "resnet"\nprecision = "fp32"\n[architecture]\n{}'
    good = "blocks = [1, 1]\nin_channels = 8\nwidth_factor = 2\n"
    assert read_model(write(text.format("", good))).architecture.image == 224
    wrong = good.replace("[1, 1]", "[]")
    assert "blocks must be a list of whole numbers" in refusal(write(text.format("", wrong)))
    wrong = good + "image = 20\n"
    message = "architecture: image must be divisible by 8 for 2 groups of blocks, found 20"
    assert refusal(write(text.format("", wrong))) == message
    wrong = text.format("micro_batches = [0]\n", good)
    assert "micro_batches must be a list of whole numbers" in refusal(write(wrong))


@for_each(
    ("values", "message"),
    [
        ({"layers": 0}, "layers must be"),
        ({"hidden": True}, "hidden must be"),
        ({"vocab": 1.5}, "vocab must be"),
        ({"ffn": -1}, "ffn must be"),
        ({"max_position_embeddings": 1}, "max_position_embeddings must be at least"),
    ],
)
def test_constructors_refuse_nonsense(values, message):
    gpt = {"layers": 1, "hidden": 8, "heads": 2, "sequence": 4, "vocab": 16}
    with pytest.raises(ValueError, match=message):
        Gpt(**{**gpt, **values})
    t5 = {
        "layers": 1,
        "hidden": 8,
        "heads": 2,
        "kv_channels": 4,
        "encoder_sequence": 4,
        "decoder_sequence": 2,
        "vocab": 16,
    }
    with pytest.raises(ValueError, match=message):
        T5(**{**t5, **values})


def test_specs_refuse_nonsense():
    gpt = Gpt(layers=1, hidden=8, heads=2, sequence=4, vocab=16)
    with pytest.raises(ValueError, match="precision must be one of"):
        ModelSpec(name="x", precision="int4", architecture=gpt)
    with pytest.raises(ValueError, match="name must not be empty"):
        ModelSpec(name=" ", precision="fp16", architecture=gpt)
    with pytest.raises(ValueError, match="micro_batch_sizes must be"):
        ModelSpec(name="x", precision="fp16", architecture=gpt, micro_batch_sizes=(0,))
    with pytest.raises(ValueError, match="blocks must have"):
        WideResNet(blocks=(), in_channels=8, width_factor=2)


def test_tables_are_named_after_what_there_is():
    assert ("aceso", *EXPORTS) == SYSTEMS
    assert set(PROFILE_FORMATS) == {"analytic", "table", *PROFILES}


@for_each("name", SAME)
def test_a_name_at_hugging_face_means_what_its_configuration_says(name):
    """But for the tokens of a sample, of which that says nothing."""
    found = read_model(HERE[name]).architecture
    wanted = read_config(document(name)).architecture
    assert replace(found, sequence=wanted.sequence) == wanted
    assert parameter_count(read_model(HERE[name])) == PUBLISHED[name][1]


@for_each(
    ("model", "name"),
    [
        ("gemma3-4b-text", "google/gemma-3-4b-pt"),
        ("gemma3-12b-text", "google/gemma-3-12b-pt"),
        ("gemma3-27b-text", "google/gemma-3-27b-pt"),
        ("nemotron4-340b", "nvidia/Nemotron-4-340B-Base"),
    ],
)
def test_models_without_a_name_at_hugging_face(model, name):
    found = next(entry.model for entry in catalogue() if entry.model.name == model)
    assert found.architecture == read_config(document(name)).architecture


def test_most_of_what_was_published_is_there():
    assert len(SAME) > 60
    assert len(set(hub_names())) == sum(len(entry.hub) for entry in catalogue())


@for_each("entry", catalogue())
def test_every_model_says_where_its_numbers_are_from(entry):
    if entry.hub:
        assert re.search(r"published config\.json|Compared with", entry.source)
    assert re.search(r"arXiv|config\.json|Compared with|Aceso|Metis|Narayanan|our", entry.source)

"""Encoders of sounds: tokens, parameters as transformers builds them, and files of lengths."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.errors import SpecError
from ilp_planner.base.files import Document
from ilp_planner.inputs.files import find_model
from ilp_planner.job.decoder import embedding_module
from ilp_planner.job.work import Product, encoder_work
from ilp_planner.specs.hugging_face.reader import read_config
from ilp_planner.specs.images import image_load
from ilp_planner.specs.lengths import JOINED, Lengths
from ilp_planner.specs.lengths_reader import lengths_text, of_samples, read_lengths
from ilp_planner.specs.model_reader import read_model
from ilp_planner.specs.model_writer import model_text
from ilp_planner.specs.parameter_count import parameter_count
from ilp_planner.specs.samples import Samples, with_samples
from ilp_planner.specs.sounds import SoundEncoder
from ilp_planner.specs.training import Settings, TrainingJob
from ilp_planner.specs.tuning import OF_ENCODER, Tuning

SMALL = {"layers": 2, "hidden": 64, "heads": 4, "ffn": 128}
AUDIO = {
    "model_type": "qwen2_audio",
    "text_config": {
        "model_type": "qwen2", "hidden_size": 4096, "intermediate_size": 11008,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
        "vocab_size": 156032, "max_position_embeddings": 8192,
    },
    "audio_config": {"model_type": "qwen2_audio_encoder"},
}  # fmt: skip
VOXTRAL = {
    "model_type": "voxtral",
    "text_config": {
        "model_type": "llama", "hidden_size": 3072, "intermediate_size": 8192,
        "num_hidden_layers": 30, "num_attention_heads": 32, "num_key_value_heads": 8,
        "vocab_size": 131072, "head_dim": 128, "max_position_embeddings": 131072,
    },
    "audio_config": {"model_type": "voxtral_encoder"},
}  # fmt: skip
OMNI = {
    "model_type": "qwen2_5_omni",
    "thinker_config": {
        "model_type": "qwen2_5_omni_thinker",
        "text_config": {
            "model_type": "qwen2_5_omni_text", "hidden_size": 3584, "intermediate_size": 18944,
            "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
            "vocab_size": 152064, "max_position_embeddings": 32768,
        },
        "audio_config": {"output_dim": 3584},
        "vision_config": {
            "hidden_size": 1280, "intermediate_size": 3420, "out_hidden_size": 3584, "depth": 32,
        },
    },
    "talker_config": {"model_type": "qwen2_5_omni_talker"},
}  # fmt: skip
OMNI_3 = {
    "model_type": "qwen3_omni_moe",
    "thinker_config": {
        "model_type": "qwen3_omni_moe_thinker",
        "text_config": {
            "model_type": "qwen3_omni_moe_text", "hidden_size": 2048, "intermediate_size": 768,
            "moe_intermediate_size": 768, "num_hidden_layers": 48, "num_attention_heads": 32,
            "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 152064,
            "max_position_embeddings": 65536, "num_experts": 128, "num_experts_per_tok": 8,
        },
        "audio_config": {"output_dim": 2048},
        "vision_config": {
            "depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "out_hidden_size": 2048,
            "deepstack_visual_indexes": [8, 16, 24], "patch_size": 16,
        },
    },
}  # fmt: skip
# Ultravox v0.5 has Whisper large v3 turbo, the sizes of its encoder those of large v3.
ULTRAVOX = {
    "model_type": "ultravox", "hidden_size": 4096, "stack_factor": 8, "projector_act": "swiglu",
    "projector_ln_mid": True,
    "text_config": {
        "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
        "vocab_size": 128256, "max_position_embeddings": 131072,
    },
    "audio_config": {
        "model_type": "whisper", "encoder_layers": 32, "d_model": 1280,
        "encoder_attention_heads": 20, "encoder_ffn_dim": 5120, "num_mel_bins": 128,
        "max_source_positions": 1500,
    },
}  # fmt: skip
# Configuration, parameters that transformers builds, tokens of 30 seconds.
BUILT = {
    "Qwen2AudioForConditionalGeneration": (AUDIO, 8_397_094_912, 750),
    "VoxtralForConditionalGeneration": (VOXTRAL, 4_676_271_104, 375),
    "Qwen2_5OmniThinkerForConditionalGeneration": (OMNI, 8_931_813_888, 750),
    "Qwen3OmniMoeThinkerForConditionalGeneration": (OMNI_3, 31_719_205_488, 390),
}


def read(values, **more):
    return read_config(Document("config.json", json.dumps(values)), **more)


# ---- parameters ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(BUILT))
def test_as_many_parameters_as_transformers_builds(name):
    values, count, tokens = BUILT[name]
    model = read(values)
    assert parameter_count(model) == count
    assert model.architecture.sounds.image_tokens == tokens
    assert any(note.startswith("sounds: 30 seconds") for note in model.remarks)
    again = read_model(Document("again.toml", model_text(model)))
    assert again.architecture == model.architecture


@pytest.mark.slow
def test_transformers_itself_builds_them():
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    for name, (values, count, _) in BUILT.items():
        own = getattr(transformers, name)
        values = values.get("thinker_config", values)
        more = {key: value for key, value in values.items() if key != "model_type"}
        with torch.device("meta"):
            model = own(own.config_class(**more))
        assert sum(one.numel() for one in model.parameters()) == count


# Of Ultravox: what differs, and its parameters.
PROJECTORS = [
    ({}, 8_717_574_144),
    ({"projector_ln_mid": False}, 8_717_576_192),
    ({"projector_act": "gelu"}, 8_725_964_800),
]


@pytest.mark.slow
@pytest.mark.parametrize(("changes", "parameters"), PROJECTORS)
def test_ultravox_is_whispers_encoder_a_llama_and_a_projector(changes, parameters):
    """The parts that transformers has are built by it; its own has two products and two norms."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    values = ULTRAVOX | changes
    text, audio = values["text_config"], values["audio_config"]
    with torch.device("meta"):
        decoder = transformers.LlamaForCausalLM(transformers.LlamaConfig(**text))
        whisper = transformers.models.whisper.modeling_whisper.WhisperEncoder(
            transformers.WhisperConfig(**audio)
        )
    side, inner, width = 8 * audio["d_model"], values["hidden_size"], text["hidden_size"]
    acted = inner // 2 if values["projector_act"] == "swiglu" else inner
    projector = side * inner + acted * width + side
    projector += acted if values["projector_ln_mid"] else width
    count = sum(one.numel() for part in (decoder, whisper) for one in part.parameters())
    assert parameters == count + projector


@pytest.mark.parametrize(("changes", "parameters"), PROJECTORS)
def test_ultravox_has_these_parameters(changes, parameters):
    values = ULTRAVOX | changes
    model = read(values)
    width = values["text_config"]["hidden_size"]
    assert parameter_count(model) == parameters
    assert model.architecture.sounds.image_tokens == 188  # zeros beside the last ones
    again = read_model(Document("again.toml", model_text(model)))
    assert again.architecture == model.architecture
    job = TrainingJob(model=model.architecture, micro_batch=1, global_batch=1, tp=1, pp=1, dp=1)
    own = next(one for one in embedding_module(job).children if one.name == "sounds")
    sounds = model.architecture.sounds
    keys = sounds.layers * sounds.hidden  # biases of keys, which Whisper has not
    assert own.parameters - keys == sounds.parameters(width)
    products = {one.name: one for one in encoder_work(job, sounds)[1]}
    assert {"projector_fc1", "projector_fc2", "projector_later_norm"} <= {*products}


@pytest.mark.parametrize("key", ["text_model_id", "audio_model_id"])
def test_names_in_place_of_configurations_are_refused(key):
    own = key.replace("_model_id", "_config")
    found = f"{key}: found 'some/model', expected"
    with pytest.raises(SpecError, match=f"{found} none beside `{own}`, .*; without `{key}` the"):
        read(ULTRAVOX | {key: "some/model"})
    without = {name: value for name, value in ULTRAVOX.items() if name != own}
    with pytest.raises(SpecError, match=f"{found} `{own}` with that model's configuration; "):
        read(without | {key: "some/model"})
    assert read(ULTRAVOX | {key: None}).architecture == read(ULTRAVOX).architecture


def test_the_talker_is_named_and_left_out():
    assert any(note.startswith("talker_config: the talker") for note in read(OMNI).remarks)
    assert not any("talker" in note for note in read(OMNI_3).remarks)


def test_the_text_alone():
    model = read(OMNI, text_only=True).architecture
    assert model.encoders == ()
    assert len(read(OMNI).architecture.encoders) == 2


@pytest.mark.parametrize("name", sorted(BUILT))
def test_a_rank_holds_the_parameters_of_the_encoder(name):
    """Keys have a bias there, as a product of queries, keys and values has one."""
    model = read(BUILT[name][0]).architecture
    found = embedding_module(TrainingJob(model=model, micro_batch=1, global_batch=1)).children[-1]
    own = model.sounds
    keys = 0 if own.key_bias else own.layers * own.hidden
    assert found.name == "sounds"
    assert found.parameters == own.parameters(model.hidden) + keys
    assert found.parameters - found.trained == own.positions * own.hidden
    assert found.activations > 0


@pytest.mark.parametrize("tuning", [Tuning(frozen=OF_ENCODER), Tuning(rank=8)])
def test_frozen_encoders_keep_nothing(tuning):
    model = read(OMNI).architecture
    job = TrainingJob(model=model, micro_batch=1, global_batch=1, settings=Settings(tuning=tuning))
    for found in embedding_module(job).children[-2:]:
        assert found.trained == found.activations == 0


# ---- work ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(BUILT))
def test_products_are_those_of_the_convolutions_layers_and_projector(name):
    """Each parameter of a layer is multiplied once a token, of a convolution as often as it is
    moved."""
    model = read(BUILT[name][0]).architecture
    own = model.sounds
    job = TrainingJob(model=model, micro_batch=2, global_batch=2)
    layer, ends = encoder_work(job, own)

    def products(work):
        kernels = (kernel for one in work for kernel in one.forward)
        return sum(kernel.flops for kernel in kernels if isinstance(kernel.shape, Product))

    tokens = 2 * own.images * own.patches
    each = 4 * own.hidden**2 + 2 * own.hidden * own.ffn
    assert products(layer) == pytest.approx(2 * tokens * each)
    stems = sum(stem.rows * stem.inner * stem.outer for stem in own.stems)
    sizes = [own.merged, *[own.inner] * (own.inner > 0), model.hidden]
    projector = sum(a * b for a, b in pairwise(sizes))
    read_by = 2 * own.image_tokens
    assert products(ends) == pytest.approx(2 * tokens * stems + 2 * read_by * projector)


# ---- tokens --------------------------------------------------------------------------------------


@given(st.integers(1, 200), st.integers(1, 40))
def test_pieces_cover_the_sound(seconds, chunk):
    cut = SoundEncoder(**SMALL, seconds=seconds, chunk=chunk)
    assert cut.images * chunk >= seconds > (cut.images - 1) * chunk
    assert cut.image_tokens == 25 * seconds
    padded = replace(cut, padded=True)
    assert padded.image_tokens == 25 * chunk * cut.images
    assert SoundEncoder(**SMALL, seconds=seconds).images == 1


@given(st.integers(1, 100), st.integers(1, 100))
def test_windows_hear_their_own_tokens(seconds, window):
    own = SoundEncoder(**SMALL, seconds=seconds, window=window)
    assert own.spans == ((1.0, 2.0 * min(1.0, window / seconds)),)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("padded", True, "padded must be false without chunk, found true"),
        ("positions", 100, "chunk must be at most 2 seconds, as there are 100 positions, found 30"),
        ("heads", 5, r"hidden must be divisible by heads \(5\), found 64"),
        ("window", -1, "window must be a whole number"),
    ],
)
def test_figures_that_no_encoder_has(field, value, message):
    with pytest.raises(ValueError, match=message):
        SoundEncoder(**{**SMALL, field: value})


@pytest.mark.parametrize(
    ("values", "samples", "message"),
    [
        (None, Samples(audio_seconds=2), "audio_seconds: found 2, but llama3-8b has no encoder of"),
        (AUDIO, Samples(audio_seconds=200), "sequence must be at least 5000 with sounds of so"),
        (OMNI, Samples(audio_seconds=160), r"at least 4256 with sounds and images of so many"),
        (OMNI, Samples(images=0, audio_seconds=0), "images must be at least 1, found 0, or leave"),
        (AUDIO, Samples(images=1), "images: found 1, but model has no encoder of images"),
    ],
)
def test_sounds_that_no_sample_has(values, samples, message):
    model = find_model("llama3-8b") if values is None else read(values)
    with pytest.raises(SpecError, match=message):
        with_samples(model, samples)


def test_a_model_that_sees_and_hears_may_hear_alone():
    model = with_samples(read(OMNI), Samples(images=0, audio_seconds=60)).architecture
    job = TrainingJob(model=model, micro_batch=3, global_batch=3)
    seen, heard = job.loads
    assert (seen.images, seen.patches) == (1, 1)
    assert (heard.images, heard.patches, heard.tokens) == (3, 3000, 4500)


# ---- files ---------------------------------------------------------------------------------------


THREE = Lengths(lengths=(500, 900), counts=(2, 1), seconds=(0, 12))


@pytest.mark.parametrize(
    "text",
    [
        "length,audio_seconds,count\n500,0,2\n900,12,1\n",
        '{"length": 500}\n' * 2 + '{"length": 900, "audio_seconds": 12}\n',
    ],
)
def test_files_of_sounds(text):
    found = read_lengths(Document("lengths.txt", text))
    assert found == THREE
    assert read_lengths(Document("again", lengths_text(found))) == found


@pytest.mark.parametrize(
    ("values", "lengths", "refused"),
    [
        (None, {"seconds": (1,)}, "found sounds for llama3-8b, which has no encoder of sounds"),
        (AUDIO, {"seconds": (80,)}, "a document of 1000 tokens with sounds of 2000 tokens, expect"),
        (AUDIO, {"seconds": (0,)}, "found no sounds, expected some, or `text_only`"),
        (AUDIO, {"batching": JOINED}, "found sounds with `batching=joined`, which cuts"),
        (OMNI, {"seconds": (20,), "images": (2,)}, "sounds of 500 tokens and images of 512"),
    ],
)
def test_documents_without_room_are_refused(values, lengths, refused):
    model = find_model("llama3-8b") if values is None else read(values)
    found = Lengths(**{"lengths": (1000,), "counts": (1,), **lengths})
    with pytest.raises(SpecError, match=refused) as told:
        of_samples(model, found, "lengths.txt")
    assert "\n" not in str(told.value)


def test_sounds_are_said_once():
    lengths = Lengths(lengths=(2000,), counts=(1,), seconds=(4,))
    with pytest.raises(SpecError, match=r"with `audio_seconds=2`, expected one of the two"):
        of_samples(read(AUDIO), lengths, "lengths.txt", None, 2)


@given(st.integers(1, 30), st.integers(1, 4))
def test_documents_of_equal_sounds_are_equal_sounds(seconds, batch):
    own = SoundEncoder(**SMALL, seconds=seconds, chunk=10)
    same = Lengths(lengths=(800, 900), counts=(3, 1), batching="full")
    load = image_load(own, same, 1024, batch, 8, 4)
    plain = image_load(own, None, 1024, batch)
    assert load == plain

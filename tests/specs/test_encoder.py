"""Encoders of images, their tokens, and samples with other images."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.errors import SpecError
from ilp_planner.base.library import find_spec
from ilp_planner.job.decoder import embedding_module
from ilp_planner.job.work import encoder_work
from ilp_planner.specs.encoder import Encoder
from ilp_planner.specs.model_reader import read_model
from ilp_planner.specs.samples import Samples, with_samples
from ilp_planner.specs.training import TrainingJob
from ilp_planner.specs.tuning import FROZEN, OF_ENCODER, Tuning

SMALL = {"layers": 4, "hidden": 64, "heads": 4, "ffn": 128, "patch": 14, "merge": 2}


@given(st.integers(1, 20), st.integers(1, 6))
def test_tokens_of_images(side, images):
    encoder = Encoder(**SMALL, image_size=28 * side, images=images)
    assert encoder.tokens == side**2
    assert encoder.patches == 4 * encoder.tokens
    assert encoder.image_tokens == images * side**2


@given(st.integers(1, 999))
def test_a_size_that_it_cannot_take_names_the_nearest(size):
    if size % 28 == 0:
        Encoder(**SMALL, image_size=size)
        return
    with pytest.raises(ValueError, match="multiple of 28 pixels") as caught:
        Encoder(**SMALL, image_size=size)
    near = int(str(caught.value).rpartition("found ")[2].split("; ")[1].split()[0])
    assert Encoder(**SMALL, image_size=near).image_size == near
    assert abs(near - size) <= 28


@pytest.mark.parametrize("name", ["vectors", "scales", "full_layers", "deepstack"])
def test_no_count_is_negative(name):
    with pytest.raises(ValueError, match=f"{name} must be a whole number"):
        Encoder(**SMALL, **{name: -1})


def test_windows_see_their_own_patches_and_full_layers_all():
    encoder = Encoder(**SMALL, image_size=448, window=112, full_layers=1)
    full, windowed = encoder.spans
    assert full == (0.25, 2.0)  # twice what causal attention looks at
    assert windowed == (0.75, 2.0 * 64 / 1024)  # 8 x 8 of 32 x 32 patches
    assert Encoder(**SMALL, image_size=112, window=448).spans == ((1.0, 2.0),)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("full_layers", 5, r"full_layers must be at most layers \(4\), found 5"),
        ("window", 27, "window must be 0 or at least 28 pixels, the side of a token, found 27"),
    ],
)
def test_figures_that_no_encoder_has(field, value, message):
    with pytest.raises(ValueError, match=message):
        Encoder(**SMALL, **{field: value})
    assert getattr(Encoder(**SMALL, **{field: value + 1 if field == "window" else 4}), field)


@pytest.mark.parametrize(
    ("name", "samples", "message"),
    [
        ("qwen3-8b", Samples(images=2), "images: found 2, but qwen3-8b has no encoder of images"),
        ("gpt3-1.3b", Samples(image_size=2), "gpt3-1.3b has no encoder of images"),
        ("llava-1.5-7b", Samples(image_size=448), "takes images of 336 pixels alone"),
        ("qwen2.5-vl-7b", Samples(image_size=500), "found 500; 504 would do"),
        ("qwen2.5-vl-7b", Samples(images=50), "sequence must be at least 12800 with images of 256"),
        ("qwen2.5-vl-7b", Samples(sequence=128), "sequence must be at least 256 with images"),
    ],
)
def test_images_that_no_sample_has(name, samples, message):
    with pytest.raises(SpecError, match=message):
        with_samples(read_model(find_spec(name, "models")), samples)


def test_samples_with_other_images():
    model = with_samples(read_model(find_spec("qwen2.5-vl-7b", "models")), Samples(8192, 4, 560))
    encoder = model.architecture.encoder
    assert (encoder.images, encoder.image_size, encoder.image_tokens) == (4, 560, 1600)
    assert model.architecture.sequence == 8192


@pytest.mark.parametrize("tp", [1, 2, 4])
@pytest.mark.parametrize("name", ["qwen2.5-vl-3b", "qwen3-vl-4b", "llava-1.5-7b"])
def test_ranks_hold_the_parameters_of_the_encoder(name, tp):
    model = read_model(find_spec(name, "models")).architecture
    job = TrainingJob(model=model, micro_batch=1, global_batch=8, tp=tp)
    found = embedding_module(job).children[-1]
    whole = model.encoder.parameters(model.hidden)
    assert found.name == "encoder"
    assert whole / tp <= found.parameters <= whole / tp * 1.04  # biases and norms are whole
    assert found.trained == found.parameters
    assert found.activations > 0
    if tp == 1:
        assert found.parameters == whole


@pytest.mark.parametrize("tuning", [Tuning(frozen=OF_ENCODER), Tuning(rank=8)])
def test_a_frozen_encoder_keeps_nothing(tuning):
    model = read_model(find_spec("qwen2.5-vl-3b", "models")).architecture
    job = TrainingJob(model=model, micro_batch=1, global_batch=8)

    job = replace(job, settings=replace(job.settings, tuning=tuning))
    found = embedding_module(job).children[-1]
    assert found.trained == found.activations == 0
    assert "encoder" in FROZEN


@pytest.mark.parametrize("name", ["qwen2.5-vl-3b", "qwen3-vl-4b", "llava-1.5-7b"])
def test_encoder_and_projector_are_frozen_apart(name):
    model = read_model(find_spec(name, "models")).architecture
    job = TrainingJob(model=model, micro_batch=1, global_batch=8)

    def encoder(*frozen):
        settings = replace(job.settings, tuning=Tuning(frozen=frozen))
        return embedding_module(replace(job, settings=settings)).children[-1]

    whole, projector, inner = encoder(), encoder("encoder"), encoder("projector")
    assert projector.trained == model.encoder.projectors(model.hidden)
    assert projector.trained + inner.trained == whole.trained
    assert 0 < projector.activations < inner.activations < whole.activations


@pytest.mark.parametrize("name", ["qwen2.5-vl-3b", "llava-1.5-7b"])
def test_passes_are_as_many_as_gradients(name):
    """What is frozen has no gradients of weights, and nothing below the lowest trained part has a
    backward pass."""
    model = read_model(find_spec(name, "models")).architecture
    job = TrainingJob(model=model, micro_batch=1, global_batch=8)

    def flops(*frozen):
        settings = replace(job.settings, tuning=Tuning(frozen=frozen))
        layer, ends = encoder_work(replace(job, settings=settings), model.encoder)
        return [sum(k.flops for one in part for k in one.backward) for part in (layer, ends)]

    whole, projector, inner = flops(), flops("encoder"), flops("projector")
    assert projector[0] == 0 < projector[1] < whole[1]
    assert inner[0] == whole[0]
    assert 0 < inner[1] < whole[1]
    assert flops(*OF_ENCODER) == [0, 0]

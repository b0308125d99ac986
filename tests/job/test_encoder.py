"""The job of an encoder's layers, and its modules, in figures by hand."""

from dataclasses import replace

import pytest

from ilp_planner.job.decoder import embedding_module
from ilp_planner.job.encoder import encoder_job, images_seen, most_images
from ilp_planner.specs.encoder import Encoder
from ilp_planner.specs.sounds import SoundEncoder
from ilp_planner.specs.training import NOT_RECOMPUTED, Kernels, Offload, Recompute
from ilp_planner.specs.tuning import Tuning
from tests.training_jobs import job, llama, settings

SIZES = {"layers": 3, "hidden": 64, "heads": 4, "ffn": 96}
SEES = Encoder(**SIZES, patch=14, merge=2, image_size=112, images=5)  # 64 patches, 16 tokens
HEARS = SoundEncoder(**SIZES, seconds=7)  # 100 frames of 128 numbers, 50 tokens a second


def of(encoder=SEES, *, sounds=None, frozen=(), **changes):
    model = llama(encoder=encoder, sounds=sounds)
    return job(model, settings=settings(tuning=Tuning(frozen=frozen), **changes))


def children(case):
    """Return the modules of the last encoder, by name."""
    return {part.name: part for part in embedding_module(case).children[-1].children}


def test_an_encoder_has_none_of_what_is_asked_of_the_decoder():
    """Products of fewer bits, graphs and what experts do are the decoder's alone; all else that is
    said of kernels counts for both."""
    asked = Kernels(
        quantised="mxfp8", number_format="e4m3", quantised_parameters=True, exact_first=1,
        exact_last=2, graphs="local", graphed=("attn",), deferred_output=True, overlap_shared=True,
        loader_mask=True, capacity=1.5, imbalance=2.0, deterministic=True, fused_loss=True,
    )  # fmt: skip
    case = of(kernels=asked, cp=2, ep=1, recompute=Recompute(granularity="full", method="uniform"))
    own = encoder_job(case, SEES, most_images(case, SEES))
    assert own.settings.kernels == Kernels(
        implementation=asked.implementation, deterministic=True, fused_loss=True
    )
    assert own.settings == replace(
        case.settings,
        cp=1, sequence_parallel=False, recompute=NOT_RECOMPUTED, offload=Offload(),
        kernels=own.settings.kernels,
    )  # fmt: skip
    assert (own.tp, own.pp, own.dp) == (case.tp, 1, case.dp)


@pytest.mark.parametrize("positions", [0, 100])
def test_layers_are_those_of_a_decoder_of_patches(positions):
    """Ten images of two samples; a word is none of its own; positions are learnt or turned."""
    encoder = replace(SEES, positions=positions, whole=True, norm="rmsnorm", gated=True)
    case = of(encoder)
    own = encoder_job(case, encoder, most_images(case, encoder))
    model = own.model
    assert (model.layers, model.hidden, model.heads, model.ffn) == (3, 64, 4, 96)
    assert (model.sequence, model.vocab, model.dropout) == (64, 1, 0.0)
    assert (model.norm, model.gated, model.bias) == ("rmsnorm", True, True)
    assert model.positions == ("none" if positions else "rope")
    assert model.attention_spans == ((1.0, 2.0),)
    assert (own.micro_batch, own.tp) == (10, 1)
    assert own.micro_batches == case.micro_batches == 16


def test_a_part_of_the_images_becomes_a_part_of_the_tokens_rounded_up():
    """Ten images of 16 tokens over four ranks: three of them, 48 tokens; or 3 of 7 of 10."""
    encoder = replace(SEES, cp_divided=True)
    case = replace(of(encoder, cp=4), layout=None)
    assert images_seen(case, encoder)[:3] == most_images(case, encoder)[:3] == (3, 64, 48)
    hears = replace(HEARS, chunk=1, cp_divided=True, seconds=3, merge=4)  # 6 pieces, 74 tokens
    case = replace(of(None, sounds=hears, cp=4), layout=None)
    assert most_images(case, hears)[:3] == (2, 50, -(-74 * 2 // 6))
    whole = replace(case, model=llama(sounds=replace(hears, cp_divided=False)))
    assert most_images(whole, whole.model.encoders[0])[:3] == (6, 50, 74)


def test_what_is_frozen_is_a_job_without_training():
    trained, frozen = of(), of(frozen=("encoder",))
    for case, everything in ((trained, True), (frozen, False)):
        own = encoder_job(case, SEES, most_images(case, SEES))
        assert (own.settings.tuning == Tuning()) is everything


def test_projectors_keep_what_their_gradients_and_those_below_need():
    """Ten images of 16 tokens in bf16; tensor-parallel ranks share the inner width. With nothing
    trained at or below it, a projector keeps nothing; above a trained encoder its activation's
    input."""
    encoder = replace(SEES, projector_ffn=128)
    rows, merged, inner = 160, 4 * 64, 128 // 2

    def kept(*frozen):
        return [round(one.size) for one in children(of(encoder, frozen=frozen))["projector"].kept]

    def of_parts(*frozen):
        projector = children(of(encoder, frozen=frozen))["projector"]
        return {part.name: sum(one.size for one in part.kept) for part in projector.children}

    first, before, column = 2 * rows * inner, 2 * rows * merged, 2 * rows * inner
    assert kept() == []
    both = {"projector_fc1": before + first, "projector_fc2": column}
    assert of_parts() == of_parts("encoder") == both
    assert of_parts("projector") == {"projector_fc1": first, "projector_fc2": 0}
    assert of_parts("encoder", "projector") == dict.fromkeys(both, 0)


def test_stems_keep_what_they_read_and_what_their_activation_reads():
    """Convolutions are followed by an activation, the product of patches is not."""
    rows = 2 * 7 * 50  # tokens of two samples
    case = of(None, sounds=HEARS)
    found = {name: [one.size for one in part.kept] for name, part in children(case).items()}
    assert found["conv1"] == [2 * rows * 2 * 128, 2 * rows * 2 * 64]
    assert found["conv2"] == [2 * rows * 2 * 64, 2 * rows * 64]
    patches = children(of())["patch_embed"]
    assert [one.size for one in patches.kept] == [2 * 10 * 64 * 3 * 14 * 14]


def test_learnt_vectors_are_of_the_last_stem():
    """Two vectors that scale each of three layers, 100 positions, and one more; without them the
    product and its bias alone."""
    encoder = replace(SEES, scales=2, positions=100, vectors=1)
    stem = {one.name: one.count for one in children(of(encoder))["patch_embed"].weights}
    product = {"weight": 64 * 3 * 14 * 14, "bias": 64}
    assert stem == product | {"positions": 101 * 64, "scales": 3 * 2 * 64}
    plain = children(of())["patch_embed"].weights
    assert {one.name: one.count for one in plain} == product


def test_inner_layers_have_projectors_of_their_own():
    """Two of them, with a norm each; of none there is no module."""
    deep = embedding_module(of(replace(SEES, deepstack=2))).children[-1].children
    assert [part.repeat for part in deep if part.name == "projector"] == [1, 2]
    plain = embedding_module(of()).children[-1].children
    assert [part.name for part in plain] == ["patch_embed", "layers", "projector"]

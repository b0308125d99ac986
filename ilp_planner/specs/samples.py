"""Tokens, images and sounds of a sample, if they are asked for in place of those of the model's
file."""

from dataclasses import replace
from typing import NamedTuple

from ilp_planner.base.errors import SpecError
from ilp_planner.specs.decoder import Decoder
from ilp_planner.specs.model import ModelSpec

# Field -> how remarks on a model begin that a value of it replaces.
REMARKS = {
    "sequence": "sequence:",
    "images": "images:",
    "image_size": "images:",
    "audio_seconds": "sounds:",
}


class Samples(NamedTuple):
    """Tokens of a sample, its images, pixels of an image's side, and seconds of its sound; None: as
    the model says."""

    sequence: int | None = None
    images: int | None = None
    image_size: int | None = None
    audio_seconds: int | None = None


def with_samples(model: ModelSpec, samples: Samples) -> ModelSpec:
    """Return a model with other samples, without the remarks on what they replace, and with one on
    samples that are longer than the model has positions.

    Raises
    ------
    SpecError: images are asked for, and the model has no encoder or its encoder does not take them.
    """
    said = {name: value for name, value in samples._asdict().items() if value is not None}
    decoder = model.architecture
    if not isinstance(decoder, Decoder):
        said = {name: value for name, value in said.items() if name != "sequence"}
    if not said:
        return model
    encoder = decoder.encoder if isinstance(decoder, Decoder) else None
    images = {name: said[name] for name in ("images", "image_size") if name in said}
    sounds = decoder.sounds if isinstance(decoder, Decoder) else None
    if (seconds := samples.audio_seconds) is not None and sounds is None:
        raise SpecError(
            f"audio_seconds: found {seconds}, but {model.name} has no encoder of sounds: expected "
            "a model with one, as qwen2-audio-7b"
        )
    if images and encoder is None:
        name, value = next(iter(images.items()))
        raise SpecError(
            f"{name}: found {value}, but {model.name} has no encoder of images: expected a model "
            "with one, as qwen2.5-vl-7b"
        )
    size = samples.image_size
    if encoder and encoder.fixed_size and size not in (None, encoder.image_size):
        raise SpecError(
            f"image_size: found {size}, but the encoder of {model.name} takes images of "
            f"{encoder.image_size} pixels alone, larger ones as several: expected "
            f"{encoder.image_size}"
        )
    assert isinstance(decoder, Decoder)
    try:
        tokens = samples.sequence or decoder.sequence
        found = replace(
            decoder,
            sequence=tokens,
            max_position_embeddings=max(tokens, decoder.max_position_embeddings),
            encoder=replace(encoder, **images) if encoder else None,
            sounds=sounds
            if sounds is None or seconds is None
            else replace(sounds, seconds=seconds),
        )
    except ValueError as error:
        raise SpecError(f"{model.name}: {error}") from None
    gone = tuple(REMARKS[name] for name in said)
    remarks = tuple(note for note in model.remarks if not note.startswith(gone))
    learned, most = decoder.positions == "learned", decoder.max_position_embeddings
    remarks += beyond_positions(tokens, most, learned=learned)
    return replace(model, architecture=found, remarks=remarks)


def beyond_positions(tokens: int, most: int, *, learned: bool) -> tuple[str, ...]:
    """Return a remark on samples that are longer than a model has positions. learned: these are
    parameters."""
    if tokens <= most:
        return ()
    table = "; its table of positions grows with it" if learned else ""
    return (
        f"sequence: {tokens} tokens are beyond the {most} positions that the model was made for: "
        f"max_position_embeddings {tokens} is assumed{table}",
    )

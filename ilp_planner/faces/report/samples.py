"""Samples, and their making: images, or documents of different lengths, and what packing gains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ilp_planner.base.units import format_percent
from ilp_planner.specs.decoder import as_decoder
from ilp_planner.specs.images import image_load, images_of_documents
from ilp_planner.specs.lengths import FULL, JOINED, LONGEST, PACKED
from ilp_planner.specs.sounds import SoundEncoder

if TYPE_CHECKING:
    from ilp_planner.plan import AnyPlan
    from ilp_planner.problem import Problem
    from ilp_planner.specs.decoder import Decoder
    from ilp_planner.specs.images import AnyEncoder
    from ilp_planner.specs.lengths import Lengths

# How samples are made, in words.
WORDS = {
    PACKED: "packed",
    JOINED: "joined and cut",
    LONGEST: "a document each, padded to the longest of its micro-batch",
    FULL: "a document each, padded to the sequence length",
}


def samples_of_plan(problem: Problem[Any], plan: AnyPlan) -> list[tuple[str, str]]:
    """Say the samples of a plan, if they have images or are made of documents."""
    model = None if problem.spec is None else as_decoder(problem.spec.architecture)
    if model is None:
        return []
    found = samples_lines(model, plan.micro_batch_size // getattr(plan.stages[0], "dp", 1))
    alone = model.lengths is not None and plan.settings is None  # layer-level plans
    return [(name, f"{text}; counted as in the mean") for name, text in found] if alone else found


def samples_lines(model: Decoder, micro_batch: int) -> list[tuple[str, str]]:
    """Say the samples of micro-batches of so many: `packed, 13.6 documents of 301 tokens, 0.4 %
    padding (a document each, padded to the sequence length: 92.7 %)`, or `1 image of 448 x 448
    pixels: 256 of 4,096 tokens`."""
    lengths = model.lengths
    text = [] if lengths is None else [_documents(model, lengths, micro_batch)]
    text[:0] = [_images(model, one) for one in model.encoders if lengths or one.images]
    return [("samples", "; ".join(text))] if text else []


def _images(model: Decoder, encoder: AnyEncoder) -> str:
    """Say the images of a sample, or the seconds of its sound."""
    lengths, size = model.lengths, model.sequence
    if isinstance(encoder, SoundEncoder):
        return _sounds(model, encoder)
    if lengths and lengths.images:
        each = images_of_documents(encoder, lengths)
        most = image_load(encoder, lengths, size, 1)
        return f"{each:,.2f} images a document, at most {most.tokens:,} of {size:,} tokens"
    count = encoder.images
    text = f"{count} image{'s' * (count > 1)} of {encoder.image_size} x {encoder.image_size} pixels"
    if lengths:
        return f"{text} a document"
    return f"{text}: {encoder.image_tokens:,} of {size:,} tokens"


def _sounds(model: Decoder, encoder: SoundEncoder) -> str:
    lengths, size = model.lengths, model.sequence
    if lengths and lengths.seconds:
        heard = sum(a * b for a, b in zip(lengths.seconds, lengths.counts, strict=True))
        most = image_load(encoder, lengths, size, 1)
        each = heard / lengths.documents
        return (
            f"{each:,.1f} seconds of sound a document, at most {most.tokens:,} of {size:,} tokens"
        )
    text = f"{encoder.seconds} seconds of sound"
    if lengths:
        return f"{text} a document"
    return f"{text}: {encoder.image_tokens:,} of {size:,} tokens"


def _documents(model: Decoder, lengths: Lengths, micro_batch: int) -> str:
    """Say `packed, 13.6 documents of 301 tokens, 0.4 % padding (...)`."""
    size, text = model.sequence, WORDS[lengths.batching]
    each = lengths.trained(size) / lengths.mean
    if lengths.batching in (PACKED, JOINED):
        text += f", {each:,.1f} documents of {lengths.mean:,.0f} tokens"
    text += f", {format_percent(lengths.padding(size, micro_batch))} padding"
    other = lengths.made(FULL if lengths.batching in (PACKED, JOINED) else PACKED)
    share = format_percent(other.padding(size, micro_batch))
    return f"{text} ({WORDS[other.batching]}: {share})"

"""Samples, and their making: images, or documents of different lengths, and what packing gains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ilp_planner.base.units import format_percent
from ilp_planner.specs.decoder import as_decoder
from ilp_planner.specs.lengths import FULL, JOINED, LONGEST, PACKED

if TYPE_CHECKING:
    from ilp_planner.plan import AnyPlan
    from ilp_planner.problem import Problem
    from ilp_planner.specs.decoder import Decoder

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
    return samples_lines(model, plan.micro_batch_size // getattr(plan.stages[0], "dp", 1))


def samples_lines(model: Decoder, micro_batch: int) -> list[tuple[str, str]]:
    """Say the samples of micro-batches of so many: `packed, 13.6 documents of 301 tokens, 0.4 %
    padding (a document each, padded to the sequence length: 92.7 %)`, or `1 image of 448 x 448
    pixels: 256 of 4,096 tokens`."""
    lengths, size = model.lengths, model.sequence
    if image := model.encoder:
        images = f"{image.images} image{'s' * (image.images > 1)}"
        tokens = f"{image.image_tokens:,} of {size:,} tokens"
        return [
            ("samples", f"{images} of {image.image_size} x {image.image_size} pixels: {tokens}")
        ]
    if lengths is None:
        return []
    text = WORDS[lengths.batching]
    each = lengths.trained(size) / lengths.mean
    if lengths.batching in (PACKED, JOINED):
        text += f", {each:,.1f} documents of {lengths.mean:,.0f} tokens"
    text += f", {format_percent(lengths.padding(size, micro_batch))} padding"
    other = lengths.made(FULL if lengths.batching in (PACKED, JOINED) else PACKED)
    share = format_percent(other.padding(size, micro_batch))
    return [("samples", f"{text} ({WORDS[other.batching]}: {share})")]

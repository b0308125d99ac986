"""Images and sounds of a micro-batch as encoders compute them: all alike, or those of documents."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.specs.encoder import Encoder
from ilp_planner.specs.lengths import (
    GROUPED,
    JOINED,
    PACKED,
    Lengths,
    expected_largest,
    merged,
    packs,
)
from ilp_planner.specs.sounds import SoundEncoder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Value = Callable[["AnyEncoder"], float]  # of one image, or of a piece of sound


AnyEncoder = Encoder | SoundEncoder
SOUNDS = "sounds"  # the name of an encoder of sounds


class Load(NamedTuple):
    """Images of a micro-batch, or pieces of sound.

    images: number of equal images that have as many patches.
    patches: of each.
    tokens: of the decoder, of all images.
    spans: share of the layers with each kind of attention, and the pairs of patches that it sees as
        a multiple of those of causal attention.
    """

    images: int
    patches: int
    tokens: int
    spans: tuple[tuple[float, float], ...]


# Of an encoder that sees or hears nothing: one token, which is next to no work.
NOTHING = Load(1, 1, 1, ((1.0, 2.0),))


class _Kind(NamedTuple):
    """Documents of one length with equally many images of one size, or with as much sound. encoder:
    of that size."""

    length: int
    documents: int
    images: int
    encoder: AnyEncoder


@lru_cache(maxsize=256)
def _kinds(encoder: AnyEncoder, lengths: Lengths) -> tuple[_Kind, ...]:
    if isinstance(encoder, SoundEncoder):
        return tuple(_heard(encoder, lengths))
    return _seen(encoder, lengths)


def _heard(encoder: SoundEncoder, lengths: Lengths) -> Iterator[_Kind]:
    """Yield the kinds of documents by their sounds."""
    said = lengths.seconds or (encoder.seconds,) * len(lengths.lengths)
    known = {one: replace(encoder, seconds=one) if one else encoder for one in {*said}}
    for length, number, seconds in zip(lengths.lengths, lengths.counts, said, strict=True):
        own = known[seconds]
        yield _Kind(length, number, own.images * bool(seconds), own)


def _seen(encoder: Encoder, lengths: Lengths) -> tuple[_Kind, ...]:
    """Return the kinds of documents by their images."""
    counts = lengths.images or (encoder.images,) * len(lengths.lengths)
    sizes = lengths.image_sizes or (0,) * len(lengths.lengths)
    known = {size: replace(encoder, image_size=size) if size else encoder for size in {*sizes}}
    rows = zip(lengths.lengths, lengths.counts, counts, sizes, strict=True)
    return tuple(_Kind(length, number, n, known[size]) for length, number, n, size in rows)


REFUSED = {JOINED: "cuts samples anywhere", GROUPED: "sorts documents by their tokens alone"}


def _check_batching(what: str, lengths: Lengths) -> None:
    """Refuse samples whose images or sounds are not known.

    Raises
    ------
    ValueError: that.
    """
    if why := REFUSED.get(lengths.batching):
        raise ValueError(
            f"found {what} with `batching={lengths.batching}`, which {why}, expected packed, "
            "longest or full"
        )


def check_sounds(encoder: SoundEncoder, lengths: Lengths, images: Encoder | None) -> None:
    """Refuse documents that have no room for their sounds, and their images beside them.

    Raises
    ------
    ValueError: that, no sound at all, or samples that are cut anywhere.
    """
    _check_batching("sounds", lengths)
    kinds = _kinds(encoder, lengths)
    others = _kinds(images, lengths) if images else ()
    for place, kind in enumerate(kinds):
        tokens = kind.encoder.image_tokens * bool(kind.images)
        beside = others[place].images * int(others[place].encoder.tokens) if others else 0
        if tokens + beside > kind.length:
            with_images = f" and images of {beside}" * bool(beside)
            raise ValueError(
                f"found a document of {kind.length} tokens with sounds of {tokens} "
                f"tokens{with_images}, expected {tokens + beside} tokens or more"
            )
    if images is None and not any(kind.images for kind in kinds):
        raise ValueError("found no sounds, expected some, or `text_only`")


def check_images(encoder: Encoder, lengths: Lengths, *, alone: bool = True) -> None:
    """Refuse documents that have no room for their images. alone: the model has no other encoder.

    Raises
    ------
    ValueError: that, no image at all, a size that the encoder does not take, or samples that are
        cut anywhere.
    """
    _check_batching("images", lengths)
    sizes = {size for size in lengths.image_sizes if size}
    if encoder.fixed_size and sizes - {encoder.image_size}:
        raise ValueError(
            f"image_size: found {min(sizes - {encoder.image_size})}, expected "
            f"{encoder.image_size}, which the encoder takes alone"
        )
    kinds = _seen(encoder, lengths)
    for length, _, images, each in kinds:
        assert isinstance(each, Encoder)
        if images * each.tokens > length:
            hint = "in the file, a column of that name says how many each document has"
            raise ValueError(
                f"found a document of {length} tokens with images={images} of {each.tokens} tokens "
                f"each ({each.image_size} pixels), expected {images * each.tokens} tokens or more"
                + f"; {hint}"
                * (not lengths.images)
            )
    if alone and not any(kind.images for kind in kinds):
        raise ValueError("found no images, expected some, or `text_only`")


def image_load(
    encoder: AnyEncoder,
    lengths: Lengths | None,
    sequence: int,
    micro_batch: int,
    micro_batches: int = 0,
    dp: int = 1,
) -> Load:
    """Return the images of a micro-batch, or its pieces of sound: the expected mean of the slowest
    of `dp` replicas, or of no `micro_batches` the most that it can have.

    Parameters
    ----------
    sequence: tokens of a sample at most.
    micro_batches: of each replica.
    """
    if lengths is None:
        images = micro_batch * encoder.images
        if not images:
            return NOTHING
        tokens = micro_batch * encoder.image_tokens
        return Load(images, encoder.patches, tokens, encoder.spans)
    return _of_documents(encoder, lengths, sequence, micro_batch, micro_batches, dp)


@lru_cache(maxsize=4096)
def _of_documents(
    encoder: AnyEncoder,
    lengths: Lengths,
    sequence: int,
    micro_batch: int,
    micro_batches: int,
    dp: int,
) -> Load:
    sizes = [kind.encoder.patches for kind in _kinds(encoder, lengths) if kind.images]
    if not sizes:
        return NOTHING
    largest = max(sizes)

    def total(value: Value) -> float:
        if not micro_batches:
            return micro_batch * max(v for v, _ in _of_samples(encoder, lengths, sequence, value))
        costs = merged(_of_samples(encoder, lengths, sequence, value, mean=True))
        return micro_batch * expected_largest(costs, micro_batch * micro_batches, dp)

    every = total(lambda one: one.patches)
    images = max(1, math.ceil(every / largest))
    patches = max(1, math.ceil(every / images))
    spans = []
    for number, (layers, _) in enumerate(encoder.spans):
        pairs = total(lambda one, at=number: one.spans[at][1] * one.patches**2)  # type: ignore[misc]
        spans.append((layers, pairs / (images * patches**2)))
    tokens = max(1, math.ceil(total(lambda one: one.tokens)))
    return Load(images, patches, tokens, tuple(spans))


def _of_samples(
    encoder: AnyEncoder, lengths: Lengths, sequence: int, value: Value, *, mean: bool = False
) -> Iterator[tuple[float, int]]:
    """Yield a value of the images of each kind of sample, and how many are of the kind. mean: of
    packs, which are made by lengths alone: documents of a length have its mean; else the most."""
    kinds = _kinds(encoder, lengths)
    if lengths.batching != PACKED:
        yield from ((kind.images * value(kind.encoder), kind.documents) for kind in kinds)
        return
    each: dict[int, list[tuple[float, int]]] = {}
    for kind in kinds:
        each.setdefault(lengths.room(kind.length, sequence), []).append(
            (kind.images * value(kind.encoder), kind.documents)
        )
    of = _mean if mean else _most
    known = {length: of(rows) for length, rows in each.items()}
    for pack in packs(lengths, sequence):
        yield sum(times * known[length] for length, times in pack.documents), pack.number


def _mean(rows: Iterable[tuple[float, int]]) -> float:
    rows = list(rows)
    return sum(value * count for value, count in rows) / sum(count for _, count in rows)


def _most(rows: Iterable[tuple[float, int]]) -> float:
    return max(value for value, _ in rows)


def images_of_documents(encoder: AnyEncoder, lengths: Lengths) -> float:
    """Return the mean number of images of a document, or of pieces of its sound."""
    return (
        sum(kind.documents * kind.images for kind in _kinds(encoder, lengths)) / lengths.documents
    )

"""Files of lengths: a histogram, or the length of each document."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ilp_planner.base.errors import SpecError
from ilp_planner.base.limits import DIMENSION
from ilp_planner.specs.decoder import Decoder, as_decoder
from ilp_planner.specs.lengths import CLASSES, LONGEST, PACKED, Lengths

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ilp_planner.base.files import Document
    from ilp_planner.specs.model import ModelSpec

MULTIPLE = 128  # tokens: a sample that is padded to the longest document has a multiple of it
# Keys of a document's line of JSON: its length, or a list that is as long.
NUMBERS, LISTS = ("length", "num_tokens", "n_tokens"), ("input_ids", "tokens")
HEADS = (["length", "count"], ["length"])  # first lines that name columns
EXPECTED = (
    "a line `length,count` for each length, one length a line, an object of counts by length, or "
    f"lines of JSON with a number {', '.join(NUMBERS)} or a list {', '.join(LISTS)}"
)


def read_lengths(document: Document, batching: str = "") -> Lengths:
    """Read the lengths of documents.

    If more than 4096 of them differ, they are rounded up to multiples of a power of two.

    Raises
    ------
    SpecError: one line with the file, the line, the found and the expected value.
    """
    counts: dict[int, int] = {}
    for place, length, count in _pairs(document):
        for value, least, name in ((length, 1, "length"), (count, 0, "count")):
            if (
                isinstance(value, bool)
                or not isinstance(value, int)
                or not (least <= value <= DIMENSION)
            ):
                raise SpecError(
                    f"{place}: {name}: found {_shown(value)}, expected a whole number from "
                    f"{least} to {DIMENSION}"
                )
        if count:
            counts[length] = counts.get(length, 0) + count
    if not counts:
        raise SpecError(f"{document.name}: found no lengths, expected {EXPECTED}")
    step = 1
    while len(rounded := {-(-length // step) for length in counts}) > CLASSES:
        step *= 2
    found = {length * step: 0 for length in sorted(rounded)}
    for length, count in counts.items():
        found[-(-length // step) * step] += count
    try:
        return Lengths(
            lengths=tuple(found), counts=tuple(found.values()), batching=batching or PACKED
        )
    except ValueError as error:
        raise SpecError(f"{document.name}: {error}") from None


def of_samples(model: ModelSpec, lengths: Lengths, source: str) -> Decoder:
    """Return a model's architecture with samples of documents. If they are padded to the longest
    document, it gives the sequence length.

    Parameters
    ----------
    source: of the lengths, for messages.

    Raises
    ------
    SpecError: a document is longer than a sample, or the model is no decoder-only transformer.
    """
    decoder = as_decoder(model.architecture)
    if decoder is None:
        raise SpecError(
            f"{source}: found lengths for model {model.name!r} of family {model.family}, expected "
            "a decoder-only transformer (gpt or decoder)"
        )
    if decoder.encoder:
        raise SpecError(
            f"{source}: found lengths for {model.name}, which sees images, expected a model of "
            "text: images of documents are not modelled; `text_only` plans its text alone"
        )
    longest, tokens = lengths.longest, decoder.sequence
    if longest > tokens:
        raise SpecError(
            f"{source}: found a document of {longest} tokens, expected at most {tokens}, the "
            f"sequence length; `sequence_length={_rounded(longest)}` has room"
        )
    if lengths.batching == LONGEST:
        tokens = min(tokens, _rounded(longest))
    return replace(decoder, sequence=tokens, lengths=lengths)


def _rounded(tokens: int) -> int:
    """Return the next number of tokens that the usual degrees of parallelism divide."""
    return -(-tokens // MULTIPLE) * MULTIPLE


def lengths_text(lengths: Lengths) -> str:
    """Return the text of a file that `read_lengths` reads as this histogram."""
    rows = zip(lengths.lengths, lengths.counts, strict=True)
    return "".join(f"{length},{count}\n" for length, count in (("length", "count"), *rows))


def _pairs(document: Document) -> Iterator[tuple[str, Any, Any]]:
    """Yield the place in the file, the length and the count of each entry."""
    whole = document.text.removeprefix("\ufeff")  # spreadsheets mark it
    text = whole.strip()
    lines = [(n, line.strip()) for n, line in enumerate(whole.splitlines(), 1)]
    lines = [(n, line) for n, line in lines if line]
    if text.startswith("[") or (text.startswith("{") and not _is_lines(lines)):
        yield from _json(document.name, text)
        return
    for number, line in lines:
        place = f"{document.name}: line {number}"
        if line.startswith("{"):
            yield place, _of_object(place, line), 1
            continue
        cells = [cell.strip() for cell in line.replace(";", ",").replace("\t", ",").split(",")]
        if number == lines[0][0] and cells in HEADS:
            continue
        if len(cells) > 2:
            raise SpecError(f"{place}: found {_shown(line)}, expected {EXPECTED}")
        yield place, _whole(cells[0]), _whole(cells[1]) if len(cells) == 2 else 1


def _is_lines(lines: list[tuple[int, str]]) -> bool:
    return all(line.startswith("{") and line.endswith("}") for _, line in lines) and (
        len(lines) > 1 or any(f'"{name}"' in lines[0][1] for name in (*NUMBERS, *LISTS))
    )


def _json(name: str, text: str) -> Iterator[tuple[str, Any, Any]]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise SpecError(f"{name}: found no valid JSON, expected {EXPECTED}") from None
    if isinstance(found, dict):
        for length, count in found.items():
            yield f"{name}: {_shown(length)}", _whole(length), count
        return
    for number, one in enumerate(found):
        place = f"{name}: [{number}]"
        if isinstance(one, list) and len(one) == 2:
            yield place, one[0], one[1]
        else:
            yield place, one, 1


def _of_object(place: str, line: str) -> Any:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        raise SpecError(f"{place}: found no valid JSON, expected {EXPECTED}") from None
    for key in (*NUMBERS, *LISTS):
        if key in found:
            return len(found[key]) if isinstance(found[key], list) else found[key]
    raise SpecError(f"{place}: found none of {', '.join((*NUMBERS, *LISTS))}, expected one of them")


def _whole(text: str) -> Any:
    """Return the whole number that a text says; another text as it is."""
    return int(text) if text.removeprefix("-").isdecimal() and len(text) < 20 else text


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."

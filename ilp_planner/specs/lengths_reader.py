"""Files of lengths: a histogram, or the length of each document."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ilp_planner.base.errors import SpecError
from ilp_planner.base.limits import DIMENSION
from ilp_planner.specs.decoder import Decoder, as_decoder
from ilp_planner.specs.lengths import CLASSES, CUT, PACKED, PADDED, SPLIT, Lengths

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ilp_planner.base.files import Document
    from ilp_planner.specs.model import ModelSpec

MULTIPLE = 128  # tokens: a sample that is padded to the longest document has a multiple of it
# Keys of a document's line of JSON: its length, or a list that is as long.
NUMBERS, LISTS = ("length", "num_tokens", "n_tokens"), ("input_ids", "tokens")
IMAGES = ("images", "image_size")  # columns and keys that say the images of a document
SOUND = "audio_seconds"  # likewise, seconds of its sound
PARTS = (*IMAGES, SOUND)
FIELDS = ("images", "image_sizes", "seconds")  # of `Lengths`, of each of them
COLUMNS = ("length", "count", *PARTS)  # a first line of these names them; LEAST: of each
LEAST = {"length": 1}
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
    counts: dict[tuple[int, ...], int] = {}
    said: dict[str, None] = {}  # columns
    for place, row in _rows(document):
        for name, value in row.items():
            _check(place, name, value)
        said |= dict.fromkeys(row)
        if count := row.get("count", 1):
            images = row.get("images", int(row.get("image_size", 0) > 0))
            size = row.get("image_size", 0) if images else 0
            kind = row["length"], images, size, row.get(SOUND, 0)
            counts[kind] = counts.get(kind, 0) + count
    if not counts:
        raise SpecError(f"{document.name}: found no lengths, expected {EXPECTED}")
    step, longest = 1, max(kind[0] for kind in counts)
    while len(rounded := _rounded_up(counts, step)) > CLASSES and step < longest:
        step *= 2
    if len(rounded) > CLASSES:
        raise SpecError(
            f"{document.name}: found {len(rounded)} different numbers and sizes of images "
            f"or sounds, expected at most {CLASSES}"
        )
    lengths, images, sizes, seconds = zip(*rounded, strict=True)
    try:
        return Lengths(
            lengths=lengths,
            counts=tuple(rounded.values()),
            batching=batching or PACKED,
            images=images if said.keys() & set(IMAGES) else (),
            image_sizes=sizes if any(sizes) else (),
            seconds=seconds if SOUND in said else (),
        )
    except ValueError as error:
        raise SpecError(f"{document.name}: {error}") from None


def _check(place: str, name: str, value: Any) -> None:
    least = LEAST.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= DIMENSION:
        raise SpecError(
            f"{place}: {name}: found {_shown(value)}, expected a whole number from {least} to "
            f"{DIMENSION}"
        )


def _rounded_up(counts: dict[tuple[int, ...], int], step: int) -> dict[tuple[int, ...], int]:
    """Return the counts with lengths rounded up to multiples, ascending."""
    found: dict[tuple[int, ...], int] = {}
    for (length, *images), count in sorted(counts.items()):
        kind = -(-length // step) * step, *images
        found[kind] = found.get(kind, 0) + count
    return dict(sorted(found.items()))


def shortened(lengths: Lengths, tokens: int, longer: str, source: str) -> tuple[Lengths, str]:
    """Return documents of so many tokens at most, and a remark on what becomes of longer ones.

    Parameters
    ----------
    longer: one of `specs.lengths.LONGER`; empty: it is not known, and nothing is done.
    source: of the lengths, for messages.

    Raises
    ------
    SpecError: none is left.
    """
    if not longer or lengths.longest <= tokens:
        return lengths, ""
    counts: dict[tuple[int, ...], int] = {}
    beyond = lost = 0
    for kind, count in zip(lengths.kinds, lengths.counts, strict=True):
        length, *seen = kind
        over = length > tokens
        beyond += over * count
        whole, rest = divmod(length, tokens) if over and longer == SPLIT else (1, 0)
        if over and longer not in (CUT, SPLIT):
            whole, lost = 0, lost + length * count
        elif over and longer == CUT:
            lost += (length - tokens) * count
        for each, number in ((min(length, tokens), whole), (rest, int(rest > 0))):
            if number:
                counts[each, *seen] = counts.get((each, *seen), 0) + number * count
    if not counts:
        raise SpecError(
            f"{source}: found no document of at most {tokens} tokens, the sequence length, and "
            "longer ones are left out"
        )
    share = 100 * lost / sum(n * count for n, count in lengths.histogram)
    said = [name for name, of in zip(FIELDS, lengths.images_said, strict=True) if of]
    columns: dict[str, Any] = dict(
        zip(("lengths", *said), zip(*sorted(counts), strict=True), strict=True)
    )
    found = replace(lengths, **columns, counts=tuple(n for _, n in sorted(counts.items())))
    return found, (
        f"{source}: {beyond} of {lengths.documents} documents are longer than a sample of {tokens} "
        f"tokens and are {longer}" + f" ({share:.3g} % of all tokens)" * (lost > 0)
    )


def of_samples(
    model: ModelSpec,
    lengths: Lengths,
    source: str,
    images: int | None = None,
    seconds: int | None = None,
    option: str = "`sequence_length={}`",
) -> Decoder:
    """Return a model's architecture with samples of documents. If they are padded to the longest
    document, it gives the sequence length.

    Parameters
    ----------
    source: of the lengths, for messages.
    images, seconds: of each document, if they are asked for.
    option: words that give samples so many tokens, for messages.

    Raises
    ------
    SpecError: a document is longer than a sample, the model is no decoder-only transformer, or it
        cannot see the images.
    """
    decoder = as_decoder(model.architecture)
    if decoder is None:
        raise SpecError(
            f"{source}: found lengths for model {model.name!r} of family {model.family}, expected "
            "a decoder-only transformer (gpt or decoder)"
        )
    if lengths.images and decoder.encoder is None:
        raise SpecError(
            f"{source}: found images for {model.name}, which has no encoder of images or is asked "
            "for its text alone, expected a model with one, as qwen2.5-vl-7b"
        )
    if lengths.images and images:
        raise SpecError(
            f"{source}: found images of each document with `images_per_sample={images}`, expected "
            "one of the two"
        )
    if lengths.seconds and decoder.sounds is None:
        raise SpecError(
            f"{source}: found sounds for {model.name}, which has no encoder of sounds or is asked "
            "for its text alone, expected a model with one, as qwen2-audio-7b"
        )
    if lengths.seconds and seconds:
        raise SpecError(
            f"{source}: found sounds of each document with `audio_seconds={seconds}`, expected one "
            "of the two"
        )
    longest, tokens = lengths.longest, decoder.sequence
    if longest > tokens:
        raise SpecError(
            f"{source}: found a document of {longest} tokens, expected at most {tokens}, the "
            f"sequence length; {option.format(_rounded(longest))} has room"
        )
    if lengths.batching in PADDED:
        tokens = min(tokens, _rounded(longest))
    try:
        return replace(decoder, sequence=tokens, lengths=lengths)
    except ValueError as error:
        raise SpecError(f"{source}: {error}") from None


def _rounded(tokens: int) -> int:
    """Return the next number of tokens that the usual degrees of parallelism divide."""
    return -(-tokens // MULTIPLE) * MULTIPLE


def lengths_text(lengths: Lengths) -> str:
    """Return the text of a file that `read_lengths` reads as this histogram."""
    columns = {"length": lengths.lengths, "count": lengths.counts}
    columns |= {
        name: found for name, found in zip(PARTS, lengths.images_said, strict=True) if found
    }
    rows = zip(*columns.values(), strict=True)
    return "".join(",".join(map(str, row)) + "\n" for row in (tuple(columns), *rows))


def _rows(document: Document) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the place in the file and the columns of each entry."""
    whole = document.text.removeprefix("\ufeff")  # spreadsheets mark it
    text = whole.strip()
    lines = [(n, line.strip()) for n, line in enumerate(whole.splitlines(), 1)]
    lines = [(n, line) for n, line in lines if line]
    if text.startswith("[") or (text.startswith("{") and not _is_lines(lines)):
        for place, length, count in _json(document.name, text):
            yield place, {"length": length, "count": count}
        return
    columns: tuple[str, ...] = COLUMNS[:2]
    for number, line in lines:
        place = f"{document.name}: line {number}"
        if line.startswith("{"):
            yield place, _of_object(place, line)
            continue
        cells = [cell.strip() for cell in line.replace(";", ",").replace("\t", ",").split(",")]
        if number == lines[0][0] and "length" in cells and {*cells} <= {*COLUMNS}:
            if len({*cells}) < len(cells):
                raise SpecError(f"{place}: found {_shown(line)}, expected each column once")
            columns = tuple(cells)
            continue
        if len(cells) > len(columns) or len(cells) < len(columns) > 2:
            expected = f"a number for each of {','.join(columns)}" if columns[2:] else EXPECTED
            raise SpecError(f"{place}: found {_shown(line)}, expected {expected}")
        yield place, dict(zip(columns, map(_whole, cells), strict=False))


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


def _of_object(place: str, line: str) -> dict[str, Any]:
    """Return the columns that a document's line of JSON says."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        raise SpecError(f"{place}: found no valid JSON, expected {EXPECTED}") from None
    for key in (*NUMBERS, *LISTS):
        if key in found:
            own = {name: found[name] for name in PARTS if name in found}
            if "images" in own:
                own["images"] = _count(own["images"])
            return {"length": _count(found[key]), **own}
    raise SpecError(f"{place}: found none of {', '.join((*NUMBERS, *LISTS))}, expected one of them")


def _count(value: Any) -> Any:
    """Return a number as it is; of a list, how long it is."""
    return len(value) if isinstance(value, list) else value


def _whole(text: str) -> Any:
    """Return the whole number that a text says; another text as it is."""
    return int(text) if text.removeprefix("-").isdecimal() and len(text) < 20 else text


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."

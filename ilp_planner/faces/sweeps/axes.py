"""The axes of a sweep: a field with its values, in the words of constraints.

`2,4` are two values and `2..8` are seven; values that hold commas themselves are parted by `;`, as
in `none;none,selective`. Of GPUs, `8..256xH100` are the powers of two from 8 to 256.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING

from ilp_planner.base.errors import SpecError, UsageError
from ilp_planner.base.limits import as_whole, beyond
from ilp_planner.settings.domains import ITEM
from ilp_planner.specs.gpu_cluster import Gpus
from ilp_planner.specs.gpus import gpu

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

GPUS = "gpus"
COUNTED = re.compile(r"\s*(?:(\d{1,9})\.\.)?(\d{1,9})(?:\s*x\s*(\S.*?))?\s*", re.IGNORECASE)
EXPECTED_GPUS = "counts and a GPU, as in 8..256xH100 or 8,16,24xH100"


@dataclass(frozen=True)
class Axis:
    """A field with its values, as texts.

    parts: ranges of whole numbers, and single values; ranges are never written out.
    """

    field: str
    parts: tuple[range | str, ...]

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, place: int) -> str:
        number = bisect_right(self._ends, place)
        part = self.parts[number]
        if isinstance(part, str):
            return part
        return str(part[place - (self._ends[number] - len(part))])

    def __iter__(self) -> Iterator[str]:
        return (self[place] for place in range(len(self)))

    def index(self, value: str) -> int | None:
        """Return the place of a value; None if it is none of them."""
        start = 0
        for part in self.parts:
            if isinstance(part, str):
                if part == value:
                    return start
            elif value.isdecimal() and int(value) in part:
                return start + part.index(int(value))
            start += 1 if isinstance(part, str) else len(part)
        return None

    @cached_property
    def _ends(self) -> list[int]:
        return list(accumulate(1 if isinstance(part, str) else len(part) for part in self.parts))


def parse_axis(text: str) -> Axis:
    """Return the axis of `FIELD=VALUES`.

    Raises
    ------
    UsageError: no field, no value, or a range from the larger to the smaller number.
    """
    field, equals, values = text.partition("=")
    if not equals or not field.strip() or not values.strip():
        raise UsageError(
            f"vary: found {text!r}, expected a field and its values, as in global_batch=256,512"
        )
    return axis_of(field.strip(), values)


def axis_of(field: str, values: object) -> Axis:
    """Return a field with the values that a text says, or a list, a range or a single value.

    Raises
    ------
    UsageError: no value, or one that cannot be one.
    """
    if isinstance(values, str):
        if field == GPUS:
            return gpus_axis(values)
        return _axis(field, [text.strip() for text in re.split(_between(values), values)])
    if isinstance(values, range) and values.step == 1 and len(values) > 1:
        return Axis(field, (values,))
    each = list(values) if isinstance(values, list | tuple | range) else [values]
    return _axis(field, [_text(field, value) for value in each], whole=True)


def _between(values: str) -> str:
    """Return the separator of the values of a text."""
    return ";" if ";" in values else ","


def _axis(field: str, texts: list[str], *, whole: bool = False) -> Axis:
    """Return the axis of some values, each once. whole: none of them is a range."""
    parts: dict[range | str, None] = {}
    for text in texts:
        if not text:
            raise UsageError(f"{field}: found an empty value, expected one, as in {field}=8,16")
        match = None if whole else ITEM.fullmatch(text)
        if match is None or match[2] is None:
            parts[text] = None
            continue
        least, most = as_whole(match[1]), as_whole(match[2])
        if expected := beyond(field, max(least, most)):
            raise UsageError(f"{field}: found {text!r:.60}, expected {expected}")
        if least > most:
            raise UsageError(
                f"{field}: found {text!r}, expected the smaller number first: {most}..{least}"
            )
        parts[range(least, most + 1)] = None
    if not parts:
        raise UsageError(f"{field}: found no value, expected at least one")
    if any(isinstance(part, range) for part in parts):
        _check_apart(field, tuple(parts))
    return Axis(field, tuple(parts))


def _check_apart(field: str, parts: Sequence[range | str]) -> None:
    """Refuse ranges that have numbers of others."""
    known: list[range] = []
    for part in parts:
        one = part if isinstance(part, range) else _point(part)
        for other in known:
            if one is not None and one.start < other.stop and other.start < one.stop:
                both = max(one.start, other.start)
                raise UsageError(f"{field}: found {both} more than once, expected each value once")
        known += [] if one is None else [one]


def _point(text: str) -> range | None:
    """Return the range of one whole number; None for any other text."""
    return range(int(text), int(text) + 1) if text.isdecimal() else None


def _text(field: str, value: object) -> str:
    """Return a value of Python as the text that says it."""
    if isinstance(value, list | tuple):
        return ",".join(_text(field, each) for each in value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, range):
        return f"{value.start}..{value.stop - 1}"
    if isinstance(value, str | int | float) or hasattr(value, "__fspath__"):
        return str(value).strip()
    raise UsageError(
        f"{field}: found {type(value).__name__}, expected texts, numbers or lists of them"
    )


def gpus_axis(text: str) -> Axis:
    """Return the clusters that `8..256xH100` or `8,16,24xH100` says; of a count without a GPU, the
    next one's.

    Raises
    ------
    UsageError: no count, no GPU or one that the table does not have, or no power of two between.
    """
    found: list[tuple[str | None, int, str | None]] = []
    for part in re.split(_between(text), text):
        match = COUNTED.fullmatch(part)
        if match is None:
            raise UsageError(f"{GPUS}: found {part.strip()!r}, expected {EXPECTED_GPUS}")
        found.append((match[1], int(match[2]), match[3]))
    names: list[str] = []
    kind = None
    for least, most, said in reversed(found):
        kind = said or kind
        if kind is None:
            raise UsageError(f"{GPUS}: found {text!r} without a GPU, expected {EXPECTED_GPUS}")
        try:
            row = gpu(kind)
        except SpecError as error:
            raise UsageError(f"{GPUS}: {error}") from None
        counts = [most] if least is None else _powers(int(least), most)
        names += reversed([Gpus(count, row).name for count in counts])
    return Axis(GPUS, tuple(dict.fromkeys(reversed(names))))


def _powers(least: int, most: int) -> list[int]:
    """Return the powers of two from one number to another, both included."""
    if least > most:
        raise UsageError(
            f"{GPUS}: found {least}..{most}, expected the smaller number first: {most}..{least}"
        )
    first = math.ceil(math.log2(max(least, 1)))
    powers = [2**power for power in range(first, most.bit_length()) if 2**power <= most]
    if not powers:
        raise UsageError(
            f"{GPUS}: found {least}..{most}, in which no power of two is; {least},{most} are both"
        )
    return powers

"""From one unit to another and back to the same number.

A product or a quotient is rounded, so undoing it gives a neighbour of the number now and then. Here
the way back is searched among the neighbours, and failures are reported.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

NEIGHBOURS = 4  # floating-point numbers tried on each side of the guess
MILLISECONDS = 1e3  # in a second


def undo(value: float, change: Callable[[float], float], guess: float) -> float:
    """Return the number that a change of units makes `value` of.

    Of several, the one that is written shortest: a clock's figure rather than its neighbour. The
    guess itself if none is found, within rounding.

    change: the change of units. guess: the number but for rounding.
    """
    found = [guess]
    for towards in (-math.inf, math.inf):
        at = guess
        for _ in range(NEIGHBOURS):
            at = math.nextafter(at, towards)
            found.append(at)
    right = [number for number in found if number >= 0 and change(number) == value]
    return min(right, key=lambda number: (len(repr(number)), abs(number - guess)), default=guess)


def to_seconds(milliseconds: float) -> tuple[float, str]:
    """Return seconds, and the milliseconds as a text if seconds do not give them back."""
    seconds = milliseconds / MILLISECONDS
    same = to_milliseconds(seconds) == milliseconds
    return seconds, "" if same else f"{milliseconds!r} ms"


def to_milliseconds(seconds: float, original: str = "") -> float:
    """Return milliseconds. original: the text of `to_seconds`; another unit than milliseconds, or
    another time than `seconds`, does not count."""
    number, _, unit = original.partition(" ")
    if unit == "ms":
        try:
            if float(number) / MILLISECONDS == seconds:
                return float(number)
        except ValueError:
            pass
    return undo(seconds, lambda ms: ms / MILLISECONDS, seconds * MILLISECONDS)

"""What `${name#pattern}` and its kin make of a value that is known."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

from ilp_planner.formats.launch_scripts.patterns import EXTENDED, matched_lengths
from ilp_planner.formats.launch_scripts.unknowns import known

if TYPE_CHECKING:
    from ilp_planner.formats.launch_scripts.budget import Budget

CASES = {"^": str.upper, ",": str.lower}


class Texts(Protocol):
    """Who expands the words inside the braces."""

    budget: Budget

    def text(self, word: str, line: int) -> str:
        """Return one text."""

    def pattern(self, word: str, line: int) -> str:
        """Return a pattern."""

    def number(self, expression: str, line: int) -> str:
        """Return a whole number as text, or a mark."""


def changed_value(value: str, rest: str, texts: Texts, line: int) -> str | None:
    """Return a value as `${name rest}` has it; None: only running would tell, or it is not read."""
    if rest[0] == ":":
        return _part(value, rest[1:], texts, line)
    if rest[0] in "#%":
        longest = rest[:2] == rest[0] * 2
        pattern = texts.pattern(rest[1 + longest :], line)
        return _cut(value, pattern, texts, start=rest[0] == "#", longest=longest)
    if rest[0] == "/":
        return _replaced(value, rest[1:], texts, line)
    if rest[0] in CASES and rest in (rest[0], rest[0] * 2):
        change = CASES[rest[0]]
        return change(value) if len(rest) == 2 else change(value[:1]) + value[1:]
    return None


def _part(value: str, rest: str, texts: Texts, line: int) -> str | None:
    start, separator, length = rest.partition(":")
    numbers = [texts.number(text, line) for text in (start, length or "0")]
    if not all(re.fullmatch(r"-?\d+", number) for number in numbers):
        return None
    first, count = map(int, numbers)
    first = len(value) + first if first < 0 else first
    if first < 0:
        return ""
    end = len(value) if not separator else len(value) + count if count < 0 else first + count
    return value[first:end]


def _cut(value: str, pattern: str, texts: Texts, *, start: bool, longest: bool) -> str | None:
    """Return a value without the beginning or the end that a pattern says."""
    if not known(pattern) or EXTENDED.search(pattern):
        return None
    texts.budget.spend(len(value) * (1 + len(pattern)))
    if start:
        lengths = matched_lengths(value, pattern)
        return value[(lengths[-1] if longest else lengths[0]) :] if lengths else value
    places = range(len(value) + 1) if longest else range(len(value), -1, -1)
    for place in places:
        texts.budget.spend(len(value) - place)
        if len(value) - place in matched_lengths(value[place:], pattern):
            return value[:place]
    return value


def _replaced(value: str, rest: str, texts: Texts, line: int) -> str | None:
    """Return a value with `pattern/other` replaced once, or everywhere, or at one end."""
    how = rest[:1] if rest[:1] in ("/", "#", "%") else ""
    written = rest[len(how) :]
    end = next(
        (k for k, c in enumerate(written) if c == "/" and k and written[k - 1] != "\\"),
        len(written),
    )
    pattern = texts.pattern(written[:end], line)
    other = texts.text(written[end + 1 :], line)
    if not known(pattern) or not known(other) or EXTENDED.search(pattern):
        return None
    if how == "#":
        lengths = matched_lengths(value, pattern)
        return other + value[lengths[-1] :] if lengths else value
    if how == "%":
        cut = _cut(value, pattern, texts, start=False, longest=True)
        return value if cut is None or cut == value else cut + other
    parts, at = [], 0
    while at < len(value):
        texts.budget.spend(len(value) - at)
        lengths = [n for n in matched_lengths(value[at:], pattern) if n]
        if not lengths:
            parts.append(value[at])
            at += 1
            continue
        parts.append(other)
        at += lengths[-1]
        if how != "/":
            parts.append(value[at:])
            break
    return "".join(parts)

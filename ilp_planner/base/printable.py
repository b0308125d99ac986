"""Texts from files and command lines as a terminal may show them: nothing in them steers it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# Control characters but for tab and line feed, line separators, marks that turn the direction of
# writing, and halves of characters, which no encoding has.
STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


class TerminalText(str):
    """A text that a terminal may show as it is: nothing in it steers but styles of our own."""

    __slots__ = ()


def printable(text: str) -> str:
    """Return a text with a question mark for every character that would steer a terminal."""
    return text if isinstance(text, TerminalText) else STEERING.sub("?", text)


def printable_lines(lines: Iterable[str]) -> TerminalText:
    """Return lines as one text with their styles."""
    return TerminalText("\n".join(map(printable, lines)))


def printable_json(text: str, encoding: str | None = None) -> str:
    """Return JSON that means the same, with these characters, and the ones that an encoding lacks,
    escaped."""
    text = STEERING.sub(_escaped, text)
    try:
        text.encode(encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        text = re.sub(r"[^\x00-\x7f]", _escaped, text)
    return text


def _escaped(match: re.Match[str]) -> str:
    return json.dumps(match[0])[1:-1]

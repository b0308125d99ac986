"""Marks in the texts of a script for what only running it would tell, and where that comes from.

A mark goes wherever the text goes: through variables, arrays, quotes and functions. Whoever needs
the value in the end can complain about it by name, and say how to supply it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

OPEN, CLOSE, ZERO = "\ue000", "\ue001", 0xE010
MARK = re.compile(f"{OPEN}([{chr(ZERO)}-{chr(ZERO + 9)}]+){CLOSE}")
PRIVATE = re.compile("[\ue000-\ue0ff]")
PLACE, PLACE_END = "\ue0a0", "\ue0a1"  # around what a template leaves to its user
LOST = "\ue0a2"  # output that only running would tell
# Inside of words while they are made: an end of one, and a text that is there though it is empty.
SPLIT, THERE = "\ue0a3", "\ue0a4"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """One value that is not known.

    text: as it is written in the script. key: what it can be supplied as, the name of a variable
    where it has one. line: where it is used, or was set. unset: nothing sets the variable. empty:
    bash has nothing in its place, as of such a variable outside of numbers. why: in the words of a
    message. options: texts that it may be, where what is not known is only which. single: it is one
    word, as numbers are.
    """

    text: str
    key: str
    line: int
    unset: bool = False
    empty: bool = False
    why: str = ""
    options: tuple[str, ...] = ()
    single: bool = False


@dataclass(slots=True)
class Unknowns:
    """The unknown values of one script; equal ones have the same mark."""

    rows: list[Unknown] = field(default_factory=list)
    places: dict[Unknown, int] = field(default_factory=dict)

    def mark(self, unknown: Unknown) -> str:
        """Return the mark of an unknown value."""
        number = self.places.setdefault(unknown, len(self.rows))
        if number == len(self.rows):
            self.rows.append(unknown)
        return OPEN + "".join(chr(ZERO + int(digit)) for digit in str(number)) + CLOSE

    def of(self, text: str) -> Iterator[Unknown]:
        """Yield what is not known in a text, in order."""
        yield from map(self._row, MARK.finditer(text))

    def first(self, text: str) -> Unknown | None:
        """Return the first value in a text that is not known; None: all are."""
        return next(self.of(text), None)

    def alone(self, text: str) -> Unknown | None:
        """Return the unknown value that a text consists of, if it is one and nothing else."""
        match = MARK.fullmatch(text)
        return self._row(match) if match else None

    def shown(self, text: str) -> str:
        """Return a text for people: what is not known as it is written in the script."""
        return MARK.sub(lambda match: self._row(match).text, text)

    def as_empty(self, text: str, names: dict[str, int]) -> str:
        """Return a text with nothing in place of variables that nobody set, as bash has it; their
        names and lines go to `names`."""
        for unknown in self.of(text):
            if unknown.empty:
                names.setdefault(unknown.key, unknown.line)
        return MARK.sub(lambda match: "" if self._row(match).empty else match[0], text)

    def _row(self, match: re.Match[str]) -> Unknown:
        return self.rows[int("".join(str(ord(c) - ZERO) for c in match[1]))]


def known(text: str) -> bool:
    """Return whether nothing in a text is unknown."""
    return OPEN not in text


def plain(text: str) -> str:
    """Return a text from outside without the characters that marks are made of."""
    return PRIVATE.sub("\ufffd", text)

"""A demand on plans in one text: `tp=8`, `tp=2,4 recompute=none`, in the words of constraints."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import NamedTuple

from ilp_planner.base.errors import UsageError
from ilp_planner.inputs.constraints import KEEP, NAMES, Constraints, constraints_of

# A name, what follows it, and a value that ends where the next name begins.
WORD = re.compile(r"\s*(?P<name>(?:--)?[a-zA-Z][\w-]*)\s*")
NEXT = re.compile(r"\s*[;\s]\s*(?=(?:--)?[a-zA-Z][\w-]*\s*=)|\s*;\s*|\s*$")
EXPECTED = "NAME=VALUE, as tp=8 or 'pp=2..4 recompute=none'"
KNOWN = tuple(name for name in NAMES if name != KEEP)


class _Pair(NamedTuple):
    """A name with its value; at: the start of the value."""

    name: str
    value: str
    at: int


def demanded(text: str, source: str) -> Constraints:
    """Return the constraints that a text demands.

    Parameters
    ----------
    source: of the text, for people.

    Raises
    ------
    UsageError: the found and the expected value, with the text and a mark under the place.
    """
    said: dict[str, object] = {}
    place = 0
    while place < len(text.rstrip(" ;\t\n")):
        pair = _pair(text, place, source)
        if pair.name in said:
            raise _error(source, f"{pair.name} a second time", "each name once", text, place)
        try:
            constraints_of({pair.name: pair.value})
        except UsageError as error:
            raise UsageError(f"{source}: {error}", excerpt=marked(text, pair.at)) from None
        said[pair.name] = pair.value
        end = NEXT.search(text, pair.at)
        place = len(text) if end is None else end.end()
    if not said:
        raise _error(source, "nothing", EXPECTED, text, 0)
    return constraints_of(said)


def _pair(text: str, place: int, source: str) -> _Pair:
    word = WORD.match(text, place)
    if word is None:
        raise _error(source, repr(text[place : place + 1]), EXPECTED, text, place)
    begin, at = word.span("name")[0], word.end()
    name = word["name"].removeprefix("--").replace("-", "_")
    if name not in KNOWN:
        near = difflib.get_close_matches(name, KNOWN, 1)
        expected = near[0] if near else f"one of {', '.join(KNOWN)}"
        raise _error(source, repr(word["name"]), expected, text, begin)
    if text[at : at + 1] != "=":
        found = repr(text[at : at + 1]) if at < len(text) else "the end"
        raise _error(source, f"{found} after {word['name']}", "=", text, at)
    start = at + 1 + len(text[at + 1 :]) - len(text[at + 1 :].lstrip())
    end = NEXT.search(text, start)
    value = text[start : len(text) if end is None else end.start()]
    if not value:
        raise _error(source, f"nothing after {word['name']}=", "a value", text, start)
    return _Pair(name, value, start)


def _error(source: str, found: str, expected: str, text: str, place: int) -> UsageError:
    return UsageError(f"{source}: found {found}, expected {expected}", excerpt=marked(text, place))


def names_plan(text: str) -> bool:
    """Tell whether a text names a file with a plan rather than demands: it is there, or would be
    called so; `FORMAT:PATH` too."""
    path = Path(text)
    try:
        if path.is_file():
            return True
    except OSError:
        return False
    return "=" not in text and bool(path.suffix or ":" in text or len(path.parts) > 1)


def marked(text: str, place: int) -> str:
    """Return a text and, below it, a mark under one of its places; control characters are shown as
    `?`."""
    shown = "".join(c if c.isprintable() else "?" for c in text)
    return f"  {shown}\n  {' ' * min(place, len(shown))}^"

"""Words with alternatives in braces: `{a,b}` and `{1..8}`."""

import itertools
import re
from collections.abc import Iterator

from ilp_planner.base.limits import as_whole
from ilp_planner.formats.launch_scripts.budget import WORD, Budget

RANGE = re.compile(r"(-?\d{1,9})\.\.(-?\d{1,9})(?:\.\.(-?\d{1,9}))?")
LETTERS = re.compile(r"([A-Za-z])\.\.([A-Za-z])")


def braced_words(word: str, budget: Budget, line: int) -> list[str]:
    """Return the words that a word with braces stands for, before anything else is expanded."""
    if "{" not in word:
        return [word]
    for start, end, commas in _groups(word):
        inside = word[start + 1 : end - 1]
        if commas:
            edges = [start, *commas, end - 1]
            parts = [word[a + 1 : b] for a, b in itertools.pairwise(edges)]
        else:
            parts = list(_range(inside, budget, line))
        if parts:
            budget.spend(len(parts) * (WORD + len(word)), line)
            return [
                whole
                for part in parts
                for whole in braced_words(word[:start] + part + word[end:], budget, line)
            ]
    return [word]


def _range(inside: str, budget: Budget, line: int) -> Iterator[str]:
    """Yield the entries of `1..8` or `a..e`."""
    if match := RANGE.fullmatch(inside):
        first, last = as_whole(match[1]), as_whole(match[2])
        step = abs(as_whole(match[3] or "1")) or 1
        budget.spend((abs(last - first) // step + 1) * WORD, line)
        padded = any(re.fullmatch(r"-?0\d+", match[k]) for k in (1, 2))
        width = max(len(match[1]), len(match[2])) if padded else 0
        sign = 1 if last >= first else -1
        for value in range(first, last + sign, sign * step):
            yield str(value).zfill(width)
    elif match := LETTERS.fullmatch(inside):
        first, last = ord(match[1]), ord(match[2])
        sign = 1 if last >= first else -1
        yield from map(chr, range(first, last + sign, sign))


def _groups(word: str) -> Iterator[tuple[int, int, list[int]]]:
    """Yield (start, end, commas) of braces that are neither quoted nor of a variable."""
    open_: list[tuple[int, list[int]]] = []
    found = []
    at, quote = 0, ""
    while at < len(word):
        here = word[at]
        if here == "\\" and quote != "'":
            at += 1
        elif quote:
            quote = "" if here == quote else quote
        elif here in "'\"`":
            quote = here
        elif here == "$" and word[at + 1 : at + 2] in ("{", "("):
            at = _behind(word, at + 1)
            continue
        elif here == "{":
            open_.append((at, []))
        elif here == "," and open_:
            open_[-1][1].append(at)
        elif here == "}" and open_:
            start, commas = open_.pop()
            found.append((start, at + 1, commas))
        at += 1
    yield from sorted(found)


def _behind(word: str, at: int) -> int:
    """Return the place behind the bracket that opens here."""
    opening = word[at]
    closing = "}" if opening == "{" else ")"
    depth = 0
    for k in range(at, len(word)):
        depth += (word[k] == opening) - (word[k] == closing)
        if not depth:
            return k + 1
    return len(word)

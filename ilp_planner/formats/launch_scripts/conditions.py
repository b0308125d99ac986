"""Tests of bash, `[ .. ]` and `[[ .. ]]`, where they can be told."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ilp_planner.formats.launch_scripts.unknowns import PRIVATE, known

if TYPE_CHECKING:
    from collections.abc import Callable

    from ilp_planner.formats.launch_scripts.words import Words

NUMBERS: dict[str, Callable[[int, int], bool]] = {
    "-eq": int.__eq__, "-ne": int.__ne__, "-lt": int.__lt__, "-le": int.__le__,
    "-gt": int.__gt__, "-ge": int.__ge__,
}  # fmt: skip
BINARY = (*NUMBERS, "=", "==", "!=", "=~", "<", ">", "-nt", "-ot", "-ef")
EITHER, BOTH = ("||", "-o"), ("&&", "-a")
Verdict = bool | None  # None: only running would tell


def decide(rest: list[str], scope: Words, line: int, *, expand: bool) -> int | None:
    """Return how a test ends: 0: it holds, 1: it does not, 2: it is none; None: unknown.

    rest: its words. expand: they are as they are written, of `[[ .. ]]`.
    """
    try:
        found = _Test(rest, scope, line, expand).joined(EITHER) if rest else False
    except (ValueError, IndexError):
        return 2
    return 2 if rest else None if found is None else int(not found)


@dataclass(frozen=True, slots=True)
class _Test:
    """rest: words that are not read yet."""

    rest: list[str]
    scope: Words
    line: int
    expand: bool

    def joined(self, operators: tuple[str, str]) -> Verdict:
        """Return the verdict of parts that `||` joins, or `&&`; one may be enough."""
        decides = operators is EITHER
        found = [self.joined(BOTH) if decides else self.negated()]
        while self.rest and self.rest[0] == operators[not self.expand]:
            self.rest.pop(0)
            found.append(self.joined(BOTH) if decides else self.negated())
        return decides if decides in found else None if None in found else not decides

    def negated(self) -> Verdict:
        first = self.rest.pop(0)
        if first == "!" and self.rest and self.rest[0] not in BINARY:
            result = self.negated()
            return None if result is None else not result
        if first == "(" and self.rest:
            result = self.joined(EITHER)
            if self.rest.pop(0) != ")":
                raise ValueError
            return result
        if len(self.rest) > 1 and self.rest[0] in BINARY:
            return self.compared(first, self.rest.pop(0), self.rest.pop(0))
        alone = not self.rest or self.rest[0] in (")", *EITHER, *BOTH)
        if alone or not re.fullmatch(r"-[a-zA-Z]", first):
            return self.there(self.text(first))
        text = self.text(self.rest.pop(0))
        if first in ("-n", "-z"):
            there = self.there(text)
            return there if there is None or first == "-n" else not there
        return (
            None if self.scope.empty_unset(text) or first == "-o" else False
        )  # no file has no name

    def text(self, word: str) -> str:
        return self.scope.text(word, self.line) if self.expand else word

    def there(self, text: str) -> Verdict:
        """Tell whether a text is not empty."""
        text = self.scope.empty_unset(text)
        return True if any(PRIVATE.split(text)) else bool(text) and None

    def compared(self, first: str, operator: str, second: str) -> Verdict:
        scope = self.scope
        left = scope.empty_unset(self.text(first))
        if self.expand and operator in ("=", "==", "!="):
            same = scope.matches(left, second, self.line)
            return None if same is None else same is (operator != "!=")
        right = scope.empty_unset(self.text(second))
        if not known(left) or not known(right):
            return None
        if operator in NUMBERS:
            numbers = [self.number(left), self.number(right)]
            return None if None in numbers else NUMBERS[operator](*map(int, filter(None, numbers)))
        verdicts = {"<": left < right, ">": left > right, "!=": left != right}
        return verdicts.get(operator, left == right if operator in ("=", "==") else None)

    def number(self, text: str) -> str | None:
        found = self.scope.number(text or "0", self.line) if self.expand else text.strip()
        found = self.scope.empty_unset(found) or "0" * self.expand
        if not known(found):
            return None
        if not re.fullmatch(r"[-+]?\d{1,4000}", found):
            raise ValueError
        return found

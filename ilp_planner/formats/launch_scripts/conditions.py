"""`[ .. ]` and `[[ .. ]]`: what a test says, where that can be told."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ilp_planner.base.limits import as_whole
from ilp_planner.formats.launch_scripts.lexer import Token
from ilp_planner.formats.launch_scripts.patterns import found_in, matches
from ilp_planner.formats.launch_scripts.unknowns import known

if TYPE_CHECKING:
    from collections.abc import Callable

    from ilp_planner.formats.launch_scripts.expansion import Expander
    from ilp_planner.formats.launch_scripts.scope import Scope

NUMBERS: dict[str, Callable[[int, int], bool]] = {
    "-eq": int.__eq__, "-ne": int.__ne__, "-lt": int.__lt__, "-le": int.__le__,
    "-gt": int.__gt__, "-ge": int.__ge__,
}  # fmt: skip
BINARY = ("=", "==", "!=", "=~", "<", ">", "-nt", "-ot", "-ef")
Verdict = bool | None


def decide(tokens: tuple[Token, ...], words: Expander, scope: Scope, line: int) -> int | None:
    """Return how `[[ .. ]]` ends: 0: it holds, 1: it does not, 2: it is none; None: unknown."""
    rest = [Token("word", "]]", line), *reversed(tokens[1:-1])]
    return _Test(rest, words, scope, line, expand=True).verdict()


def decide_words(texts: list[str], words: Expander, scope: Scope, line: int) -> int | None:
    """Return the same of `[ .. ]` or `test ..`, whose words are expanded already."""
    if texts[0] == "[":
        if texts[-1] != "]":
            return 2
        texts = texts[:-1]
    rest = [Token("word", "", line), *(Token("word", t, line) for t in reversed(texts[1:]))]
    if len(texts) == 1:
        return 1
    return _Test(rest, words, scope, line, expand=False).verdict()


class _Wrong(Exception):  # noqa: N818 - bash goes on
    """It is no test."""


class _Test:
    """rest: what is not read yet, backwards, before it an end."""

    def __init__(
        self, rest: list[Token], words: Expander, scope: Scope, line: int, *, expand: bool
    ) -> None:
        self.rest, self.words, self.scope, self.line = rest, words, scope, line
        self.expand = expand
        self.either = ("||",) if expand else ("-o",)
        self.both = ("&&",) if expand else ("-a",)

    def verdict(self) -> int | None:
        try:
            found = self._or()
            if len(self.rest) > 1:
                return 2
        except (_Wrong, IndexError):
            return 2
        return None if found is None else int(not found)

    @property
    def here(self) -> str:
        return self.rest[-1].text if len(self.rest) > 1 else ""

    def _or(self) -> Verdict:
        return self._joined(self.either, self._and, True)

    def _and(self) -> Verdict:
        return self._joined(self.both, self._not, False)

    def _joined(
        self, operators: tuple[str, ...], part: Callable[[], Verdict], decides: bool
    ) -> Verdict:
        """Return what parts say together; one that `decides` is enough."""
        result = part()
        while self.here in operators:
            self.rest.pop()
            both = (result, part())
            result = decides if decides in both else None if None in both else not decides
        return result

    def _not(self) -> Verdict:
        negated = False
        while self.here == "!" and len(self.rest) > 2:
            self.rest.pop()
            negated = not negated
        if self.here == "(" and len(self.rest) > 3:
            self.rest.pop()
            result = self._or()
            if self.here != ")":
                raise _Wrong
            self.rest.pop()
        else:
            result = self._primary()
        return result if result is None or not negated else not result

    def _primary(self) -> Verdict:
        if len(self.rest) == 1:
            raise _Wrong
        first = self.rest.pop()
        after = self.here
        alone = len(self.rest) == 1 or after in (")", *self.either, *self.both)
        binary = len(self.rest) > 2 and (after in NUMBERS or after in BINARY)
        if re.fullmatch(r"-[a-zA-Z]", first.text) and not alone and not binary:
            return self._unary(first.text, self.rest.pop())
        if not binary:
            if not alone:
                raise _Wrong
            return self._there(self._text(first))
        operator, second = self.rest.pop().text, self.rest.pop()
        if operator in NUMBERS:
            return self._numbers(operator, self._text(first), self._text(second))
        left = self.scope.empty_unset(self._text(first))
        right = self.scope.empty_unset(self._pattern(second, operator))
        if not known(left) or not known(right):
            return None
        self.words.budget.spend(len(left) * (1 + len(right)), self.line)
        if operator in ("=", "==", "!="):
            same = matches(left, right) if self.expand else left == right
            return same if same is None or operator != "!=" else not same
        if operator == "=~":
            return found_in(left, right)
        if operator in ("<", ">"):
            return left < right if operator == "<" else left > right
        return None

    def _text(self, token: Token) -> str:
        return self.words.text(token.text, token.line) if self.expand else token.text

    def _pattern(self, token: Token, operator: str) -> str:
        if self.expand and operator in ("=", "==", "!=", "=~"):
            return self.words.pattern(token.text, token.line)
        return self._text(token)

    def _there(self, text: str) -> Verdict:
        """Whether a text is not empty."""
        text = self.scope.empty_unset(text)
        if any(part for part in re.split("[\ue000-\ue0ff]+", text)):
            return True
        return bool(text) if known(text) else None

    def _unary(self, test: str, token: Token) -> Verdict:
        text = self._text(token)
        if test in ("-n", "-z"):
            there = self._there(text)
            return there if there is None or test == "-n" else not there
        if test == "-v":
            name, _, _index = text.partition("[")
            value = self.scope.get(name)
            return None if self.scope.state.read and value is None else value is not None
        if test == "-o":
            return None
        if not self.scope.empty_unset(text):
            return False  # no file has no name
        return None

    def _numbers(self, operator: str, left: str, right: str) -> Verdict:
        numbers = []
        for text in map(self.scope.empty_unset, (left, right)):
            if not known(text):
                return None
            if self.expand:
                found = self.scope.empty_unset(self.words.number(text or "0", self.line))
                found = found or "0"
            else:
                found = text.strip()
            if not re.fullmatch(r"[-+]?\d+", found):
                if self.expand and not known(found):
                    return None
                raise _Wrong
            numbers.append(as_whole(found))
        return NUMBERS[operator](*numbers)

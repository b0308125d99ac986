"""Expressions of bash: arithmetic in whole numbers of 64 bits, and tests, `[ .. ]` and `[[ .. ]]`,
where they can be told."""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ilp_planner.formats.launch_scripts.grammar import DEEPEST
from ilp_planner.formats.launch_scripts.unknowns import CLOSE, OPEN, PRIVATE, known

if TYPE_CHECKING:
    from collections.abc import Callable

    from ilp_planner.formats.launch_scripts.state import Scope
    from ilp_planner.formats.launch_scripts.words import Words

NAME = r"[A-Za-z_]\w*(?:\[[^\]]*\])?"
SETTING = re.compile(rf"\s*({NAME})\s*(\*\*|<<|>>|[-+*/%&|^])?=(?!=)(.*)", re.DOTALL)
PART = re.compile(
    rf"\s*(0[xX][0-9a-fA-F]+|\d+|{NAME}|{OPEN}[^{CLOSE}]*{CLOSE}|\*\*|\+\+|--|[<>=!]=|&&|\|\||<<|>>|"
    r"[-+*/%<>!~&|^?:()]|$)"
)
BINDING = {
    "?": 2, "||": 3, "&&": 4, "|": 5, "^": 6, "&": 7, "==": 8, "!=": 8, "<": 9, "<=": 9, ">": 9,
    ">=": 9, "<<": 10, ">>": 10, "+": 11, "-": 11, "*": 12, "/": 12, "%": 12, "**": 14,
}  # fmt: skip
UNARY = 15
OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "&": operator.and_, "|": operator.or_,
    "^": operator.xor, "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le,
    ">": operator.gt, ">=": operator.ge, "&&": lambda a, b: bool(a and b),
    "||": lambda a, b: bool(a or b), "<<": lambda a, b: a << b % 64, ">>": lambda a, b: a >> b % 64,
    "/": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    "%": lambda a, b: abs(a) % abs(b) * (-1 if a < 0 else 1),
    "**": lambda a, b: pow(a, b, 2**64) if b >= 0 else a // 0,
}  # fmt: skip
Number = int | str  # a whole number, or the mark of an unknown one
NUMBERS: dict[str, Callable[[int, int], bool]] = {
    "-eq": int.__eq__, "-ne": int.__ne__, "-lt": int.__lt__, "-le": int.__le__,
    "-gt": int.__gt__, "-ge": int.__ge__,
}  # fmt: skip
OF_FILES = ("-e", "-f", "-r", "-s")
BINARY = (*NUMBERS, "=", "==", "!=", "=~", "<", ">", "-nt", "-ot", "-ef")
EITHER, BOTH = ("||", "-o"), ("&&", "-a")
Verdict = bool | None  # None: only running would tell


# ---- arithmetic ----------------------------------------------------------------------------------


def evaluate(text: str, scope: Scope, line: int, *, zero: bool = False, depth: int = 0) -> Number:
    """Return the value of an expression; variables may be counted in it, or set by all of it.

    zero: variables that nobody set are 0.

    Raises
    ------
    ValueError: bash would complain, or it is not followed. ZeroDivisionError: a division by 0.
    """
    if depth > DEEPEST:
        raise ValueError("nested too deeply")
    scope.budget.spend(len(text), line)
    text = scope.empty_unset(text) if zero else text
    reader = _Reader(scope, line, zero, depth)
    if "," in text and "(" not in text:
        return [reader.again(part) for part in text.split(",")][-1]
    if match := SETTING.fullmatch(text):
        value = reader.again(match[3])
        return reader.store(
            match[1], _operated(match[2], reader.read(match[1]), value) if match[2] else value
        )
    parts = PART.findall(text)
    if "".join(parts) != "".join(text.split()) or re.search(r"(?:&&|\|\||\?).*(?:\+\+|--)", text):
        raise ValueError(f"found {text.strip()[:40]!r}")
    reader.rest = [part for part in reversed(parts) if part]
    value = reader.value(0) if reader.rest else 0
    if reader.rest:
        raise ValueError(f"found {reader.rest[-1][:20]!r}")
    return value


@dataclass(slots=True)
class _Reader:
    """An expression from left to right. rest: its parts that are not read yet, backwards."""

    scope: Scope
    line: int
    zero: bool
    depth: int
    rest: list[str] = field(default_factory=list)

    def again(self, text: str) -> Number:
        return evaluate(text, self.scope, self.line, zero=self.zero, depth=self.depth + 1)

    def place(self, written: str) -> tuple[str, str | None, int | None]:
        name, bracket, index = written.partition("[")
        place = self.again(index[:-1]) if bracket else 0
        return name, index[:-1] if bracket else None, place if isinstance(place, int) else None

    def read(self, written: str) -> Number:
        return self.again(self.scope.element(*self.place(written), self.line))

    def store(self, written: str, value: Number) -> Number:
        name, index, place = self.place(written)
        if index is None:
            self.scope.assign(name, str(value), self.line)
        else:
            self.scope.set_entry(name, place, str(value), self.line)
        return value

    def value(self, least: int) -> Number:
        """Return the value of what binds at least this strongly."""
        self.depth += 1
        if self.depth > 2 * DEEPEST or not self.rest:
            raise ValueError("nested too deeply" if self.rest else "found the end")
        left = self.first()
        while self.rest and BINDING.get(self.rest[-1], -1) >= least:
            sign = self.rest.pop()
            right = self.value(BINDING[sign] + (sign not in ("**", "?")))
            if sign != "?":
                left = _operated(sign, left, right)
                continue
            if not self.rest or self.rest.pop() != ":":
                raise ValueError("expected :")
            other = self.value(BINDING["?"])
            left = left if isinstance(left, str) else right if left else other
        self.depth -= 1
        return left

    def first(self) -> Number:
        here = self.rest.pop()
        following = self.rest[-1] if self.rest else ""
        if here[:1].isdigit():
            base = 16 if here[1:2] in ("x", "X") else 8 if here[0] == "0" else 10
            return _operated("+", int(here[:4000], base), 0)
        if here[:1] == OPEN:
            return here
        if re.match(NAME, here):
            value = self.read(here)
            if following in ("++", "--"):
                self.store(here, _operated(self.rest.pop()[0], value, 1))
            return value
        if here in ("++", "--") and re.match(NAME, following):
            return self.store(following, _operated(here[0], self.read(self.rest.pop()), 1))
        if here not in ("(", "+", "-", "!", "~", "++", "--"):
            raise ValueError(f"found {here!r}")
        value = self.value(0 if here == "(" else UNARY)
        if here == "(" and (not self.rest or self.rest.pop() != ")"):
            raise ValueError("( is not closed")
        if isinstance(value, str):
            return value
        return {"-": -value, "!": int(not value), "~": ~value}.get(here, value)


def _operated(sign: str, left: Number, right: Number) -> Number:
    """Return a result in 64 bits; unknown where a side is."""
    if isinstance(left, str) or isinstance(right, str):
        return left if isinstance(left, str) else right
    return (int(OPERATIONS[sign](left, right)) + 2**63) % 2**64 - 2**63


# ---- tests ---------------------------------------------------------------------------------------


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
        if not self.scope.empty_unset(text) and first != "-o":
            return False  # no file has no name
        return self.scope.lies_there(text, self.line) if first in OF_FILES else None

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

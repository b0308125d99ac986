"""Arithmetic of bash: whole numbers of 64 bits, and variables that are set and counted up."""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ilp_planner.formats.launch_scripts.grammar import DEEPEST
from ilp_planner.formats.launch_scripts.unknowns import CLOSE, OPEN

if TYPE_CHECKING:
    from collections.abc import Callable

    from ilp_planner.formats.launch_scripts.state import Scope

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

"""Bash's arithmetic: whole numbers of 64 bits, variables that are set and counted up."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

from ilp_planner.formats.launch_scripts.budget import DEEPEST

if TYPE_CHECKING:
    from collections.abc import Callable

PART = re.compile(
    r"\s*(?:(?P<number>\d+#[\w@]+|0[xX][0-9a-fA-F]+|\d+)|(?P<name>[A-Za-z_]\w*)|(?P<mark>[\ue000]"
    r"[^\ue001]*\ue001)|(?P<sign>\*\*|<<=|>>=|[-+*/%&|^]=|<=|>=|==|!=|&&|\|\||<<|>>|\+\+|--|"
    r"[-+*/%<>=!~&|^?:(),\[\]]))"
)
BINDING = {
    "||": 3, "&&": 4, "|": 5, "^": 6, "&": 7, "==": 8, "!=": 8, "<": 9, "<=": 9, ">": 9, ">=": 9,
    "<<": 10, ">>": 10, "+": 11, "-": 11, "*": 12, "/": 12, "%": 12, "**": 14,
}  # fmt: skip
ASSIGNING = ("=", "+=", "-=", "*=", "/=", "%=", "<<=", ">>=", "&=", "|=", "^=")
UNARY, TERNARY, ASSIGNMENT, COMMA = 15, 2, 1, 0
# A whole number, or the mark of what is not known.
Number = int | str


class Names(Protocol):
    """Where the variables of an expression are."""

    def number_text(self, name: str, index: str) -> str:
        """Return the text of a variable, which may be an expression again, or a mark."""

    def set_number(self, name: str, index: str, value: str) -> None:
        """Set a variable to the text of a number, or to a mark."""


class ArithmeticMistakeError(ValueError):
    """An expression that bash would not understand, or a division by zero."""


def evaluate(text: str, names: Names, depth: int = 0) -> Number:
    """Return what an expression gives.

    Raises
    ------
    ArithmeticMistakeError: bash would complain.
    """
    if depth > DEEPEST:
        raise ArithmeticMistakeError("nested too deeply")
    reader = _Reader(text, names, depth)
    if reader.here == "":
        return 0
    value = reader.value(COMMA)
    if reader.here != "":
        raise ArithmeticMistakeError(f"found {reader.here!r}")
    return value


class _Reader:
    """An expression from left to right. skips: what is read has no effect, as behind `0 &&`."""

    def __init__(self, text: str, names: Names, depth: int) -> None:
        self.text, self.names, self.depth = text, names, depth
        self.at, self.skips, self.level = 0, 0, 0
        self.kind, self.here = "", ""
        self.go_on()

    def go_on(self) -> str:
        """Return the part here and read the next one; nothing at the end."""
        last = self.here
        match = PART.match(self.text, self.at)
        if match is None:
            if self.text[self.at :].strip():
                raise ArithmeticMistakeError(f"found {self.text[self.at :].strip()[:20]!r}")
            self.kind, self.here = "", ""
            return last
        self.at = match.end()
        self.kind = match.lastgroup or ""
        self.here = match[match.lastgroup or 0]
        return last

    def take(self, wanted: str) -> None:
        if self.here != wanted:
            raise ArithmeticMistakeError(f"expected {wanted}")
        self.go_on()

    def value(self, least: int) -> Number:
        """Return the value of what binds at least this strongly."""
        self.level += 1
        if self.level > DEEPEST:
            raise ArithmeticMistakeError("nested too deeply")
        left = self.first()
        while True:
            sign = self.here
            if sign == "?" and least <= TERNARY:
                left = self.ternary(left)
            elif sign == "," and least <= COMMA:
                self.go_on()
                left = self.value(ASSIGNMENT)
            elif sign in BINDING and self.kind == "sign" and BINDING[sign] >= least:
                left = self.binary(sign, left)
            else:
                self.level -= 1
                return left

    def binary(self, sign: str, left: Number) -> Number:
        self.go_on()
        settled = (sign == "&&" and left == 0) or (
            sign == "||" and isinstance(left, int) and left != 0
        )
        self.skips += settled
        right = self.value(BINDING[sign] + (sign != "**"))
        self.skips -= settled
        if settled:
            return int(sign == "||")
        if self.skips:
            return 0
        if isinstance(left, str):
            return left
        return right if isinstance(right, str) else _operate(sign, left, right)

    def ternary(self, test: Number) -> Number:
        self.go_on()
        self.skips += test == 0
        first = self.value(ASSIGNMENT)
        self.skips -= test == 0
        self.take(":")
        self.skips += test != 0
        second = self.value(TERNARY)
        self.skips -= test != 0
        return test if isinstance(test, str) else first if test else second

    def first(self) -> Number:
        kind, here = self.kind, self.go_on()
        if kind == "number":
            return _number(here)
        if kind == "mark":
            return here
        if kind == "name":
            return self.variable(here)
        if here == "(":
            value = self.value(COMMA)
            self.take(")")
            return value
        if here in ("++", "--"):
            if self.kind != "name":  # `- -5`
                return self.value(UNARY)
            name = self.go_on()
            return self.counted(name, self.index(), 1 if here == "++" else -1)[1]
        if here in ("+", "-", "!", "~"):
            value = self.value(UNARY)
            if isinstance(value, str):
                return value
            return {"+": value, "-": -value, "!": int(not value), "~": ~value}[here]
        raise ArithmeticMistakeError(f"found {here!r}")

    def index(self) -> str:
        """Return the text between brackets behind a name."""
        if self.here != "[":
            return ""
        end = self.text.find("]", self.at)
        if end < 0:
            raise ArithmeticMistakeError("[ is not closed")
        inside = self.text[self.at : end]
        self.at = end
        self.go_on()
        self.take("]")
        return inside

    def variable(self, name: str) -> Number:
        index = self.index()
        if self.here in ("++", "--") and self.kind == "sign":
            return self.counted(name, index, 1 if self.go_on() == "++" else -1)[0]
        if self.here not in ASSIGNING:
            return self.read(name, index)
        sign = self.go_on()
        right = self.value(ASSIGNMENT)
        if sign != "=" and not self.skips and isinstance(right, int):
            left = self.read(name, index)
            right = left if isinstance(left, str) else _operate(sign[:-1], left, right)
        self.write(name, index, right)
        return right

    def counted(self, name: str, index: str, step: int) -> tuple[Number, Number]:
        before = self.read(name, index)
        after = before if isinstance(before, str) else before + step
        self.write(name, index, after)
        return before, after

    def read(self, name: str, index: str) -> Number:
        if self.skips:
            return 0
        text = self.names.number_text(name, index)
        return evaluate(text, self.names, self.depth + 1)

    def write(self, name: str, index: str, value: Number) -> None:
        if not self.skips:
            self.names.set_number(name, index, str(value))


def _number(text: str) -> int:
    if "#" in text:
        base, digits = text.split("#")
        if not 2 <= int(base[:3]) <= 36:
            raise ArithmeticMistakeError(f"base {base[:3]}")
        try:
            return _wrapped(int(digits, int(base)))
        except ValueError:
            raise ArithmeticMistakeError(text) from None
    try:
        if text[:2] in ("0x", "0X"):
            return _wrapped(int(text, 16))
        octal = len(text) > 1 and text[0] == "0"
        return _wrapped(int(text[:4000], 8 if octal else 10))
    except ValueError:
        raise ArithmeticMistakeError(f"found {text[:20]!r}") from None


def _wrapped(value: int) -> int:
    """Return a number in 64 bits."""
    return (value + 2**63) % 2**64 - 2**63


OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "+": int.__add__, "-": int.__sub__, "*": int.__mul__, "&": int.__and__, "|": int.__or__,
    "^": int.__xor__, "==": lambda a, b: int(a == b), "!=": lambda a, b: int(a != b),
    "<": lambda a, b: int(a < b), "<=": lambda a, b: int(a <= b), ">": lambda a, b: int(a > b),
    ">=": lambda a, b: int(a >= b), "&&": lambda a, b: int(bool(a and b)),
    "||": lambda a, b: int(bool(a or b)), "<<": lambda a, b: a << (b % 64),
    ">>": lambda a, b: a >> (b % 64),
}  # fmt: skip


def _operate(sign: str, left: int, right: int) -> int:
    if sign in ("/", "%"):
        if right == 0:
            raise ArithmeticMistakeError("division by 0")
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        return _wrapped(quotient if sign == "/" else left - quotient * right)
    if sign == "**":
        if right < 0:
            raise ArithmeticMistakeError("exponent less than 0")
        return _wrapped(pow(left, right, 2**64))
    return _wrapped(OPERATIONS[sign](left, right))

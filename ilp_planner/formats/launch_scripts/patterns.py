"""Patterns of file names and regular expressions as bash has them, without going back.

Python's `re` takes exponential time for `^(a+)+$`; these take the product of both lengths.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ilp_planner.base.limits import as_whole

CLASSES = {
    "alpha": str.isalpha, "digit": str.isdigit, "alnum": str.isalnum, "space": str.isspace,
    "upper": str.isupper, "lower": str.islower, "xdigit": lambda c: c in "0123456789abcdefABCDEF",
    "punct": lambda c: c.isprintable() and not c.isalnum() and c != " ",
    "blank": lambda c: c in " \t", "word": lambda c: c.isalnum() or c == "_",
}  # fmt: skip
EXTENDED = re.compile(r"(?<!\\)[@?*+!]\(")
LARGEST = 4000  # parts of a regular expression
Test = Callable[[str], bool]


def matches(text: str, pattern: str) -> bool | None:
    """Return whether a whole text is as a pattern says; `\\` before a character quotes it.

    None: the pattern is one of those that are not read, such as `@(a|b)`.
    """
    if EXTENDED.search(pattern):
        return None
    parts = list(_glob(pattern))
    at, part, star, again = 0, 0, -1, 0
    while at < len(text):
        if part < len(parts) and parts[part] is not None and parts[part](text[at]):  # type: ignore[misc]
            at, part = at + 1, part + 1
        elif part < len(parts) and parts[part] is None:
            star, again = part, at
            part += 1
        elif star >= 0:
            again += 1
            at, part = again, star + 1
        else:
            return False
    return all(rest is None for rest in parts[part:])


def matched_lengths(text: str, pattern: str) -> list[int]:
    """Return the lengths of the beginnings of a text that a pattern says, ascending."""
    parts = list(_glob(pattern))
    states = _starred({0}, parts)
    found = [0] if len(parts) in states else []
    for at, here in enumerate(text):
        moved = {k if parts[k] is None else k + 1 for k in states if k < len(parts)
                 and ((test := parts[k]) is None or test(here))}  # fmt: skip
        states = _starred(moved, parts)
        if not states:
            break
        if len(parts) in states:
            found.append(at + 1)
    return found


def _starred(states: set[int], parts: list[Test | None]) -> set[int]:
    """Return states with those behind stars, which may be nothing."""
    found = set(states)
    for k in sorted(states):
        while k < len(parts) and parts[k] is None:
            k += 1
            found.add(k)
    return found


def _glob(pattern: str) -> Iterator[Test | None]:
    """Yield tests of one character each; None: any characters."""
    at = 0
    while at < len(pattern):
        here = pattern[at]
        if here == "*":
            yield None
        elif here == "?":
            yield lambda c: True
        elif here == "[" and (found := _bracket(pattern, at)):
            yield found[0]
            at = found[1]
            continue
        else:
            at += here == "\\" and at + 1 < len(pattern)
            yield _same(pattern[at])
        at += 1


def _same(wanted: str) -> Test:
    return lambda c: c == wanted


def _bracket(pattern: str, start: int) -> tuple[Test, int] | None:
    """Return the test of `[..]` and the place behind it; None: it is not closed."""
    at = start + 1
    negated = pattern[at : at + 1] in ("!", "^")
    at += negated
    tests: list[Test] = []
    first = True
    while at < len(pattern):
        if pattern[at] == "]" and not first:
            return (lambda c: any(test(c) for test in tests) is not negated), at + 1
        first = False
        if named := re.compile(r"\[:(\w+):\]").match(pattern, at):
            tests.append(CLASSES.get(named[1], lambda c: False))
            at = named.end()
            continue
        at += pattern[at] == "\\" and at + 1 < len(pattern)
        low = pattern[at]
        if pattern[at + 1 : at + 2] == "-" and pattern[at + 2 : at + 3] not in ("", "]"):
            tests.append(_between(low, pattern[at + 2]))
            at += 3
        else:
            tests.append(_same(low))
            at += 1
    return None


def _between(low: str, high: str) -> Test:
    return lambda c: low <= c <= high


@dataclass(slots=True)
class _Machine:
    """States of a regular expression: `tests` go on with a character, `free` without one."""

    tests: list[tuple[Test, int] | None] = field(default_factory=list)
    free: list[list[tuple[str, int]]] = field(default_factory=list)

    def new(self) -> int:
        if len(self.tests) > LARGEST:
            raise ValueError("too large")
        self.tests.append(None)
        self.free.append([])
        return len(self.tests) - 1


def found_in(text: str, expression: str) -> bool | None:
    """Return whether an extended regular expression is somewhere in a text, as `=~` asks.

    None: the expression is not one, or has parts that are not read.
    """
    reader = _Reader(expression, _Machine())
    try:
        start, end = reader.either()
        if reader.at < len(expression):
            return None
    except (ValueError, IndexError, RecursionError):
        return None
    machine = reader.machine
    states: set[int] = set()
    for at in range(len(text) + 1):
        states = _free(machine, states | {start}, first=at == 0, last=at == len(text))
        if end in states:
            return True
        if at < len(text):
            states = {step[1] for k in states if (step := machine.tests[k]) and step[0](text[at])}
    return False


def _free(machine: _Machine, states: set[int], *, first: bool, last: bool) -> set[int]:
    """Return the states that are reached without a character."""
    found, todo = set(states), list(states)
    while todo:
        for kind, k in machine.free[todo.pop()]:
            if k not in found and (kind == "" or (first if kind == "^" else last)):
                found.add(k)
                todo.append(k)
    return found


class _Reader:
    """An extended regular expression to a machine, from left to right."""

    def __init__(self, text: str, machine: _Machine) -> None:
        self.text, self.at, self.machine = text, 0, machine

    def either(self) -> tuple[int, int]:
        start, end = self.machine.new(), self.machine.new()
        while True:
            first, last = self.row()
            self.machine.free[start].append(("", first))
            self.machine.free[last].append(("", end))
            if self.text[self.at : self.at + 1] != "|":
                return start, end
            self.at += 1

    def row(self) -> tuple[int, int]:
        start = last = self.machine.new()
        while self.at < len(self.text) and self.text[self.at] not in "|)":
            begin = self.at
            first, end = self.one()
            if self.text[self.at : self.at + 1] in ("*", "+", "?", "{"):
                first, end = self.repeated(begin, first, end)
            self.machine.free[last].append(("", first))
            last = end
        return start, last

    def repeated(self, begin: int, first: int, end: int) -> tuple[int, int]:
        """Return what stands before `*`, `+`, `?` or `{m,n}`, as often as it says."""
        sign, written = self.text[self.at], self.text[begin : self.at]
        machine = self.machine
        if sign != "{":
            self.at += 1
            out = machine.new()
            machine.free[end].append(("", out))
            if sign in "*+":
                machine.free[end].append(("", first))
            if sign in "*?":
                machine.free[first].append(("", out))
            return first, out
        match = re.compile(r"\{(\d+)(,?)(\d*)\}").match(self.text, self.at)
        if match is None:
            raise ValueError("braces")
        self.at = match.end()
        least = as_whole(match[1])
        most = as_whole(match[3]) if match[3] else least if not match[2] else -1
        if least > 255 or most > 255:
            raise ValueError("repeated too often")
        rows = written * least + (f"{written}*" if most < 0 else f"{written}?" * (most - least))
        if written[-1:] in "*+?}" or len(rows) > LARGEST:
            raise ValueError("repeated twice")
        return _Reader(rows, machine).row()

    def one(self) -> tuple[int, int]:
        """Return the states around one character, bracket, group or anchor."""
        here = self.text[self.at]
        start, end = self.machine.new(), self.machine.new()
        self.at += 1
        if here == "(":
            first, last = self.either()
            if self.text[self.at] != ")":
                raise ValueError("not closed")
            self.at += 1
            self.machine.free[start].append(("", first))
            self.machine.free[last].append(("", end))
        elif here in "^$":
            self.machine.free[start].append((here, end))
        elif here in "*+?{":
            raise ValueError(here)
        else:
            self.machine.tests[start] = (self.test(here), end)
        return start, end

    def test(self, here: str) -> Test:
        if here == ".":
            return lambda c: True
        if here == "[":
            found = _bracket(self.text, self.at - 1)
            if found is None:
                raise ValueError("not closed")
            self.at = found[1]
            return found[0]
        if here == "\\":
            here = self.text[self.at]
            self.at += 1
            if here.isalnum():  # \d, \w and the like are no part of the standard
                raise ValueError(here)
        return _same(here)

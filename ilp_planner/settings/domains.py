"""Domains of settings: the values that a user may demand, read from numbers, texts and lists.

Every domain turns a demand into a hashable value and back into the text that says it.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from ilp_planner.base.errors import UsageError
from ilp_planner.base.limits import as_whole, beyond
from ilp_planner.base.units import SIZE_UNITS, parse_size
from ilp_planner.settings.asked_layout import asked_layout
from ilp_planner.settings.kept import kept_stages

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

SWITCH = ("off", "on")
BOTH = "both"  # the two values of a domain that has just two
SHARE = re.compile(r"[0-9]{1,10}(?:\.[0-9]{1,4})?")
ITEM = re.compile(r"([1-9][0-9]*)(?:\.\.([1-9][0-9]*))?")
WHOLE = re.compile(r"[1-9][0-9]*")


@dataclass(frozen=True, slots=True)
class Numbers:
    """The whole numbers in some ranges: the least and the most of each, both included."""

    ranges: tuple[tuple[int, int], ...]

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and any(a <= number <= b for a, b in self.ranges)

    def __str__(self) -> str:
        return ",".join(f"{a}" if a == b else f"{a}..{b}" for a, b in self.ranges)

    @property
    def most(self) -> int:
        """The largest one."""
        return max(b for _, b in self.ranges)


@dataclass(frozen=True)
class Domain(ABC):
    """Values of one kind.

    blank: the value of a demand that says nothing. values: examples, or all of them. python: the
    annotation of a keyword. repeated: the option of the command line may be given several times.
    """

    values: tuple[str, ...] = ()
    blank: ClassVar[Any] = None
    python: ClassVar[str] = "str"
    repeated: ClassVar[bool] = False

    @abstractmethod
    def read(self, name: str, value: object) -> Any:
        """Return the demand that a number, a text or a list says.

        Raises
        ------
        UsageError: one line with the name, the value found and the values expected.
        """

    def text(self, value: Any) -> str:
        """Return the text that says a demand."""
        return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)

    def one(self, name: str, value: object) -> Any:
        """Return the value that a demand of just one says.

        Raises
        ------
        UsageError: it says none of the domain, or several.
        """
        found = self.read(name, value)
        if len(found) != 1:
            expected = " or ".join(self.text(found).split(","))
            raise UsageError(f"{name}: found {value}, expected one value, {expected}")
        return found[0]

    def listed(self, values: Sequence[str]) -> str:
        """Return a demand of any of some values."""
        return ",".join(values)

    def like(self, value: str) -> str:
        """Return the example that a demanded value is treated like: of numbers, the last one."""
        return value if value in self.values else self.values[-1]


class Closed(Domain):
    """No values: of settings that follow from others, or that no search tries."""

    def read(self, name: str, value: object) -> Any:
        """Refuse any demand."""
        raise _error(name, value, "no demand of this setting")


CLOSED = Closed()


class Degree(Domain):
    """Whole numbers of at least 1, lists and ranges of them: `4`, `2,4`, `2..8`."""

    python = "int | str | Sequence[int]"

    def read(self, name: str, value: object) -> Numbers:
        """Return the numbers."""
        expected = "a whole number of at least 1, a list as 2,4 or a range as 2..8"
        if isinstance(value, range) and value.step == 1 and len(value) > 1:
            value = f"{value.start}..{value.stop - 1}"
        ranges = []
        for text in _items(name, value, expected):
            match = ITEM.fullmatch(text)
            if match is None:
                raise _error(name, text, expected)
            least, most = as_whole(match[1]), as_whole(match[2] or match[1])
            _check_limit(name, text, max(least, most))
            if least > most:
                raise _error(name, text, f"the smaller number first: {most}..{least}")
            ranges.append((least, most))
        return Numbers(tuple(dict.fromkeys(ranges)))

    def one(self, name: str, value: object) -> int:
        """Return the number."""
        found = self.read(name, value)
        if found.ranges != ((found.most, found.most),):
            raise _error(name, value, "one number")
        return found.most


@dataclass(frozen=True)
class OneOf(Domain):
    """Some of a few names; of two names, `both` is a third word.

    aliases: other words for names.
    """

    aliases: Mapping[str, str] = field(default_factory=dict)
    blank = ()
    python = "str | Sequence[str]"

    def read(self, name: str, value: object) -> tuple[str, ...]:
        """Return the names in the order of the domain."""
        known = self.values
        two = len(known) == len(SWITCH)
        expected = f"some of {', '.join(known)}" + f", or {BOTH}" * two
        found = [self.aliases.get(text, text) for text in _items(name, value, expected)]
        if two and BOTH in found:
            return known
        for text in found:
            if text not in known:
                raise _error(name, text, expected)
        return tuple(each for each in known if each in found)


@dataclass(frozen=True)
class Shares(Domain):
    """Shares from 0 to `most`; values: examples."""

    most: float = 1.0
    blank = ()
    python = "float | str | Sequence[float]"

    def read(self, name: str, value: object) -> tuple[str, ...]:
        """Return the shares in ascending order."""
        expected = f"shares from 0 to {self.most:g}, as 0,0.5"
        values = [str(value)] if isinstance(value, float) else value
        if isinstance(values, list | tuple):
            values = [str(each) if isinstance(each, float) else each for each in values]
        found = set()
        for text in _items(name, values, expected):
            if not SHARE.fullmatch(text) or float(text) > self.most:
                raise _error(name, text, expected)
            found.add(float(text))
        return tuple(f"{share:g}" for share in sorted(found))


@dataclass(frozen=True)
class Counts(Domain):
    """Whole numbers of at least `least`; values: examples."""

    least: int = 1
    blank = ()
    python = "int | str | Sequence[int]"

    def read(self, name: str, value: object) -> tuple[str, ...]:
        """Return the numbers in ascending order."""
        expected = f"whole numbers of at least {self.least}, as 1,2,4"
        found = {*_items(name, value, expected)}
        for text in found:
            if not WHOLE.fullmatch(text) and (text != "0" or self.least):
                raise _error(name, text, expected)
            _check_limit(name, text, as_whole(text))
        return tuple(sorted(found, key=int))


@dataclass(frozen=True)
class Offloads(Domain):
    """`none`, a number of layers, or some modules joined by `+`.

    values: examples. modules: all of them, in their order.
    """

    modules: tuple[str, ...] = ()
    blank = ()
    python = "int | str | Sequence[int | str]"

    def read(self, name: str, value: object) -> tuple[str, ...]:
        """Return the texts, `none` first, each with its modules in order."""
        expected = f"none, a number of layers, or some of {', '.join(self.modules)} joined by +"
        found = {}
        for text in _items(name, value, expected):
            parts = text.split("+")
            if text != "none" and not re.fullmatch(r"[1-9][0-9]{0,5}", text):
                if not {*parts} <= {*self.modules}:
                    raise _error(name, text, expected)
                text = "+".join(part for part in self.modules if part in parts)
            found[text] = text
        return tuple(sorted(found, key=lambda text: (text != "none", text)))


def _none(_: str) -> bool:
    return False


@dataclass(frozen=True)
class Together(Domain):
    """Names that are demanded together, as `q_proj,v_proj` or joined by `+`; one value.

    values: examples. names: all of them, in their order. alone: of them, one that stands for no
    other. further: tells whether a text is another one. example: of a demand. families: names that
    go together, where not all do.
    """

    names: tuple[str, ...] = ()
    alone: str = ""
    further: Callable[[str], bool] = _none
    example: str = ""
    families: tuple[tuple[str, ...], ...] = ()
    blank = ()
    python = "str | Sequence[str]"

    def read(self, name: str, value: object) -> tuple[str, ...]:
        """Return one text, the names in their order."""
        expected = f"some of {', '.join(self.names)}, as {self.example}"
        found = []
        for item in _items(name, value, expected):
            for text in item.split("+"):
                if text not in self.names and not self.further(text):
                    raise _error(name, text, expected)
                found.append(text)
        if self.alone in found and {*found} != {self.alone}:
            raise _error(name, self.text(value), f"{self.alone!r} alone, or the rest without it")
        places = {one: place for place, one in enumerate(self.names)}
        last = len(places)
        ordered = sorted(
            dict.fromkeys(found), key=lambda one: (places.get(one, last), _numbers(one))
        )
        return ("+".join(ordered),)

    def listed(self, values: Sequence[str]) -> str:
        """Return a demand of the first of some values: all names of a demand are one value."""
        return values[0]

    def like(self, value: str) -> str:
        """Return the example with most of the names, or with most of their families."""
        names = {*value.split("+")}

        def common(example: str) -> tuple[bool, int]:
            own = {*example.split("+")}
            own.update(*(family for family in self.families if not own.isdisjoint(family)))
            return example == value, len(names & own)

        return max(self.values, key=common)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"[0-9]+", text)))


class Layers(Domain):
    """A layout of the pipeline: `even`, `any`, numbers of layers, or Megatron's letters."""

    python = "str | Sequence[int]"

    def read(self, name: str, value: object) -> Any:
        """Return an `AskedLayout`."""
        return asked_layout(value)


class Stages(Domain):
    """Stages of saved plans, as `plan.json:stage0`."""

    blank = ()
    python = "str | Sequence[str]"
    repeated = True

    def read(self, name: str, value: object) -> Any:
        """Return the stages, not yet read from their files."""
        return kept_stages(value)


class Count(Domain):
    """One whole number of at least 1."""

    python = "int"

    def read(self, name: str, value: object) -> int:
        """Return the number."""
        expected = "a whole number of at least 1"
        texts = _items(name, value, expected)
        if len(texts) != 1 or not WHOLE.fullmatch(texts[0]):
            raise _error(name, value, expected)
        _check_limit(name, texts[0], as_whole(texts[0]))
        return int(texts[0])


class Nodes(Domain):
    """Nodes by number or by the name of their group."""

    blank = ()
    python = "int | str | Sequence[int | str]"
    repeated = True

    def read(self, name: str, value: object) -> tuple[str, ...]:
        """Return the numbers and names as texts."""
        expected = "nodes by number, as 3 or node3, or by the name of their group"
        found = _items(name, value, expected)
        if not all(found):
            raise _error(name, value, expected)
        return tuple(dict.fromkeys(found))


class Size(Domain):
    """Bytes, or a size with its unit."""

    python = "str | int"

    def read(self, name: str, value: object) -> int:
        """Return the bytes."""
        size = value
        if isinstance(value, str):
            try:
                size = parse_size(value, what=name)
            except ValueError as error:
                raise UsageError(str(error).replace(f"{name} ", f"{name}: ", 1)) from None
        if not isinstance(size, int) or isinstance(size, bool) or size <= 0:
            raise _error(name, value, "bytes, or a size with its unit: 2 GiB")
        _check_limit(name, value, size)
        return size

    def text(self, value: int) -> str:
        """Return the shortest exact text, as `2 GiB`."""
        exact = (f"{value // n} {unit}" for unit, n in SIZE_UNITS.items() if value % n == 0)
        return min(exact, key=len)


def _items(name: str, value: object, expected: str) -> list[str]:
    """Return the entries of a list, or of a text with commas."""
    values = [value] if isinstance(value, str | int) else value
    if not isinstance(values, list | tuple | range):
        raise _error(name, value, expected)
    for each in values:
        if isinstance(each, bool) or not isinstance(each, str | int):
            raise _error(name, each, expected)
    return [text.strip() for each in values for text in str(each).split(",")]


def _check_limit(name: str, said: object, number: int) -> None:
    """Refuse a number beyond its limit."""
    if expected := beyond(name, number):
        raise _error(name, said, expected)


def _error(name: str, found: object, expected: str) -> UsageError:
    return UsageError(f"{name}: found {found!r:.60}, expected {expected}")

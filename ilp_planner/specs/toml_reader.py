"""Reading TOML into typed values; an error names the file, the key, found and expected."""

import difflib
import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from ilp_planner.base.errors import SpecError
from ilp_planner.base.file_kinds import FileKind, refuse_other_kind
from ilp_planner.base.files import Document, read_document
from ilp_planner.base.limits import DIGITS, DIMENSION, FIGURE, NESTING, beyond, check_parsed
from ilp_planner.base.units import parse_duration, parse_flops, parse_rate, parse_size

Value = TypeVar("Value")
Scalar = str | int | float | bool
# Names with dots between them, each a table in the one before.
NAME = r"(?:[\w-]++|\"[^\"\n]*\"|'[^'\n]*')"
CHAIN = re.compile(rf"(?<![\w.-]){NAME}(?:[ \t]*\.[ \t]*{NAME}){{{NESTING},}}")


class Table:
    """One table of a TOML file. `keys` are the possible ones.

    A reading method without `default` demands the key; with one, the key may be missing.
    """

    def __init__(
        self,
        values: dict[str, object],
        *,
        file: str,
        where: str = "",
        keys: Sequence[str] | None = None,
    ) -> None:
        self.values = values
        self.file = file
        self.where = where
        if keys is not None:
            self.expect(keys)

    def expect(self, keys: Sequence[str]) -> None:
        """Refuse every key that is not one of these.

        Raises
        ------
        SpecError: names the unknown key and the nearest known one.
        """
        for key in self.values:
            if key not in keys:
                raise self.error(f"unknown key {key!r}, {nearest(key, keys)}")

    def error(self, problem: str) -> SpecError:
        """Return the error to raise for a problem in this table."""
        where = f"{self.where}: " if self.where else ""
        return SpecError(f"{self.file}: {where}{problem}")

    @contextmanager
    def blamed(self) -> Iterator[None]:
        """Turn a ValueError of a constructor into an error of this file."""
        try:
            yield
        except SpecError:
            raise
        except ValueError as error:
            raise self.error(str(error)) from None

    def text(self, key: str, default: str | None = None) -> str:
        """Return a non-empty string."""
        return self._read(key, default, "a text", _text)

    def choice(self, key: str, options: Sequence[str], hint: str = "") -> str:
        """Return one of the options. hint: the message if none is near."""
        value = self.text(key)
        if value not in options:
            near = difflib.get_close_matches(value, options, n=1)
            meant = f" (did you mean {near[0]!r}?)" if near else f" ({hint})" if hint else ""
            raise self.error(f"{key} must be one of {', '.join(options)}, found {value!r}{meant}")
        return value

    def whole(self, key: str, default: int | None = None) -> int:
        """Return a whole number of at least 1."""
        return self._read(key, default, "a whole number of at least 1", _whole)

    def natural(self, key: str, default: int | None = None) -> int:
        """Return a whole number of at least 0."""
        return self._read(key, default, "a whole number of at least 0", _natural)

    def flag(self, key: str, default: bool | None = None) -> bool:
        """Return true or false."""
        return self._read(key, default, "true or false", _flag)

    def flags(self, key: str, default: tuple[bool, ...] | None = None) -> tuple[bool, ...]:
        """Return a list of true and false, not empty."""
        return self._read(key, default, "a list of true and false", _list_of(_flag))

    def share(self, key: str, default: float | None = None) -> float:
        """Return a number of at least 0 and below 1."""
        return self._read(key, default, "a number of at least 0 and below 1", _share)

    def wholes(self, key: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """Return a list of whole numbers of at least 1, not empty."""
        return self._read(key, default, "a list of whole numbers of at least 1", _list_of(_whole))

    def number(self, key: str, default: float | None = None) -> float:
        """Return a positive, finite number."""
        return self._read(key, default, "a positive number", _number)

    def size(self, key: str, default: int | None = None) -> int:
        """Return bytes."""
        return self._quantity(key, default, parse_size)

    def rate(self, key: str, default: float | None = None) -> float:
        """Return bytes per second."""
        return self._quantity(key, default, parse_rate)

    def flops(self, key: str, default: float | None = None) -> float:
        """Return FLOP per second."""
        return self._quantity(key, default, parse_flops)

    def duration(self, key: str, default: float | None = None) -> float:
        """Return seconds."""
        return self._quantity(key, default, parse_duration)

    def square(
        self, key: str, count: int, parse: Callable[..., Value], *, per: str
    ) -> tuple[tuple[Value | None, ...], ...]:
        """Return a square matrix of quantities, None along its unread diagonal.

        Parameters
        ----------
        count: of rows and of entries in each. per: the subject of each.
        parse: of one entry, as in `ilp_planner.base.units`.
        """
        value = self._get(key, None)
        if not isinstance(value, list) or not all(isinstance(row, list) for row in value):
            raise self.error(f"{key} must be a list of rows [[...], ...], found {_shown(value)}")
        if len(value) != count:
            raise self.error(f"{key} must have {count} rows, one per {per}, found {len(value)}")
        for number, row in enumerate(value, 1):
            if len(row) != count:
                raise self.error(
                    f"{key}: row {number} must have {count} entries, one per {per}, "
                    f"found {len(row)}"
                )
        with self.blamed():
            return tuple(
                tuple(
                    None
                    if x == y
                    else parse(
                        entry if isinstance(entry, str) else _shown(entry),
                        what=f"{key}: row {x}, entry {y}",
                    )
                    for y, entry in enumerate(row, 1)
                )
                for x, row in enumerate(value, 1)
            )

    def texts_of(self, key: str) -> tuple[str, ...]:
        """Return a list of texts, not empty."""
        return self._read(key, None, "a list of texts", _list_of(_text))

    def scalars(self, key: str) -> dict[str, Scalar]:
        """Return a table of texts, numbers and booleans as it is; empty when missing."""
        return self._record(key, "texts and numbers", lambda v: isinstance(v, Scalar))

    def texts(self, key: str) -> dict[str, str]:
        """Return a table of texts; empty when missing."""
        return self._record(key, "texts", lambda v: isinstance(v, str) and v != "")

    def _record(self, key: str, of: str, fits: Callable[[object], bool]) -> dict[str, Any]:
        value = self._get(key, {})
        if not isinstance(value, dict) or not all(map(fits, value.values())):
            raise self.error(f"{key} must be a table of {of}, found {_shown(value)}")
        return dict(value)

    def table(
        self,
        key: str,
        keys: Sequence[str] | None = None,
        *,
        where: str | None = None,
        optional: bool = False,
    ) -> "Table":
        """Return the table under a key; empty when optional and missing.

        Parameters
        ----------
        where: how errors name it; the key with its place when missing.
        """
        value = self._get(key, {} if optional else None)
        name = where or (f"{self.where}.{key}" if self.where else key)
        if not isinstance(value, dict):
            raise self.error(f"{key} must be a table [{key}], found {_shown(value)}")
        return Table(value, file=self.file, where=name, keys=keys)

    def tables(self, key: str, keys: Sequence[str]) -> tuple["Table", ...]:
        """Return the tables of `[[key]]`, at least one.

        Errors name each by its `name`, else by its number from 1.
        """
        value = self._get(key, None)
        name = f"{self.where}.{key}" if self.where else key
        if not isinstance(value, list) or not all(isinstance(v, dict) for v in value):
            raise self.error(f"{key} must be tables [[{name}]], found {_shown(value)}")
        if not value:
            raise self.error(f"{key} must have at least one entry [[{name}]], found none")
        kind = name.removesuffix("s")
        names = [repr(v.get("name", number)) for number, v in enumerate(value, 1)]
        return tuple(
            Table(v, file=self.file, where=f"{kind} {name}", keys=keys)
            for v, name in zip(value, names, strict=True)
        )

    def _get(self, key: str, default: object) -> object:
        if key in self.values:
            return self.values[key]
        if default is None:
            raise self.error(f"{key} is missing")
        return default

    def _read(
        self,
        key: str,
        default: Value | None,
        expected: str,
        convert: Callable[[object], Value | None],
    ) -> Value:
        if key not in self.values and default is not None:
            return default
        value = self._get(key, None)
        result = convert(value)
        if result is None:
            raise self.error(f"{key} must be {expected}, found {_shown(value)}")
        for each in result if isinstance(result, tuple) else (result,):
            limit = FIGURE if isinstance(each, float) else DIMENSION
            if isinstance(each, int | float) and (expected := beyond(key, each, limit)):
                raise self.error(f"{key} must be {expected}, found {each}")
        return result

    def _quantity(self, key: str, default: Value | None, parse: Callable[..., Value]) -> Value:
        if key not in self.values and default is not None:
            return default
        value = self._get(key, None)
        with self.blamed():
            # A number without a unit goes to the parser too: its message shows what one looks like.
            bare = isinstance(value, str | int | float) and not isinstance(value, bool)
            return parse(value if bare else _shown(value), what=key)


def read_toml(
    source: Path | Document, keys: Sequence[str] | None, kind: FileKind = FileKind.SPEC
) -> Table:
    """Read a file's root table.

    Parameters
    ----------
    keys: the keys that it may have; None: any. kind: the expected one.

    Raises
    ------
    SpecError: a missing file, not readable, of another kind, not TOML (with the line), or an
    unknown key.
    """
    document = source if isinstance(source, Document) else read_document(source, SpecError)
    try:
        if match := CHAIN.search(document.text):
            raise _too_deep(document, match.start())
        values = tomllib.loads(document.text.replace("\r\n", "\n"))
        check_parsed(values, document.name, SpecError)
    except RecursionError:
        raise _too_deep(document) from None
    except tomllib.TOMLDecodeError as error:
        refuse_other_kind(document, kind, SpecError)
        match = re.fullmatch(r"(.*) \(at (.*)\)", str(error), flags=re.DOTALL)
        problem, place = match.groups() if match else (str(error), "")
        where = f"{place}: " if place else ""
        raise SpecError(f"{document.name}: {where}not valid TOML: {problem}") from None
    except SpecError:
        raise
    except ValueError:  # Python makes no number of so many digits
        raise _too_long(document) from None
    if keys is not None and (others := set(values) - set(keys)):
        refuse_other_kind(document, kind, SpecError)
        _refuse_other_spec(document.name, others, kind)
    return Table(values, file=document.name, keys=keys)


def _refuse_other_spec(name: str, others: set[str], kind: FileKind) -> None:
    """Refuse a cluster if a model is expected, and the other way round; others: keys of other
    kinds."""
    if kind is not FileKind.SPEC:
        return
    for key, found, expected in (
        ("nodes", "a cluster, which `cluster` takes", "a model"),
        ("architecture", "a model, which `model` takes", "a cluster"),
    ):
        if key in others:
            raise SpecError(f"{name}: found {found}, expected {expected}")


def _too_deep(document: Document, at: int | None = None) -> SpecError:
    """Return the message on nested tables and lists. at: their beginning, if known."""
    line = "" if at is None else f"line {document.text.count(chr(10), 0, at) + 1}: "
    return SpecError(
        f"{document.name}: {line}found tables and lists more than {NESTING} deep in one another, "
        f"expected at most {NESTING}"
    )


def _too_long(document: Document) -> SpecError:
    """Return the message on the first number that is too long."""
    where = ""
    for number, line in enumerate(document.text.split("\n"), 1):
        key, _, value = line.partition("=")
        if found := re.search(rf"[0-9_]{{{DIGITS + 1},}}", value or key):
            where = f"line {number}: " + (f"{key.strip()[:40]}: " if value else "")
            where += f"found a number of {len(found[0])} digits, "
            break
    return SpecError(f"{document.name}: {where}expected numbers of at most {DIGITS} digits")


def nearest(name: str, known: Sequence[str]) -> str:
    """Return the message on an unknown name."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else f"expected {', '.join(known)}"


def _shown(value: object) -> str:
    """Return a value as the file would have it, on one line."""
    if isinstance(value, bool):
        return str(value).lower()
    text = "a table" if isinstance(value, dict) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value.strip() else None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 1 else None


def _natural(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _share(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < 1 else None


def _list_of(
    convert: Callable[[object], Value | None],
) -> Callable[[object], tuple[Value, ...] | None]:
    """Return a reader of a non-empty list of values of a kind as a tuple."""

    def converted(value: object) -> tuple[Value, ...] | None:
        if not isinstance(value, list) or not value:
            return None
        return tuple(value) if all(convert(v) is not None for v in value) else None

    return converted


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # Not `isfinite`, which fails on a whole number too large for a float.
    return float(value) if 0 < value < 2.0**1023 else None

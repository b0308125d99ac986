"""Reading JSON objects field by field; an error is one line with file, key, found and expected."""

import difflib
from collections.abc import Iterator, Sequence
from typing import Any

from ilp_planner.base.errors import MISSING, PlanError, shown
from ilp_planner.base.limits import FIGURE, MOST, WHOLE


def is_whole(value: object, least: int = 0, most: int = WHOLE) -> bool:
    """Tell whether it is an integer in these limits; true and false are not."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def limits(least: int, most: int) -> str:
    """Return the limits of an integer as messages say them."""
    return f"of at least {least}" if most == WHOLE else f"from {least} to {most}"


class Fields:
    """One object of a JSON file, with its place in it for messages."""

    def __init__(self, value: object, *, file: str, where: str = "") -> None:
        self.file = file
        self.where = where
        if not isinstance(value, dict):
            raise PlanError(f"{file}: {where or 'file'}: found {shown(value)}, expected an object")
        self.values: dict[str, Any] = value

    def only(self, known: Sequence[str]) -> None:
        """Refuse keys that are not known, with the nearest one that is."""
        for key in self.values:
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1)
                expected = f"{near[0]!r}" if near else f"one of {', '.join(known)}"
                raise self.error(key, expected, "an unknown key")

    def place(self, key: str) -> str:
        """Return the key with its place, as messages name it."""
        return f"{self.where}.{key}" if self.where else key

    def error(self, key: str, expected: str, found: str | None = None) -> PlanError:
        """Return the error to raise for a field. found: a text instead of its value."""
        text = shown(self.values.get(key, MISSING)) if found is None else found
        return PlanError(f"{self.file}: {self.place(key)}: found {text}, expected {expected}")

    def optional(self, key: str) -> bool:
        """Tell whether the key, which must be there, has a value other than null.

        Raises
        ------
        PlanError: the key is missing.
        """
        if key not in self.values:
            raise self.error(key, "a value or null")
        return self.values[key] is not None

    def whole(self, key: str, *, least: int = 0, most: int | None = None) -> int:
        """Return an integer in these limits. most: None: that of its key."""
        value, most = self.values.get(key, MISSING), most or int(MOST.get(key, WHOLE))
        if not is_whole(value, least, most):
            raise self.error(key, f"a whole number {limits(least, most)}")
        return int(value)

    def divisor(self, key: str, of: int) -> int:
        """Return an integer that divides another one."""
        value = self.whole(key, least=1)
        if of % value:
            raise self.error(key, f"a divisor of {of}")
        return value

    def number(self, key: str, *, least: float = 0.0) -> float:
        """Return a number of at least `least`, small enough that no calculation is infinite."""
        value = self.values.get(key, MISSING)
        real = isinstance(value, int | float) and not isinstance(value, bool)
        if not real or not value >= least:
            raise self.error(key, f"a number of at least {least:g}")
        if value > FIGURE:
            raise self.error(key, f"at most {FIGURE:g}")
        return float(value)

    def number_or(self, key: str, null: float) -> float:
        """Return a finite number of at least 0, or `null` if the file has null."""
        if key in self.values and self.values[key] is None:
            return null
        return self.number(key)

    def text(self, key: str) -> str:
        """Return a text, possibly empty."""
        value = self.values.get(key, MISSING)
        if not isinstance(value, str):
            raise self.error(key, "a text")
        return value

    def choice(self, key: str, options: Sequence[str]) -> str:
        """Return one of the options."""
        value = self.values.get(key, MISSING)
        if value not in options:
            raise self.error(key, f"one of {', '.join(options)}")
        return str(value)

    def boolean(self, key: str) -> bool:
        """Return true or false."""
        value = self.values.get(key, MISSING)
        if not isinstance(value, bool):
            raise self.error(key, "true or false")
        return value

    def listed(self, key: str) -> list[Any]:
        """Return a list."""
        value = self.values.get(key, MISSING)
        if not isinstance(value, list):
            raise self.error(key, "a list")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts."""
        values = self.listed(key)
        for i, value in enumerate(values):
            if not isinstance(value, str):
                raise self.error(f"{key}[{i}]", "a text", shown(value))
        return tuple(values)

    def wholes(
        self, key: str, *, least: int = 0, most: int = WHOLE, count: int | None = None
    ) -> list[int]:
        """Return a list of integers in these limits and in that of its key, `count` of them."""
        values, most = self.listed(key), min(most, int(MOST.get(key, most)))
        if count is not None and len(values) != count:
            raise self.error(key, f"a list of {count}")
        for i, value in enumerate(values):
            if not is_whole(value, least, most):
                expected = f"a whole number {limits(least, most)}"
                raise self.error(f"{key}[{i}]", expected, shown(value))
        return values

    def record(self, key: str) -> dict[str, Any]:
        """Return an object as it is."""
        value = self.values.get(key, MISSING)
        if not isinstance(value, dict):
            raise self.error(key, "an object")
        return value

    def inside(self, key: str) -> "Fields":
        """Return the object under a key."""
        return Fields(self.values.get(key, MISSING), file=self.file, where=self.place(key))

    def each(self, key: str) -> Iterator["Fields"]:
        """Yield the objects of a list."""
        for i, value in enumerate(self.listed(key)):
            yield Fields(value, file=self.file, where=f"{self.place(key)}[{i}]")

"""Mutants that no test can notice, as they do the same: listed by hand, each with the reason."""

import tomllib
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.mutants.mutations import mutations

FILE = Path(__file__).with_name("equivalent.toml")


class Listed(NamedTuple):
    """What the list says of a mutant. nth: which of those with this change in the function it is,
    from 1 on; 0: there is one."""

    module: str
    function: str
    change: str
    nth: int


@cache
def reasons() -> dict[Listed, str]:
    """Return the reasons of all that are listed."""
    rows = tomllib.loads(FILE.read_text())["mutant"]
    return {
        Listed(row["module"], row["function"], row["change"], row.get("nth", 0)): row["reason"]
        for row in rows
    }


def equivalents(module: str, source: str) -> dict[int, str]:
    """Return why mutants of a module do the same as the module, by their numbers."""
    found = _numbers(source)
    known = ((found.get(one[1:]), why) for one, why in reasons().items() if one.module == module)
    return {number: why for number, why in known if number is not None}


def strangers(module: str, source: str) -> list[Listed]:
    """Return what is listed of a module though no mutant of it is so, or several are."""
    found = _numbers(source)
    return [one for one in reasons() if one.module == module and one[1:] not in found]


def _numbers(source: str) -> dict[tuple[str, str, int], int]:
    """Return the number of each mutant by its function, its change and which of these it is."""
    alike: dict[tuple[str, str], list[int]] = {}
    for number, mutation in enumerate(mutations(source)):
        alike.setdefault((mutation.function, mutation.text), []).append(number)
    return {
        (*what, nth if len(numbers) > 1 else 0): number
        for what, numbers in alike.items()
        for nth, number in enumerate(numbers, start=1)
    }

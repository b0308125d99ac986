"""Settings that are said of another one: of Muon, or of adapters. They bring that, or are noted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from ilp_planner.settings.table import BY_NAME, SETTINGS

# From the name of a setting to the values that are said of it; empty: nothing is said.
Said = Callable[[str], Collection[str]]


def taken_beside(said: Said) -> Iterator[tuple[str, str, str]]:
    """Yield settings that need another one beside them of which nothing is said, each with the
    other one's name and value."""
    for row in SETTINGS:
        if row.beside and {*said(row.name)} - {_first(row.name)}:
            name, value = row.beside
            if not said(name):
                yield row.name, name, value


def notes_beside(said: Said) -> Iterator[str]:
    """Yield a note on every setting that brings another one, and on every one that has its usual
    value without the other one, where it decides nothing."""
    for name, other, value in taken_beside(said):
        yield f"{_text(name, said)}: {_words(other)} {value} is assumed, as nothing is said of it"
    for row in SETTINGS:
        if row.beside and {*said(row.name)} == {_first(row.name)} and without(row.name, said):
            other, value = row.beside
            yield f"{_text(row.name, said)}: without effect but beside {_words(other)} {value}"


def without(name: str, said: Said) -> bool:
    """Tell whether a setting is said of another one that is not asked for."""
    row = BY_NAME[name]
    if not row.beside or row.choice is None or not row.choice.rest:
        return False
    other, _ = row.beside
    return not {*said(other)} - {_first(other)}


def _first(name: str) -> str:
    return BY_NAME[name].search_of("").values[0]


def _words(name: str) -> str:
    return name.replace("_", " ")


def _text(name: str, said: Said) -> str:
    return f"{_words(name)} {','.join(said(name))}"

"""The keys of training systems that say settings."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ilp_planner.settings.table import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ilp_planner.settings.base import Key
    from ilp_planner.specs.training import Settings


def _by_runtime() -> Mapping[str, Mapping[str, Key]]:
    found: dict[str, dict[str, Key]] = {}
    for row in SETTINGS:
        for key in row.keys:
            for runtime in key.runtimes:
                found.setdefault(runtime, {})[key.field] = key
    return found


# Runtime -> field of `Settings` -> the key that says it.
KEYS = _by_runtime()
CHOSEN = {field: row.choice for row in SETTINGS if row.choice for field in row.fields}


def said(settings: Settings, runtime: str, section: str) -> dict[str, Any]:
    """Return the values of the keys of a section that say a field alone, by their names in it.

    section: empty: of arguments.
    """
    found = {}
    for key in KEYS[runtime].values():
        place, _, name = key.name.rpartition(".")
        if name and place == section:
            value = attrgetter(key.field)(settings)
            found[name] = key.words.get(value, value)
    return found


def wordless(settings: Settings, runtime: str, section: str) -> Iterator[tuple[Key, Any]]:
    """Yield the values that a system has no word for, where they decide something.

    section: of the keys; empty: of those without a name.
    """
    for key in KEYS[runtime].values():
        if not key.words or key.name.partition(".")[0] != section:
            continue
        value, choice = attrgetter(key.field)(settings), CHOSEN.get(f"settings.{key.field}")
        idle = choice is not None and choice.idle(settings, True)
        if value not in ("", *key.words) and not idle:
            yield key, value

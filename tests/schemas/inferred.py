"""Schemas of outputs from outputs: which keys there are, which are always there, of what type.

What an output cannot say is in `words`: what a key means and its unit, which objects are by name,
and which texts are one of a few.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ilp_planner.faces.sweeps.table import column_of
from tests.schemas.derived import closed, nullable
from tests.schemas.words import (
    BY_NAME,
    CHOICES,
    ITEMS,
    LIKE,
    MAY_BE,
    MEANING,
    OPTIONAL,
    REFERENCES,
    SHARED,
    meaning,
    whole,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


@dataclass
class Seen:
    """What was seen in one place. kinds: names of JSON types. objects: how many objects. keys: of
    these, how often each was there, with what. items: of lists."""

    kinds: set[str] = field(default_factory=set)
    objects: int = 0
    keys: dict[str, tuple[int, Seen]] = field(default_factory=dict)
    items: Seen | None = None

    def add(self, value: Any) -> None:
        """Take a value."""
        if isinstance(value, dict):
            self.kinds.add("object")
            self.objects += 1
            for key, inner in value.items():
                count, seen = self.keys.get(key, (0, Seen()))
                seen.add(inner)
                self.keys[key] = (count + 1, seen)
        elif isinstance(value, list):
            self.kinds.add("array")
            self.items = self.items or Seen()
            for inner in value:
                self.items.add(inner)
        elif value is None:
            self.kinds.add("null")
        else:
            names = {bool: "boolean", int: "integer", float: "number", str: "string"}
            self.kinds.add(names[type(value)])

    def merge(self, other: Seen) -> None:
        """Take what was seen elsewhere."""
        self.kinds |= other.kinds
        self.objects += other.objects
        for key, (count, seen) in other.keys.items():
            before, mine = self.keys.get(key, (0, Seen()))
            mine.merge(seen)
            self.keys[key] = (before + count, mine)
        if other.items is not None:
            self.items = self.items or Seen()
            self.items.merge(other.items)


def objects_of(values: Iterable[Any]) -> dict[str, Seen]:
    """Return, by their key, what is in the objects and lists of outputs."""
    found: dict[str, Seen] = {}
    left = list(values)
    while left:
        value = left.pop()
        if isinstance(value, dict):
            for key, inner in value.items():
                if isinstance(inner, dict | list):
                    found.setdefault(key, Seen()).add(inner)
            left += value.values()
        elif isinstance(value, list):
            left += value
    return found


class Writer:
    """Writes the schema of what was seen. shared: of keys that are said once, all that was seen.
    objects: of all keys, the objects and lists that are in any output (`objects_of`)."""

    def __init__(self, name: str, values: Iterable[Any], objects: Mapping[str, Seen]) -> None:
        self.name, self.seen = name, Seen()
        for value in values:
            self.seen.add(value)
        self.shared: dict[str, Seen] = {}
        self.objects = objects
        self._gather(self.seen)
        self.used: set[str] = set()

    def body(self) -> dict[str, Any]:
        """Return the schema, with what it refers to."""
        found = self._schema(self.seen, (), whole_object=True)
        parts: dict[str, Any] = {}
        while left := sorted(self.used - set(parts)):
            for key in left:
                made = self._reference(key)
                parts[key] = (
                    made() if made else self._schema(self.shared[key], (key,), whole_object=True)
                )
        return found | ({"$defs": dict(sorted(parts.items()))} if parts else {})

    def _gather(self, seen: Seen) -> None:
        for key, (_, inner) in seen.keys.items():
            if key in SHARED and inner.kinds & {"object", "array"}:
                self.shared.setdefault(key, Seen()).merge(inner)
            self._gather(inner)
        if seen.items is not None:
            self._gather(seen.items)

    def _schema(
        self, seen: Seen, place: tuple[str, ...], *, whole_object: bool = False
    ) -> dict[str, Any]:
        key = place[-1] if place else ""
        if like := LIKE.get(".".join(place[-2:])):
            self.used.add(like)
            return nullable({"$ref": f"#/$defs/{like}"})
        referred = key in SHARED or self._reference(key) is not None
        # `"layers": 3` is no part of its own; `"stages": [...]` is.
        if not whole_object and referred and seen.kinds & {"object", "array"}:
            self.used.add(key)
            there = {"$ref": f"#/$defs/{key}"}
            may_be = seen.kinds | MAY_BE.get(key, set())
            return nullable(there) if "null" in may_be else there
        kinds = seen.kinds | MAY_BE.get(".".join(place[-2:]), MAY_BE.get(key, set()))
        schema = dict[str, Any]()
        if kinds & {"integer", "number"}:
            kinds -= {"integer", "number"}
            kinds |= {"integer"} if whole(key) else {"number", "null"}
        if "object" in kinds:
            # What no example has here is as it is elsewhere: an output that has it must be valid.
            schema |= self._object(seen if seen.objects else self.objects[key], place)
        if "array" in kinds and seen.items is not None:
            schema["items"] = self._items(seen.items, place)
        if key in CHOICES and kinds <= {"string", "null"}:
            schema["enum"] = [*CHOICES[key], *([None] if "null" in kinds else [])]
            return schema
        listed = sorted(kinds)
        schema["type"] = listed[0] if len(listed) == 1 else listed
        return dict(sorted(schema.items(), key=lambda pair: ORDER.index(pair[0])))

    def _items(self, seen: Seen, place: tuple[str, ...]) -> dict[str, Any]:
        """Return the schema of what is in a list; where all are empty here, as it is elsewhere."""
        if seen.kinds:
            return self._schema(seen, place, whole_object=True)
        key = place[-1]
        if kind := ITEMS.get(f"{self.name}:{key}") or ITEMS.get(key):
            return {"type": kind}
        elsewhere = self.objects[key].items
        if elsewhere is None or not elsewhere.kinds:
            raise KeyError(f"{self.name}: {key}: say in tests/schemas/words.py what is in the list")
        return self._schema(elsewhere, place, whole_object=True)

    def _reference(self, key: str) -> Callable[[], dict[str, Any]] | None:
        """Return what makes a part that is derived."""
        return REFERENCES.get(f"{self.name}:{key}") or REFERENCES.get(key)

    def _object(self, seen: Seen, place: tuple[str, ...]) -> dict[str, Any]:
        if place and place[-1] in BY_NAME:
            every = Seen()
            for _, inner in seen.keys.values():
                every.merge(inner)
            inner = self._schema(every, (*place, "*")) if every.kinds else {}
            return {"additionalProperties": inner}
        open_keys = self._open(seen, place)
        properties = {
            key: {
                "description": meaning(self.name, (*place, key)),
                **self._schema(inner, (*place, key)),
            }
            for key, (_, inner) in seen.keys.items()
            if key not in open_keys
        }
        loose = {*open_keys, *OPTIONAL.get(self.name, ())}
        always = [key for key, (count, _) in seen.keys.items() if count == seen.objects]
        made = closed(properties, [key for key in always if key not in loose])
        del made["type"]
        if open_keys:
            made |= OPEN[self.name, place[-1]]
        return made

    def _open(self, seen: Seen, place: tuple[str, ...]) -> list[str]:
        """Return the keys of an object that are names, beside others that are not."""
        if (self.name, *place[-1:]) == ("analyze", "memory"):
            return [key for key in seen.keys if key.endswith("_bytes") and key not in MEANING]
        if (self.name, *place[-1:]) == ("sweep", "rows"):
            return [column_of(name) for name in seen.keys["values"][1].keys]
        return []


# What keys say that are names.
OPEN: dict[tuple[str, str], dict[str, Any]] = {
    ("analyze", "memory"): {
        "patternProperties": {
            "^[a-z0-9_]+_bytes$": {
                "description": "Bytes of what the key names.",
                "type": ["number", "null"],
            }
        }
    },
    ("sweep", "rows"): {
        "additionalProperties": {
            "description": "The value of the field of this name, or of asked_ and its name.",
            "type": "string",
        }
    },
}
ORDER = (
    "$ref", "anyOf", "type", "enum", "properties", "patternProperties", "additionalProperties",
    "required", "items",
)  # fmt: skip

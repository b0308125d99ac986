"""Hashes of values that are keys of many caches, each counted once.

The hash of a dataclass goes through all that is inside it, each time that it is asked for: a
training job has a hundred numbers and texts.
"""

from __future__ import annotations

from typing import Generic, TypeVar

Held = TypeVar("Held")
Value = TypeVar("Value", bound="HashedOnce")


class HashedOnce:
    """Base of frozen dataclasses with slots that `hashed_once` decorates."""

    __slots__ = ("_hash",)


def hashed_once(own: type[Value]) -> type[Value]:
    """Keep the hash of every value of a frozen dataclass with slots. It has no field for it, so
    that copies and pickles are without: another process hashes texts differently."""
    count = own.__hash__

    def hashed(self: Value) -> int:
        try:
            found: int = self._hash  # type: ignore[attr-defined]
        except AttributeError:
            found = count(self)
            object.__setattr__(self, "_hash", found)
        return found

    own.__hash__ = hashed  # type: ignore[assignment,method-assign]
    return own


class Same(Generic[Held]):
    """A key for an object that equals no other one, however alike: comparing large ones, as
    clusters of thousands of devices, takes long."""

    __slots__ = ("value",)

    def __init__(self, value: Held) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.value is other.value

"""Cached results by key; the oldest are dropped if there are too many."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class Kept(Generic[T]):
    """Values by key, in the order of arrival. most: sum of their sizes."""

    def __init__(self, most: int) -> None:
        self.most, self.size = most, 0
        self.values: dict[tuple[object, ...], tuple[T, int]] = {}

    def get(self, key: tuple[object, ...]) -> T | None:
        """Return a value; None if it is not there, or not any more."""
        value = self.values.get(key)
        return None if value is None else value[0]

    def keep(self, key: tuple[object, ...], value: T, size: int) -> None:
        """Keep a value that is not there yet; drop the oldest values as long as there are too
        many."""
        self.values[key] = value, size
        self.size += size
        while self.size > self.most:
            self.size -= self.values.pop(next(iter(self.values)))[1]

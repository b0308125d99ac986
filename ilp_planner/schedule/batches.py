"""Micro-batches of an iteration: all alike, but for the last.

B micro-batches of G samples have X = ceil(G / B) samples each, and the last one the rest, G - (B -
1) X: as many, or fewer, when it is *short*. With larger ones there would be fewer of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt


@dataclass(frozen=True, slots=True)
class Batches:
    """Micro-batches of an iteration. samples: G. count: B."""

    samples: int
    count: int

    @property
    def size(self) -> int:
        """Samples of every micro-batch but the last, and at most of that."""
        return -(-self.samples // self.count)

    @property
    def last(self) -> int:
        """Samples of the last micro-batch; none, or fewer, if so many cannot be."""
        return self.samples - (self.count - 1) * self.size

    @property
    def short(self) -> bool:
        """The last micro-batch has fewer samples than the others, and some."""
        return self.possible and self.last < self.size

    @property
    def part(self) -> float:
        """The last micro-batch as a fraction of a full one, at most 1; 1 if so many cannot be."""
        return self.last / self.size if self.possible else 1.0

    @property
    def possible(self) -> bool:
        """Every micro-batch has a sample."""
        return self.count > 0 and self.last > 0

    def share_of_last(self, share: int) -> int:
        """Return the most samples of the last micro-batch on a replica with `share` of the others:
        in proportion, rounded up, so that all of them are somewhere."""
        return -(-share * self.last // self.size)


def possible_counts(samples: int) -> tuple[int, ...]:
    """Return all numbers of micro-batches that an iteration may have, ascending: the samples over
    every size, rounded up. The larger ones belong to sizes up to the root."""
    root = isqrt(samples)
    larger = {-(-samples // size) for size in range(1, root + 1)}
    return tuple(sorted({*few_counts(samples, root + 1), *larger}))


def few_counts(samples: int, most: int) -> tuple[int, ...]:
    """Return the values of `possible_counts` up to so many."""
    return tuple(n for n in range(1, min(most, samples) + 1) if Batches(samples, n).possible)

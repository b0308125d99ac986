"""Chains of few kinds of operators at random, whose stages rows share."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ilp_planner.optimize.bounds.rows import Rows, first_copy, share_rows
from ilp_planner.optimize.bounds.sweep import Extent


@dataclass(frozen=True)
class Shared:
    """A chain, and its stages as rows share them: up to some weight of their operators."""

    kinds: tuple[int, ...]
    rows: Rows
    size: Extent

    @property
    def n(self) -> int:
        return len(self.kinds)

    def stages(self) -> Iterator[tuple[int, int]]:
        """Yield the first operator of each stage, and the one after its last."""
        for i in range(self.n):
            yield from ((i, i + d) for d in range(1, int(self.size.length[i]) + 1))

    def entry(self, start: int, stop: int) -> int:
        """Return where a stage is kept."""
        owner, count = first_copy(start, stop - start, self.rows)
        return int(self.size.base[owner]) + count - int(self.rows.common[owner]) - 1


def shared(random: np.random.Generator, kinds: np.ndarray, most: float) -> Shared:
    """Return a chain, whose stages are those with operators of a weight of `most` or less."""
    weight = random.integers(1, 4, int(kinds.max()) + 1)[kinds]
    rows = share_rows(kinds)
    reached = [np.searchsorted(np.cumsum(weight[i:]), most, "right") for i in range(kinds.size)]
    length = np.array(reached, np.int64)
    base = np.concatenate([[0], np.cumsum(np.maximum(0, length - rows.common))]).astype(np.int64)
    return Shared(tuple(kinds.tolist()), rows, Extent(length, base))

"""Stages with the same operators are the same stage: the ones that need work of their own.

Layers repeat, so most ranges of the chain are copies of an earlier one. Row i (all stages that
start at i) shares its first `common[i]` stages with an earlier row `above[i]` and owns the rest. A
model of 1024 identical layers so has a dozen whole rows instead of thirteen thousand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Rows(NamedTuple):
    """The stages of a row that belong to an earlier one.

    common: int64 [n], length shared with row `above` (0: nothing). above: int64 [n], row that owns
    the stages just shared. children: rows that branch off row i are
    children[child_start[i]:child_start[i + 1]], by ascending `common`.
    """

    common: NDArray[np.int64]
    above: NDArray[np.int64]
    children: NDArray[np.int64]
    child_start: NDArray[np.int64]


def first_copy(start: int, operators: int, rows: Rows) -> tuple[int, int]:
    """Return the start and length of the stage that this one is a copy of, or is itself."""
    while operators <= rows.common[start]:
        start = int(rows.above[start])
    return start, operators


def share_rows(kind: NDArray[np.int64]) -> Rows:
    """Find, for every start, the nearest earlier start of its kind, and how far the two agree."""
    common, above = _longest_common(kind)
    owner = np.where(common > 0, above, -1)
    order = np.lexsort((common, owner))
    order = order[owner[order] >= 0]
    child_start = np.searchsorted(owner[order], np.arange(kind.size + 1)).astype(np.int64)
    return Rows(
        common=common, above=above, children=order.astype(np.int64), child_start=child_start
    )


def _longest_common(kind: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return `common` and `above` of `Rows`."""
    kinds = kind.tolist()
    last: dict[int, int] = {}
    previous = []
    for i, own in enumerate(kinds):
        previous.append(last.get(own, -1))
        last[own] = i
    n = len(kinds)
    common, above = [0] * n, [0] * n
    # suffixes i and previous[i] agree as long as their successors do
    for i in range(n - 1, -1, -1):
        p = previous[i]
        if p < 0:
            continue
        if i + 1 < n and previous[i + 1] == p + 1:
            common[i] = common[i + 1] + 1
        else:
            length = 0
            while i + length < n and kinds[i + length] == kinds[p + length]:
                length += 1
            common[i] = length
    for i in range(n):
        if common[i] > 0:
            p = previous[i]
            while common[p] >= common[i]:
                p = above[p]
            above[i] = p
    return np.array(common, np.int64), np.array(above, np.int64)

"""Stages that hold the same operators are the same stage: which (start, stop) pairs need work of
their own.

Layers repeat, so most ranges of the chain are copies of an earlier one. Row i (all stages that
start at i) shares its
first `common[i]` stages with an earlier row `above[i]` and owns the rest. A model of 1024
identical layers so
has a dozen whole rows instead of thirteen thousand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numba
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """common: [n] length shared with row `above` (0: nothing). above: [n] row that owns the stages
    just shared.

    children: rows that branch off row i are children[child_start[i]:child_start[i + 1]], by
    ascending `common`.
    """

    common: NDArray[np.int64]
    above: NDArray[np.int64]
    children: NDArray[np.int64]
    child_start: NDArray[np.int64]


def share_rows(kind: NDArray[np.int64]) -> Rows:
    """Find, for every start, the nearest earlier start of the same kind and how far the two
    agree."""
    common, above = _longest_common(kind)
    owner = np.where(common > 0, above, -1)
    order = np.lexsort((common, owner))
    order = order[owner[order] >= 0]
    child_start = np.searchsorted(owner[order], np.arange(kind.size + 1)).astype(np.int64)
    return Rows(
        common=common, above=above, children=order.astype(np.int64), child_start=child_start
    )


@numba.njit(cache=True, nogil=True)
def _longest_common(kind):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    n = kind.size
    common = np.zeros(n, np.int64)
    above = np.zeros(n, np.int64)
    last = np.full(kind.max() + 1, -1, np.int64)
    previous = np.zeros(n, np.int64)
    for i in range(n):
        previous[i] = last[kind[i]]
        last[kind[i]] = i
    # suffixes i and previous[i] agree as long as their successors do
    for i in range(n - 1, -1, -1):
        p = previous[i]
        if p < 0:
            continue
        if i + 1 < n and previous[i + 1] == p + 1:
            common[i] = common[i + 1] + 1
        else:
            length = 0
            while i + length < n and kind[i + length] == kind[p + length]:
                length += 1
            common[i] = length
    for i in range(n):
        if common[i] > 0:
            p = previous[i]
            while common[p] >= common[i]:
                p = above[p]
            above[i] = p
    return common, above

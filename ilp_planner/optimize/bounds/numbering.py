"""Numbers from 0 on for the different values of columns of whole numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

SPARSE = 8  # times as many values as entries: sorting the entries takes less


def numbered(
    *columns: NDArray[np.int64],
) -> tuple[NDArray[np.int64], list[NDArray[np.int64]]]:
    """Return the different values of all columns, ascending, and the place of each entry among
    them: as `np.unique` does by sorting, without it if values are dense.

    Parameters
    ----------
    columns: int64 of any lengths, 0 and more.
    """
    entries = sum(column.size for column in columns)
    most = max((int(column.max()) for column in columns if column.size), default=-1)
    if most > SPARSE * entries:
        values, place = np.unique(np.concatenate(columns), return_inverse=True)
        ends = np.cumsum([column.size for column in columns])[:-1]
        return values, np.split(place, ends)
    there = np.zeros(most + 1, np.bool_)
    for column in columns:
        there[column] = True
    number = np.cumsum(there) - 1
    return np.flatnonzero(there), [number[column] for column in columns]

"""Arithmetic on numbers and on arrays of them alike.

One stage needs plain numbers only, without numpy: importing it takes longer than the whole analysis
of a job.
"""

from collections.abc import Sequence
from typing import Any

Count = Any  # a number, or a numpy array with one per stage
PLAIN = frozenset((bool, int, float))


def is_plain(*values: Count) -> bool:
    """Tell whether none is an array."""
    return not any(type(value) not in PLAIN and hasattr(value, "shape") for value in values)


def larger(first: Count, second: Count) -> Count:
    """Return the larger one, element by element."""
    if type(first) in PLAIN and type(second) in PLAIN:  # as nearly always, and asked very often
        return second if second > first else first
    if is_plain(first, second):
        return max(first, second)
    import numpy as np

    return np.maximum(first, second)


def smaller(first: Count, second: Count) -> Count:
    """Return the smaller one, element by element."""
    if type(first) in PLAIN and type(second) in PLAIN:
        return second if second < first else first
    if is_plain(first, second):
        return min(first, second)
    import numpy as np

    return np.minimum(first, second)


def where(condition: Count, then: Count, otherwise: Count = 0.0) -> Count:
    """Return one of two, element by element."""
    if (type(condition) in PLAIN and type(then) in PLAIN and type(otherwise) in PLAIN) or is_plain(
        condition, then, otherwise
    ):
        return then if condition else otherwise
    import numpy as np

    return np.where(condition, then, otherwise)


def largest_row(rows: Sequence[Sequence[Count]]) -> tuple[Count, tuple[Count, ...]]:
    """Return the number of the row with the largest sum, the first of equal ones, and its entries,
    element by element."""
    if is_plain(*(entry for row in rows for entry in row)):
        sums = [sum(row) for row in rows]
        number = sums.index(max(sums))
        return number, tuple(map(float, rows[number]))
    import numpy as np

    shape = np.broadcast_shapes(*(np.shape(entry) for row in rows for entry in row))
    table = np.array(
        [[np.broadcast_to(entry, shape) for entry in row] for row in rows], dtype=float
    )
    numbers = table.sum(axis=1).argmax(axis=0)
    return numbers, tuple(np.take_along_axis(table, numbers[None, None], axis=0)[0])

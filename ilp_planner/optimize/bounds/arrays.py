"""Shared code of the compiled searches: the infinite time, growing arrays, and sorting."""

from __future__ import annotations

import numpy as np

from ilp_planner.base.kernels import inner

INFINITE = 1e30
RUN = 16  # entries that are sorted by insertion


@inner
def longer(array, need):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return an array with the same entries, at least twice as long, and `need` at least."""
    wider = np.empty(max(2 * array.shape[0], need), array.dtype)
    for x in range(array.shape[0]):
        wider[x] = array[x]
    return wider


@inner
def longer_rows(array, need):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return an array with the same rows, at least twice as many, and `need` at least."""
    wider = np.empty((max(2 * array.shape[0], need), array.shape[1]), array.dtype)
    for x in range(array.shape[0]):
        for y in range(array.shape[1]):
            wider[x, y] = array[x, y]
    return wider


@inner
def ascending(values):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return the indices that sort values; equal ones keep their order."""
    count = values.size
    order, other = np.empty(count, np.int64), np.empty(count, np.int64)
    for begin in range(0, count, RUN):
        for x in range(begin, min(begin + RUN, count)):
            y = x
            while y > begin and values[order[y - 1]] > values[x]:
                order[y] = order[y - 1]
                y -= 1
            order[y] = x
    width = RUN
    while width < count:
        for begin in range(0, count, 2 * width):
            middle, end = min(begin + width, count), min(begin + 2 * width, count)
            x, y = begin, middle
            for z in range(begin, end):
                if y >= end or (x < middle and values[order[x]] <= values[order[y]]):
                    other[z] = order[x]
                    x += 1
                else:
                    other[z] = order[y]
                    y += 1
        order, other = other, order
        width *= 2
    return order

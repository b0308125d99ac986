"""What the compiled searches share: the time of what cannot be, and arrays that grow."""

from __future__ import annotations

import numba
import numpy as np

INFINITE = 1e30


@numba.njit(cache=True, nogil=True)
def longer(array, need):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return an array with the same entries, at least twice as long, and `need` at least."""
    wider = np.empty(max(2 * array.shape[0], need), array.dtype)
    wider[: array.shape[0]] = array
    return wider


@numba.njit(cache=True, nogil=True)
def longer_rows(array, need):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return an array with the same rows, at least twice as many, and `need` at least."""
    wider = np.empty((max(2 * array.shape[0], need), array.shape[1]), array.dtype)
    wider[: array.shape[0]] = array
    return wider

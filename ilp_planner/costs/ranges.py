"""Tables over all ranges of layers [i, j): [L, L + 1] arrays from one figure per layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def range_sums(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sum of values[i:j] at [i, j]; 0 if the range is empty."""
    ends = np.concatenate(([0.0], np.cumsum(values)))
    return np.triu(ends[None, :] - ends[:-1, None], 1)


def range_maxima(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the largest of values[i:j] at [i, j], values >= 0; 0 if the range is empty."""
    steps = np.concatenate(([0.0], values))
    return np.maximum.accumulate(np.triu(np.broadcast_to(steps, (values.size, steps.size)), 1), 1)

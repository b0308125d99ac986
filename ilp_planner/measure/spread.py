"""How far repeats lie apart."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def median_spread(values: Sequence[float]) -> float:
    """Return the distance of the quartiles over the median; 0 of fewer than two values."""
    if len(values) < 2:
        return 0.0
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    middle = statistics.median(values)
    return (high - low) / middle if middle > 0 else 0.0

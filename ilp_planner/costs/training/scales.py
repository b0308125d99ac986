"""Measured over modelled times of rows: a ratio, and its spread."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable


class Scale(NamedTuple):
    """Measured over kernel times of rows.

    ratios: forward and backward. rows: that say it. error: of each row from the others', the mean
    of the relative ones; None of fewer than two.
    """

    ratios: tuple[float, float]
    rows: int
    error: float | None = None


def scale_of(ratios: Iterable[tuple[float, float]]) -> Scale:
    """Return the geometric mean of ratios, and how far each is from that of the others."""
    rows = np.log(np.maximum(np.array(list(ratios), np.float64), 1e-12))
    count = len(rows)
    error = None
    if count > 1:
        others = (rows.sum(axis=0) - rows) / (count - 1)
        error = float(np.abs(np.expm1(others - rows)).mean())
    there, back = np.exp(rows.mean(axis=0)).tolist()
    return Scale((there, back), count, error)

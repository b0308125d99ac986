"""The place of a point among the rows: at one, between them, or how far beyond them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ilp_planner.base.numerics import Floats

ON = 1e-9  # of the distance from the convex hull, in octaves


def row_at(points: Floats, point: Floats) -> int | None:
    """Return the row at the point, None if none is."""
    found = np.flatnonzero((points == point).all(axis=1))
    return int(found[0]) if found.size else None


def is_inside(points: Floats, point: Floats) -> bool:
    """Tell whether the point is in the convex hull of the rows, in octaves of every dimension."""
    from scipy.optimize import nnls

    logs, asked = np.log2(points), np.log2(point)
    if (asked < logs.min(axis=0) - ON).any() or (asked > logs.max(axis=0) + ON).any():
        return False
    # A convex combination: weights of at least 0 that add up to 1.
    system = np.vstack([logs.T, np.ones(len(points))])
    return bool(nnls(system, np.append(asked, 1.0))[1] < 1e-7)


def octaves_beyond(points: Floats, point: Floats) -> float:
    """Return how many doublings or halvings the point is outside the box of the rows, in all."""
    logs, asked = np.log2(points), np.log2(point)
    over = np.maximum(asked - logs.max(axis=0), 0.0) + np.maximum(logs.min(axis=0) - asked, 0.0)
    return float(over.sum())


def never_varied(points: Floats, point: Floats) -> NDArray[np.bool_]:
    """Return the dimensions in which the point differs from rows that are all the same there."""
    fixed = (points == points[0]).all(axis=0)
    return np.asarray(fixed & (points[0] != point))

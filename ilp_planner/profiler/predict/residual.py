"""Residuals of the rows over the prior, interpolated between neighbours.

A Gaussian process with the kernel exp(-|distance|), a product over the dimensions in octaves
(Ornstein-Uhlenbeck): in one dimension it joins neighbouring rows by nearly straight lines, and
outside them the last residual fades slowly, over `REACH` octaves, towards the prior (Rasmussen and
Williams 2006, Gaussian Processes for Machine Learning, section 4.2.1 and appendix B.2). A row far
off the others is believed less, so that one bad measurement does not spoil its neighbours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ilp_planner.base.numerics import Floats

REACH = 8.0  # octaves
NUGGET = 1e-3  # variance of a row's own noise, of the residuals' variance
ODD = 3.0  # typical residuals: a row that is further off is odd
LEAST_SPREAD = 0.01


def trust(residuals: Floats) -> Floats:
    """Return each row's own noise, float64 [n], as a share of the residuals' variance."""
    off = np.abs(residuals)
    spread = max(1.4826 * float(np.median(off)), LEAST_SPREAD)
    return np.asarray(NUGGET * np.maximum(1.0, off / (ODD * spread)) ** 4)


def solve_residuals(points: Floats, residuals: Floats) -> Floats:
    """Return the weight of every row, float64 [n], for `residual_at`."""
    kernel = _kernel(points, points)
    kernel[np.diag_indices_from(kernel)] += trust(residuals)
    return np.asarray(np.linalg.solve(kernel, residuals))


def residual_at(points: Floats, weights: Floats, asked: Floats) -> Floats:
    """Return the residual at other points, float64 [m]."""
    return np.asarray(_kernel(asked, points) @ weights)


def _kernel(left: Floats, rows: Floats) -> Floats:
    """Return how much two points have in common, float64 [m, n].

    Where the rows never vary they tell nothing, and what they say of the prior holds as it is.
    """
    apart = np.zeros((len(left), len(rows)))
    for dimension in np.flatnonzero((rows != rows[0]).any(axis=0)):
        apart += np.abs(np.subtract.outer(np.log2(left[:, dimension]), np.log2(rows[:, dimension])))
    return np.asarray(np.exp(-apart / REACH))

"""Tolerances of equal figures, and the infinite time."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    """Figures in an array; what its axes are, the docstrings say: float64 [layers]."""

NEVER = 1e30  # seconds: stands for `no plan at all` in bounds
ROUNDING = 1e-9  # relative: sums of floats in another order
FINE_ROUNDING = 1e-12  # relative: few of them, as in one stage or one device
PROVED = 1e-9  # a relative gap that is rounding
CLAIM_ROUNDING = 1e-7  # relative: searches that add times on a fixed grid
SAVED_ROUNDING = 1e-6  # relative: a saved time, and the same time computed again elsewhere
